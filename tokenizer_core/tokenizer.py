"""Tokenizer: the public face of encoding and decoding.

It joins what stands below it (special tokens, normalizing, an engine) and adds the forms people
want the result in. `from_*` and `save_*` are one-line doors to `formats`. Immutable, thread-safe,
picklable, safe under fork and spawn.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokenizer_core import formats
from tokenizer_core.engines import create_engine
from tokenizer_core.normalize import OriginalOffsets, normalize_nfc
from tokenizer_core.parallel import run_tasks
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.special_tokens import forbid, matcher_of, resolve_policy
from tokenizer_core.streaming import StreamingEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from tokenizer_core.engines import CacheStatistics, Engine
    from tokenizer_core.patterns import SplitPattern
    from tokenizer_core.special_tokens import (
        Allowed,
        Disallowed,
        SpecialTokenMatcher,
    )

    Path = str | PathLike[str]
    Ids = Iterable[int] | NDArray[np.integer]

BATCH_BLOCK_BYTES = 1 << 17
"""Texts go to worker processes in blocks of at least this size: below it sending costs more than
encoding."""
_FEED_CHARS = 1 << 14


class Tokenizer:
    """Byte-level BPE: text to token ids and back, the same ids as the reference, always.

    `vocab` maps id to bytes and `merges` lists pairs in order, as the course's trainer returns
    them; special tokens missing from the vocabulary are appended after the largest id, in the
    order given. A special token given here is recognised in text by default: for text that
    strangers wrote, encode with `allowed_special="none"`.

    Raises:
        InvalidSpecError: the vocabulary, merges or special tokens do not fit together.
        UnknownPatternError: no such split pattern.

    Example:
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo", 257: b"low"}
        >>> tokenizer = Tokenizer(vocab, [(b"l", b"o"), (b"lo", b"w")], ["<|end|>"])
        >>> tokenizer.encode("low<|end|>")
        [257, 258]
        >>> tokenizer.decode([257, 258])
        'low<|end|>'
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str | SplitPattern = "gpt2",
        engine: str = "auto",
    ) -> None:
        spec = TokenizerSpec.from_merges(vocab, merges, special_tokens or (), pattern=pattern)
        self._set_up(spec, engine)

    @classmethod
    def from_spec(cls, spec: TokenizerSpec, *, engine: str = "auto") -> Tokenizer:
        """A tokenizer for a spec that is already there."""
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(spec, engine)
        return tokenizer

    @classmethod
    def from_files(
        cls,
        vocab_filepath: Path,
        merges_filepath: Path,
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str | SplitPattern | None = None,
        engine: str = "auto",
    ) -> Tokenizer:
        """A tokenizer from pickles as the trainer writes them, or GPT-2's `vocab.json` and
        `merges.txt`; which of the two is seen from the content.

        These files carry no split pattern. A `manifest.json` beside them does, and must agree
        with the arguments; without one the pattern is `gpt2`, as in the course.

        Raises:
            FormatError: a file is not what it should be, or the manifest disagrees.
        """
        spec = formats.load_files_spec(vocab_filepath, merges_filepath, special_tokens, pattern)
        return cls.from_spec(spec, engine=engine)

    @classmethod
    def from_tiktoken(
        cls,
        path: Path,
        *,
        pattern: str | SplitPattern,
        special_tokens: Mapping[str, int],
        engine: str = "auto",
    ) -> Tokenizer:
        """A tokenizer from a `.tiktoken` rank file, which carries neither pattern nor special
        tokens: both must be given."""
        ranks = formats.load_tiktoken_ranks(path)
        spec = TokenizerSpec.from_ranks(ranks, special_tokens, pattern=pattern)
        return cls.from_spec(spec, engine=engine)

    @classmethod
    def from_tokenizer_json(cls, path: Path, *, engine: str = "auto") -> Tokenizer:
        """A tokenizer from Hugging Face's `tokenizer.json` (byte-level BPE; anything else is
        refused by name)."""
        return cls.from_spec(formats.load_tokenizer_json(path), engine=engine)

    def save_files(self, vocab_filepath: Path, merges_filepath: Path) -> None:
        """Write the vocabulary and merges as pickles."""
        formats.save_pickles_of_spec(self._spec, vocab_filepath, merges_filepath)

    def save_gpt2_files(self, vocab_json: Path, merges_txt: Path) -> None:
        """Write `vocab.json` and `merges.txt` in GPT-2's alphabet."""
        formats.save_gpt2_files(self._spec, vocab_json, merges_txt)

    def save_tiktoken(self, path: Path) -> None:
        """Write a `.tiktoken` rank file; refused where ranks cannot say what the merges do."""
        formats.save_tiktoken(self._spec, path)

    def save_tokenizer_json(self, path: Path) -> None:
        """Write Hugging Face's `tokenizer.json`."""
        formats.save_tokenizer_json(self._spec, path)

    @property
    def spec(self) -> TokenizerSpec:
        """Everything that decides an id."""
        return self._spec

    @property
    def engine(self) -> Engine:
        """What computes the ids."""
        return self._engine

    @property
    def engine_name(self) -> str:
        """`python` or `native`."""
        return self._engine.name

    @property
    def vocab_size(self) -> int:
        """The number of tokens, added ones included; ids may have gaps, see `spec.largest_id`."""
        return len(self._spec.vocab)

    def encode(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
    ) -> list[int]:
        """The token ids of `text`.

        `allowed_special` (`"all"`, `"none"` or names) says which special tokens are recognised;
        one that stands in `disallowed_special` (`"all"` or names) and in the text is an error;
        one that is in neither is plain text. `add_special_tokens` puts around the text what the
        tokenizer's post-processor adds (Llama 3's `<|begin_of_text|>`).

        Raises:
            SpecialTokenForbiddenError: the text holds a disallowed special token.
            UnicodeEncodeError: the text holds a lone surrogate.
        """
        matcher = self._choose_matcher(text, allowed_special, disallowed_special)
        if not matcher.may_match(text):
            # A short text costs the engine less than going through the loop below does.
            ids = self._engine.encode(normalize_nfc(text) if self._is_nfc else text)
        else:
            ids = []
            for plain, token in matcher.split(text):
                if plain:
                    ids += self._engine.encode(normalize_nfc(plain) if self._is_nfc else plain)
                if token is not None:
                    ids.append(self._added[token])
        if add_special_tokens:
            return [*self._spec.prefix_ids, *ids, *self._spec.suffix_ids]
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """The token ids of `text` taken as plain text throughout: no added token is recognised,
        not even those that are content. For text that strangers wrote."""
        return self._engine.encode(normalize_nfc(text) if self._is_nfc else text)

    def encode_to_numpy(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        add_special_tokens: bool = False,
        num_threads: int | None = None,
    ) -> NDArray[np.uint32]:
        """As `encode`, as an array of shape (n_tokens,), uint32.

        `num_threads` bounds the threads of an engine that has them, one when it is not given; the
        Python engine uses one.
        """
        matcher = self._choose_matcher(text, allowed_special, disallowed_special)
        parts: list[NDArray[np.uint32]] = []
        for plain, token in matcher.split(text):
            if plain:
                normalized = normalize_nfc(plain) if self._is_nfc else plain
                parts.append(self._engine.encode_to_numpy(normalized, num_threads))
            if token is not None:
                parts.append(np.array([self._added[token]], dtype=np.uint32))
        if add_special_tokens:
            parts.insert(0, np.array(self._spec.prefix_ids, dtype=np.uint32))
            parts.append(np.array(self._spec.suffix_ids, dtype=np.uint32))
        if len(parts) == 1:
            return parts[0]  # joining would copy what may be the ids of a whole corpus
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
        unit: Literal["byte", "char"] = "byte",
    ) -> tuple[list[int], NDArray[np.uint64]]:
        """The token ids and, for each, where it stands in `text`: shape (n_tokens, 2), uint64,
        start and end.

        `unit="byte"` counts UTF-8 bytes. `unit="char"` counts characters and covers every
        character that a token has a byte of, so neighbours may overlap. With NFC the offsets
        refer to `text` as given.
        """
        if unit not in ("byte", "char"):
            raise ValueError(f"unit must be 'byte' or 'char', not {unit!r:.40}")
        matcher = self._choose_matcher(text, allowed_special, disallowed_special)
        ids: list[int] = []
        parts: list[NDArray[np.uint64]] = []
        position = 0
        for plain, token in matcher.split(text):
            if plain:
                plain_ids, offsets = self._encode_plain_with_offsets(plain)
                ids += plain_ids
                parts.append(offsets + np.uint64(position))
                position += len(plain.encode())
            if token is not None:
                ids.append(self._added[token])
                end = position + len(token.encode())
                parts.append(np.array([[position, end]], dtype=np.uint64))
                position = end
        joined = np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.uint64)
        return ids, joined if unit == "byte" else _char_offsets(text, joined)

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        num_workers: int = 1,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
    ) -> list[list[int]]:
        """The token ids of each text, in order.

        With `num_workers` above 1 this process and `num_workers - 1` others share the work, in
        blocks of at least 128 kB. They are started for this call, which takes some tenths of a
        second: it pays from some megabytes on.
        """
        if isinstance(texts, str) or not hasattr(texts, "__getitem__"):
            raise TypeError("texts must be a list of strings")
        options = (_plain_policy(allowed_special), _plain_policy(disallowed_special))
        blocks = list(_blocks_of(texts))
        if num_workers <= 1 or len(blocks) <= 1:
            return _encode_block(self, (options, texts))
        tasks = ((options, texts[start:end]) for start, end in blocks)
        results: list[list[list[int]]] = [[]] * len(blocks)
        for index, encoded in run_tasks(
            _encode_block, tasks, num_workers=num_workers, state=self, caller_takes_part=True
        ):
            results[index] = encoded
        return [ids for block in results for ids in block]

    def encode_iterable(
        self,
        iterable: Iterable[str],
        *,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
    ) -> Iterator[int]:
        """The token ids of the texts joined, lazily and in bounded memory.

        The ids are those of the joined text whatever the cuts between the texts.
        """
        stream = StreamingEncoder(
            self, allowed_special=allowed_special, disallowed_special=disallowed_special
        )
        waiting: list[str] = []
        n_chars = 0
        # Lines are gathered: a call of the stream costs as much as encoding some hundred bytes.
        for text in iterable:
            waiting.append(text)
            n_chars += len(text)
            if n_chars >= _FEED_CHARS:
                yield from stream.feed("".join(waiting))
                waiting, n_chars = [], 0
        yield from stream.feed("".join(waiting))
        yield from stream.finish()

    def count(
        self,
        text: str,
        *,
        limit: int | None = None,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
    ) -> int:
        """The number of token ids of `text`, without building them.

        With a `limit` counting stops once it is exceeded: an answer above `limit` means "more
        than that", not the full number.
        """
        matcher = self._choose_matcher(text, allowed_special, disallowed_special)
        total = 0
        for plain, token in matcher.split(text):
            left = None if limit is None else limit - total
            if plain:
                total += self._engine.count(normalize_nfc(plain) if self._is_nfc else plain, left)
            total += token is not None
            if limit is not None and total > limit:
                break
        return total

    def decode(self, ids: Ids, errors: str = "replace", skip_special_tokens: bool = False) -> str:
        """The text of `ids` (a sequence of ints or an integer array).

        Bytes that are not UTF-8 become U+FFFD, or an error with `errors="strict"`.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary; names index and id.
            UnicodeDecodeError: with `errors="strict"`.
        """
        checked = _check_ids(ids)
        if skip_special_tokens:
            listed = checked.tolist() if isinstance(checked, np.ndarray) else checked
            checked = [id_ for id_ in listed if id_ not in self._special_ids]
        return self._engine.decode_bytes(checked).decode("utf-8", errors)

    def decode_bytes(self, ids: Ids) -> bytes:
        """The bytes of `ids`, joined; cut inside a character they are not UTF-8.

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary; names index and id.
        """
        return self._engine.decode_bytes(_check_ids(ids))

    def cache_statistics(self) -> CacheStatistics:
        """How the engine's pre-token cache has done."""
        return self._engine.cache_statistics()

    def __repr__(self) -> str:
        spec = self._spec
        return (
            f"<Tokenizer {spec.kind}, {self.vocab_size} tokens, pattern {spec.pattern.name}, "
            f"{self.engine_name} engine, {spec.fingerprint[:8]}>"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Tokenizer.from_spec, engine=self.engine_name), (self._spec,)

    def _set_up(self, spec: TokenizerSpec, engine: str) -> None:
        self._spec = spec
        self._engine = create_engine(spec, engine)
        self._added = {token.content: token.id for token in spec.added_tokens}
        self._special_ids = frozenset(spec.special_tokens.values())
        self._matcher = matcher_of(frozenset(self._added))
        self._is_nfc = spec.normalizer == "nfc"

    def _choose_matcher(
        self, text: str, allowed: Allowed, disallowed: Disallowed
    ) -> SpecialTokenMatcher:
        if allowed == "all" and not disallowed:
            return self._matcher
        recognised, forbidden = resolve_policy(self._spec.added_tokens, allowed, disallowed)
        forbid(text, forbidden)
        return matcher_of(recognised)

    def _encode_plain_with_offsets(self, plain: str) -> tuple[list[int], NDArray[np.uint64]]:
        text = normalize_nfc(plain) if self._is_nfc else plain
        ids = self._engine.encode(text)
        vocab = self._spec.vocab
        ends = np.cumsum([len(vocab[id_]) for id_ in ids], dtype=np.uint64)
        starts = np.concatenate([np.zeros(1, dtype=np.uint64), ends[:-1]])
        offsets = np.stack([starts, ends], axis=1)
        return ids, offsets if text == plain else OriginalOffsets(plain).map(offsets)


def _check_ids(ids: Ids) -> Iterable[int] | NDArray[np.integer]:
    """`ids` as they are, but for arrays that hold no integers, which are refused."""
    if isinstance(ids, np.ndarray) and not np.issubdtype(ids.dtype, np.integer):
        if ids.size:
            raise TypeError(f"ids must be integers, not an array of {ids.dtype}")
        return []
    return ids


def _plain_policy(policy: Allowed | Disallowed) -> str | tuple[str, ...]:
    return policy if isinstance(policy, str) else tuple(policy)


def _blocks_of(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Ranges of texts that hold at least BATCH_BLOCK_BYTES characters together."""
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= BATCH_BLOCK_BYTES:
            yield start, index + 1
            start, size = index + 1, 0
    if start < len(texts):
        yield start, len(texts)


def _encode_block(
    tokenizer: Tokenizer,
    task: tuple[tuple[str | tuple[str, ...], str | tuple[str, ...]], Sequence[str]],
) -> list[list[int]]:
    (allowed, disallowed), texts = task
    return [
        tokenizer.encode(text, allowed_special=allowed, disallowed_special=disallowed)  # type: ignore[arg-type]
        for text in texts
    ]


def _char_offsets(text: str, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Byte offsets as character offsets that cover every character touched."""
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    if not len(data):
        return offsets
    char_at = np.cumsum((data & 0xC0) != 0x80).astype(np.uint64) - np.uint64(1)
    starts = char_at[offsets[:, 0]]
    ends = char_at[offsets[:, 1] - np.uint64(1)] + np.uint64(1)
    return np.stack([starts, ends], axis=1)
