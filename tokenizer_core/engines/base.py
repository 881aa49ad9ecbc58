"""BaseEngine: everything an engine does beyond encoding plain text.

It cuts out special tokens, joins results and renders JSON. Every engine inherits it; a faster
engine overrides the methods that it speeds up.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.engines.protocol import CallsOfMatcher, EncodedDocuments
from tokenizer_core.normalizers.nfc import changed, changes_by_nfc
from tokenizer_core.specials.trust import join_segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokenizer_core.engines.protocol import EngineStreams, Row
    from tokenizer_core.normalizers.nfc import NfcChange
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.specials.matcher import SpecialTokenMatcher
    from tokenizer_core.specials.trust import Segment

_JSON_WINDOW: Final = 1 << 15
"""Ids rendered at a time: one `json.dumps` of a million ids holds the GIL for 80 ms."""


class BaseEngine(ABC):
    """`protocol.Engine` based on `_encode_plain`, which each engine must implement."""

    has_threads = False
    normalizes_spaces = False

    def __init__(self, spec: TokenizerSpec) -> None:
        self._added = {token.content: token.id for token in spec.added_tokens}
        self._spec = spec

    def encode(self, text: str, matcher: SpecialTokenMatcher | None = None) -> list[int]:
        """Ids of `text`; each special token that `matcher` finds becomes one id."""
        require_characters(text)
        if matcher is None or not matcher.may_match(text):
            return self._encode_plain(text)
        ids: list[int] = []
        for plain, token in matcher.split(text):
            if plain:
                ids += self._encode_plain(plain)
            if token is not None:
                ids.append(self._added[token])
        return ids

    def encode_to_numpy(
        self,
        text: str,
        num_threads: int | None = None,
        matcher: SpecialTokenMatcher | None = None,
        changes: Sequence[NfcChange] = (),
    ) -> NDArray[np.uint32]:
        """As `encode`, of the text with `changes`; uint32 of shape (n_tokens,). Always uses one
        thread."""
        del num_threads
        require_characters(text)
        text = changed(text, changes)
        if matcher is None or not matcher.may_match(text):
            return self._encode_plain_to_numpy(text)
        parts: list[NDArray[np.uint32]] = []
        for plain, token in matcher.split(text):
            if plain:
                parts.append(self._encode_plain_to_numpy(plain))
            if token is not None:
                parts.append(np.array([self._added[token]], dtype=np.uint32))
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)

    def calls_of(self, matcher: SpecialTokenMatcher) -> CallsOfMatcher:
        return CallsOfMatcher(self.encode, self.encode_to_numpy, matcher)

    def encode_to_json(
        self,
        text: str,
        matcher: SpecialTokenMatcher | None = None,
        changes: Sequence[NfcChange] = (),
        *,
        prefix_ids: Sequence[int] = (),
        suffix_ids: Sequence[int] = (),
    ) -> tuple[bytes, int]:
        """The ids as a JSON array without white space, and their number."""
        require_characters(text)
        ids = [*prefix_ids, *self.encode(changed(text, changes), matcher), *suffix_ids]
        starts = range(0, len(ids), _JSON_WINDOW)
        windows = (ids[start : start + _JSON_WINDOW] for start in starts)
        joined = ",".join(json.dumps(window, separators=(",", ":"))[1:-1] for window in windows)
        return f"[{joined}]".encode(), len(ids)

    def encode_batch(
        self,
        texts: Sequence[str],
        num_threads: int | None = None,
        matcher: SpecialTokenMatcher | None = None,
    ) -> list[list[int]]:
        """As `encode`, of each text in order."""
        del num_threads
        return [self.encode(text, matcher) for text in texts]

    def encode_batch_to_numpy(
        self,
        texts: Sequence[str],
        num_threads: int | None = None,
        matcher: SpecialTokenMatcher | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
        """The ids of all texts, and the offsets of each text's ids."""
        del num_threads
        return join_with_offsets([self.encode_to_numpy(text, None, matcher) for text in texts])

    def encode_documents(
        self,
        texts: Sequence[bytes],
        begin_end_ids: tuple[int | None, int | None] = (None, None),
        matcher: SpecialTokenMatcher | None = None,
        *,
        as_uint16: bool = False,
    ) -> EncodedDocuments:
        """The ids of all texts, each with its begin and end id."""
        encoded = (self.encode_to_numpy(text.decode(), None, matcher) for text in texts)
        return join_documents(texts, encoded, begin_end_ids, as_uint16=as_uint16)

    def count(
        self, text: str, limit: int | None = None, matcher: SpecialTokenMatcher | None = None
    ) -> int:
        """The number of ids of `text`; counting may stop once it exceeds `limit`."""
        require_characters(text)
        if matcher is None or not matcher.may_match(text):
            return self._count_plain(text, limit)
        total = 0
        for plain, token in matcher.split(text):
            left = None if limit is None else limit - total
            total += self._count_plain(plain, left) + (token is not None)
            if limit is not None and total > limit:
                break
        return total

    def join_segments(self, segments: Iterable[Segment]) -> tuple[str, list[tuple[int, int]]]:
        """The joined text, and the runs of it that are trusted."""
        return join_segments(segments)

    def normalize(self, text: str, *, is_first: bool = True, continues: bool = False) -> str:
        """A part of a text, normalized."""
        return self._spec.normalizer.normalize(text, is_first=is_first, continues=continues)

    def nfc_changes(self, text: str) -> list[NfcChange]:
        """The changes that `normalize_nfc` makes in `text`, in order; none if it is in NFC."""
        return changes_by_nfc(text)

    def decode_batch(
        self, rows: list[Row], num_threads: int | None = None, *, skip_special: bool = False
    ) -> list[str] | None:
        """None: each row is decoded by itself."""
        del rows, num_threads, skip_special
        return None

    def first_drifts(
        self, rows: list[Row], matcher: SpecialTokenMatcher, num_threads: int | None = None
    ) -> NDArray[np.int64] | None:
        """None: each row is decoded, and all are encoded."""
        del rows, matcher, num_threads
        return None

    def decode_streams(self) -> EngineStreams | None:
        """None: each stream is decoded by itself."""
        return None

    def json_of_ids(self, ids: NDArray[np.uint32]) -> bytes:
        """A JSON array, without white space, of ids of shape (n_tokens,)."""
        return json.dumps(ids.tolist(), separators=(",", ":")).encode()

    @abstractmethod
    def _encode_plain(self, text: str) -> list[int]:
        """Ids of `text`, treated as plain text."""

    def _encode_plain_to_numpy(self, text: str) -> NDArray[np.uint32]:
        return np.array(self._encode_plain(text), dtype=np.uint32)

    def _count_plain(self, text: str, limit: int | None) -> int:
        del limit
        return len(self._encode_plain(text))


def require_text(text: object) -> None:
    """Raise TypeError unless `text` is a str."""
    if not isinstance(text, str):
        remedy = "; decode it first" if isinstance(text, bytes | bytearray | memoryview) else ""
        raise TypeError(f"text must be a str, not {type(text).__name__}{remedy}")


def require_characters(text: str) -> None:
    """Raise TypeError unless `text` is a str, and UnicodeEncodeError for a lone surrogate.

    A part of a text would have it at another position, and what a pattern leaves out is never
    written as UTF-8.
    """
    require_text(text)
    str.encode(text)


def join_documents(
    texts: Sequence[bytes],
    encoded: Iterable[NDArray[np.uint32]],
    begin_end_ids: tuple[int | None, int | None],
    *,
    as_uint16: bool,
) -> EncodedDocuments:
    """The ids of the texts, each with its begin and end id, as `Engine.encode_documents`."""
    begin, end = (np.array([] if id_ is None else [id_], np.uint32) for id_ in begin_end_ids)
    ids, offsets = join_with_offsets([np.concatenate((begin, i, end)) for i in encoded])
    n_bytes = np.array([len(text) for text in texts], dtype=np.uint64)
    if not as_uint16:
        return EncodedDocuments(ids, offsets, n_bytes)
    if len(ids) and ids.max() > np.iinfo(np.uint16).max:
        raise ValueError("an id does not fit two bytes; leave out as_uint16")
    return EncodedDocuments(ids.astype(np.uint16), offsets, n_bytes)


def join_with_offsets(
    parts: Sequence[NDArray[np.uint32]],
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Join the parts, shape (n_tokens,), and return their offsets, shape (n_parts + 1,)."""
    offsets = np.zeros(len(parts) + 1, dtype=np.uint64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return np.concatenate(parts) if len(parts) else np.empty(0, dtype=np.uint32), offsets
