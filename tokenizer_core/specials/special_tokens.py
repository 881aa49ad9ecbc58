"""Special tokens in a text: which are recognised, which are forbidden, and their positions.

Matching is leftmost, then longest: with `<|a|>` and `<|a|><|a|>` the doubled one wins. The options
(`allowed_special`, `disallowed_special`) have tiktoken's names. Training, encoding and streaming
all cut at special tokens with this module, before any split pattern is applied.

Added tokens with flags (`lstrip`, `rstrip`, `single_word`, `normalized`) are found as in
`find_matches` of Hugging Face's `tokenizers`:

- The search goes on at the end of each match, without the white space that the match includes. A
  token that begins with white space may therefore overlap the one before it.
- A `single_word` match next to a word is dropped after the search: it hides every match that
  overlaps it.
- White space between two tokens belongs to the first if that one has `rstrip`.
- The tokens that are `normalized` are searched in each part between the others, as if it were a
  text of its own.

In a text with trusted runs, control tokens count only where all their characters are in one run.
All else follows the rules above: see docs/chat.md.
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from functools import lru_cache, partial
from itertools import chain, groupby, starmap
from operator import add, itemgetter
from os.path import commonprefix
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tokenizer_core.errors import SpecialTokenForbiddenError
from tokenizer_core.spec import WHITE_SPACE
from tokenizer_core.splitting.unicode_sets import compile_exactly, join, ranges_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tokenizer_core.spec import AddedToken, TokenizerSpec
    from tokenizer_core.splitting.unicode_sets import Ranges

_WINDOW_CHARS: Final = 1 << 16
# What trying one position takes, in characters that the expression searches, and tries in advance.
_CHARS_PER_TRY: Final = 1 << 10
_FREE_TRIES: Final = 16
# `\w` of the engine that `tokenizers` uses here.
_WORD_PROPERTIES: Final = ("Alphabetic", "M", "Nd", "Pc", "Join_Control")
_WORD_CHARACTER: Final = compile_exactly(
    "[" + "".join(rf"\p{{{name}}}" for name in _WORD_PROPERTIES) + "]"
)
_SPECIAL_SHAPE: Final = re.compile(rb"<[!-;=?-~]*[A-Za-z][!-;=?-~]*>|\[[A-Z_]*[A-Z][0-9A-Z_]*\]")
_WHITE_SPACE_RUN: Final = re.compile(f"[{WHITE_SPACE}]*")

Allowed = (
    Literal["all", "none", "ordinary"] | frozenset[str] | set[str] | tuple[str, ...] | list[str]
)
AddedTokens = Literal["all", "none"]
"""Whether added tokens that are no control tokens count in untrusted text."""

Disallowed = Literal["all"] | frozenset[str] | set[str] | tuple[str, ...] | list[str]


Segment = tuple[str, bool]
"""A part of a text, and whether control tokens in it count: whether its author is trusted."""


class Span(NamedTuple):
    """A match: the index where the plain text before it begins, start and end of the match with the
    white space that it includes, and the token. A token that overlaps the one before it begins
    before its plain text, which is then empty."""

    plain_start: int
    start: int
    end: int
    content: str


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
    """The joined text, and the runs of it that are trusted: start and end in characters.

    Raises:
        TypeError: a segment is no pair of a `str` and a `bool`.

    Example:
        >>> join_segments([("ab", True), ("", False), ("c", True), ("d", False)])
        ('abcd', [(0, 3)])
    """
    texts: list[str] = []
    runs: list[tuple[int, int]] = []
    start, end = -1, 0  # of the run that continues; negative if none does
    for text, is_trusted in segments:
        if is_trusted is True:
            if start < 0:
                start = end
        elif is_trusted is not False:
            raise _wrong_segment(len(texts), text, is_trusted)
        elif start >= 0 and text:
            runs.append((start, end))
            start = -1
        if type(text) is not str and not isinstance(text, str):
            raise _wrong_segment(len(texts), text, is_trusted)
        texts.append(text)
        end += len(text)
    if start >= 0:
        runs.append((start, end))
    return "".join(texts), [run for run in runs if run[0] < run[1]]


def _wrong_segment(index: int, text: object, is_trusted: object) -> TypeError:
    kinds = f"{type(text).__name__}, {type(is_trusted).__name__}"
    return TypeError(
        f"segment {index} must be a text and whether it is trusted (str, bool), not ({kinds})"
    )


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


class SpecialTokenMatcher:
    """Finds any of its strings in a text, leftmost, then longest. Falsy when it has no strings.

    The search takes at most the length of the longest string at each position, for any number of
    strings, and lets other threads run every 64 Ki characters.

    Example:
        >>> list(SpecialTokenMatcher(["<|a|>", "<|a|><|a|>"]).split("x<|a|><|a|><|a|>y"))
        [('x', '<|a|><|a|>'), ('', '<|a|>'), ('y', None)]
    """

    __slots__ = ("_contents", "_expression", "_first_chars", "_longest", "_prefix")

    def __init__(self, contents: Iterable[str]) -> None:
        self._contents = sorted(set(contents))
        self._longest = max(map(len, self._contents), default=0)
        self._first_chars = {content[0] for content in self._contents}
        self._prefix = _common_prefix(self._contents)
        self._expression = _compile_any_of(self._contents)

    def __bool__(self) -> bool:
        return bool(self._contents)

    @property
    def has_flags(self) -> bool:
        """Whether matches depend on flags."""
        return False

    @property
    def contents(self) -> list[str]:
        """The strings, sorted."""
        return list(self._contents)

    @property
    def longest(self) -> int:
        """The number of characters in the longest string; 0 without strings."""
        return self._longest

    def may_match(self, text: str) -> bool:
        """Whether `text` may contain any of the strings: False if their common prefix is not in the
        text, as in most texts.

        Example:
            >>> SpecialTokenMatcher(["<|a|>", "<|b|>"]).may_match("a < b")
            False
        """
        return bool(self._contents) and self._prefix in text

    def trusting(self, *trusts: Trust) -> TrustedTokenMatcher:
        """What finds these tokens in the one text that `trusts` are for, which share no token."""
        return TrustedTokenMatcher(self, trusts)

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Pairs (plain text, the special token after it); the last pair has None."""
        end = 0
        for match in self.matches(text):
            yield text[end : match.start()], match.group()
            end = match.end()
        yield text[end:] if end else text, None

    def spans(self, text: str) -> Iterator[Span]:
        """The matches in `text` with their positions."""
        end = 0
        for match in self.matches(text):
            yield Span(end, *match.span(), match.group())
            end = match.end()

    def stream(self) -> MatchStream:
        """The matches in a text that arrives in pieces."""
        return MatchStream(self)

    def find(self, text: str) -> str | None:
        """The first of the strings in `text`, or None."""
        match = next(self.matches(text), None)
        return match.group() if match else None

    def split_settled(self, text: str) -> tuple[list[tuple[str, str]], int, int]:
        """Split a text that continues, as far as its special tokens are certain.

        Returns `(pairs, start, end)`: the pairs of `split` that no continuation changes, the index
        after the last of them, and the index up to which the rest is certainly plain text. From
        `end` on, the text may be the beginning of a special token; otherwise `end` is its length.
        """
        pairs: list[tuple[str, str]] = []
        start = 0
        doubtful = self.doubtful_starts(text)
        for match in self.matches(text):
            first = next((position for position in doubtful if position >= start), len(text))
            if first <= match.start():
                break  # a longer or earlier match may still begin here
            pairs.append((text[start : match.start()], match.group()))
            start = match.end()
        end = next((position for position in doubtful if position >= start), len(text))
        return pairs, start, end

    def matches(
        self, text: str, position: int = 0, end: int | None = None
    ) -> Iterator[re.Match[str]]:
        """The matches from `position` up to `end`: leftmost, then longest, without overlaps."""
        if not self._contents:
            return
        n_chars = len(text) if end is None else end
        # Finding one character takes a tenth of the time of the expression, unless there are many.
        left, first = _FREE_TRIES, self._prefix[:1]
        while first and left > 0:
            found = text.find(first, position, n_chars)
            if found < 0:
                return
            left += (found - position) // _CHARS_PER_TRY - 1
            match = self._expression.match(text, found, n_chars)
            if match:
                yield match
            position = match.end() if match else found + 1
        while position < n_chars:
            # The search covers every string that begins in this window completely.
            limit = position + _WINDOW_CHARS
            last = min(limit + self._longest - 1, n_chars)
            match = self._expression.search(text, position, last)
            if match is None or match.start() >= limit:
                position = limit
            else:
                yield match
                position = match.end()

    def doubtful_starts(self, text: str) -> list[int]:
        """Indices from which the rest of the text is a proper prefix of a special token."""
        positions = range(max(0, len(text) - self._longest + 1), len(text))
        return [
            position
            for position in positions
            if text[position] in self._first_chars and self._is_beginning(text[position:])
        ]

    def _is_beginning(self, text: str) -> bool:
        # In sorted order, the longer strings that begin with `text` directly follow it.
        index = bisect_right(self._contents, text)
        return index < len(self._contents) and self._contents[index].startswith(text)


class MatchStream:
    """Cuts the tokens of a matcher out of a text that arrives in pieces.

    Example:
        >>> stream = SpecialTokenMatcher(["<|a|>"]).stream()
        >>> stream.feed("x<|"), stream.feed("a|>y"), stream.finish()
        ([('x', None)], [('', '<|a|>'), ('y', None)], [('', None)])
    """

    def __init__(self, matcher: SpecialTokenMatcher) -> None:
        self._matcher = matcher
        self._held = ""

    @property
    def held(self) -> str:
        """The text that was fed and not yet returned."""
        return self._held

    def feed(self, text: str) -> list[tuple[str, str | None]]:
        """Pairs as of `split`, as far as they are certain; the plain text of the last continues."""
        text = self._held + text
        pairs, start, end = self._matcher.split_settled(text)
        self._held = text[end:]
        return [*pairs, (text[start:end], None)]

    def finish(self) -> list[tuple[str, str | None]]:
        """The pairs of the remaining text, which ends here."""
        pairs = list(self._matcher.split(self._held))
        self._held = ""
        return pairs


class _Rules(NamedTuple):
    """The tokens of one pass."""

    finder: SpecialTokenMatcher
    tokens: dict[str, AddedToken]
    strips_left: bool

    @classmethod
    def of(cls, tokens: list[AddedToken]) -> _Rules:
        finder = SpecialTokenMatcher(token.content for token in tokens)
        by_content = {token.content: token for token in tokens}
        return cls(finder, by_content, any(token.lstrip for token in tokens))


class FlaggedTokenMatcher(SpecialTokenMatcher):
    """Finds added tokens with flags; see the module.

    Example:
        >>> from tokenizer_core.spec import AddedToken
        >>> matcher = FlaggedTokenMatcher([AddedToken("<mask>", 9, lstrip=True)])
        >>> list(matcher.split("a  <mask> b"))
        [('a', '<mask>'), (' b', None)]
    """

    __slots__ = ("_passes",)

    def __init__(self, tokens: Collection[AddedToken]) -> None:
        super().__init__(token.content for token in tokens)
        passes = ([t for t in tokens if t.normalized is late] for late in (False, True))
        self._passes = [_Rules.of(chosen) for chosen in passes if chosen]

    @property
    def has_flags(self) -> bool:
        """True."""
        return True

    @property
    def flags_by_pass(self) -> list[list[tuple[str, bool, bool, bool]]]:
        """For each search, its tokens: content, `lstrip`, `rstrip` and `single_word`."""
        return [
            [(t.content, t.lstrip, t.rstrip, t.single_word) for t in rules.tokens.values()]
            for rules in self._passes
        ]

    @property
    def word_characters(self) -> Ranges:
        """The characters beside which a token with `single_word` is none; empty without such a
        token."""
        tokens = chain.from_iterable(rules.tokens.values() for rules in self._passes)
        if not any(token.single_word for token in tokens):
            return ()
        return join(map(ranges_of, _WORD_PROPERTIES))

    def trusting(self, *trusts: Trust) -> TrustedTokenMatcher:
        """As in the base class."""
        return _TrustedFlaggedMatcher(self, self._passes, trusts)

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """As in the base class; no plain text has the white space that a token includes."""
        return _split_at(self.spans(text), text)

    def spans(self, text: str) -> Iterator[Span]:
        """As in the base class."""
        return _spans_of_passes(self._passes, text) if self.may_match(text) else iter(())

    def split_settled(self, text: str) -> tuple[list[tuple[str, str]], int, int]:
        """Not for these tokens: use `stream`, which remembers the text before."""
        raise NotImplementedError

    def stream(self) -> MatchStream:
        """As in the base class."""
        return _FlaggedMatchStream(self, self._passes)


def _split_at(spans: Iterable[Span], text: str) -> Iterator[tuple[str, str | None]]:
    end = 0
    for span in spans:
        yield text[span.plain_start : span.start], span.content
        end = span.end
    yield text[end:] if end else text, None


def _spans_of_passes(
    passes: list[_Rules], text: str, trusts: tuple[Trust, ...] = ()
) -> Iterator[Span]:
    """The matches of the first pass in `text`, and those of the others in the parts between."""
    first, *later = passes
    if trusts:
        first = first._replace(finder=first.finder.trusting(*trusts))
    _, spans, _ = _Search(first).advance(text, is_last=True)
    if not later:
        yield from spans
        return

    def _of_later(start: int, end: int) -> Iterator[Span]:
        trusted = tuple(trust.within(start, end) for trust in trusts)
        for span in _spans_of_passes(later, text[start:end], trusted):
            yield _shifted(span, start)

    end = 0
    for span in spans:
        plain_start = span.plain_start
        for within in _of_later(span.plain_start, span.start):
            yield within
            plain_start = within.end
        yield span._replace(plain_start=plain_start)
        end = span.end
    yield from _of_later(end, len(text))


def _shifted(span: Span, by: int) -> Span:
    return Span(span.plain_start + by, span.start + by, span.end + by, span.content)


class _Search:
    """One pass over a text that arrives in pieces."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules
        # The undecided text, and the character before it, on which a `single_word` token depends.
        self._text = ""
        self.plain_start = 0
        """The index of the first character that was not returned."""
        self._search_start = 0

    @property
    def held(self) -> str:
        """The text that was not returned."""
        return self._text[self.plain_start :]

    def advance(self, text: str, *, is_last: bool) -> tuple[str, list[Span], int]:
        """The text to which positions refer: the undecided text and `text`; the certain matches in
        it; and the end of the certain plain text after them."""
        text = self._text + text
        spans, unsure = self._find(text, is_last=is_last)
        end = unsure
        if self._rules.strips_left and not is_last:
            # A token that includes this white space may follow.
            end = self.plain_start + len(text[self.plain_start : unsure].rstrip(WHITE_SPACE))
        end = max(end, self.plain_start)
        self._search_start = max(self._search_start, unsure)
        kept_from = max(min(self._search_start, end) - 1, 0)
        self._text = text[kept_from:]
        self.plain_start = end - kept_from
        self._search_start -= kept_from
        return text, spans, end

    def _find(self, text: str, *, is_last: bool) -> tuple[list[Span], int]:
        """The certain matches, and the first index at which a match may begin that is not."""
        finder, tokens, _ = self._rules
        doubtful = [] if is_last else finder.doubtful_starts(text)
        spans: list[Span] = []
        for match in finder.matches(text, self._search_start):
            start, end = match.span()
            if any(self._search_start <= position <= start for position in doubtful):
                break  # a longer or earlier match may still begin here
            token = tokens[match.group()]
            stop = _skip_white_space(text, end) if token.rstrip else end
            if stop == len(text) and not is_last and (token.rstrip or token.single_word):
                return spans, start
            self._search_start = end
            if token.single_word and (_is_word(text, start - 1) or _is_word(text, end)):
                continue
            if token.lstrip:
                plain = text[self.plain_start : start].rstrip(WHITE_SPACE)
                start = self.plain_start + len(plain)
            spans.append(Span(self.plain_start, start, stop, token.content))
            self.plain_start = stop
        unsure = (position for position in doubtful if position >= self._search_start)
        return spans, next(unsure, len(text))


def _skip_white_space(text: str, start: int) -> int:
    run = _WHITE_SPACE_RUN.match(text, start)
    return run.end() if run else start


def _is_word(text: str, index: int) -> bool:
    """Whether the character at `index`, if there is one, belongs to a word."""
    return 0 <= index < len(text) and _WORD_CHARACTER.match(text[index]) is not None


class TrustedTokenMatcher(SpecialTokenMatcher):
    """Finds the tokens of another matcher in one text: the control tokens of each of `trusts` only
    within one of its runs.

    The next match is the leftmost, then the longest, of those that count. So a token that reaches
    beyond a run hides no shorter one within it.

    Example:
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

    def matches(
        self, text: str, position: int = 0, end: int | None = None
    ) -> Iterator[re.Match[str]]:
        """As in the base class, to the end of the text."""
        del end
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

    def split_settled(self, text: str) -> tuple[list[tuple[str, str]], int, int]:
        """Not for a part of the text."""
        raise NotImplementedError

    def stream(self) -> MatchStream:
        """Not for a text that arrives in pieces."""
        raise NotImplementedError


def _matches_in_runs(
    matcher: SpecialTokenMatcher, runs: Sequence[tuple[int, int]], text: str, position: int
) -> Iterator[re.Match[str]]:
    for index in range(bisect_right(runs, position, key=itemgetter(1)), len(runs)):
        start, end = runs[index]
        yield from matcher.matches(text, max(start, position), end)


class _TrustedFlaggedMatcher(TrustedTokenMatcher):
    __slots__ = ("_passes",)

    def __init__(
        self, matcher: SpecialTokenMatcher, passes: list[_Rules], trusts: tuple[Trust, ...]
    ) -> None:
        super().__init__(matcher, trusts)
        self._passes = passes

    @property
    def has_flags(self) -> bool:
        """True."""
        return True

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """As in the base class."""
        return _split_at(self.spans(text), text)

    def spans(self, text: str) -> Iterator[Span]:
        """As in the base class."""
        if not self.may_match(text):
            return iter(())
        return _spans_of_passes(self._passes, text, self.trusts)


class _FlaggedMatchStream(MatchStream):
    def __init__(self, matcher: FlaggedTokenMatcher, passes: list[_Rules]) -> None:
        super().__init__(matcher)
        self._passes = passes
        self._searches = [_Search(rules) for rules in passes]

    @property
    def held(self) -> str:
        """As in the base class."""
        return "".join(search.held for search in reversed(self._searches))

    def feed(self, text: str) -> list[tuple[str, str | None]]:
        """As in the base class."""
        return self._advance(0, text, is_last=False)

    def finish(self) -> list[tuple[str, str | None]]:
        """As in the base class."""
        return self._advance(0, "", is_last=True)

    def _advance(self, n_pass: int, text: str, *, is_last: bool) -> list[tuple[str, str | None]]:
        """The pairs of a pass and of the later ones."""
        if n_pass == len(self._searches):
            return [(text, None)]
        search = self._searches[n_pass]
        begin = search.plain_start
        text, spans, end = search.advance(text, is_last=is_last)
        pairs: list[tuple[str, str | None]] = []
        for span in spans:
            plain = text[span.plain_start : span.start]
            *within, (rest, _) = self._advance(n_pass + 1, plain, is_last=True)
            pairs += [*within, (rest, span.content)]
            begin = span.end
        if is_last:  # the next part is a text of its own
            self._searches[n_pass] = _Search(self._passes[n_pass])
        return pairs + self._advance(n_pass + 1, text[begin:end], is_last=is_last)


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


@lru_cache(maxsize=64)
def matcher_of(contents: frozenset[str]) -> SpecialTokenMatcher:
    """The matcher of a set of strings; cached, because compiling hundreds takes milliseconds."""
    return SpecialTokenMatcher(contents)


@lru_cache(maxsize=64)
def _parted(
    matcher: SpecialTokenMatcher, *controls: frozenset[str]
) -> tuple[SpecialTokenMatcher, ...]:
    """What finds the other strings of a matcher, and those of each set; without flags."""
    contents = frozenset(matcher.contents)
    others = contents.difference(*controls)
    return tuple(map(matcher_of, [others, *(contents & control for control in controls)]))


@lru_cache(maxsize=64)
def _flagged_matcher_of(tokens: frozenset[AddedToken]) -> FlaggedTokenMatcher:
    return FlaggedTokenMatcher(tokens)


def matcher_of_tokens(tokens: Iterable[AddedToken]) -> SpecialTokenMatcher:
    """The matcher of these tokens with their flags; cached."""
    distinct = frozenset(tokens)
    if any(token.flags for token in distinct):
        return _flagged_matcher_of(distinct)
    return matcher_of(frozenset(token.content for token in distinct))


def matcher_for(spec: TokenizerSpec, contents: Collection[str]) -> SpecialTokenMatcher:
    """The matcher of the added tokens of `spec` with these contents; cached. If the spec has
    `steps`, it finds only the contents as they are: `normalization.passes_of` searches instead."""
    if spec.has_flags and not spec.steps:
        return matcher_of_tokens(t for t in spec.added_tokens if t.content in contents)
    return matcher_of(frozenset(contents))


@lru_cache(maxsize=64)
def matcher_without(spec: TokenizerSpec, *controls: frozenset[str]) -> SpecialTokenMatcher:
    """The matcher of the added tokens of `spec` that are in none of `controls`; cached."""
    contents = {token.content for token in spec.added_tokens}
    return matcher_for(spec, contents.difference(*controls))


def resolve_policy(
    added_tokens: Collection[AddedToken], allowed: Allowed, disallowed: Disallowed
) -> tuple[frozenset[str], frozenset[str]]:
    """The strings to recognise and the strings to forbid, for these options.

    Added tokens that are not special are content: they are recognised under every policy but
    "ordinary", which recognises no added token. With `disallowed` "all", every special token is
    forbidden that `allowed` does not name. (In tiktoken the pair "all", "all" forbids none.)

    Raises:
        ValueError: `allowed` names a token that is not a special token of this tokenizer.
        TypeError: `allowed` or `disallowed` is an iterator.
    """
    special = {token.content for token in added_tokens if token.special}
    content = {token.content for token in added_tokens if not token.special}
    if allowed == "ordinary":
        allowed, content = "none", set()
    recognised = _resolve_allowed(special | content, special, allowed) | content
    if isinstance(disallowed, str):
        if disallowed != "all":
            raise ValueError(
                f"disallowed_special must be 'all' or a collection of strings, "
                f"not {disallowed!r:.60}"
            )
        forbidden = frozenset(special if isinstance(allowed, str) else special - recognised)
    else:
        forbidden = frozenset(_collected(disallowed, "disallowed_special"))
        if not all(isinstance(name, str) and name for name in forbidden):
            raise ValueError("disallowed_special must hold strings that are not empty")
    return recognised, forbidden


def _collected(names: object, option: str) -> Collection[str]:
    """`names`, unless they can be read only once: an option applies to every text."""
    if not isinstance(names, Collection):
        raise TypeError(f"{option} must be a set or list of strings, not {type(names).__name__}")
    return names


def _resolve_allowed(known: set[str], special: set[str], allowed: Allowed) -> frozenset[str]:
    if isinstance(allowed, str):
        if allowed == "all":
            return frozenset(special)
        if allowed == "none":
            return frozenset()
        raise ValueError(
            f"allowed_special must be 'all', 'none', 'ordinary' or a collection of strings, "
            f"not {allowed!r:.60}"
        )
    names = frozenset(_collected(allowed, "allowed_special"))
    unknown = sorted(names - known)
    if unknown:
        listed = ", ".join(map(repr, sorted(special)[:8])) or "none at all"
        raise ValueError(
            f"allowed_special names {unknown[0]!r:.60}, which this tokenizer does not have; "
            f"its special tokens: {listed}"
        )
    return names


def warn_of_unmarked(spec: TokenizerSpec, *, stacklevel: int = 2) -> None:
    """Warn if `spec` has a token of special shape (`<|endoftext|>`, `<s>`, `[CLS]`) that is not an
    added token and that no merge makes: no text gives its id.

    Formats without a list of special tokens leave that list to the caller, who may forget it.
    `stacklevel` as in `warnings.warn`, counted from the caller.
    """
    added = {token.id for token in spec.added_tokens}
    shaped = [
        (id_, token)
        for id_, token in spec.vocab.items()
        if token[:1] in (b"<", b"[") and id_ not in added and _SPECIAL_SHAPE.fullmatch(token)
    ]
    if not shaped or spec.kind != "merges":
        return
    made = set(starmap(add, spec.merges))
    unmarked = [(id_, token.decode()) for id_, token in sorted(shaped) if token not in made]
    if unmarked:
        first_id, first = unmarked[0]
        shown = [repr(token) for _, token in unmarked[:4]] + ["..."] * (len(unmarked) > 4)
        warnings.warn(
            f"the vocabulary has tokens that look special and are not declared ({len(unmarked)}), "
            f"so no text gives their ids; pass special_tokens=[{', '.join(shown)}], or on the "
            f"command line --special '{first}={first_id}'",
            stacklevel=stacklevel + 1,
        )


def forbid(text: str, forbidden: frozenset[str]) -> None:
    """Raise SpecialTokenForbiddenError if `text` contains one of `forbidden`."""
    if forbidden:
        found = matcher_of(forbidden).find(text)
        if found is not None:
            raise SpecialTokenForbiddenError(found)
