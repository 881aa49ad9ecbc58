"""What a vocabulary is to be made of beside learned merges, checked before any work is done.

Ids are given in this order, and are dense: the 256 bytes, the special tokens, the products of the
merges (those of the seed tokens first), reserved tokens. So neither reserving nor padding changes
the id of any other token, and a larger vocabulary gives those of a smaller one their ids.

Apart from the trainer because sizes are cut from one run with it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokenizer_core.errors import InvalidSpecError, VocabSizeError
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.spec import MAX_TOKEN_ID, TokenizerSpec
from tokenizer_core.training.learn_merges import LearningRules
from tokenizer_core.training.seed_tokens import Merge, make_seed_merges

MAX_RESERVED: Final = 1 << 14
"""A manifest names every special token, and has room for more than twice as many."""

LLAMA3_RESERVED_NAME: Final = "<|reserved_special_token_{}|>"

MAX_SEED_CHARS: Final = 1 << 19
"""Of all seed tokens, which stand there too."""

_N_BYTES: Final = 256
_SHORTEST_PRODUCT_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class VocabularyOptions:
    """What may be asked of a vocabulary beside its size; by default nothing.

    - `min_frequency`: pairs that occur less often are not merged, which may end learning early.
    - `max_token_length`: most bytes of a learned token.
    - `seed_tokens`: text that is one token from the start (see `seed_tokens`).
    - `n_reserved`: special tokens with an id and no meaning yet, inside `vocab_size`; named
      `reserved_name` with its number for `{}`.
    - `pad_to_multiple`: the number of tokens is made a multiple of this with more of them, so that
      the vocabulary may be larger than `vocab_size`.
    """

    min_frequency: int = 1
    max_token_length: int | None = None
    seed_tokens: tuple[str, ...] = ()
    n_reserved: int = 0
    reserved_name: str = LLAMA3_RESERVED_NAME
    pad_to_multiple: int = 1


NO_OPTIONS: Final = VocabularyOptions()


@dataclass(frozen=True, slots=True)
class VocabularyPlan:
    """Options that were found possible. Make it with `plan_vocabulary`."""

    pattern: SplitPattern
    special_tokens: tuple[str, ...]
    options: VocabularyOptions
    rules: LearningRules

    @property
    def n_other(self) -> int:
        """Tokens that no merge makes: bytes, special and reserved ones, padding left out."""
        return _N_BYTES + len(self.special_tokens) + self.options.n_reserved

    def n_merges(self, vocab_size: int) -> int:
        """How many merges a vocabulary of this size has, those of the seeds included.

        Raises:
            VocabSizeError: this size cannot be trained; names the bound.
        """
        n_seed_merges = len(self.rules.first_merges)
        smallest = self.n_other + n_seed_merges
        if vocab_size < smallest:
            seeds = f", {n_seed_merges} merges of seed tokens" if n_seed_merges else ""
            reserved = f", {self.options.n_reserved} reserved" if self.options.n_reserved else ""
            raise VocabSizeError(
                f"vocab_size {vocab_size} is too small: {_N_BYTES} bytes and "
                f"{len(self.special_tokens)} special tokens{reserved}{seeds} need at least "
                f"{smallest} (which learns no merge; ask for more)"
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
        """The tokenizer of these merges, with everything that was planned.

        Raises:
            InvalidSpecError: a reserved token is a learned token too.
        """
        vocab = {byte: bytes([byte]) for byte in range(_N_BYTES)}
        for token in self.special_tokens:
            vocab[len(vocab)] = token.encode()
        # A product is never a token already (see `learn_merges`), and never a special token: a
        # stretch of text holds none. Counts made by hand may break the second; the id is shared.
        known = set(vocab.values())
        for left, right in merges:
            if left + right not in known:
                known.add(left + right)
                vocab[len(vocab)] = left + right
        n_reserved = self._padded(len(vocab) + self.options.n_reserved) - len(vocab)
        reserved = [self._reserved(number) for number in range(n_reserved)]
        for token in reserved:
            if token.encode() in known:
                raise InvalidSpecError(
                    f"the reserved token {token!r:.60} is a learned token too; choose another "
                    f"reserved_name"
                )
            vocab[len(vocab)] = token.encode()
        special = (*self.special_tokens, *reserved)
        return TokenizerSpec.from_merges(vocab, merges, special, pattern=self.pattern)

    def _padded(self, n_tokens: int) -> int:
        multiple = self.options.pad_to_multiple
        return -(-n_tokens // multiple) * multiple

    def _reserved(self, number: int) -> str:
        return self.options.reserved_name.replace("{}", str(number))


def plan_vocabulary(
    special_tokens: Sequence[str], pattern: SplitPattern, options: VocabularyOptions = NO_OPTIONS
) -> VocabularyPlan:
    """The plan, once it is certain that it can be followed for any text.

    Raises:
        InvalidSpecError: a special token, seed token or reserved name cannot be had, or a number
            is out of range.
    """
    specials = check_special_tokens(special_tokens)
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
        _check_reserved_name(options.reserved_name, specials)
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
    rules = LearningRules(options.min_frequency, options.max_token_length, tuple(merges))
    return VocabularyPlan(pattern, specials, options, rules)


def check_special_tokens(special_tokens: Sequence[str]) -> tuple[str, ...]:
    """The special tokens, once it is certain that each can have an id of its own.

    Raises:
        InvalidSpecError: one is empty, a single byte, not encodable as UTF-8, or given twice; or
            a string was given where a list of strings is meant.
    """
    if isinstance(special_tokens, str):
        raise InvalidSpecError(
            f"special_tokens must be a list of strings: [{special_tokens!r:.60}]"
        )
    for token in special_tokens:
        if not isinstance(token, str) or not token:
            raise InvalidSpecError(
                f"the special token {token!r:.60} must be a string that is not empty"
            )
        try:
            size = len(token.encode())
        except UnicodeEncodeError:
            raise InvalidSpecError(
                f"the special token {token!r:.60} holds a lone surrogate, which is no text"
            ) from None
        if size == 1:
            raise InvalidSpecError(
                f"the special token {token!r} is a single byte and has an id already; "
                f"choose a longer one, such as '<|{token}|>'"
            )
    if len(set(special_tokens)) != len(special_tokens):
        twice = next(token for token in special_tokens if list(special_tokens).count(token) > 1)
        raise InvalidSpecError(f"the special token {twice!r:.60} is given twice")
    return tuple(special_tokens)


def _check_reserved_name(name: str, special_tokens: Sequence[str]) -> None:
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
    before, _, after = name.partition("{}")
    for token in special_tokens:
        number = token.removeprefix(before).removesuffix(after)
        if token == f"{before}{number}{after}" and number.isascii() and number.isdigit():
            raise InvalidSpecError(
                f"the special token {token!r:.60} may be a reserved one too; choose another "
                f"reserved_name"
            )
