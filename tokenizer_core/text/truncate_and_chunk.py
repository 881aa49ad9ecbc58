"""Truncates a text to a number of tokens, or cuts all of it into chunks.

Cutting the list of ids instead has two faults: the text may end inside a character, and it may not
encode to these ids, because splitting looks ahead and later text changes earlier tokens. This
module therefore cuts the text where a token ends, never inside a character (a code point) or a
special token, and encodes the kept part again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex

import numpy as np

from tokenizer_core.errors import MaxTokensTooSmallError, PreTokenTooLongError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokenizer_core.specials.policy import Allowed, Disallowed
    from tokenizer_core.tokenizer import Tokenizer

_WINDOW_CHARS: Final = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class TextPart:
    """A part of a text and its ids, shape (n_tokens,), uint32; `start` and `end` are its byte
    offsets in the UTF-8 text."""

    text: str
    ids: NDArray[np.uint32]
    start: int
    end: int


def truncate_text(
    tokenizer: Tokenizer,
    text: str,
    max_tokens: int,
    *,
    side: Literal["right", "left"] = "right",
    allowed_special: Allowed = "all",
    disallowed_special: Disallowed = (),
) -> TextPart:
    """The beginning of `text` with at most `max_tokens` tokens, or all of it if it has no more.
    `side` is the side that is cut off: with `"left"` the result is the end of the text.

    Guaranteed for every text and either side:

    - the part is a prefix (a suffix) of `text` as given, not of its normalized form;
    - its `ids` are exactly `tokenizer.encode(part.text)` with the same `allowed_special`, and
      there are at most `max_tokens` of them;
    - the cut is where a token of the whole text ends (begins), so it is never inside a special
      token or a character, nor, with NFC, inside a run of marks that normalizing changes.

    Not guaranteed, but nearly always true: `ids` begin (end) the ids of the whole text, and there
    are `max_tokens` of them. If a token ends inside a character, the cut is before that character.
    If the shorter text is split differently and has too many tokens, more tokens are cut off: one,
    then two, then four.

    Raises:
        ValueError: `max_tokens` is negative, or `side` is unknown.
        SpecialTokenForbiddenError: the text, as given, contains a disallowed special token.
        UnicodeEncodeError: the text contains a lone surrogate.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> truncate_text(tokenizer, "naïve", 3).text, truncate_text(tokenizer, "naïve", 4).text
        ('na', 'naï')
        >>> truncate_text(tokenizer, "naïve", 3, side="left").text
        've'
    """
    _check_arguments("truncate_text", tokenizer, max_tokens)
    if max_tokens < 0:
        raise ValueError(f"max_tokens is a number of tokens, not {max_tokens}")
    if side not in ("right", "left"):
        raise ValueError(f"side must be 'right' or 'left', not {side!r:.40}")
    options: dict[str, Any] = {"allowed_special": allowed_special}
    n_tokens = tokenizer.count(
        text, limit=max_tokens, disallowed_special=disallowed_special, **options
    )
    data = text.encode()
    if n_tokens <= max_tokens:
        return TextPart(text, tokenizer.encode_to_numpy(text, **options), 0, len(data))
    fitting = _Fitting(tokenizer, data, max_tokens, options)
    if side == "right":
        ends = _first_ends(tokenizer, text, max_tokens, options)
        part = fitting.longest([(0, end) for end in ends])
    else:
        starts = _last_starts(tokenizer, text, max_tokens, options)
        part = fitting.longest([(start, len(data)) for start in starts])
    if part is not None:
        return part
    position = 0 if side == "right" else len(data)
    return TextPart("", np.empty(0, dtype=np.uint32), position, position)


def _check_arguments(function: str, tokenizer: object, *numbers: object) -> None:
    if isinstance(tokenizer, str):
        raise TypeError(f"the tokenizer comes first: {function}(tokenizer, text, max_tokens)")
    for number in numbers:
        if not isinstance(number, SupportsIndex):
            raise TypeError(f"a number of tokens must be an int, not {type(number).__name__}")


def chunk_text(
    tokenizer: Tokenizer,
    text: str,
    max_tokens: int,
    *,
    overlap_tokens: int = 0,
    allowed_special: Allowed = "all",
    disallowed_special: Disallowed = (),
) -> Iterator[TextPart]:
    """Yield `text` in chunks of at most `max_tokens` tokens, in order; none for an empty text.

    Guaranteed for every text:

    - each chunk is `text[start:end]` (in bytes), and its `ids` are exactly
      `tokenizer.encode(chunk.text)` with the same `allowed_special`, at most `max_tokens` and at
      least one;
    - the first chunk begins and the last ends with the text; each begins at or before the end of
      the previous one, and begins and ends later than that one. Without the overlaps they
      therefore join to `text`;
    - the overlap with the previous chunk is within the last `overlap_tokens` tokens of the text up
      to that point; it is shorter if it would begin inside a character;
    - cuts are between tokens of the whole text, so never inside a special token. Only if one
      token's span cannot be kept whole (for instance a run of marks that NFC reorders), a cut may
      be between any two characters.

    Not guaranteed: that the chunks' ids joined are those of the text; see `truncate_text`. If
    encoding or the normalizer drops all text of a chunk, the chunk has no ids.

    Raises:
        ValueError: `max_tokens` is below 1, or `overlap_tokens` is not below it.
        MaxTokensTooSmallError: a single character has more tokens than `max_tokens`.
        SpecialTokenForbiddenError: the text contains a disallowed special token.
        UnicodeEncodeError: the text contains a lone surrogate.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> [chunk.text for chunk in chunk_text(tokenizer, "abcdef", 3, overlap_tokens=1)]
        ['abc', 'cde', 'ef']
    """
    return iter(
        TextChunks(
            tokenizer,
            text,
            max_tokens,
            overlap_tokens=overlap_tokens,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
        )
    )


class TextChunks:
    """The chunks of a text, see `chunk_text`; `plan` tells their size before they are made."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        text: str,
        max_tokens: int,
        *,
        overlap_tokens: int = 0,
        allowed_special: Allowed = "all",
        disallowed_special: Disallowed = (),
    ) -> None:
        """Raises as `chunk_text`, except MaxTokensTooSmallError."""
        _check_arguments("chunk_text", tokenizer, max_tokens, overlap_tokens)
        if max_tokens < 1:
            raise ValueError(
                f"a chunk has at least one token, so max_tokens cannot be {max_tokens}"
            )
        if not 0 <= overlap_tokens < max_tokens:
            raise ValueError(f"overlap_tokens must be from 0 to {max_tokens - 1}, below max_tokens")
        options: dict[str, Any] = {"allowed_special": allowed_special}
        ids, offsets = tokenizer.encode_with_offsets(
            text, disallowed_special=disallowed_special, **options
        )
        self.ids = np.asarray(ids, dtype=np.uint32)
        """The ids of the whole text, shape (n_tokens,)."""
        self._starts, self._ends = (
            np.ascontiguousarray(column, dtype=np.int64) for column in offsets.T
        )
        if _has_steps(tokenizer):
            self._ends = _closed_ends(self._starts, self._ends)
        if _has_steps(tokenizer) or tokenizer.spec.loses_text:
            # What is dropped after the last token belongs to its chunk, as does a text without any.
            if not len(self._ends):
                self._starts, self._ends = np.zeros((2, 1), dtype=np.int64)
            self._ends[-1] = len(text.encode())
        self._overlap_tokens = overlap_tokens
        self._fitting = _Fitting(tokenizer, text.encode(), max_tokens, options)

    def __iter__(self) -> Iterator[TextPart]:
        """Yield the chunks; raises MaxTokensTooSmallError."""
        fitting = self._fitting
        start = covered = 0
        while covered < len(fitting.data):
            near = self._near(start)
            spans = [(start, end) for end in self._ends[near].tolist()]
            part = fitting.longest(spans) or fitting.character(start)
            if part.end <= covered:
                start = covered  # with the overlap, it ends no later than the previous chunk
                continue
            yield part
            covered = part.end
            start = self._next_start(part.start, covered, self._overlap_tokens)

    def plan(self, overlap_tokens: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield start and end in bytes of the chunks, as far as the tokens of the whole text tell;
        with `overlap_tokens`, those of this other overlap.

        A chunk that is split differently by itself is shorter. The plan ends early where a single
        character has more than `max_tokens` tokens.
        """
        overlap = self._overlap_tokens if overlap_tokens is None else overlap_tokens
        start = covered = 0
        while covered < len(self._fitting.data):
            near = self._near(start)
            ends = (int(end) for end in self._ends[near][::-1])
            end = next(filter(self._fitting.is_cut, ends), None)
            if end is None:
                return
            if end <= covered:
                start = covered
                continue
            yield start, end
            start, covered = self._next_start(start, end, overlap), end

    def _near(self, start: int) -> slice:
        """The tokens at which a chunk that begins at `start` may end."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        return slice(first, first + self._fitting.max_tokens)

    def _next_start(self, start: int, end: int, overlap_tokens: int) -> int:
        """Where the chunk after that from `start` to `end` begins."""
        n_covered = int(np.searchsorted(self._ends, end, side="right"))
        repeated = self._starts[max(0, n_covered - overlap_tokens) : n_covered]
        is_cut = self._fitting.is_cut
        return next(
            (int(position) for position in repeated if start < position < end and is_cut(position)),
            end,
        )


class _Fitting:
    """Makes parts of a text with at most `max_tokens` tokens."""

    def __init__(
        self, tokenizer: Tokenizer, data: bytes, max_tokens: int, options: dict[str, Any]
    ) -> None:
        self.data, self.max_tokens = data, max_tokens
        self._tokenizer, self._options = tokenizer, options

    def longest(self, spans: list[tuple[int, int]]) -> TextPart | None:
        """The longest of `spans` (each longer than the previous) that contains whole characters and
        fits; None if none does. After a span that does not fit, the search steps back by one, then
        two, then four, so that it encodes few spans."""
        index, step = len(spans) - 1, 1
        while index >= 0:
            start, end = spans[index]
            if not (self.is_cut(start) and self.is_cut(end)):
                index -= 1
                continue
            part = self._part(start, end)
            if len(part.ids) <= self.max_tokens:
                return part
            index = max(index - step, 0) if index else -1
            step *= 2
        return None

    def character(self, start: int) -> TextPart:
        """The one character that begins at `start`."""
        end = start + 1
        while not self.is_cut(end):
            end += 1
        part = self._part(start, end)
        if len(part.ids) > self.max_tokens:
            raise MaxTokensTooSmallError(self.max_tokens, len(part.ids), start)
        return part

    def is_cut(self, position: int) -> bool:
        """Whether a character begins or the text ends at this byte."""
        return position >= len(self.data) or self.data[position] & 0xC0 != 0x80

    def _part(self, start: int, end: int) -> TextPart:
        text = self.data[start:end].decode()
        return TextPart(text, self._tokenizer.encode_to_numpy(text, **self._options), start, end)


def _first_ends(
    tokenizer: Tokenizer, text: str, n_tokens: int, options: dict[str, Any]
) -> list[int]:
    """The byte offsets where the first tokens end; encodes no more of a long text than needed."""
    if not _is_changed(tokenizer, text):
        windows = (
            text[start : start + _WINDOW_CHARS] for start in range(0, len(text), _WINDOW_CHARS)
        )
        try:
            ids = list(islice(tokenizer.encode_iterable(windows, **options), n_tokens))
        except PreTokenTooLongError:
            pass  # a stream's buffer is smaller than the longest text
        else:
            return list(accumulate(_lengths(tokenizer, ids)))
    _, offsets = tokenizer.encode_with_offsets(text, **options)
    starts, ends = offsets[: n_tokens + 1].astype(np.int64).T
    if _has_steps(tokenizer):
        ends = _closed_ends(starts, ends)
    return list(map(int, ends[:n_tokens]))


def _last_starts(
    tokenizer: Tokenizer, text: str, n_tokens: int, options: dict[str, Any]
) -> list[int]:
    """The byte offsets where the last tokens begin, the last token first."""
    if _is_changed(tokenizer, text):
        _, offsets = tokenizer.encode_with_offsets(text, **options)
        return list(map(int, offsets[::-1][:n_tokens, 0]))
    ids = tokenizer.encode_to_numpy(text, **options)[::-1][:n_tokens].tolist()
    size = len(text.encode())
    return [size - length for length in accumulate(_lengths(tokenizer, ids))]


def _closed_ends(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ends of tokens up to the next token: what a normalizer removed belongs to the one before.
    Otherwise a mark would begin the next part, where it joins nothing."""
    closed: NDArray[np.int64] = np.maximum(ends, np.append(starts[1:], 0))
    return closed


def _has_steps(tokenizer: Tokenizer) -> bool:
    """Whether text between two tokens may belong to neither."""
    return tokenizer.engine_name == "tokenizers" or bool(tokenizer.spec.normalizer.steps)


def _is_changed(tokenizer: Tokenizer, text: str) -> bool:
    """Whether normalizing changes `text`, or encoding or a special token may lose some of it, so
    that bytes of tokens are not bytes of the text."""
    if tokenizer.engine_name == "tokenizers":
        return True
    spec = tokenizer.spec
    if spec.loses_text or spec.has_flags or spec.alphabet.word_suffix:
        return True
    normalizer = spec.normalizer
    return normalizer.name not in ("none", "nfc") or normalizer.normalize(text) != text


def _lengths(tokenizer: Tokenizer, ids: list[int]) -> Iterator[int]:
    return map(len, map(tokenizer.spec.vocab.__getitem__, ids))
