"""The tokens of a vocabulary that are not learned, checked before counting begins.

Ids are dense and in this order: the 256 bytes, the special tokens, the products of the merges
(those of the seed tokens first), the reserved tokens. Neither reserving nor padding therefore
changes the id of another token, and a larger vocabulary keeps the ids of a smaller one.

A *seed token* is one token from the start. Byte-level BPE reaches every token by merges, so a seed
gets the merges that lead from its bytes to it, before any merge is learned; each takes an id.
Because these merges come first, a seed that is a whole pre-token always becomes one token. Inside a
longer pre-token it becomes one token only if no other merge takes its bytes first; no BPE
vocabulary can guarantee more. Three kinds of seed are refused: one that the split pattern divides
(no merge crosses the end of a pre-token), one that contains a special token (those are cut out
first), and a single byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tokenizer_core.errors import InvalidSpecError, VocabSizeError, counted
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.added_tokens import MAX_ADDED_TOKEN_CHARS, AddedToken, check_content
from tokenizer_core.spec.checks import MAX_TOKEN_BYTES, MAX_TOKEN_ID
from tokenizer_core.splitting.patterns import SplitPattern, superword_pattern
from tokenizer_core.splitting.pretokenize import split
from tokenizer_core.training.learn_merges import LearningRules

Merge = tuple[bytes, bytes]

MAX_RESERVED: Final = 1 << 14
"""Limit of reserved tokens. A manifest names each token and has room for twice as many."""

LLAMA3_RESERVED_NAME: Final = "<|reserved_special_token_{}|>"

MAX_SEED_CHARS: Final = 1 << 19
"""Limit of the characters of all seed tokens, which the manifest names too."""

_MAX_RESERVED_CHARS: Final = 2 << 20
"""Limit of the characters of all reserved names in JSON: half of what a manifest may have."""

_MAX_LEARNED_BYTES: Final = 24 << 20
"""Limit of the bytes of all learned tokens. With more, files of a tokenizer would be larger than
their readers accept: a `tokenizer.json` took 183 MB for 46 MB. The tokens of o200k have 1.4 MB."""

_N_BYTES: Final = 256
_SHORTEST_PRODUCT_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class VocabularyOptions:
    """Options of a vocabulary, besides its size; the defaults change nothing.

    - `min_frequency`: pairs with fewer occurrences are not merged, which may end learning early.
    - `max_token_length`: the most bytes in a learned token.
    - `seed_tokens`: texts that are one token from the start; see the module docstring.
    - `n_reserved`: special tokens with an id but no meaning yet, counted in `vocab_size`; each is
      named `reserved_name` with its number for `{}`.
    - `superwords_from`: the size from which on tokens may join words of a line (SuperBPE): up to it
      merges stay inside the pre-tokens of the pattern, after it inside those of
      `superword_pattern`, which is then the pattern of the tokenizer.
    - `pad_to_multiple`: adds reserved tokens until the number of tokens is a multiple of this, so
      the vocabulary may become larger than `vocab_size`.
    """

    min_frequency: int = 1
    max_token_length: int | None = None
    seed_tokens: tuple[str, ...] = ()
    n_reserved: int = 0
    reserved_name: str = LLAMA3_RESERVED_NAME
    pad_to_multiple: int = 1
    superwords_from: int | None = None


NO_OPTIONS: Final = VocabularyOptions()


@dataclass(frozen=True, slots=True)
class VocabularyPlan:
    """Options that passed all checks; `plan_vocabulary` and `plan_extension` create it. `base`: the
    spec that is extended. `n_seed_merges`: those of the first merges that make seed tokens."""

    pattern: SplitPattern
    special_tokens: tuple[str, ...]
    options: VocabularyOptions
    rules: LearningRules
    base: TokenizerSpec | None = None
    n_seed_merges: int = 0

    @property
    def of_words(self) -> VocabularyPlan:
        """The plan of the tokens that are learned before superwords."""
        return replace(self, options=replace(self.options, superwords_from=None))

    def of_superwords(self, merges: Sequence[Merge]) -> VocabularyPlan:
        """The plan after these merges inside words."""
        rules = replace(self.rules, first_merges=tuple(merges))
        return replace(self, pattern=superword_pattern(self.pattern), rules=rules)

    @property
    def n_other(self) -> int:
        """Tokens not made by learned merges: those of the base, or bytes and special tokens, and
        reserved ones, without padding."""
        n_first = _N_BYTES + len(self.special_tokens) if self.base is None else len(self.base.vocab)
        return n_first + self.options.n_reserved

    def n_merges(self, vocab_size: int) -> int:
        """The number of merges in a vocabulary of this size, including those of the seeds.

        Raises:
            VocabSizeError: this size is too small or too large; the error names the bound.
        """
        name, size = "vocab_size", vocab_size
        if self.options.superwords_from is not None:
            name, size = "superwords_from", self.options.superwords_from
            if vocab_size <= size:
                raise VocabSizeError(
                    f"vocab_size {vocab_size} must be larger than superwords_from {size}: "
                    f"superwords are the tokens after that size"
                )
        smallest = self.n_other + self.n_seed_merges
        if size < smallest:
            n_seeds = self.n_seed_merges
            seeds = f", {counted(n_seeds, 'merge')} of seed tokens" if n_seeds else ""
            reserved = f", {self.options.n_reserved} reserved" if self.options.n_reserved else ""
            first = f"{_N_BYTES} bytes and {counted(len(self.special_tokens), 'special token')}"
            if self.base is not None:
                first = f"the {len(self.base.vocab)} entries of the tokenizer to extend"
            raise VocabSizeError(
                f"{name} {size} is too small: {first}{reserved}{seeds} need at least "
                f"{smallest} (which learns no merge; ask for more)"
            )
        if self.base is not None and vocab_size == len(self.base.vocab):
            raise VocabSizeError(
                f"vocab_size {vocab_size} adds nothing to the {vocab_size} entries of the "
                f"tokenizer to extend; ask for more"
            )
        if vocab_size > MAX_TOKEN_ID + 1:
            raise VocabSizeError(
                f"vocab_size {vocab_size} is too large: ids stay below 2^20, so ask for at most "
                f"{MAX_TOKEN_ID + 1}"
            )
        if self._padded(vocab_size) > MAX_TOKEN_ID + 1:
            raise VocabSizeError(
                f"vocab_size {vocab_size} padded to a multiple of {self.options.pad_to_multiple} "
                f"is too large: ids stay below 2^20"
            )
        return vocab_size - self.n_other

    def make_spec(self, merges: Sequence[Merge]) -> TokenizerSpec:
        """The spec of a tokenizer with these merges and the planned tokens.

        Raises:
            InvalidSpecError: a reserved token is also a learned token; or the learned tokens are
                too large for the files of a tokenizer.
        """
        n_bytes = sum(len(left) + len(right) for left, right in merges)
        if n_bytes > _MAX_LEARNED_BYTES:
            raise InvalidSpecError(
                f"the {len(merges)} learned tokens have {n_bytes} bytes, more than "
                f"{_MAX_LEARNED_BYTES}: where all pairs of a long pre-token occur once, each merge "
                f"lengthens the same token. Set min_frequency to 2, or max_token_length; or take "
                f"more text, or a smaller vocabulary"
            )
        base = self.base
        if base is None:
            vocab = {byte: bytes([byte]) for byte in range(_N_BYTES)}
            for token in self.special_tokens:
                vocab[len(vocab)] = token.encode()
        else:
            vocab = dict(base.vocab)
        n_ids = max(vocab) + 1
        # A product is never a token already (see `learn_merges`), and never a special token: the
        # text between special tokens contains none. Hand-made counts may; they then share the id.
        known = set(vocab.values())
        for left, right in merges:
            if left + right not in known:
                known.add(left + right)
                vocab[n_ids] = left + right
                n_ids += 1
        n_reserved = self._padded(n_ids + self.options.n_reserved) - n_ids
        form = self.options.reserved_name
        reserved = [form.replace("{}", str(number)) for number in range(n_reserved)]
        for token in reserved:
            if token.encode() in known:
                raise InvalidSpecError(
                    f"the reserved token {token!r:.60} is a learned token too; choose another "
                    f"reserved_name"
                )
        if base is not None:
            more = () if base.kind == "ranks" else tuple(merges)
            added = [AddedToken(name, id_) for id_, name in enumerate(reserved, n_ids)]
            extended = replace(base, vocab=vocab, merges=(*base.merges, *more))
            return extended.with_added_tokens(added)
        vocab.update(enumerate(map(str.encode, reserved), n_ids))
        special = (*self.special_tokens, *reserved)
        return TokenizerSpec.from_merges(vocab, merges, special, pattern=self.pattern)

    def _padded(self, n_tokens: int) -> int:
        multiple = self.options.pad_to_multiple
        return -(-n_tokens // multiple) * multiple


def plan_vocabulary(
    special_tokens: Sequence[str], pattern: SplitPattern, options: VocabularyOptions = NO_OPTIONS
) -> VocabularyPlan:
    """Check the options and return a plan that works for any text.

    Raises:
        InvalidSpecError: a special token, seed token or reserved name is impossible, or a number is
            out of range.
    """
    return _plan(check_special_tokens(special_tokens), pattern, options)


def plan_extension(base: TokenizerSpec, options: VocabularyOptions = NO_OPTIONS) -> VocabularyPlan:
    """As `plan_vocabulary`, for a tokenizer that keeps all of `base`.

    Raises:
        InvalidSpecError: as `plan_vocabulary`; or there are seed tokens.
    """
    if options.seed_tokens:
        raise InvalidSpecError(
            "seed_tokens come before all learned tokens, so a tokenizer cannot be extended by "
            "them; leave them out, and give text that has them often"
        )
    if options.superwords_from is not None:
        raise InvalidSpecError(
            "a tokenizer is extended inside the pre-tokens of its own pattern; leave out "
            "superwords_from"
        )
    return replace(_plan(tuple(base.added_ids), base.pattern, options), base=base)


def _plan(
    specials: tuple[str, ...], pattern: SplitPattern, options: VocabularyOptions
) -> VocabularyPlan:
    if options.min_frequency < 1:
        raise InvalidSpecError(f"min_frequency must be at least 1, not {options.min_frequency}")
    longest = options.max_token_length
    if longest is not None and longest < _SHORTEST_PRODUCT_BYTES:
        raise InvalidSpecError(f"max_token_length must be at least 2 bytes, not {longest}")
    if not 0 <= options.n_reserved <= MAX_RESERVED:
        raise InvalidSpecError(f"n_reserved must be in 0..{MAX_RESERVED}, not {options.n_reserved}")
    if not 1 <= options.pad_to_multiple <= MAX_RESERVED:
        raise InvalidSpecError(
            f"pad_to_multiple must be in 1..{MAX_RESERVED}, not {options.pad_to_multiple}"
        )
    if options.n_reserved or options.pad_to_multiple > 1:
        most = options.n_reserved + options.pad_to_multiple
        _check_reserved_name(options.reserved_name, specials, most)
    n_chars = sum(len(seed) for seed in options.seed_tokens if isinstance(seed, str))
    if n_chars > MAX_SEED_CHARS:
        raise InvalidSpecError(
            f"seed_tokens have {n_chars} characters, more than {MAX_SEED_CHARS}; give fewer"
        )
    merges = make_seed_merges(
        options.seed_tokens,
        pattern=pattern,
        special_tokens=specials,
        max_token_length=options.max_token_length,
    )
    allowed = MAX_TOKEN_BYTES if longest is None else min(longest, MAX_TOKEN_BYTES)
    rules = LearningRules(options.min_frequency, allowed, tuple(merges))
    if options.superwords_from is not None:
        superword_pattern(pattern)  # raises for a pattern that has none
    return VocabularyPlan(pattern, specials, options, rules, n_seed_merges=len(merges))


def refuse_string(special_tokens: Sequence[str]) -> None:
    """Raise InvalidSpecError for what is no list, such as one string, whose characters would be the
    special tokens, or a dict, whose ids would be ignored."""
    if isinstance(special_tokens, str | Mapping) or not hasattr(special_tokens, "__iter__"):
        raise InvalidSpecError(
            f"special_tokens must be a list of strings, not {special_tokens!r:.60}"
        )


def check_special_tokens(special_tokens: Sequence[str]) -> tuple[str, ...]:
    """Check that each special token can have its own id, and return them.

    Raises:
        InvalidSpecError: one is empty, a single byte, too long, not encodable as UTF-8, or given
            twice; or the argument is one string instead of a list of strings.
    """
    refuse_string(special_tokens)
    for token in special_tokens:
        check_content(token)
        if len(token.encode()) == 1:
            raise InvalidSpecError(
                f"the special token {token!r} is a single byte and has an id already; "
                f"choose a longer one, such as '<|{token}|>'"
            )
    if len(set(special_tokens)) != len(special_tokens):
        twice = next(token for token in special_tokens if list(special_tokens).count(token) > 1)
        raise InvalidSpecError(f"the special token {twice!r:.60} is given twice")
    return tuple(special_tokens)


def _check_reserved_name(name: str, special_tokens: Sequence[str], most: int) -> None:
    """Refuse a name that cannot be that of up to `most` reserved tokens."""
    if name.count("{}") != 1 or len(name) == len("{}"):
        raise InvalidSpecError(
            f"reserved_name {name!r:.60} must hold {{}} once, where the number goes, and more: "
            f"{LLAMA3_RESERVED_NAME!r}"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidSpecError(
            f"reserved_name {name!r:.60} holds a lone surrogate, which is no text"
        ) from None
    # The number has up to five digits, `{}` two characters, and a manifest adds some ten.
    n_chars = most * (len(json.dumps(name)) + 10)
    if len(name) + 3 > MAX_ADDED_TOKEN_CHARS or n_chars > _MAX_RESERVED_CHARS:
        raise InvalidSpecError(
            f"reserved_name {name!r:.60} is too long for up to {most} tokens; give a shorter one"
        )
    before, _, after = name.partition("{}")
    for token in special_tokens:
        number = token.removeprefix(before).removesuffix(after)
        if token == f"{before}{number}{after}" and number.isascii() and number.isdigit():
            raise InvalidSpecError(
                f"the special token {token!r:.60} may be a reserved one too; choose another "
                f"reserved_name"
            )


def make_seed_merges(
    seed_tokens: Sequence[str],
    *,
    pattern: SplitPattern,
    special_tokens: Sequence[str] = (),
    max_token_length: int | None = None,
) -> list[Merge]:
    """The merges that make each seed one token, in the order of the seeds.

    The merges so far split a seed into parts, and new merges join these from the left. A seed
    therefore costs one id less than it has parts; `ing` before `king` makes `king` cheaper.

    Raises:
        InvalidSpecError: a seed is impossible; the error names the seed and the reason.

    Example:
        >>> from tokenizer_core.splitting.patterns import PATTERNS
        >>> make_seed_merges(["ing", "king"], pattern=PATTERNS["gpt2"])
        [(b'i', b'n'), (b'in', b'g'), (b'k', b'ing')]
    """
    if isinstance(seed_tokens, str):
        raise InvalidSpecError(f"seed_tokens must be a list of strings: [{seed_tokens!r:.60}]")
    if len(set(seed_tokens)) != len(seed_tokens):
        twice = next(seed for seed in seed_tokens if list(seed_tokens).count(seed) > 1)
        raise InvalidSpecError(f"the seed token {twice!r:.60} is given twice")
    ranks: dict[Merge, int] = {}
    for seed in seed_tokens:
        _check_seed(seed, pattern, special_tokens, max_token_length)
        parts = _apply(ranks, seed.encode())
        while len(parts) > 1:
            pair = parts[0], parts[1]
            ranks[pair] = len(ranks)
            parts = _join(parts, pair)  # the newest merge: no earlier one still applies
    return list(ranks)


def _check_seed(
    seed: str, pattern: SplitPattern, special_tokens: Sequence[str], max_token_length: int | None
) -> None:
    if not isinstance(seed, str) or not seed:
        raise InvalidSpecError(f"the seed token {seed!r:.60} must be a string that is not empty")
    try:
        n_bytes = len(seed.encode())
    except UnicodeEncodeError:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} holds a lone surrogate, which is no text"
        ) from None
    if n_bytes == 1:
        raise InvalidSpecError(f"the seed token {seed!r} is a single byte and has an id already")
    if max_token_length is not None and n_bytes > max_token_length:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} has {n_bytes} bytes, more than max_token_length "
            f"{max_token_length}; leave it out or allow longer tokens"
        )
    special = next((token for token in special_tokens if token in seed), None)
    if special is not None:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} holds the special token {special!r:.60}, which is cut "
            f"out of the text first; leave it out"
        )
    pre_tokens = split(seed, pattern)
    if len(pre_tokens) > 1:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} cannot be one token: the pattern {pattern.name} splits "
            f"it into {pre_tokens!r:.80}, and merges stay inside a pre-token; leave it out, or "
            f"make it a special token"
        )


def _apply(ranks: dict[Merge, int], data: bytes) -> list[bytes]:
    """The parts of these bytes after all merges."""
    parts = [data[i : i + 1] for i in range(len(data))]
    while found := [pair for pair in pairwise(parts) if pair in ranks]:
        parts = _join(parts, min(found, key=ranks.__getitem__))
    return parts


def _join(parts: Sequence[bytes], pair: Merge) -> list[bytes]:
    """The parts with this pair merged everywhere, left to right."""
    left, right = pair
    joined: list[bytes] = []
    is_open = False  # whether the last part may still join the next one
    for part in parts:
        if is_open and part == right:
            joined[-1] = left + right
            is_open = False
        else:
            joined.append(part)
            is_open = part == left
    return joined
