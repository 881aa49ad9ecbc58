"""Offsets of the tokens of a text, in bytes or characters of the original text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenizer_core.normalization import normalized_parts, passes_of, steps_of
from tokenizer_core.normalize import OriginalOffsets, metaspace_offsets
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
    if spec.normalizer == "steps":
        return _encode_with_steps(spec, engine, matcher, text)
    spans = list(matcher.spans(text))
    rest = spans[-1].end if spans else 0
    normalized = normalized_parts(spec, matcher, text)
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


def _encode_with_steps(
    spec: TokenizerSpec, engine: Engine, matcher: SpecialTokenMatcher, text: str
) -> tuple[list[int], NDArray[np.uint64]]:
    """As `encode_with_byte_offsets`, with the normalizer `steps`."""
    added = {token.content: token.id for token in spec.added_tokens}
    passes, steps = passes_of(spec, matcher), steps_of(spec)
    ids: list[int] = []
    parts = [np.empty((0, 2), dtype=np.uint64)]
    position = n_chars = 0
    for plain, token in passes.first.split(text):
        normalized, spans = steps.normalize_with_spans(plain)
        start = 0
        found: list[NDArray[np.uint64]] = []
        for part, name in passes.second_in(plain, n_chars).split(normalized):
            part_ids, offsets = _encode_text(spec, engine, part)
            ids += part_ids
            found.append(offsets + np.uint64(start))
            start += len(part.encode())
            if name is not None:
                ids.append(added[passes.names[name]])
                end = start + len(name.encode())
                found.append(np.array([[start, end]], dtype=np.uint64))
                start = end
        mapped = _source_offsets(plain, normalized, spans, np.concatenate(found))
        parts.append(mapped + np.uint64(position))
        position += len(plain.encode())
        n_chars += len(plain) + len(token or "")
        if token is not None:
            ids.append(added[token])
            end = position + len(token.encode())
            parts.append(np.array([[position, end]], dtype=np.uint64))
            position = end
    return ids, np.concatenate(parts)


def _source_offsets(
    source: str, text: str, spans: NDArray[np.int64], offsets: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Offsets in `source`, in bytes, for those in its normalized text, whose characters come from
    `spans`. Bytes of an unchanged character keep their own; others have those of the span."""
    if text == source and np.array_equal(spans[:, 0], np.arange(len(text))):
        return offsets
    source_starts = np.cumsum([0, *map(len, map(str.encode, source))])
    starts = np.cumsum([0, *map(len, map(str.encode, text))])
    is_same = np.array(
        [
            end == start + 1 and source[start] == character
            for character, (start, end) in zip(text, spans.tolist(), strict=True)
        ],
        dtype=bool,
    )
    signed = offsets.astype(np.int64)
    first = np.searchsorted(starts, signed[:, 0], side="right") - 1
    last = np.searchsorted(starts, signed[:, 1], side="left") - 1
    first_starts = source_starts[spans[first, 0]]
    last_starts = source_starts[spans[last, 0]]
    mapped = np.stack(
        [
            first_starts + np.where(is_same[first], signed[:, 0] - starts[first], 0),
            np.where(
                is_same[last],
                last_starts + signed[:, 1] - starts[last],
                source_starts[spans[last, 1]],
            ),
        ],
        axis=1,
    )
    return mapped.astype(np.uint64)


def _encode_plain(
    spec: TokenizerSpec, engine: Engine, plain: str, text: str
) -> tuple[list[int], NDArray[np.uint64]]:
    """Of `plain`, whose normalized text is `text`."""
    ids, offsets = _encode_text(spec, engine, text)
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


def _encode_text(
    spec: TokenizerSpec, engine: Engine, text: str
) -> tuple[list[int], NDArray[np.uint64]]:
    """The ids of a normalized text, and their offsets in it."""
    if spec.missing:
        ids = engine.encode(text)
        offsets = _offsets_around_missing(spec, spec.missing, text, ids)
    else:
        if spec.word_suffix:
            ids, sizes = _encode_words(spec, engine, text)
        else:
            ids = engine.encode(text)
            sizes = [len(spec.vocab[id_]) for id_ in ids]
        ends = np.cumsum(sizes, dtype=np.uint64)
        starts = np.concatenate([np.zeros(1, dtype=np.uint64), ends])[:-1]
        offsets = np.stack([starts, ends], axis=1)
    if spec.pattern.drops:
        offsets = _offsets_in_whole(text, find_kept_spans(text, spec.pattern), offsets)
    return ids, offsets


def _encode_words(spec: TokenizerSpec, engine: Engine, text: str) -> tuple[list[int], list[int]]:
    """The ids of a normalized text, and how many of its bytes each stands for: the last of a
    pre-token has the suffix."""
    ids: list[int] = []
    sizes: list[int] = []
    for pre_token in split(text, spec.pattern):
        found = engine.encode_pre_tokens([pre_token])
        ids += found
        sizes += [len(spec.vocab[id_]) for id_ in found]
        sizes[-1] -= len(spec.word_suffix)
    return ids, sizes


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
