"""Special tokens in a text: which are recognised, which are forbidden, and their positions.

Matching is leftmost, then longest: with `<|a|>` and `<|a|><|a|>` the doubled one wins. The options
(`allowed_special`, `disallowed_special`) have tiktoken's names. Training, encoding and streaming
all cut at special tokens with this module, before any split pattern is applied.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import groupby
from os.path import commonprefix
from typing import TYPE_CHECKING, Final, Literal

from tokenizer_core.errors import SpecialTokenForbiddenError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tokenizer_core.spec import AddedToken

_WINDOW_CHARS: Final = 1 << 16

Allowed = Literal["all", "none"] | frozenset[str] | set[str] | tuple[str, ...] | list[str]
Disallowed = Literal["all"] | frozenset[str] | set[str] | tuple[str, ...] | list[str]


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

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Pairs (plain text, the special token after it); the last pair has None."""
        end = 0
        for match in self._matches(text):
            yield text[end : match.start()], match.group()
            end = match.end()
        yield text[end:] if end else text, None

    def find(self, text: str) -> str | None:
        """The first of the strings in `text`, or None."""
        match = next(self._matches(text), None)
        return match.group() if match else None

    def split_settled(self, text: str) -> tuple[list[tuple[str, str]], int, int]:
        """Split a text that continues, as far as its special tokens are certain.

        Returns `(pairs, start, end)`: the pairs of `split` that no continuation changes, the index
        after the last of them, and the index up to which the rest is certainly plain text. From
        `end` on, the text may be the beginning of a special token; otherwise `end` is its length.
        """
        pairs: list[tuple[str, str]] = []
        start = 0
        doubtful = self._doubtful_starts(text)
        for match in self._matches(text):
            first = next((position for position in doubtful if position >= start), len(text))
            if first <= match.start():
                break  # a longer or earlier match may still begin here
            pairs.append((text[start : match.start()], match.group()))
            start = match.end()
        end = next((position for position in doubtful if position >= start), len(text))
        return pairs, start, end

    def _matches(self, text: str) -> Iterator[re.Match[str]]:
        if not self.may_match(text):
            return
        position, n_chars = 0, len(text)
        while position < n_chars:
            # The search covers every string that begins in this window completely.
            limit = position + _WINDOW_CHARS
            match = self._expression.search(text, position, limit + self._longest - 1)
            if match is None or match.start() >= limit:
                position = limit
            else:
                yield match
                position = match.end()

    def _doubtful_starts(self, text: str) -> list[int]:
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


def resolve_policy(
    added_tokens: Collection[AddedToken], allowed: Allowed, disallowed: Disallowed
) -> tuple[frozenset[str], frozenset[str]]:
    """The strings to recognise and the strings to forbid, for these options.

    Added tokens that are not special are content: they are recognised under every policy.

    Raises:
        ValueError: `allowed` names a token that is not a special token of this tokenizer.
    """
    special = {token.content for token in added_tokens if token.special}
    content = {token.content for token in added_tokens if not token.special}
    recognised = _resolve_allowed(special | content, special, allowed) | content
    if isinstance(disallowed, str):
        if disallowed != "all":
            raise ValueError(
                f"disallowed_special must be 'all' or a collection of strings, "
                f"not {disallowed!r:.60}"
            )
        forbidden = frozenset(special) - recognised
    else:
        forbidden = frozenset(disallowed)
        if not all(isinstance(name, str) and name for name in forbidden):
            raise ValueError("disallowed_special must hold strings that are not empty")
    return recognised, forbidden


def _resolve_allowed(known: set[str], special: set[str], allowed: Allowed) -> frozenset[str]:
    if isinstance(allowed, str):
        if allowed == "all":
            return frozenset(special)
        if allowed == "none":
            return frozenset()
        raise ValueError(
            f"allowed_special must be 'all', 'none' or a collection of strings, not {allowed!r:.60}"
        )
    names = frozenset(allowed)
    unknown = sorted(names - known)
    if unknown:
        listed = ", ".join(map(repr, sorted(special)[:8])) or "none at all"
        raise ValueError(
            f"allowed_special names {unknown[0]!r:.60}, which this tokenizer does not have; "
            f"its special tokens: {listed}"
        )
    return names


def forbid(text: str, forbidden: frozenset[str]) -> None:
    """Raise SpecialTokenForbiddenError if `text` contains one of `forbidden`."""
    if forbidden:
        found = matcher_of(forbidden).find(text)
        if found is not None:
            raise SpecialTokenForbiddenError(found)
