"""TokenizerSpec: everything that decides an id, frozen, with its fingerprint.

Formats read and write a spec, engines run one, and the registry stores one.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import chain, starmap
from operator import add
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.normalizers import Normalizer, normalizer_for
from tokenizer_core.normalizers.spaces import with_spaces
from tokenizer_core.spec.added_tokens import (
    AddedToken,
    check_respelt,
    list_added_tokens,
    place_added_tokens,
)
from tokenizer_core.spec.alphabet import Alphabet, MissingBytes
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.spec.checks import check_spec, gaps_in
from tokenizer_core.spec.fingerprint import make_fingerprint
from tokenizer_core.splitting.patterns import UNICODE_TABLES, SplitPattern, resolve_pattern

__all__ = ["AddedToken", "Alphabet", "MissingBytes", "TokenizerSpec"]

Merge = tuple[bytes, bytes]
Kind = Literal["merges", "ranks"]


@dataclass(frozen=True, eq=False, repr=False)
class TokenizerSpec:
    """Everything that decides the ids of a tokenizer. `with_added_tokens` completes and checks it,
    as do `from_merges` and `from_ranks`, which copy their arguments.

    - `kind`: `merges` applies an ordered list of pairs (GPT-2 files, tokenizer.json, the course's
      pickles); `ranks` merges any two neighbours whose joined bytes have a rank (tiktoken).
    - `vocab`: id -> bytes, added tokens included. A token may be empty (Whisper, id 50256): text
      never gives it, and it decodes to nothing. `merges`: in order; empty for `ranks`.
    - `added_tokens`: in order; each is in `vocab` under its id. Several may share an id
      (o200k_harmony, 200018): in a text each gives it, and it decodes to the one in `vocab`.
    - `ignore_merges`: a pre-token that is a vocabulary entry becomes that token (Llama 3).
    - `prefix_ids`, `suffix_ids`: ids that the post-processor adds before and after a text when
      `add_special_tokens=True`.
    - `normalizer`: changes a text before it is split; the constructor also takes its name.
    - `alphabet`: what merging starts from.
    - `batch_settings`: the saved `truncation` and `padding` of a `tokenizer.json`;
      `post_processor`: its stage of this name, which also says what pairs of texts get; `chat`: the
      chat templates; `model_added_ids`: the ids of the added tokens that are entries of the
      source's vocabulary too (`model.vocab` of a `tokenizer.json`; GPT-2's `<|endoftext|>`, but
      none of Llama 3). They change no id, and neither equality nor the fingerprint covers them.
    - `known`: derived values, by name, that need no computing again. `replace` leaves them out.
    """

    kind: Kind
    vocab: Mapping[int, bytes]
    merges: tuple[Merge, ...]
    pattern: SplitPattern
    added_tokens: tuple[AddedToken, ...] = ()
    ignore_merges: bool = False
    normalizer: Normalizer = field(default=Normalizer())
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    unicode_tables: str = field(default=UNICODE_TABLES)
    alphabet: Alphabet = field(default=Alphabet())
    batch_settings: Mapping[str, Any] = field(default_factory=dict)
    chat: ChatTemplates = field(default=ChatTemplates())
    model_added_ids: tuple[int, ...] = ()
    post_processor: Mapping[str, Any] | None = None
    known: InitVar[Mapping[str, object] | None] = None

    def __post_init__(self, known: Mapping[str, object] | None) -> None:
        if not isinstance(self.vocab, MappingProxyType):
            object.__setattr__(self, "vocab", MappingProxyType(dict(self.vocab)))
        for name, value in (known or {}).items():
            object.__setattr__(self, name, value)
        # The added tokens decide where they are searched.
        normalizer = normalizer_for(self.normalizer, self.added_tokens)
        object.__setattr__(self, "normalizer", normalizer)

    @classmethod
    def with_tables(
        cls,
        read_tables: Callable[[TokenizerSpec], tuple[Mapping[int, bytes], tuple[Merge, ...]]],
        known: Mapping[str, object],
        **others: Any,
    ) -> TokenizerSpec:
        """A spec whose vocabulary and merges `read_tables` returns for it when they are first
        used. The other arguments are those of the constructor."""
        spec = cls(vocab={}, merges=(), known=known, **others)
        for name in ("vocab", "merges"):
            object.__delattr__(spec, name)
        object.__setattr__(spec, "_read_tables", read_tables)
        return spec

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """The tables of `with_tables`; called for attributes that are not there."""
            if name not in ("vocab", "merges") or "_read_tables" not in vars(self):
                raise AttributeError(f"a TokenizerSpec has no attribute {name!r}")
            vocab, merges = self._read_tables(self)
            object.__setattr__(self, "vocab", MappingProxyType(vocab))
            object.__setattr__(self, "merges", merges)
            return getattr(self, name)

    @classmethod
    def from_merges(
        cls,
        vocab: Mapping[int, bytes],
        merges: Iterable[Merge],
        special_tokens: Iterable[str] | Iterable[AddedToken] = (),
        *,
        pattern: str | SplitPattern = "gpt2",
        **others: Any,
    ) -> TokenizerSpec:
        """A spec of kind `merges`, with special tokens as in `with_added_tokens`. `others` are
        further fields, by name. Raises InvalidSpecError: ids out of range, a byte without a token,
        a merge whose parts or product are not in the vocabulary, a special token that is empty or
        given twice."""
        for name, value in (("vocab", vocab), ("merges", merges)):
            if isinstance(value, str | PathLike):
                raise InvalidSpecError(
                    f"{name} is no file but what is in it; Tokenizer.from_files reads the files "
                    f"of a vocabulary and its merges, Tokenizer.load all others"
                )
        if not isinstance(vocab, Mapping):
            raise InvalidSpecError(f"vocab must be a dict, id -> bytes, not {type(vocab).__name__}")
        if isinstance(next(iter(vocab), 0), str | bytes):
            raise InvalidSpecError(
                "vocab is id -> bytes, and this one begins with a token; turn it round: "
                "{id: token for token, id in vocab.items()}"
            )
        try:
            pairs: Any = tuple(map(tuple, merges))
        except TypeError as error:
            raise InvalidSpecError(f"merges must be a list of pairs of bytes: {error}") from error
        spec = cls("merges", vocab, pairs, resolve_pattern(pattern), **others)
        return spec.with_added_tokens(special_tokens)

    def with_added_tokens(
        self,
        tokens: Iterable[str | AddedToken],
        known: Mapping[str, object] | None = None,
    ) -> TokenizerSpec:
        """The same spec with these tokens after its own added ones, checked; tokens not in the
        vocabulary get the next free ids. `known`, as in the constructor, may have `merge_ids`:
        looking them up takes most of the time of this call. Raises InvalidSpecError: as
        `from_merges`."""
        alphabet = self.alphabet
        # `dict` of a proxy would look up each key.
        vocab: dict[int, bytes] = self.vocab.copy()  # type: ignore[attr-defined]
        self.normalizer.check()
        listed = [*self.added_tokens, *list_added_tokens(tokens)]
        given = [token for token in listed if isinstance(token, AddedToken)]
        normalizer = normalizer_for(self.normalizer, given)
        spell = partial(_spell, normalizer=normalizer, by_characters=alphabet.has_characters)
        added = place_added_tokens(vocab, listed, spell)
        respelt = [t for t in added if self.vocab.get(t.id, vocab[t.id]) != vocab[t.id]]
        if known and (respelt or ("merge_ids" in known and not alphabet.has_one_id_each(vocab))):
            known = None
        entries = MappingProxyType(vocab)
        own = {token.id for token in self.added_tokens}
        found = (token.id for token in added if token.id in self.vocab and token.id not in own)
        in_model = tuple(dict.fromkeys((*self.model_added_ids, *found)))
        spec = replace(
            self, vocab=entries, added_tokens=added, model_added_ids=in_model, known=known
        )
        check_respelt(spec, [(token, self.vocab[token.id]) for token in respelt])
        spec.check()
        return spec

    @classmethod
    def from_ranks(
        cls,
        ranks: Mapping[bytes, int],
        special_tokens: Mapping[str, int] | None = None,
        *,
        pattern: str | SplitPattern,
        **others: Any,
    ) -> TokenizerSpec:
        """A spec of kind `ranks`: bytes -> rank, which is also the id, as in `.tiktoken` files.
        `others` as in `from_merges`.

        A `pattern` that is an expression is read as tiktoken reads it: in the dialect
        `fancy-regex`, and text without a match is dropped. A SplitPattern says otherwise.

        Raises:
            InvalidSpecError: as `from_merges`.
            UnknownPatternError: the expression cannot be translated exactly.
        """
        if not isinstance(ranks, Mapping) or isinstance(next(iter(ranks), b""), int):
            raise InvalidSpecError(
                "ranks must be a dict, bytes -> rank, as a .tiktoken file has it"
            )
        if not isinstance(special_tokens, Mapping | None):
            raise InvalidSpecError("special_tokens of ranks are a dict: token -> id")
        for content in special_tokens or {}:
            if isinstance(content, str) and content.encode("utf-8", "surrogatepass") in ranks:
                raise InvalidSpecError(
                    f"the special token {content!r:.60} is a rank as well, and as plain text it "
                    f"would be that; take it out of the ranks or out of the special tokens"
                )
            if isinstance(content, str) and len(content) == 1 and content.isascii():
                raise InvalidSpecError(
                    f"the ranks have no token for the byte 0x{ord(content):02x}, and plain text "
                    f"never gives the special token {content!r}; put the byte into the ranks, and "
                    f"leave out the special token"
                )
        entries = {rank: token for token, rank in ranks.items()}
        if len(entries) != len(ranks):
            raise InvalidSpecError("two tokens share one rank; ranks are ids and must be unique")
        tokens = [AddedToken(content, id_) for content, id_ in (special_tokens or {}).items()]
        table = dict(ranks)  # no special token is a rank, and ranks are unique
        table.pop(b"", None)
        resolved = resolve_pattern(pattern, dialect="fancy-regex", unmatched="drop")
        spec = cls("ranks", MappingProxyType(entries), (), resolved, **others)
        return spec.with_added_tokens(tokens, {"token_to_id": MappingProxyType(table)})

    def __repr__(self) -> str:
        """Kind, sizes and names; the tables would take megabytes.

        Example:
            >>> spec = TokenizerSpec.from_merges({i: bytes([i]) for i in range(256)}, [])
            >>> spec  # doctest: +ELLIPSIS
            <TokenizerSpec merges: 256 tokens (0 added), 0 merges, pattern gpt2, ... fingerprint...>
        """
        return (
            f"<TokenizerSpec {self.kind}: {len(self.vocab)} tokens ({len(self.added_tokens)} "
            f"added), {len(self.merges)} merges, pattern {self.pattern.name}, normalizer "
            f"{self.normalizer.name}, fingerprint {self.fingerprint[:12]}>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenizerSpec):
            return NotImplemented
        return self is other or self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[object, ...]:
        # A mapping proxy cannot be pickled; derived values are computed again.
        values = [getattr(self, each.name) for each in fields(self)]
        known = {name: True for name in ("_is_checked",) if name in vars(self)}
        return TokenizerSpec, (self.kind, dict(self.vocab), *values[2:], known)

    def with_chat(self, chat: ChatTemplates) -> TokenizerSpec:
        """The same spec with these chat templates. Raises InvalidSpecError: `control_tokens` names
        a token that is no added token."""
        unknown = next((t for t in chat.control_tokens if t not in self.added_ids), None)
        if unknown is not None:
            raise InvalidSpecError(
                f"{unknown!r:.60} is no added token of this tokenizer, so it cannot be a control "
                f"token; name one that encodes to an id of its own"
            )
        names = {each.name for each in fields(self)}
        derived = {name: value for name, value in vars(self).items() if name not in names}
        return replace(self, chat=chat, known=derived)  # no derived value depends on the templates

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) over everything that decides an id: see `make_fingerprint`."""
        return make_fingerprint(self)

    @cached_property
    def token_to_id(self) -> Mapping[bytes, int]:
        """bytes -> id of the tokens that encoding can produce from plain text: no empty one, and
        an added one only if merges also make it. Of tokens with the same bytes, one that is not
        added precedes one that is, then the smallest id wins; but a character precedes the byte
        that it is encoded as.
        """
        # Merging starts from an added token of one byte or character too (Gemma's newline).
        long_added = {
            token.id
            for token in self.added_tokens
            if len(token.content if self.alphabet.has_characters else self.vocab[token.id]) > 1
        }
        asked = {self.vocab[id_] for id_ in long_added}
        if self.alphabet.has_characters:
            asked.update(self.vocab[token.id] for token in self.added_tokens)
        if asked and "merge_ids" in vars(self):
            added = {token.id for token in self.added_tokens}
            made = {self.vocab[id_] for id_ in added.intersection(self.merge_ids[2::3])}
        else:
            made = asked.intersection(starmap(add, self.merges)) if asked else asked
        left_out = {id_ for id_ in long_added if self.vocab[id_] not in made}
        left_out.update(self.empty_ids, self.alphabet.idle_ids)
        if self.alphabet.missing:
            # An added token may have such a byte; merging does not start from it.
            lost = {bytes([byte]) for byte in self.alphabet.missing.values}
            left_out |= {id_ for id_, token in self.vocab.items() if token in lost}
        if self.normalizer.steps:
            spell = self.spelling
            # Its bytes are not those of its content, which merging would make.
            given = [replace(token, normalized=False) for token in self.added_tokens]
            pairs = zip(self.added_tokens, given, strict=True)
            left_out |= {t.id for t, as_given in pairs if spell(t) != spell(as_given)}
        bytes_ = set(self.alphabet.byte_ids) - left_out
        ids = sorted(self.vocab)
        if others := left_out | bytes_:
            ids = [id_ for id_ in ids if id_ not in others]
        table = dict(zip(map(self.vocab.__getitem__, ids), ids, strict=True))
        if len(table) < len(ids):
            table = {}
            added = {token.id for token in self.added_tokens}
            for id_ in sorted(ids, key=added.__contains__):  # learned ones first, each kind by id
                table.setdefault(self.vocab[id_], id_)
        for id_ in sorted(bytes_ & self.vocab.keys()):
            table.setdefault(self.vocab[id_], id_)
        return MappingProxyType(table)

    @cached_property
    def merge_ids(self) -> array[int]:
        """The ids of both sides and of the product of each merge, in turn, as words of four bytes.
        Raises KeyError: one of them is not in `token_to_id`."""
        ids = map(self.token_to_id.__getitem__, chain.from_iterable(self.merges))
        products = map(self.token_to_id.__getitem__, starmap(add, self.merges))
        sides, found = array("I", ids), array("I", bytes(12 * len(self.merges)))
        found[::3], found[1::3], found[2::3] = sides[::2], sides[1::2], array("I", products)
        return found

    @cached_property
    def empty_ids(self) -> tuple[int, ...]:
        """The ids of empty tokens, ascending."""
        return tuple(sorted(id_ for id_, token in self.vocab.items() if not token))

    @property
    def loses_text(self) -> bool:
        """Whether encoding leaves out some text, or gives the unknown token for it."""
        return self.pattern.drops or self.alphabet.missing is not None

    def decoded_pre_token(self, pre_token: bytes) -> bytes:
        """The bytes that the ids of a pre-token decode to."""
        missing = self.alphabet.missing
        if not missing or (self.ignore_merges and pre_token in self.token_to_id):
            return pre_token
        lost = bytes(missing.values)
        if missing.unk_id is None:
            return pre_token.translate(None, lost)
        run = b"[%b]%b" % (re.escape(lost), b"+" if missing.is_fused else b"")
        unknown = self.vocab[missing.unk_id]
        return re.sub(run, lambda _: unknown, pre_token, flags=re.DOTALL)

    @cached_property
    def added_ids(self) -> Mapping[str, int]:
        """content -> id of the added tokens, in order."""
        return MappingProxyType({token.content: token.id for token in self.added_tokens})

    @cached_property
    def added_token_set(self) -> frozenset[AddedToken]:
        """The added tokens; the hash of a frozenset is computed once."""
        return frozenset(self.added_tokens)

    @cached_property
    def has_flags(self) -> bool:
        """Whether an added token has flags. With steps of the normalizer,
        `normalized` does not count."""
        ignored = ["normalized"] if self.normalizer.steps else []
        return any(token.flags not in ([], ignored) for token in self.added_tokens)

    def missing_bytes(self) -> list[int]:
        """The bytes without a token of their own, ascending; without `missing`, UTF-8 has none of
        them."""
        present = set(self.vocab.values())
        return [byte for byte in range(256) if bytes([byte]) not in present]

    @cached_property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.vocab)

    @cached_property
    def largest_id(self) -> int:
        """The largest id; it determines the width of ids in token files."""
        return max(self.vocab)

    @property
    def special_tokens(self) -> dict[str, int]:
        """content -> id of the added tokens that are special, in order."""
        return {token.content: token.id for token in self.added_tokens if token.special}

    @cached_property
    def reachable_added_ids(self) -> frozenset[int]:
        """The ids of added tokens that plain text can give too: merges make such a token, or it is
        one byte or character. Without the unknown token, which plain text gives by its nature.
        """
        added = {token.id for token in self.added_tokens}
        given = chain(self.token_to_id.values(), self.alphabet.byte_ids)
        return frozenset(added.intersection(given))

    @cached_property
    def normalized_tokens(self) -> frozenset[str]:
        """The added tokens that are matched in the normalized text."""
        return frozenset(token.content for token in self.added_tokens if token.normalized)

    def spelling(self, token: AddedToken) -> bytes:
        """What an added token decodes to: its content, in a vocabulary of characters with a space
        for U+2581, or its normalized content if it is searched in normalized text."""
        by_characters = self.alphabet.has_characters
        return _spell(token, normalizer=self.normalizer, by_characters=by_characters)

    @cached_property
    def added_bytes(self) -> Mapping[int, bytes]:
        """id -> bytes of the added tokens, as in the vocabulary: those of its first name."""
        ids = reversed(self.added_tokens)
        return MappingProxyType({token.id: self.spelling(token) for token in ids})

    def second_names(self) -> list[str]:
        """The added tokens whose id decodes to another one, in order."""
        return [t.content for t in self.added_tokens if self.added_bytes[t.id] != self.spelling(t)]

    def start_parts(self, token: bytes) -> list[bytes]:
        """The parts that merging these bytes alone starts from: the bytes, or with `byte_ids` the
        characters that are tokens, and the bytes of others. The last byte of a token with the
        `word_suffix` has it."""
        if not self.alphabet.has_characters:
            text = self.alphabet.bytes_in_text(token)
            parts = [text[i : i + 1] for i in range(len(text))]
            return [*parts[:-1], parts[-1] + token[len(text) :]]
        parts = []
        for character in token.decode("utf-8", "surrogateescape"):
            part = character.encode("utf-8", "surrogateescape")
            parts += [part] if part in self.token_to_id else [bytes([byte]) for byte in part]
        return parts

    def word_end_ids(self) -> list[int]:
        """The id that each of the 256 bytes starts as at the end of a pre-token; empty without a
        `word_suffix`."""
        suffix = self.alphabet.word_suffix
        if not suffix:
            return []
        unused = self.token_to_id[b"a" + suffix]  # any id serves for the bytes that no text has
        return [self.token_to_id.get(bytes([byte]) + suffix, unused) for byte in range(256)]

    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of ids without a token, both ends included (cl100k has one at 100256)."""
        return gaps_in(self.vocab)

    def check(self) -> None:
        """Raise InvalidSpecError unless an engine can run this spec."""
        if "_is_checked" in vars(self):
            return
        self.normalizer.check()
        check_spec(self)
        object.__setattr__(self, "_is_checked", True)


def _spell(token: AddedToken, *, normalizer: Normalizer, by_characters: bool) -> bytes:
    content = normalizer.spell(token.content) if token.normalized else token.content
    return (with_spaces(content) if by_characters else content).encode()


def require_spec(spec: object) -> None:
    """Raise TypeError for what is no spec, such as a `Tokenizer`."""
    if not isinstance(spec, TokenizerSpec):
        kind = type(spec).__name__
        raise TypeError(
            f"spec must be a TokenizerSpec, such as the `spec` of a Tokenizer, not {kind}"
        )


def spec_of(tokenizer: Any) -> TokenizerSpec:
    """The spec of a `Tokenizer`. Raises TypeError: it is something else, such as a name of one."""
    spec = getattr(tokenizer, "spec", None)
    if not isinstance(spec, TokenizerSpec):
        raise TypeError(
            f"{tokenizer!r:.80} is no Tokenizer; Tokenizer.load and Tokenizer.from_preset give one"
        )
    return spec
