r"""Text -> pre-tokens with the `regex` module, whole or in parts, and the rule for cutting a text.

Two facts about the named patterns make splitting in parts exact. All code that cuts a text relies
on them.

**The cut rule.** A text may be cut between a letter or digit and white space, and before a space
that follows a visible character. In every text, every named pattern has a boundary there, and no
match depends on text across it. `find_safe_cut` and `find_last_safe_cut` find such cuts. The other
cuts of the package add conditions to this rule:

- corpus chunks (`training.corpus_chunks`): also outside any special token;
- parts of documents (`corpus.document_cuts`): also where NFC changes nothing across the cut;
- long streams (`streaming`): the rule itself;
- threads of the native engine (`is_safe_cut` in Rust): more cuts, which include these. A test of
  this module compares both rules with the patterns, for every pair of characters.

**Settled matches.** The named patterns use no lookbehind, so splitting may resume at any boundary.
They look ahead a short distance: to decide a match that ends at `e`, they read at most

- two characters past `e` (an o200k word looks for `'ll` after it);
- the character after the run of white space that contains `e` (`\s+(?!\S)`, `\s*[\r\n]+`);
- the character after the run of letters and marks that contains `e` (o200k's case backtracking).

Later text therefore never changes a match once `e` is three characters before the last run of white
space, or of letters and marks, in the text. `split_settled` returns these matches.

**Custom patterns** are cut where their automaton proves it (`SplitPattern.automaton`). Without an
automaton a pattern may look any distance ahead and behind, so it only splits whole texts. Some
expressions take quadratic time, and the text comes from strangers: matching has a limit, see
`_find_matches`. The named patterns take linear time and have none.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import islice, pairwise
from operator import eq, gt, lt
from time import thread_time
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import SplitTooSlowError
from tokenizer_core.splitting.patterns import metaspace_cut
from tokenizer_core.splitting.unicode_sets import compile_exactly
from tokenizer_core.stopping import check_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import regex

    from tokenizer_core.splitting.patterns import SplitPattern

WINDOW_CHARS: Final = 1 << 16
"""Long texts are split in windows of this many characters. The list of pre-tokens then stays in the
processor's cache (a fifth faster than one list for 20 MB), and other threads can run in between."""

MATCH_SECONDS: Final = 2.0
MATCH_SECONDS_PER_CHAR: Final = 20e-6
"""How long a custom pattern may match a text, in processor seconds of the thread: the sum of both,
which is ten times what published patterns take."""

_SLICE_SECONDS: Final = 0.1
_MOST_SLICE_SECONDS: Final = 2.0
"""The time limits of one search, in processor seconds of the process: of the first, which keeps the
GIL, and of the longest. A search that exceeds its limit without a match is repeated with twice the
limit. A cancelled call ends after the current search."""

_MATCHES_AT_ONCE: Final = 1 << 9
_SEARCHES_AT_ONCE: Final = 16  # each has a slice of its own
_LOOK_AHEAD: Final = 3
_TRAILING_RUN: Final = r"(?:\s+|[\p{L}\p{M}]+)\Z"
_CUT_RULE: Final = r"(?<=[\p{L}\p{N}])(?=\s)|(?<=\S)(?= )"
_BACKWARDS: Final = "(?r)"  # searches from the end of the text
_LAST_CUT_CHARS: Final = 1 << 12


def split(text: str, pattern: SplitPattern) -> list[str]:
    """All pre-tokens of `text`, in order; joined they equal `text`, unless the pattern drops text.

    Text that a custom pattern does not match becomes separate pre-tokens, or is left out. Raises
    SplitTooSlowError: a custom pattern exceeds its time.

    Example:
        >>> from tokenizer_core.splitting.patterns import PATTERNS
        >>> split("It's 5 o'clock", PATTERNS["gpt2"])
        ['It', "'s", ' 5', ' o', "'", 'clock']
    """
    if pattern.is_named:
        return pattern.compile().findall(text)
    return [piece for pieces in _split_by_custom_pattern(text, pattern) for piece in pieces]


def split_settled(text: str, pattern: SplitPattern) -> tuple[list[str], int]:
    """The pre-tokens of `text` that no appended text changes, and the characters they cover.

    For a custom pattern they end at the last position where the text may be cut. Without an
    automaton a pattern may look ahead any distance; the result is `([], 0)`.
    """
    if not pattern.is_named:
        end = _find_last_cut_by_automaton(text, pattern) or 0
        return (split(text[:end], pattern) if end else []), end
    if pattern.is_metaspace:
        last_cut = _cut_of(pattern, _BACKWARDS)
        cut = last_cut.search(text) if last_cut else None
        end = cut.start() if cut else 0
        return pattern.compile().findall(text, 0, end), end
    run = _compile(_BACKWARDS, _TRAILING_RUN).search(text)
    horizon = (run.start() if run else len(text)) - _LOOK_AHEAD
    if horizon <= 0:
        return [], 0
    pre_tokens = pattern.compile().findall(text)
    end = len(text)
    while end > horizon:
        end -= len(pre_tokens.pop())
    return pre_tokens, end


def split_in_windows(
    text: str, pattern: SplitPattern, window_chars: int = WINDOW_CHARS
) -> Iterator[list[str]]:
    """The same pre-tokens as `split`, in lists that cover about `window_chars` characters each.

    While a window settles nothing (it contains part of one long pre-token), its size doubles, so
    the work stays linear in the length of the text. There is at least one list.
    """
    if not pattern.is_named:
        yield from _split_by_custom_pattern(text, pattern)
        return
    start, size = 0, window_chars
    while start + size < len(text):
        pre_tokens, consumed = split_settled(text[start : start + size], pattern)
        if consumed:
            yield pre_tokens
            start, size = start + consumed, window_chars
        else:
            size *= 2
    yield split(text[start:] if start else text, pattern)


def find_safe_cut(text: str, start: int, pattern: SplitPattern) -> int | None:
    """The first index from `start` on where `text` may be cut without changing a pre-token, or
    None.

    A cut depends only on the two adjacent characters, so `text` may be part of a longer text. A
    custom pattern without an automaton has no cuts.

    Raises UnicodeEncodeError if a custom pattern meets a lone surrogate.
    """
    if not pattern.is_named:
        return _find_cut_by_automaton(text, max(start, 1), pattern)
    cut = _cut_of(pattern)
    found = cut.search(text, max(start, 1)) if cut else None
    return found.start() if found else None


def find_last_safe_cut(text: str, pattern: SplitPattern) -> int | None:
    """The last index where `text` may be cut; see `find_safe_cut`.

    For a named pattern, None if the last 4096 characters have none: a longer search would take
    longer than splitting.
    """
    if not pattern.is_named:
        return _find_last_cut_by_automaton(text, pattern)
    start = max(0, len(text) - _LAST_CUT_CHARS)
    cut = _cut_of(pattern, _BACKWARDS)
    found = cut.search(text[start:]) if cut else None
    return start + found.start() if found else None


def _cut_of(pattern: SplitPattern, flags: str = "") -> regex.Pattern[str] | None:
    """What matches where a named pattern always cuts a text; None if nowhere."""
    if pattern.is_metaspace:
        return metaspace_cut(pattern, flags)
    return _compile(flags, _CUT_RULE)


@cache
def _compile(flags: str, expression: str) -> regex.Pattern[str]:
    return compile_exactly(f"{flags}(?:{expression})")


def _find_cut_by_automaton(text: str, start: int, pattern: SplitPattern) -> int | None:
    automaton = pattern.automaton
    if automaton is None:
        return None
    while start < len(text):
        # From the character before the first position.
        cuts = automaton.cuts_in(text[start - 1 : start + _LAST_CUT_CHARS])
        if len(cuts):
            return start - 1 + int(cuts[0])
        start += _LAST_CUT_CHARS
    return None


def _find_last_cut_by_automaton(text: str, pattern: SplitPattern) -> int | None:
    automaton = pattern.automaton
    if automaton is None:
        return None
    end = len(text)
    while end > 1:
        start = max(0, end - _LAST_CUT_CHARS)
        cuts = automaton.cuts_in(text[start:end])
        if len(cuts):
            return start + int(cuts[-1])
        end = start + 1 if start else 0
    return None


def find_kept_spans(text: str, pattern: SplitPattern) -> list[tuple[int, int]]:
    """Start and end in `text` of all pre-tokens of a pattern that drops text, in order."""
    if pattern.has_steps:
        return [span for spans in _find_pieces(text, pattern) for span in spans]
    return [span for spans in _find_matches(text, pattern) for span in spans if span[1] > span[0]]


def find_matches(text: str, pattern: SplitPattern) -> Iterator[tuple[int, int]]:
    """Start and end in `text` of all matches of a custom pattern without steps, in order, also
    empty ones. An empty one may occur twice. Raises SplitTooSlowError: the pattern exceeds its
    time."""
    return (span for spans in _find_matches(text, pattern) for span in spans)


def _split_by_custom_pattern(text: str, pattern: SplitPattern) -> Iterator[list[str]]:
    if pattern.has_steps:
        for spans in _find_pieces(text, pattern):
            yield [text[start:stop] for start, stop in spans]
        return
    keeps = not pattern.drops
    end = n_lists = 0
    for spans in _find_matches(text, pattern):
        pre_tokens = [text[start:stop] for start, stop in spans]
        if sum(map(len, pre_tokens)) != spans[-1][1] - end or not all(pre_tokens):
            pre_tokens = _with_gaps(text, spans, end) if keeps else list(filter(None, pre_tokens))
        end = spans[-1][1]
        n_lists += 1
        yield pre_tokens
    if end < len(text) and keeps:
        yield [text[end:]]
    elif not n_lists:
        yield []


_Part = tuple[int, int, bool]
"""Start and end of a part of a text, and whether it is a match for `behavior`."""


class _Budget:
    """The processor seconds left for splitting one text of `n_chars`, in all its steps."""

    def __init__(self, n_chars: int) -> None:
        self.n_chars = n_chars
        self.left = MATCH_SECONDS + MATCH_SECONDS_PER_CHAR * n_chars

    def spend(self, seconds: float, *, is_done: bool) -> None:
        self.left -= seconds
        if self.left < 0 and not is_done:
            raise SplitTooSlowError(
                f"the split pattern of this tokenizer takes too long on this text "
                f"({self.n_chars} characters): a part of it makes the expression try very many "
                f"ways; break the text, or use a tokenizer with a simpler expression"
            )


def _find_pieces(text: str, pattern: SplitPattern) -> Iterator[list[tuple[int, int]]]:
    """The spans of all pre-tokens of a pattern with steps, in order; at least one list.

    Each step is lazy, so that the lists of a long text stay short.
    """
    budget = _Budget(len(text))
    pieces: Iterator[tuple[int, int]] = iter([(0, len(text))])
    for step in (*pattern.before, pattern.alone()):
        pieces = _split_pieces(text, pieces, step, budget)
    spans = list(islice(pieces, _MATCHES_AT_ONCE))
    yield spans
    while spans := list(islice(pieces, _MATCHES_AT_ONCE)):
        yield spans


def _split_pieces(
    text: str, pieces: Iterator[tuple[int, int]], step: SplitPattern, budget: _Budget
) -> Iterator[tuple[int, int]]:
    """The spans that one step makes of each piece, which it sees as a whole text; none is empty."""
    for first, last in pieces:
        parts = _flagged_parts(text[first:last], step, budget)
        for start, stop in _BEHAVIORS[step.behavior](parts):
            if start < stop:
                yield first + start, first + stop


def _flagged_parts(text: str, step: SplitPattern, budget: _Budget) -> Iterator[_Part]:
    """The matches of a step and the text between them, with the flag that `behavior` looks at."""
    is_match, is_gap = not step.invert, step.invert
    drops = step.unmatched == "drop"
    end = 0
    for spans in _find_matches(text, step, budget):
        for start, stop in spans:
            if end < start and not drops:
                yield end, start, is_gap
            yield start, stop, is_match
            end = stop
    if end < len(text) and not drops:
        yield end, len(text), is_gap


def _join(parts: Iterator[_Part], joins: Callable[[bool, bool], bool]) -> Iterator[tuple[int, int]]:
    """The spans of parts, of which `joins` says for two neighbours whether they become one."""
    held: tuple[int, int] | None = None
    was_match = False
    for start, stop, is_match in parts:
        if held is not None and joins(was_match, is_match):
            held = held[0], stop
        else:
            if held is not None:
                yield held
            held = start, stop
        was_match = is_match
    if held is not None:
        yield held


# Of several matches in a row, only the first joins the text before them, and only the last the text
# after them.
_BEHAVIORS: Final[Mapping[str, Callable[[Iterator[_Part]], Iterator[tuple[int, int]]]]] = {
    "isolated": lambda parts: (part[:2] for part in parts),
    "removed": lambda parts: (part[:2] for part in parts if not part[2]),
    "contiguous": partial(_join, joins=eq),
    "merged-with-previous": partial(_join, joins=lt),
    "merged-with-next": partial(_join, joins=gt),
}


def _with_gaps(text: str, spans: list[tuple[int, int]], end: int) -> list[str]:
    """The matches and the text between them, from `end` on, without empty pieces."""
    bounds = [end, *(position for span in spans for position in span)]
    return [text[start:stop] for start, stop in pairwise(bounds) if stop > start]


def _find_matches(
    text: str, pattern: SplitPattern, budget: _Budget | None = None
) -> Iterator[list[tuple[int, int]]]:
    """The spans of all matches in order, also empty ones, in lists that are not empty; in bounded
    time. An empty span may occur twice.

    `regex` stops a search after a time that all threads of the process use up together. The search
    then goes on after the last list. Only this thread's time counts for the limit. A search in the
    dialect of Python is not stopped, because that halves the speed and its expression comes from no
    file; its limit is looked at between lists.
    """
    budget = budget or _Budget(len(text))
    at_once = _SEARCHES_AT_ONCE if pattern.restarts_after_empty_matches else _MATCHES_AT_ONCE
    slice_seconds, is_concurrent = _SLICE_SECONDS, False
    position, is_done = 0, False
    while not is_done:
        found = _find_from(text, pattern, position, slice_seconds, is_concurrent)
        is_new, is_stopped = True, False
        while not (is_done or is_stopped):
            check_stop()
            started = thread_time()
            spans: list[tuple[int, int]] = []
            try:
                spans = list(islice(found, at_once))
                is_done = len(spans) < at_once
            except TimeoutError:
                is_stopped = True
            budget.spend(thread_time() - started, is_done=is_done)
            if spans:
                position = spans[-1][1]
                yield spans
            if is_stopped:
                # Repeat a search that found nothing with more time, and release the GIL.
                slice_seconds, is_concurrent = (
                    (min(slice_seconds * 2, _MOST_SLICE_SECONDS), True)
                    if is_new
                    else (_SLICE_SECONDS, False)
                )
            is_new = False


def _find_from(
    text: str, pattern: SplitPattern, position: int, seconds: float, is_concurrent: bool
) -> Iterator[tuple[int, int]]:
    """The spans of the matches from `position` on, where the last match ends."""
    import regex

    compiled = pattern.compile()
    if pattern.restarts_after_empty_matches:
        return _search_from(text, compiled, position, seconds, is_concurrent)
    if pattern.dialect == "python":
        return map(regex.Match.span, compiled.finditer(text, position))
    return map(
        regex.Match.span,
        compiled.finditer(text, position, timeout=seconds, concurrent=is_concurrent),
    )


def _search_from(
    text: str,
    compiled: regex.Pattern[str],
    position: int,
    seconds: float,
    is_concurrent: bool,
) -> Iterator[tuple[int, int]]:
    """As Hugging Face: after each match a new search, which may not find an empty match at its
    start."""
    end = position or None
    while position <= len(text):
        match = compiled.search(text, position, timeout=seconds, concurrent=is_concurrent)
        if match is None:
            return
        start, stop = match.span()
        if start == stop == end:
            position += 1
            continue
        position = end = stop
        yield start, stop
