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
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import regex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizer_core.patterns import SplitPattern

WINDOW_CHARS: Final = 1 << 16
"""Long texts are split in windows of this many characters. The list of pre-tokens then stays in the
processor's cache (a fifth faster than one list for 20 MB), and other threads can run in between."""

_LOOK_AHEAD: Final = 3
# `(?r)` searches backwards, from the end of the text.
_TRAILING_RUN = regex.compile(r"(?r)(?:\s+|[\p{L}\p{M}]+)\Z")
_CUT_RULE: Final = r"(?<=[\p{L}\p{N}])(?=\s)|(?<=\S)(?= )"
_SAFE_CUT = regex.compile(_CUT_RULE)
_LAST_CUT_CHARS: Final = 1 << 12
_LAST_SAFE_CUT = regex.compile(f"(?r)(?:{_CUT_RULE})")


def split(text: str, pattern: SplitPattern) -> list[str]:
    """All pre-tokens of `text`, in order; joined they equal `text`.

    Text that a custom pattern does not match becomes separate pre-tokens.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> split("It's 5 o'clock", PATTERNS["gpt2"])
        ['It', "'s", ' 5', ' o', "'", 'clock']
    """
    if pattern.is_named:
        return pattern.compile().findall(text)
    return _split_by_custom_pattern(text, pattern)


def split_settled(text: str, pattern: SplitPattern) -> tuple[list[str], int]:
    """The pre-tokens of `text` that no appended text changes, and the characters they cover.

    A custom pattern may look ahead any distance, so its result is always `([], 0)`.

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

    While a window settles nothing (it contains part of one long pre-token), its size doubles, so
    the work stays linear in the length of the text.
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
    """The first index from `start` on where `text` may be cut without changing a pre-token, or
    None.

    A cut depends only on the two adjacent characters, so `text` may be part of a longer text. A
    custom pattern has no cuts.

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
    """The last index where `text` may be cut; see `find_safe_cut`.

    None if the last 4096 characters have none: a longer search would take longer than splitting.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> find_last_safe_cut("one  two three", PATTERNS["gpt2"])
        8
    """
    if not pattern.is_named:
        return None
    start = max(0, len(text) - _LAST_CUT_CHARS)
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
