"""Segments of a text with their trust, and the runs of it that are trusted. `policy` decides which
tokens count there.

In a text with trusted runs, control tokens count only where all their characters are in one run;
see docs/chat.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Segment = tuple[str, bool]
"""A part of a text, and whether control tokens in it count: whether its author is trusted."""


class Trust(NamedTuple):
    """The tokens `control` of a text count only within one of `runs`: start and end in characters,
    in order, disjoint. Two runs that touch are still two: text between them may have vanished."""

    control: frozenset[str]
    runs: Sequence[tuple[int, int]]

    def within(self, start: int, end: int) -> Trust:
        """The trust in the part of the text from `start` to `end`, as a text of its own."""
        first = bisect_right(self.runs, start, key=itemgetter(1))
        last = bisect_left(self.runs, end, key=itemgetter(0))
        runs = [(max(a, start) - start, min(b, end) - start) for a, b in self.runs[first:last]]
        return Trust(self.control, runs)


def join_segments(segments: Iterable[Segment]) -> tuple[str, list[tuple[int, int]]]:
    """The joined text, and the runs of it that are trusted: start and end in characters. Raises
    TypeError: a segment is no pair of a `str` and a `bool`.

    Example:
        >>> join_segments([("ab", True), ("", False), ("c", True), ("d", False)])
        ('abcd', [(0, 3)])
    """
    texts: list[str] = []
    runs: list[tuple[int, int]] = []
    start, end = -1, 0  # of the run that continues; negative if none does
    for segment in segments:
        try:
            text, is_trusted = segment
        except (TypeError, ValueError):
            raise _wrong_segment(len(texts), segment) from None
        if is_trusted is True:
            if start < 0:
                start = end
        elif is_trusted is not False:
            raise _wrong_segment(len(texts), segment)
        elif start >= 0 and text:
            runs.append((start, end))
            start = -1
        if type(text) is not str and not isinstance(text, str):
            raise _wrong_segment(len(texts), segment)
        texts.append(text)
        end += len(text)
    if start >= 0:
        runs.append((start, end))
    return "".join(texts), [run for run in runs if run[0] < run[1]]


def _wrong_segment(index: int, segment: object) -> TypeError:
    kind = type(segment).__name__
    if isinstance(segment, list | tuple):
        kind = f"({', '.join(type(part).__name__ for part in segment[:3])})"
    return TypeError(
        f"segment {index} must be a text and whether it is trusted (str, bool), not {kind}"
    )
