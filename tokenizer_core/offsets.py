"""Offsets of the tokens of a text, in bytes or characters of the original text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenizer_core.normalize import OriginalOffsets, metaspace_offsets, normalized_segments
from tokenizer_core.pretokenize import find_kept_spans, split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokenizer_core.engines import Engine
    from tokenizer_core.spec import MissingBytes, TokenizerSpec
    from tokenizer_core.special_tokens import SpecialTokenMatcher


def encode_with_byte_offsets(
    spec: TokenizerSpec, engine: Engine, matcher: SpecialTokenMatcher, text: str
) -> tuple[list[int], NDArray[np.uint64]]:
    """The ids of `text`, and their UTF-8 byte offsets (start, end): shape (n_tokens, 2), uint64."""
    added = {token.content: token.id for token in spec.added_tokens}
    ids: list[int] = []
    parts: list[NDArray[np.uint64]] = []
    spans = list(matcher.spans(text))
    segments = [(text[span.plain_start : span.start], span.content) for span in spans]
    rest = spans[-1].end if spans else 0
    normalized = normalized_segments(spec.normalizer, [*segments, (text[rest:], None)])
    positions = _BytePositions(text)
    for span, (changed, _) in zip([*spans, None], normalized, strict=True):
        start, end = (rest, len(text)) if span is None else (span.plain_start, span.start)
        if start < end:
            plain_ids, offsets = _encode_plain(spec, engine, text[start:end], changed)
            ids += plain_ids
            parts.append(offsets + np.uint64(positions[start]))
        if span is not None:
            ids.append(added[span.content])
            around = [positions[span.start], positions[span.end]]
            parts.append(np.array([around], dtype=np.uint64))
    return ids, np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.uint64)


class _BytePositions:
    """Converts indices of characters, each near the one before, to positions in UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._index = self._position = 0

    def __getitem__(self, index: int) -> int:
        start, end = sorted((self._index, index))
        n_between = len(self._text[start:end].encode())
        self._position += n_between if index > self._index else -n_between
        self._index = index
        return self._position


def _encode_plain(
    spec: TokenizerSpec, engine: Engine, plain: str, text: str
) -> tuple[list[int], NDArray[np.uint64]]:
    """Of `plain`, whose normalized text is `text`."""
    ids = engine.encode(text)
    if spec.missing:
        offsets = _offsets_around_missing(spec, spec.missing, text, ids)
    else:
        ends = np.cumsum([len(spec.vocab[id_]) for id_ in ids], dtype=np.uint64)
        starts = np.concatenate([np.zeros(1, dtype=np.uint64), ends])[:-1]
        offsets = np.stack([starts, ends], axis=1)
    if spec.pattern.drops:
        offsets = _offsets_in_whole(text, find_kept_spans(text, spec.pattern), offsets)
    if text == plain:
        return ids, offsets
    if spec.normalizer != "nfc":
        return ids, metaspace_offsets(plain, text, offsets)
    return ids, OriginalOffsets(plain).map(offsets)


def _offsets_around_missing(
    spec: TokenizerSpec, missing: MissingBytes, text: str, ids: list[int]
) -> NDArray[np.uint64]:
    """Offsets in the joined pre-tokens of `text`, in bytes. Bytes that merging left out belong to
    no token, except those within one."""
    lost = bytes(missing.values)
    offsets: list[tuple[int, int]] = []
    left, start = iter(ids), 0
    for pre_token in map(str.encode, split(text, spec.pattern)):
        end = start + len(pre_token)
        is_whole = spec.ignore_merges and pre_token in spec.token_to_id
        if is_whole:
            next(left)
            offsets.append((start, end))
        elif len(pre_token.translate(None, lost)) < len(pre_token):
            for first, last in _spans_around_missing(spec, missing, pre_token, left):
                offsets.append((start + first, start + last))
        else:
            while start < end:
                offsets.append((start, start + len(spec.vocab[next(left)])))
                start = offsets[-1][1]
        start = end
    return np.array(offsets, dtype=np.uint64).reshape(-1, 2)


def _spans_around_missing(
    spec: TokenizerSpec, missing: MissingBytes, pre_token: bytes, ids: Iterator[int]
) -> Iterator[tuple[int, int]]:
    lost, size = frozenset(missing.values), len(pre_token)
    start = 0
    while start < size:
        end = start + 1
        if pre_token[start] not in lost:
            n_left = len(spec.vocab[next(ids)]) - 1
            while n_left:
                n_left -= pre_token[end] not in lost
                end += 1
        elif missing.unk_id is None:
            start = end
            continue
        else:
            next(ids)
            while missing.is_fused and end < size and pre_token[end] in lost:
                end += 1
        yield start, end
        start = end


def _offsets_in_whole(
    text: str, kept: list[tuple[int, int]], offsets: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Convert offsets in the joined kept spans of `text` to offsets in all of it, in bytes."""
    if not len(offsets):
        return offsets
    spans = np.array(kept, dtype=np.int64)
    if not text.isascii():
        sizes = [len(character.encode()) for character in text]
        spans = np.concatenate(([0], np.cumsum(sizes)))[spans]
    ends = np.cumsum(spans[:, 1] - spans[:, 0])
    shifts = spans[:, 1] - ends
    # A token is within one span: the first whose end is after the token's start.
    within = np.searchsorted(ends, offsets[:, 0].astype(np.int64), side="right")
    return offsets + shifts[within].astype(np.uint64)[:, np.newaxis]


def char_offsets(text: str, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Convert byte offsets, shape (n_tokens, 2), to character offsets, which include every partly
    covered character."""
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    if not len(data):
        return offsets
    char_at = np.cumsum((data & 0xC0) != 0x80).astype(np.uint64) - np.uint64(1)
    starts = char_at[offsets[:, 0]]
    ends = char_at[offsets[:, 1] - np.uint64(1)] + np.uint64(1)
    return np.stack([starts, ends], axis=1)
