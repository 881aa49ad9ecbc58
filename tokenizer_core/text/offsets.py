"""Offsets of the tokens of a text, in bytes or characters of the original text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokenizer_core.normalizers.nfc import Nfc
from tokenizer_core.specials.parts import search_for
from tokenizer_core.splitting.pretokenize import find_kept_spans, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokenizer_core.engines import Engine
    from tokenizer_core.spec import MissingBytes, TokenizerSpec
    from tokenizer_core.specials.matcher import Span, SpecialTokenMatcher


def token_sizes(spec: TokenizerSpec, engine: Engine) -> NDArray[np.uint32] | None:
    """The `token_sizes` of an engine. None if the bytes of a text's ids may differ from the
    normalized text: text is dropped, words have a suffix, or an added token decodes to another
    one."""
    if spec.loses_text or spec.alphabet.word_suffix:
        return None
    if any(spec.added_bytes[token.id] != token.content.encode() for token in spec.added_tokens):
        return None
    return engine.token_sizes()


def find_byte_offsets(
    spec: TokenizerSpec,
    engine: Engine,
    matcher: SpecialTokenMatcher,
    text: str,
    ids: NDArray[np.uint32],
    sizes: NDArray[np.uint32] | None,
) -> NDArray[np.uint64]:
    """The UTF-8 byte offsets (start, end) in `text` of its ids, which encoding gave with the tokens
    of `matcher`: shape (n_tokens, 2), uint64. `sizes` are the `token_sizes` of the spec; without
    them, the parts of the text are encoded again."""
    encoded = _EncodedAgain(spec, engine) if sizes is None else _OffsetsOfIds(sizes, ids)
    if isinstance(encoded, _OffsetsOfIds) and _is_encoded_as_given(spec, matcher, text):
        return encoded.offsets
    search, align = search_for(spec, matcher), spec.normalizer.align

    def find(plain: str, start: int) -> NDArray[np.uint64]:
        aligned = align(plain, is_first=not start)
        spans = search.second_in(plain, start).spans(aligned.text)
        found = _find_between(aligned.text, spans, encoded, lambda part, _: encoded.next(part))
        return aligned.sources_of(found)

    return _find_between(text, search.first.spans(text), encoded, find)


def _find_between(
    text: str,
    spans: Iterable[Span],
    encoded: _OffsetsOfIds | _EncodedAgain,
    find: Callable[[str, int], NDArray[np.uint64]],
) -> NDArray[np.uint64]:
    """The offsets of matches in `text`, and of the ids between them. `find` gives those within a
    part, which begins at an index."""
    parts, positions, end = [], _BytePositions(text), 0
    for span in spans:
        plain = text[span.plain_start : span.start]
        parts.append(find(plain, span.plain_start) + positions[span.plain_start])
        around = [positions[span.start], positions[span.end]]
        parts.append(np.array([around], dtype=np.uint64))
        encoded.skip(span.content)
        end = span.end
    rest = find(text[end:], end)
    return np.concatenate([*parts, rest + positions[end]]) if parts else rest


def _is_encoded_as_given(spec: TokenizerSpec, matcher: SpecialTokenMatcher, text: str) -> bool:
    """Whether no normalizer changes the text, and no added token includes white space around it."""
    if matcher.has_flags and matcher.may_match(text):
        return False
    is_nfc = isinstance(spec.normalizer, Nfc)
    return spec.normalizer.name == "none" or (is_nfc and spec.normalizer.normalize(text) == text)


class _OffsetsOfIds:
    """The offsets of ids whose bytes, joined, are the encoded text."""

    def __init__(self, sizes: NDArray[np.uint32], ids: NDArray[np.uint32]) -> None:
        self.offsets = np.zeros((len(ids), 2), dtype=np.uint64)
        np.cumsum(sizes[ids], out=self.offsets[:, 1])
        self.offsets[1:, 0] = self.offsets[:-1, 1]
        self._n_taken = self._position = 0

    def next(self, text: str) -> NDArray[np.uint64]:
        """The offsets of the ids of the next part of the encoded text, in that part."""
        start, first = self._position, self._n_taken
        self._position += len(text.encode())
        ends, position = self.offsets[:, 1], np.uint64(self._position)
        self._n_taken = int(np.searchsorted(ends, position, side="right"))
        return self.offsets[first : self._n_taken] - np.uint64(start)

    def skip(self, token: str) -> None:
        """Pass over the id of an added token."""
        self.next(token)


class _EncodedAgain:
    """As `_OffsetsOfIds`, where the bytes of ids are not the encoded text."""

    def __init__(self, spec: TokenizerSpec, engine: Engine) -> None:
        self._spec, self._engine = spec, engine

    def next(self, text: str) -> NDArray[np.uint64]:
        """The offsets of the ids of a part, in that part."""
        spec, engine = self._spec, self._engine
        if spec.alphabet.missing:
            ids = engine.encode(text)
            offsets = _offsets_around_missing(spec, spec.alphabet.missing, text, ids)
        else:
            if spec.alphabet.word_suffix:
                sizes = _sizes_of_words(spec, engine, text)
            else:
                sizes = [len(spec.vocab[id_]) for id_ in engine.encode(text)]
            ends = np.cumsum(sizes, dtype=np.uint64)
            starts = np.concatenate([np.zeros(1, dtype=np.uint64), ends])[:-1]
            offsets = np.stack([starts, ends], axis=1)
        if spec.pattern.drops:
            offsets = _offsets_in_whole(text, find_kept_spans(text, spec.pattern), offsets)
        return offsets

    def skip(self, token: str) -> None:
        """Nothing: a token has one id."""


class _BytePositions:
    """Converts indices of characters, each near the one before, to positions in UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._index = self._position = 0

    def __getitem__(self, index: int) -> np.uint64:
        start, end = sorted((self._index, index))
        n_between = len(self._text[start:end].encode())
        self._position += n_between if index > self._index else -n_between
        self._index = index
        return np.uint64(self._position)


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


def _sizes_of_words(spec: TokenizerSpec, engine: Engine, text: str) -> list[int]:
    """How many bytes of a normalized text each of its ids stands for: the last of a pre-token has
    the suffix."""
    sizes: list[int] = []
    for pre_token in split(text, spec.pattern):
        sizes += [len(spec.vocab[id_]) for id_ in engine.encode_pre_tokens([pre_token])]
        sizes[-1] -= len(spec.alphabet.word_suffix)
    return sizes


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
    # How many characters begin before each byte; one more begins after the text.
    begun = np.concatenate([[0], (data & 0xC0) != 0x80, [1]]).cumsum(dtype=np.uint64)
    one = np.uint64(1)
    return np.stack([begun[offsets[:, 0] + one] - one, begun[offsets[:, 1]]], axis=1)
