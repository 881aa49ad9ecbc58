"""TokenizerSpec: everything that decides an id, frozen, with its fingerprint.

Formats read and write a spec, engines run one, and the registry stores one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice, starmap
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.normalizers import Normalizer, normalizer_for, normalizer_of
from tokenizer_core.spec.chat_templates import ChatTemplates
from tokenizer_core.splitting.patterns import (
    METASPACE,
    UNICODE_TABLES,
    SplitPattern,
    metaspace_pattern,
    resolve_pattern,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TOKEN_ID: Final = (1 << 20) - 1
"""Ids stay below 2^20, five times the largest public vocabulary, so that a table indexed by id
can always be allocated."""

MAX_ADDED_TOKEN_CHARS: Final = 1024
"""Longer special tokens are refused: a search takes time in proportion to the token's length at
every position where the text begins like the token."""

MAX_TOKEN_BYTES: Final = 1 << 20
"""Longer tokens are refused: preparing an engine takes seconds for one of 40 MB."""

NEVER_IN_UTF8: Final = frozenset((0xC0, 0xC1, *range(0xF5, 0x100)))
"""The bytes that no UTF-8 text has. A vocabulary may lack them (GPT-NeoX, OLMo)."""

ADDED_TOKEN_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized")
"""The flags of an added token that change where it is matched."""

WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""The white space of Unicode, which `lstrip` and `rstrip` tokens include."""

DOCUMENT_ENDS: Final = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
    "<EOS_TOKEN>",
)
"""The tokens that end a document in the corpora of public models: those of GPT-2, NeoX and Qwen; of
Llama 3; of Llama 2, Mistral and RoBERTa; of Gemma; of DeepSeek; of Kimi; of Command R."""

_SOUND_SIDES: Final[tuple[tuple[set[int], set[type]], ...]] = (({2}, {bytes}), (set(), set()))
_DERIVED: Final = (
    "added_token_set",
    "empty_ids",
    "fingerprint",
    "has_flags",
    "merge_ids",
    "normalized_tokens",
    "reachable_added_ids",
    "token_to_id",
)

Merge = tuple[bytes, bytes]
Kind = Literal["merges", "ranks"]

_FIELDS_AT_ONCE: Final = 1 << 12


class _LengthFields(dict[int, bytes]):
    """A length -> it as a u64, little-endian."""

    def __missing__(self, length: int) -> bytes:
        self[length] = field = length.to_bytes(8, "little")
        return field


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token matched in the text before the split. `special: False` marks content tokens (Qwen's
    `<think>`): always matched, never skipped on decode.

    The flags of Hugging Face: `lstrip` and `rstrip` tokens include the white space before and after
    them, which gives no id; a `single_word` token is plain text next to a letter or digit. Tokens
    that are `normalized` are matched in the text that the other tokens leave. If the spec has
    `steps`, that is in its normalized form and by their normalized content, to which they also
    decode. A spec without other flags and steps, in which the order does not matter, has
    `normalized=False` throughout.
    """

    content: str
    id: int
    special: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    @property
    def flags(self) -> list[str]:
        """The names of the flags that are set."""
        return [name for name in ADDED_TOKEN_FLAGS if getattr(self, name)]


@dataclass(frozen=True, slots=True)
class MissingBytes:
    """The bytes of UTF-8 that a vocabulary lacks, and what merging makes of them (SmolLM).

    - `values`: the bytes, ascending.
    - `unk_id`: the id that each of them gives, which no merge joins. With None, merging leaves
      them out, so that the bytes around them may merge.
    - `is_fused`: several in a row give one `unk_id`.
    - `ends`: bytes after which a byte that is left out still separates what is around it (Falcon).
    """

    values: tuple[int, ...]
    unk_id: int | None = None
    is_fused: bool = False
    ends: tuple[int, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The JSON value of a manifest."""
        found = {"bytes": list(self.values), "unk_id": self.unk_id, "fuse_unk": self.is_fused}
        return found | {"ends": list(self.ends)} if self.ends else found


@dataclass(frozen=True, eq=False, repr=False)
class TokenizerSpec:
    """Everything that decides the ids of a tokenizer. `from_merges` and `from_ranks` build and
    check it; they copy their arguments.

    - `kind`: `merges` applies an ordered list of pairs (GPT-2 files, tokenizer.json, the course's
      pickles); `ranks` merges any two neighbours whose joined bytes have a rank (tiktoken).
    - `vocab`: id -> bytes, added tokens included. A token may be empty (Whisper, id 50256): text
      never gives it, and it decodes to nothing. `merges`: in order; empty for `ranks`.
    - `added_tokens`: in order; each is in `vocab` under its id. Several may share an id
      (o200k_harmony, 200018): in a text each gives it, and it decodes to the one in `vocab`.
    - `ignore_merges`: a pre-token that is a vocabulary entry becomes that token (Llama 3).
    - `prefix_ids`, `suffix_ids`: ids that the post-processor adds before and after a text when
      `add_special_tokens=True`.
    - `normalizer`: what is done to a text before it is split.
    - `word_suffix`: what the tokens at the end of a pre-token have after their bytes (CLIP's
      `</w>`). Merging starts with the last byte of a pre-token as such a token.
    - `byte_ids`: the ids of the 256 bytes in a vocabulary that merges characters (SentencePiece's,
      with byte fallback); empty where merging starts from bytes. A character that is a token
      starts as that token, any other as the tokens of its bytes, which never merge. -1 stands for
      a byte that no fallback needs: only its character has a token (Gemma's tab), or UTF-8 never
      has it.
    - `missing`: the bytes of UTF-8 without a token. With None, there are none.
    - `idle_ids`: the ids, ascending, of entries that encoding never gives, also where merges make
      their bytes: a `tokenizer.json` spells them outside the alphabet of bytes (Cohere's emoji).
    - `batch_settings`: the saved `truncation` and `padding` of a `tokenizer.json`; `chat`: the
      chat templates. Both change no id, and neither equality nor the fingerprint covers them.
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
    byte_ids: tuple[int, ...] = ()
    missing: MissingBytes | None = None
    batch_settings: Mapping[str, Any] = field(default_factory=dict)
    word_suffix: bytes = b""
    idle_ids: tuple[int, ...] = ()
    chat: ChatTemplates = field(default=ChatTemplates())

    def __post_init__(self) -> None:
        """The added tokens decide where they are searched."""
        normalizer = normalizer_for(self.normalizer, self.added_tokens)
        object.__setattr__(self, "normalizer", normalizer)

    @classmethod
    def from_merges(
        cls,
        vocab: Mapping[int, bytes],
        merges: Iterable[Merge],
        special_tokens: Iterable[str] | Iterable[AddedToken] = (),
        *,
        pattern: str | SplitPattern = "gpt2",
        ignore_merges: bool = False,
        normalizer: str | Normalizer = "none",
        prefix_ids: tuple[int, ...] = (),
        suffix_ids: tuple[int, ...] = (),
        byte_ids: tuple[int, ...] = (),
        missing: MissingBytes | None = None,
        batch_settings: Mapping[str, Any] | None = None,
        word_suffix: bytes = b"",
        idle_ids: tuple[int, ...] = (),
        merge_ids: NDArray[np.uint32] | None = None,
    ) -> TokenizerSpec:
        """A spec of kind `merges`; special tokens not in the vocabulary get the next free ids.

        The arguments are copied, not kept. `merge_ids`, if known, has the ids in `vocab` of both
        sides and of the product of each merge, of shape (n_merges, 3); looking them up takes most
        of the time of this call.

        Raises:
            InvalidSpecError: ids out of range, a byte without a token, a merge whose parts or
                product are not in the vocabulary, a special token that is empty or given twice.
        """
        entries = dict(vocab)
        if isinstance(normalizer, str):
            normalizer = normalizer_of(normalizer)
        normalizer.check()
        listed = _list_added_tokens(special_tokens)
        searching = normalizer_for(normalizer, (t for t in listed if isinstance(t, AddedToken)))
        spell = partial(_spell, normalizer=searching, by_characters=bool(byte_ids))
        added = _place_added_tokens(entries, listed, spell)
        respelt = [t for t in added if vocab.get(t.id, entries[t.id]) != entries[t.id]]
        if respelt:
            merge_ids = None
        spec = cls(
            kind="merges",
            vocab=MappingProxyType(entries),
            merges=tuple(map(tuple, merges)),  # type: ignore[arg-type]
            pattern=resolve_pattern(pattern),
            added_tokens=added,
            ignore_merges=ignore_merges,
            normalizer=normalizer,
            prefix_ids=prefix_ids,
            suffix_ids=suffix_ids,
            byte_ids=byte_ids,
            missing=missing,
            batch_settings=dict(batch_settings or {}),
            word_suffix=word_suffix,
            idle_ids=idle_ids,
        )
        _check_respelt(spec, [(token, vocab[token.id]) for token in respelt])
        spec.check(merge_ids)
        return spec

    @classmethod
    def from_ranks(
        cls,
        ranks: Mapping[bytes, int],
        special_tokens: Mapping[str, int] | None = None,
        *,
        pattern: str | SplitPattern,
    ) -> TokenizerSpec:
        """A spec of kind `ranks`: bytes -> rank, which is also the id, as in `.tiktoken` files.

        A `pattern` that is an expression is read as tiktoken reads it: in the dialect
        `fancy-regex`, and text without a match is dropped. A SplitPattern says otherwise.

        Raises:
            InvalidSpecError: as `from_merges`.
            UnknownPatternError: the expression cannot be translated exactly.
        """
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
        spell = partial(_spell, normalizer=Normalizer())
        added = _place_added_tokens(entries, _list_added_tokens(tokens), spell)
        resolved = resolve_pattern(pattern, dialect="fancy-regex", unmatched="drop")
        spec = cls("ranks", MappingProxyType(entries), (), resolved, added)
        # Same as the table of `token_to_id`: no special token is a rank, and ranks are unique.
        table = dict(ranks)
        table.pop(b"", None)
        vars(spec)["token_to_id"] = MappingProxyType(table)
        spec.check()
        return spec

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

    def __getstate__(self) -> dict[str, object]:
        # A mapping proxy cannot be pickled; derived values are recomputed.
        state = {name: value for name, value in vars(self).items() if name not in _DERIVED}
        return state | {"vocab": dict(self.vocab)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        vars(self)["vocab"] = MappingProxyType(state["vocab"])

    def with_chat(self, chat: ChatTemplates) -> TokenizerSpec:
        """The same spec with these chat templates.

        Raises:
            InvalidSpecError: `control_tokens` names a token that is no added token.
        """
        added = {token.content for token in self.added_tokens}
        unknown = next((token for token in chat.control_tokens if token not in added), None)
        if unknown is not None:
            raise InvalidSpecError(
                f"{unknown!r:.60} is no added token of this tokenizer, so it cannot be a control "
                f"token; name one that encodes to an id of its own"
            )
        made = object.__new__(TokenizerSpec)
        vars(made).update(vars(self))  # derived values stay: none depends on the templates
        vars(made)["chat"] = chat
        return made

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
            if len(token.content if self.byte_ids else self.vocab[token.id]) > 1
        }
        asked = {self.vocab[id_] for id_ in long_added}
        if self.byte_ids:
            asked.update(self.vocab[token.id] for token in self.added_tokens)
        if asked and "merge_ids" in vars(self):
            added = {token.id for token in self.added_tokens}
            made = {self.vocab[id_] for id_ in added.intersection(self.merge_ids[:, 2].tolist())}
        else:
            made = asked.intersection(starmap(add, self.merges)) if asked else asked
        left_out = {id_ for id_ in long_added if self.vocab[id_] not in made}
        left_out.update(self.empty_ids, self.idle_ids)
        if self.missing:
            # An added token may have such a byte; merging does not start from it.
            lost = {bytes([byte]) for byte in self.missing.values}
            left_out |= {id_ for id_, token in self.vocab.items() if token in lost}
        if self.normalizer.steps:
            spell = self.spelling
            # Its bytes are not those of its content, which merging would make.
            given = [replace(token, normalized=False) for token in self.added_tokens]
            pairs = zip(self.added_tokens, given, strict=True)
            left_out |= {t.id for t, as_given in pairs if spell(t) != spell(as_given)}
        bytes_ = set(self.byte_ids) - left_out
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
    def merge_ids(self) -> NDArray[np.uint32]:
        """The ids of both sides and of the product of each merge, of shape (n_merges, 3).

        Raises:
            KeyError: one of them is not in `token_to_id`.
        """
        ids = map(self.token_to_id.__getitem__, chain.from_iterable(self.merges))
        products = map(self.token_to_id.__getitem__, starmap(add, self.merges))
        found = np.empty((len(self.merges), 3), np.uint32)
        found[:, :2] = np.fromiter(ids, np.uint32, 2 * len(found)).reshape(-1, 2)
        found[:, 2] = np.fromiter(products, np.uint32, len(found))
        return found

    @cached_property
    def empty_ids(self) -> tuple[int, ...]:
        """The ids of empty tokens, ascending."""
        return tuple(sorted(id_ for id_, token in self.vocab.items() if not token))

    @property
    def loses_text(self) -> bool:
        """Whether encoding leaves out some text, or gives the unknown token for it."""
        return self.pattern.drops or self.missing is not None

    def decoded_pre_token(self, pre_token: bytes) -> bytes:
        """The bytes that the ids of a pre-token decode to.

        Example:
            >>> vocab = {i: bytes([i]) for i in range(256) if i != 4}
            >>> spec = TokenizerSpec.from_merges(vocab, [], missing=MissingBytes((4,)))
            >>> spec.decoded_pre_token(b"a" + bytes([4]))
            b'a'
        """
        if not self.missing or (self.ignore_merges and pre_token in self.token_to_id):
            return pre_token
        lost = bytes(self.missing.values)
        if self.missing.unk_id is None:
            return pre_token.translate(None, lost)
        run = b"[%b]%b" % (re.escape(lost), b"+" if self.missing.is_fused else b"")
        unknown = self.vocab[self.missing.unk_id]
        return re.sub(run, lambda _: unknown, pre_token, flags=re.DOTALL)

    @cached_property
    def added_token_set(self) -> frozenset[AddedToken]:
        """The added tokens; the hash of a frozenset is computed once."""
        return frozenset(self.added_tokens)

    @cached_property
    def has_flags(self) -> bool:
        """Whether an added token has flags. With steps of the normalizer,
        `normalized` is no matter of flags."""
        ignored = ["normalized"] if self.normalizer.steps else []
        return any(token.flags not in ([], ignored) for token in self.added_tokens)

    def missing_bytes(self) -> list[int]:
        """The bytes without a token of their own, ascending; without `missing`, UTF-8 has none of
        them."""
        present = set(self.vocab.values())
        return [byte for byte in range(256) if bytes([byte]) not in present]

    @cached_property
    def largest_id(self) -> int:
        """The largest id; it determines the width of ids in token files."""
        return max(self.vocab)

    @property
    def special_tokens(self) -> dict[str, int]:
        """content -> id of the added tokens that are special, in order."""
        return {token.content: token.id for token in self.added_tokens if token.special}

    @property
    def eos_token(self) -> str | None:
        """The token that ends what the model writes: the `eos_token` of the model folder. Without
        a folder that names tokens, what the post-processor puts after a text, or else the only
        known document end. None if none of them says."""
        if self.chat.variables:
            return self.chat.variables.get("eos_token")
        if self.suffix_ids:
            last = self.suffix_ids[-1]
            return next((token.content for token in self.added_tokens if token.id == last), None)
        known = self._document_ends
        return known[0] if len(known) == 1 else None

    @property
    def _document_ends(self) -> list[str]:
        special = self.special_tokens
        return [content for content in DOCUMENT_ENDS if content in special]

    def find_document_end(self) -> tuple[str, str]:
        """The token that ends a document of a corpus, and why it is that one.

        It is the only one of DOCUMENT_ENDS in the vocabulary, or the one of several that is
        `eos_token`. Another eos must be known to end turns: a chat template writes it, or
        `generation_config.json` lists the document end as well.

        Raises:
            LookupError: nothing says which token it is; names those that come into question.

        Example:
            >>> vocab = {i: bytes([i]) for i in range(256)}
            >>> TokenizerSpec.from_merges(vocab, [], ["<s>", "</s>"]).find_document_end()
            ('</s>', 'the only known document end of the vocabulary')
        """
        known, eos = self._document_ends, self.eos_token
        if len(known) == 1:
            why = "the only known document end of the vocabulary"
            if eos is None or eos == known[0]:
                return known[0], why
            templates = "".join(self.chat.sources.values())
            if known[0] in self.chat.stop_tokens or eos in templates or "eos_token" in templates:
                return known[0], f"{why}; its eos {eos!r:.60} ends turns"
        elif eos in known:
            return eos, "the eos of the tokenizer, and a known document end"
        listed = " and ".join(map(repr, known)) or "none"
        raise LookupError(
            f"nothing says which token ends a document: of the known ones the vocabulary has "
            f"{listed}, and its eos is {'not declared' if eos is None else repr(eos)[:60]}"
        )

    @cached_property
    def reachable_added_ids(self) -> frozenset[int]:
        """The ids of added tokens that plain text can give too: merges make such a token, or it is
        one byte or character. Without the unknown token, which plain text gives by its nature.
        """
        added = {token.id for token in self.added_tokens}
        return frozenset(added.intersection(chain(self.token_to_id.values(), self.byte_ids)))

    @cached_property
    def normalized_tokens(self) -> frozenset[str]:
        """The added tokens that are matched in the normalized text."""
        return frozenset(token.content for token in self.added_tokens if token.normalized)

    def spelling(self, token: AddedToken) -> bytes:
        """What an added token decodes to: its content, in a vocabulary of characters with a space
        for U+2581, or its normalized content if it is searched in normalized text."""
        return _spell(token, normalizer=self.normalizer, by_characters=bool(self.byte_ids))

    def second_names(self) -> list[str]:
        """The added tokens whose id decodes to another one, in order."""
        return [t.content for t in self.added_tokens if self.vocab[t.id] != self.spelling(t)]

    def start_parts(self, token: bytes) -> list[bytes]:
        """The parts that merging these bytes alone starts from: the bytes, or with `byte_ids` the
        characters that are tokens, and the bytes of others. The last byte of a token with the
        `word_suffix` has it."""
        if not self.byte_ids:
            text = self.bytes_in_text(token)
            parts = [text[i : i + 1] for i in range(len(text))]
            return [*parts[:-1], parts[-1] + token[len(text) :]]
        parts = []
        for character in token.decode("utf-8", "surrogateescape"):
            part = character.encode("utf-8", "surrogateescape")
            parts += [part] if part in self.token_to_id else [bytes([byte]) for byte in part]
        return parts

    def bytes_in_text(self, token: bytes) -> bytes:
        """The bytes of a text that a token stands for: without the `word_suffix`."""
        return (self.word_suffix and token.removesuffix(self.word_suffix)) or token

    def word_end_ids(self) -> list[int]:
        """The id that each of the 256 bytes starts as at the end of a pre-token; empty without a
        `word_suffix`."""
        if not self.word_suffix:
            return []
        ids = [self.token_to_id.get(bytes([byte]) + self.word_suffix) for byte in range(256)]
        # Any id serves for the bytes that no text has.
        unused = next(id_ for id_ in ids if id_ is not None)
        return [unused if id_ is None else id_ for id_ in ids]

    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of ids without a token, both ends included (cl100k has one at 100256)."""
        found: list[tuple[int, int]] = []
        expected = 0
        for id_ in sorted(self.vocab):
            if id_ > expected:
                found.append((expected, id_ - 1))
            expected = id_ + 1
        return found

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) over everything that decides an id; equal fingerprints give equal ids.

        The hashed bytes are a sequence of fields, each a u64 little-endian length and the field:
        a format word, kind, `ignore_merges` as 0 or 1, pattern name and expression, Unicode
        tables, normalizer; the number of entries, then id and bytes of each by rising id; the
        number of merges, then both sides of each in order; the number of added tokens, then
        content, id and special flag of each in order; prefix ids, suffix ids. Numbers are written
        as decimal ASCII. For a pattern with a dialect or an unmatched rule of its own, or with
        extensions, the format word is another, and both follow the expression. After the suffix
        ids then come the extensions, if any: their number, then name and canonical JSON (UTF-8,
        sorted keys, no white space) of each by rising name.
        """
        digest = hashlib.sha256()
        parts, length = self._canonical_fields(), _LengthFields()
        # Many at once: a call of `update` takes longer than hashing a token.
        while block := list(islice(parts, _FIELDS_AT_ONCE)):
            fields = zip(map(length.__getitem__, map(len, block)), block, strict=True)
            digest.update(b"".join(chain.from_iterable(fields)))
        return digest.hexdigest()

    def _canonical_fields(self) -> Iterator[bytes]:
        def number(value: int) -> bytes:
            return b"%d" % value

        extensions = self.extensions()
        is_first = self.pattern.is_plain and not extensions
        yield b"tokenizer-spec-1" if is_first else b"tokenizer-spec-2"
        yield self.kind.encode()
        yield number(self.ignore_merges)
        yield self.pattern.name.encode()
        yield self.pattern.expression.encode()
        if not is_first:
            yield self.pattern.dialect.encode()
            yield self.pattern.unmatched.encode()
        yield self.unicode_tables.encode()
        yield self.normalizer.name.encode()
        yield number(len(self.vocab))
        for id_, token in sorted(self.vocab.items()):
            yield number(id_)
            yield token
        yield number(len(self.merges))
        for left, right in self.merges:
            yield left
            yield right
        yield number(len(self.added_tokens))
        for added in self.added_tokens:
            yield added.content.encode()
            yield number(added.id)
            yield number(added.special)
        for ids in (self.prefix_ids, self.suffix_ids):
            yield number(len(ids))
            yield from map(number, ids)
        if extensions:
            yield number(len(extensions))
            for name, value in sorted(extensions.items()):
                yield name.encode()
                yield canonical_json(value)

    def extensions(self) -> dict[str, Any]:
        """Name -> JSON value of the settings that few tokenizers have and that differ from their
        default. The fingerprint covers them, and a manifest holds them.

        - `added_token_flags`: content -> the flags that are set, of each added token with any.
        - `byte_ids`: the ids of the bytes of a vocabulary of characters.
        - `idle_ids`: the `idle_ids`.
        - `missing_bytes`: the fields of `missing`.
        - `normalizer_steps`: the fields of each step of the normalizer `steps`.
        - `split_steps`: the fields of each step of a split pattern with `before` or a `behavior`.
        - `word_suffix`: the `word_suffix`, which is ASCII.
        """
        pattern = self.pattern
        steps = [step.fields() for step in (*pattern.before, pattern.alone())]
        steps = steps if pattern.has_steps else []
        flags = {token.content: token.flags for token in self.added_tokens if token.flags}
        found = {
            "added_token_flags": flags,
            "byte_ids": list(self.byte_ids),
            "idle_ids": list(self.idle_ids),
            "missing_bytes": self.missing.fields() if self.missing else {},
            "normalizer_steps": self.normalizer.fields(),
            "split_steps": steps,
            "word_suffix": self.word_suffix.decode("ascii"),
        }
        return {name: value for name, value in found.items() if value}

    def check(self, merge_ids: NDArray[np.uint32] | None = None) -> None:
        """Raise InvalidSpecError unless an engine can run this spec; `merge_ids` as in
        `from_merges`."""
        if merge_ids is not None:
            _check_once(self.merges, merge_ids)  # before what takes a second for a million tokens
        n_distinct = _check_vocab(self.vocab, self.missing.values if self.missing else ())
        # Of tokens with the same bytes, merging gives only the one in `token_to_id`: never that of
        # a byte in `byte_ids`, if there is another.
        if merge_ids is not None and self.byte_ids:
            bytes_ = self.vocab.keys() & set(self.byte_ids)
            others = {self.vocab[id_] for id_ in self.vocab.keys() - bytes_}
            n_distinct = len(others) + len(bytes_)
        if merge_ids is not None and n_distinct == len(self.vocab):
            vars(self)["merge_ids"] = merge_ids
        if merge_ids is None:
            _check_sides(self.merges)
        self.normalizer.check()
        _check_added_tokens(self)
        _check_idle(self)
        _check_missing(self)
        _check_merges(self)
        _check_word_suffix(self)
        _check_byte_ids(self)
        for id_ in (*self.prefix_ids, *self.suffix_ids):
            if id_ not in self.vocab:
                raise InvalidSpecError(f"the post-processor adds id {id_}, which has no token")


def canonical_json(value: object) -> bytes:
    """JSON as it is hashed: UTF-8, sorted keys, no white space."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def _list_added_tokens(tokens: Iterable[str] | Iterable[AddedToken]) -> list[str | AddedToken]:
    if isinstance(tokens, str):
        raise InvalidSpecError(f"special tokens are a list of strings: [{tokens!r:.60}]")
    listed: list[str | AddedToken] = list(tokens)
    for given in listed:
        check_content(given.content if isinstance(given, AddedToken) else given)
    return listed


def _place_added_tokens(
    entries: dict[int, bytes],
    listed: list[str | AddedToken],
    spell: Callable[[AddedToken], bytes],
) -> tuple[AddedToken, ...]:
    """Give every added token its id in `entries`, appending new tokens.

    A new special token never shifts an id: it follows the largest one.
    """
    known: dict[bytes, int] = {}
    if any(isinstance(given, str) for given in listed):
        known = {entries[id_]: id_ for id_ in sorted(entries, reverse=True)}
    placed: list[AddedToken] = []
    named: set[int] = set()
    n_ids = max(entries, default=-1) + 1
    for given in listed:
        if isinstance(given, AddedToken):
            token = given
        else:
            content = given.encode()
            token = AddedToken(given, known.get(content, n_ids))
            known[content] = token.id
        spelt = spell(token)
        if token.normalized and entries.get(token.id) == spell(replace(token, normalized=False)):
            entries[token.id] = spelt
        is_its_own = entries.setdefault(token.id, spelt) == spelt
        if not is_its_own and token.id not in named:
            raise InvalidSpecError(
                f"the special token {token.content!r:.60} wants id {token.id}, "
                f"which belongs to {entries[token.id]!r:.60}; give it a free id"
            )
        n_ids = max(n_ids, token.id + 1)
        named.add(token.id)
        placed.append(token)
    return tuple(placed)


def _check_respelt(spec: TokenizerSpec, respelt: list[tuple[AddedToken, bytes]]) -> None:
    """Refuse `normalized` tokens whose entry of the vocabulary, before the normalizer changed its
    spelling, is a token of plain text as well (Llama 2 with `add_tokens(["x"])`)."""
    made = set(starmap(add, spec.merges)) if respelt else set()
    for token, entry in respelt:
        is_start = len(entry.decode() if spec.byte_ids else entry) == 1
        has_other = not spec.byte_ids and entry in spec.token_to_id
        if (is_start or entry in made) and not has_other:
            raise InvalidSpecError(
                f"the added token {token.content!r:.60} is searched in the normalized text, as "
                f"{spec.vocab[token.id].decode()!r:.60}, and its id {token.id} is also the token "
                f"{entry.decode()!r:.60} of plain text; give it normalized: false"
            )


def _spell(token: AddedToken, *, normalizer: Normalizer, by_characters: bool = False) -> bytes:
    content = normalizer.spell(token.content) if token.normalized else token.content
    return (content.replace("\u2581", " ") if by_characters else content).encode()


def check_content(content: object) -> None:
    """Raise InvalidSpecError for what cannot be the text of a special token."""
    if not isinstance(content, str) or not content:
        raise InvalidSpecError(
            f"the special token {content!r:.60} must be a string that is not empty: an empty one "
            f"would match everywhere"
        )
    if len(content) > MAX_ADDED_TOKEN_CHARS:
        raise InvalidSpecError(
            f"the special token {content!r:.60} has {len(content)} characters, more than "
            f"{MAX_ADDED_TOKEN_CHARS}; give a shorter one"
        )
    try:
        content.encode()
    except UnicodeEncodeError:
        raise InvalidSpecError(
            f"the special token {content!r:.60} holds a lone surrogate, which is no text"
        ) from None


def _check_vocab(vocab: Mapping[int, bytes], may_lack: Collection[int] = ()) -> int:
    """Refuse ids or tokens that are none; returns the number of distinct tokens."""
    values = set(vocab.values()) if set(map(type, vocab.values())) == {bytes} else set()
    is_sound = set(map(type, vocab)) == {int} and values
    if not is_sound or min(vocab) < 0 or max(vocab) > MAX_TOKEN_ID:
        _name_first_unsound(vocab)
    # Tokens in their order lie next to each other in memory, those of a set do not.
    if values and max(map(len, vocab.values())) > MAX_TOKEN_BYTES:
        id_, token = next(item for item in vocab.items() if len(item[1]) > MAX_TOKEN_BYTES)
        raise InvalidSpecError(
            f"the token of id {id_}, {token[:40]!r}..., has {len(token)} bytes, more than "
            f"{MAX_TOKEN_BYTES}; leave it out"
        )
    missing = [
        byte
        for byte in range(256)
        if bytes([byte]) not in values and byte not in NEVER_IN_UTF8 and byte not in may_lack
    ]
    if missing:
        raise InvalidSpecError(
            f"the vocabulary has no token for {len(missing)} of the bytes of UTF-8 (first: "
            f"0x{missing[0]:02x}); byte-level BPE needs all of them to encode any text"
        )
    return len(values)


def _name_first_unsound(vocab: Mapping[int, bytes]) -> None:
    for id_, token in vocab.items():
        if type(id_) is not int or not 0 <= id_ <= MAX_TOKEN_ID:
            raise InvalidSpecError(f"token id {id_!r:.40} is not an integer in 0..{MAX_TOKEN_ID}")
        if type(token) is not bytes:
            raise InvalidSpecError(f"the token of id {id_} must be bytes, not {token!r:.40}")


def _check_added_tokens(spec: TokenizerSpec) -> None:
    seen: set[str] = set()
    special_of: dict[int, bool] = {}
    strips_right = {token.normalized for token in spec.added_tokens if token.rstrip}
    _list_added_tokens(spec.added_tokens)
    for token in spec.added_tokens:
        if token.content in seen:
            raise InvalidSpecError(
                f"the special token {token.content!r:.60} (id {token.id}) is given twice"
            )
        spelt = spec.spelling(token)
        if spec.vocab.get(token.id) != spelt and token.id not in special_of:
            raise InvalidSpecError(
                f"the special token {token.content!r:.60} is not in the vocabulary"
            )
        if special_of.setdefault(token.id, token.special) != token.special:
            raise InvalidSpecError(
                f"of the tokens with id {token.id}, {token.content!r:.60} alone is "
                f"{'special' if token.special else 'not special'}; make both the same"
            )
        if token.normalized in strips_right and not spelt.decode().strip(WHITE_SPACE):
            raise InvalidSpecError(
                f"the added token {token.content!r:.60} is white space, which a token with the "
                f"flag rstrip includes; remove that flag, or this token"
            )
        seen.add(token.content)


def _check_word_suffix(spec: TokenizerSpec) -> None:
    if not spec.word_suffix:
        return
    if (
        spec.kind != "merges"
        or spec.ignore_merges
        or spec.byte_ids
        or spec.missing
        or not spec.word_suffix.isascii()
    ):
        raise InvalidSpecError(
            "a vocabulary with a word_suffix has an ASCII suffix, merges of bytes, no "
            "ignore_merges, and no missing bytes"
        )
    # Merging does not start from an added token, which `tokenizers` would do.
    present = spec.token_to_id
    missing = [
        byte
        for byte in range(256)
        if bytes([byte]) + spec.word_suffix not in present and byte not in NEVER_IN_UTF8
    ]
    if missing:
        raise InvalidSpecError(
            f"the vocabulary has no token for {len(missing)} of the bytes of UTF-8 at the end of a "
            f"word (first: 0x{missing[0]:02x}, with {spec.word_suffix!r:.40}), so that text could "
            f"give the unknown token; add these tokens"
        )


def _check_byte_ids(spec: TokenizerSpec) -> None:
    if spec.normalizer.is_of_characters != bool(spec.byte_ids):
        raise InvalidSpecError(
            f"the normalizer {spec.normalizer.name} belongs to a vocabulary of characters with the "
            f"ids of the 256 bytes, and to no other; there are {len(spec.byte_ids)} ids"
        )
    if not spec.byte_ids:
        if spec.pattern.name == METASPACE.name and spec.pattern != METASPACE:
            raise InvalidSpecError("this split pattern belongs to a vocabulary of characters")
        return
    ids = [id_ for id_ in spec.byte_ids if id_ >= 0]
    found = [spec.vocab.get(id_) for id_ in spec.byte_ids]
    are_bytes = all(
        token == bytes([byte]) or (id_ < 0 and (byte in NEVER_IN_UTF8 or byte < 0x80))
        for byte, (id_, token) in enumerate(zip(spec.byte_ids, found, strict=True))
    )
    if not are_bytes or len(found) != 256 or len(set(ids)) != len(ids):
        raise InvalidSpecError(
            "byte_ids must be the ids of the bytes 0x00 to 0xff, in order; -1 may stand for bytes "
            "that UTF-8 never has and for those of characters with a token"
        )
    bytes_ = set(spec.byte_ids)
    others = {id_: token for id_, token in spec.vocab.items() if id_ not in bytes_}
    if not _is_utf8(b" ".join(others.values())):
        id_ = next(id_ for id_, token in others.items() if not _is_utf8(token))
        raise InvalidSpecError(
            f"the token of id {id_}, {others[id_]!r:.60}, is not UTF-8; a vocabulary of characters "
            f"has such tokens only in byte_ids"
        )
    pattern = pattern_of_characters(spec.merges)
    if spec.kind != "merges" or spec.ignore_merges or spec.pattern != pattern:
        raise InvalidSpecError(
            f"a vocabulary of characters has merges, no ignore_merges and the split pattern "
            f"{pattern.name} of its merges"
        )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def pattern_of_characters(merges: Iterable[Merge]) -> SplitPattern:
    """Where the texts of a vocabulary of characters may be cut: before a space, where no merge
    joins a token that ends with the character before it to one that begins with a space.

    Every merge across such a cut would join two such tokens, so both sides merge separately.

    Example:
        >>> pattern = pattern_of_characters([(b"a", b" b"), (b"a", b"b")])
        >>> pattern.compile().findall("a b c a d")
        ['a b', ' c', ' a d']
    """
    # A file has hundreds of thousands of merges, and an index makes no object, as a slice does.
    space = ord(" ")
    before = {left for left, right in merges if right and right[0] == space and left[-1:] != b" "}
    try:
        return metaspace_pattern({left.decode()[-1] for left in before})
    except UnicodeDecodeError:
        raise InvalidSpecError(
            "a merge of a vocabulary of characters joins a part of a character to a space"
        ) from None


def _check_idle(spec: TokenizerSpec) -> None:
    idle = spec.idle_ids
    if not idle:
        return
    added = {token.id for token in spec.added_tokens}
    if spec.kind != "merges" or spec.byte_ids or list(idle) != sorted(set(idle)):
        raise InvalidSpecError(
            "idle_ids are ascending ids of a vocabulary of bytes with merges, and of no other"
        )
    for id_ in idle:
        if not _is_utf8(spec.vocab.get(id_, b"\xff")) or id_ in added:
            raise InvalidSpecError(f"the idle id {id_} has no text, or it is an added token")


def _check_missing(spec: TokenizerSpec) -> None:
    missing = spec.missing
    if missing is None:
        return
    if spec.kind != "merges" or spec.byte_ids:
        raise InvalidSpecError("only a vocabulary of bytes with merges may lack bytes of UTF-8")
    values = missing.values
    if (
        not values
        or list(values) != sorted(set(values))
        or not set(values) <= set(range(256)) - NEVER_IN_UTF8
        or len(values) == 256 - len(NEVER_IN_UTF8)
    ):
        raise InvalidSpecError(
            f"the missing bytes must be some of those of UTF-8, ascending, not {values!r:.60}"
        )
    ends = missing.ends
    if list(ends) != sorted(set(ends)) or not set(ends) <= set(range(256)) - set(values):
        raise InvalidSpecError(
            f"the ends must be bytes that are not missing, ascending, not {ends!r:.60}"
        )
    lost = {bytes([byte]) for byte in values}
    never_of_text = {token.id for token in spec.added_tokens}.union(spec.idle_ids)
    for id_, token in spec.vocab.items():
        if token in lost and id_ not in never_of_text:
            raise InvalidSpecError(f"the missing byte {token!r} has a token, id {id_}")
    if missing.unk_id is None:
        if missing.is_fused:
            raise InvalidSpecError("is_fused needs an unknown token, whose ids it joins")
        return
    unknown = spec.vocab.get(missing.unk_id)
    if not unknown:
        raise InvalidSpecError(f"the unknown token has id {missing.unk_id!r:.40}, without a token")
    if any(unknown in merge for merge in spec.merges):
        raise InvalidSpecError(
            f"a merge joins the unknown token {unknown!r:.60} with another, which cannot be "
            f"encoded exactly; give the missing bytes another unknown token"
        )


def _check_sides(merges: tuple[Merge, ...]) -> None:
    sides = set(map(len, merges)), set(map(type, chain.from_iterable(merges)))
    for rank, merge in enumerate(merges) if sides not in _SOUND_SIDES else ():
        if len(merge) != 2 or not all(type(part) is bytes for part in merge):
            raise InvalidSpecError(f"merge {rank} must be a pair of bytes, not {merge!r:.60}")


def _check_merges(spec: TokenizerSpec) -> None:
    """Refuse merges of tokens that encoding cannot produce, and merges given twice."""
    if not spec.merges:
        return
    try:
        ids = spec.merge_ids
    except KeyError:
        ids = None
    if ids is not None:
        _check_once(spec.merges, ids)
        can_be_made = np.zeros(spec.largest_id + 1, bool)
        can_be_made[np.fromiter(spec.token_to_id.values(), np.uint32)] = True
        lacking = np.flatnonzero(~can_be_made[ids].all(axis=1))
        if not len(lacking):
            return
        # Of a million merges only the first that may be at fault is looked at.
        rank = int(lacking[0])
        _check_parts(rank, spec.merges[rank], spec.token_to_id)
    seen: set[Merge] = set()
    for rank, merge in enumerate(spec.merges):
        left, right = merge
        _check_parts(rank, merge, spec.token_to_id)
        if merge in seen:
            raise InvalidSpecError(f"merge {rank} ({left!r:.40}, {right!r:.40}) stands twice")
        seen.add(merge)


def _check_once(merges: tuple[Merge, ...], ids: NDArray[np.uint32]) -> None:
    """Refuse a merge that is given twice, by the ids of all."""
    pairs = ids[:, 0].astype(np.uint64) << 32 | ids[:, 1]
    ordered = np.sort(pairs)
    if (ordered[1:] != ordered[:-1]).all():
        return
    order = np.argsort(pairs, kind="stable")
    again = order[1:][pairs[order[1:]] == pairs[order[:-1]]]
    rank = int(again.min())
    left, right = merges[rank]
    raise InvalidSpecError(f"merge {rank} ({left!r:.40}, {right!r:.40}) stands twice")


def _check_parts(rank: int, merge: Merge, known: Mapping[bytes, int]) -> None:
    left, right = merge
    for part in (left, right, left + right):
        if part not in known:
            raise missing_part_error(rank, merge, part)


def missing_part_error(rank: int, merge: Merge, part: bytes) -> InvalidSpecError:
    """For a merge that needs a token which the vocabulary lacks."""
    left, right = merge
    return InvalidSpecError(
        f"merge {rank} ({left!r:.40}, {right!r:.40}) needs the token {part!r:.60}, which is not in "
        f"the vocabulary: these merges belong to another vocabulary"
    )
