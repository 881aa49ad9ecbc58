"""Finds strings in a text: leftmost, then longest. With `<|a|>` and `<|a|><|a|>` the doubled one
wins.

Training, encoding and streaming all cut at special tokens with this module, before any split
pattern is applied.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokenizer_core.specials.segments import Trust

_WINDOW_CHARS: Final = 1 << 16
# What trying one position takes, in characters that the expression searches, and tries in advance.
_CHARS_PER_TRY: Final = 1 << 10
_FREE_TRIES: Final = 16


class Span(NamedTuple):
    """A match: the index where the plain text before it begins, start and end of the match with the
    white space that it includes, and the token. A token that overlaps the one before it begins
    before its plain text, which is then empty."""

    plain_start: int
    start: int
    end: int
    content: str


class SpecialTokenMatcher:
    """Finds any of its strings in a text, leftmost, then longest. Falsy when it has no strings.

    The search takes at most the length of the longest string at each position, for any number of
    strings, and lets other threads run every 64 Ki characters.

    Example:
        >>> list(SpecialTokenMatcher(["<|a|>", "<|a|><|a|>"]).split("x<|a|><|a|><|a|>y"))
        [('x', '<|a|><|a|>'), ('', '<|a|>'), ('y', None)]
    """

    __slots__ = ("_expression", "_first_chars", "_prefix", "contents", "longest")

    has_flags = False
    """Whether matches depend on flags."""
    is_for_engines = True
    """Whether engines that find tokens themselves find these: without flags within one list of
    runs, or anywhere."""

    def __init__(self, contents: Iterable[str]) -> None:
        self.contents = sorted(set(contents))
        self.longest = max(map(len, self.contents), default=0)
        """The number of characters in the longest string; 0 without strings."""
        self._first_chars = {content[0] for content in self.contents}
        self._prefix = _common_prefix(self.contents)
        self._expression = _compile_any_of(self.contents)

    def __bool__(self) -> bool:
        return bool(self.contents)

    def may_match(self, text: str) -> bool:
        """Whether `text` may contain any of the strings: False if their common prefix is not in the
        text, as in most texts."""
        return bool(self.contents) and self._prefix in text

    def trusting(self, *trusts: Trust) -> TrustedTokenMatcher:
        """What finds these tokens in the one text that `trusts` are for, which share no token."""
        return TrustedTokenMatcher(self, trusts)

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Pairs (plain text, the special token after it); the last pair has None. No plain text has
        the white space that a token includes."""
        end = 0
        for span in self.spans(text):
            yield text[span.plain_start : span.start], span.content
            end = span.end
        yield text[end:] if end else text, None

    def spans(self, text: str) -> Iterator[Span]:
        """The matches in `text` with their positions."""
        end = 0
        for match in self.matches(text):
            yield Span(end, *match.span(), match.group())
            end = match.end()

    def find(self, text: str) -> str | None:
        """The first of the strings in `text`, or None."""
        match = next(self.matches(text), None)
        return match.group() if match else None

    def matches(self, text: str, position: int = 0) -> Iterator[re.Match[str]]:
        """The matches from `position` on: leftmost, then longest, without overlaps."""
        return self.matches_before(len(text), text, position)

    def matches_before(self, end: int, text: str, position: int) -> Iterator[re.Match[str]]:
        """As `matches`, as if the text ended at `end`."""
        if not self.contents:
            return
        # Finding one character takes a tenth of the time of the expression, unless there are many.
        left, first = _FREE_TRIES, self._prefix[:1]
        while first and left > 0:
            found = text.find(first, position, end)
            if found < 0:
                return
            left += (found - position) // _CHARS_PER_TRY - 1
            match = self._expression.match(text, found, end)
            if match:
                yield match
            position = match.end() if match else found + 1
        while position < end:
            # The search covers every string that begins in this window completely.
            limit = position + _WINDOW_CHARS
            last = min(limit + self.longest - 1, end)
            match = self._expression.search(text, position, last)
            if match is None or match.start() >= limit:
                position = limit
            else:
                yield match
                position = match.end()

    def doubtful_starts(self, text: str) -> list[int]:
        """Indices from which the rest of the text is a proper prefix of a special token."""
        positions = range(max(0, len(text) - self.longest + 1), len(text))
        return [
            position
            for position in positions
            if text[position] in self._first_chars and self._is_beginning(text[position:])
        ]

    def _is_beginning(self, text: str) -> bool:
        # In sorted order, the longer strings that begin with `text` directly follow it.
        index = bisect_right(self.contents, text)
        return index < len(self.contents) and self.contents[index].startswith(text)


class TrustedTokenMatcher(SpecialTokenMatcher):
    """Finds the tokens of another matcher in one text: the control tokens of each of `trusts` only
    within one of its runs.

    The next match is the leftmost, then the longest, of those that count. So a token that reaches
    beyond a run hides no shorter one within it.

    Example:
        >>> from tokenizer_core.specials.segments import Trust
        >>> trust = Trust(frozenset(["<|a|>", "<|a|><|a|>"]), [(0, 5)])
        >>> list(SpecialTokenMatcher(trust.control).trusting(trust).split("<|a|><|a|>"))
        [('', '<|a|>'), ('<|a|>', None)]
    """

    __slots__ = ("everywhere", "guarded", "matcher", "trusts")

    def __init__(self, matcher: SpecialTokenMatcher, trusts: tuple[Trust, ...]) -> None:
        self.matcher = matcher
        for name in SpecialTokenMatcher.__slots__:
            setattr(self, name, getattr(matcher, name))
        self.everywhere, *self.guarded = _parted(matcher, *(trust.control for trust in trusts))
        self.trusts = trusts

    @property
    def is_for_engines(self) -> bool:  # type: ignore[override]
        """As in the base class."""
        return len(self.trusts) == 1 and not self.has_flags

    def matches(self, text: str, position: int = 0) -> Iterator[re.Match[str]]:
        """As in the base class."""
        guarded = zip(self.guarded, self.trusts, strict=True)
        searches: list[Callable[[str, int], Iterator[re.Match[str]]]] = [
            self.everywhere.matches,
            *(partial(_matches_in_runs, matcher, trust.runs) for matcher, trust in guarded),
        ]
        heads = [next(search(text, position), None) for search in searches]
        while found := [head for head in heads if head is not None]:
            match = min(found, key=lambda head: (head.start(), -head.end()))
            yield match
            position = match.end()
            heads = [
                head
                if head is None or head.start() >= position
                # The other search continues after this match.
                else next(search(text, position), None)
                for head, search in zip(heads, searches, strict=True)
            ]


def is_any_outside(
    text: str, matcher: SpecialTokenMatcher, runs: Sequence[tuple[int, int]]
) -> bool:
    """Whether one of the strings of `matcher` in `text` has a character outside of `runs`.

    Example:
        >>> matcher = SpecialTokenMatcher(["<a>"])
        >>> is_any_outside("<a> b", matcher, [(0, 3)]), is_any_outside("<a> b", matcher, [(1, 5)])
        (False, True)
    """
    reach, end = matcher.longest - 1, 0
    for start, stop in [*runs, (len(text), len(text))]:
        if end < start and matcher.find(text[max(0, end - reach) : start + reach]) is not None:
            return True
        end = stop
    return False


def _matches_in_runs(
    matcher: SpecialTokenMatcher, runs: Sequence[tuple[int, int]], text: str, position: int
) -> Iterator[re.Match[str]]:
    for index in range(bisect_right(runs, position, key=itemgetter(1)), len(runs)):
        start, end = runs[index]
        yield from matcher.matches_before(end, text, max(start, position))


@lru_cache(maxsize=64)
def _parted(
    matcher: SpecialTokenMatcher, *controls: frozenset[str]
) -> tuple[SpecialTokenMatcher, ...]:
    """What finds the other strings of a matcher, and those of each set; without flags."""
    contents = frozenset(matcher.contents)
    others = contents.difference(*controls)
    return tuple(map(SpecialTokenMatcher, [others, *(contents & control for control in controls)]))


def _common_prefix(contents: list[str]) -> str:
    """The common prefix of sorted strings, which is that of the first and the last."""
    return commonprefix([contents[0], contents[-1]]) if contents else ""  # noqa: RUF071 - no paths


def _compile_any_of(contents: list[str]) -> re.Pattern[str]:
    """An expression that matches the longest of some sorted strings.

    It writes common prefixes once. A plain alternation would try each of the strings with a common
    beginning.
    """
    try:
        return re.compile(_render_branches(contents, 0))
    except RecursionError:  # hundreds of strings, each a prefix of the next
        return re.compile("|".join(map(re.escape, sorted(contents, key=len, reverse=True))))


def _render_branches(contents: list[str], depth: int) -> str:
    """An expression for sorted strings from `depth` on, where they differ; longest first."""
    branches = []
    may_end = bool(contents) and len(contents[0]) == depth
    for _, group in groupby(contents[may_end:], key=lambda content: content[depth]):
        alike = list(group)
        shared = len(_common_prefix(alike))
        rest = _render_branches(alike, shared) if len(alike) > 1 else ""
        branches.append(re.escape(alike[0][depth:shared]) + rest)
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)})" + ("?" if may_end else "")
