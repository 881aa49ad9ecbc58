r"""Text -> pre-tokens with the `regex` module: the reference splitter, whole or piece by piece.

What makes splitting piece by piece exact is written down here once, and streaming, windows and
corpus chunks all rest on it. The named patterns do not look behind, so a split may be resumed at
any pre-token boundary. They do look ahead, but never far: to decide a match that ends at `e` they
read at most

- two characters past `e` (an o200k word looks for `'ll` behind it);
- the character behind the run of white space that holds `e` (`\s+(?!\S)`, `\s*[\r\n]+`);
- the character behind the run of letters and marks that holds `e` (o200k's case backtracking).

So a match is settled, whatever follows, once `e` is three characters before the run of white
space or of letters and marks that ends the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import regex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer_core.patterns import SplitPattern

WINDOW_CHARS: Final = 1 << 16
"""Long texts are split in windows of this many characters: the list of pre-tokens stays in the
processor's cache (a fifth faster than one list for 20 MB) and other threads get a turn between."""

_LOOK_AHEAD: Final = 3
# `(?r)` searches backwards: the run that ends the text is found from its end.
_TRAILING_RUN = regex.compile(r"(?r)(?:\s+|[\p{L}\p{M}]+)\Z")
# Between a letter or digit and white space, and before a space that follows anything visible,
# every named pattern has a boundary, and neither side reads across it.
_SAFE_PLACE: Final = r"(?<=[\p{L}\p{N}])(?=\s)|(?<=\S)(?= )"
_SAFE_CUT = regex.compile(_SAFE_PLACE)
_LATE_CUT_CHARS: Final = 1 << 12
_LAST_SAFE_CUT = regex.compile(f"(?r)(?:{_SAFE_PLACE})")


def split(text: str, pattern: SplitPattern) -> list[str]:
    """All pre-tokens of `text`, in order; joined they are `text` again.

    What a custom pattern leaves unmatched becomes a pre-token of its own, so nothing is lost.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> split("It's 5 o'clock", PATTERNS["gpt2"])
        ['It', "'s", ' 5', ' o', "'", 'clock']
    """
    if pattern.is_named:
        return pattern.compile().findall(text)
    return _split_by_custom_pattern(text, pattern)


def split_settled(text: str, pattern: SplitPattern) -> tuple[list[str], int]:
    """The pre-tokens of `text` that stay as they are whatever is appended to it.

    Returns them with the number of characters they cover. Of a custom pattern nothing is known
    before the text ends, so for one the answer is always `([], 0)`.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> split_settled("one two thr", PATTERNS["gpt2"])
        (['one'], 3)
    """
    if not pattern.is_named:
        return [], 0
    run = _TRAILING_RUN.search(text)
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

    A window in which nothing is settled (one pre-token longer than it) is doubled until something
    is, which keeps the work linear in the length of the text.
    """
    start, size = 0, window_chars
    if not pattern.is_named:
        size = len(text)
    while start + size < len(text):
        pre_tokens, consumed = split_settled(text[start : start + size], pattern)
        if consumed:
            yield pre_tokens
            start, size = start + consumed, window_chars
        else:
            size *= 2
    yield split(text[start:] if start else text, pattern)


def find_safe_cut(text: str, start: int, pattern: SplitPattern) -> int | None:
    """The first place at or after `start` where `text` may be cut in two without changing a
    pre-token, whatever stands before and after it; None where there is none.

    It depends only on the characters on both sides of the cut, so it can be looked for in any
    part of a longer text. A custom pattern has no such place.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> find_safe_cut("one  two", 1, PATTERNS["gpt2"])
        3
    """
    if not pattern.is_named:
        return None
    found = _SAFE_CUT.search(text, max(start, 1))
    return found.start() if found else None


def find_last_safe_cut(text: str, pattern: SplitPattern) -> int | None:
    """The last place where `text` may be cut in two; see `find_safe_cut`.

    None where there is none in the last 4096 characters: in a long text without one, looking
    further would take longer than splitting it.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> find_last_safe_cut("one  two three", PATTERNS["gpt2"])
        8
    """
    if not pattern.is_named:
        return None
    start = max(0, len(text) - _LATE_CUT_CHARS)
    found = _LAST_SAFE_CUT.search(text[start:])
    return start + found.start() if found else None


def _split_by_custom_pattern(text: str, pattern: SplitPattern) -> list[str]:
    pre_tokens: list[str] = []
    end = 0
    for match in pattern.compile().finditer(text):
        if match.start() > end:
            pre_tokens.append(text[end : match.start()])
        if match.end() > match.start():
            pre_tokens.append(match.group())
        end = match.end()
    if end < len(text):
        pre_tokens.append(text[end:])
    return pre_tokens
