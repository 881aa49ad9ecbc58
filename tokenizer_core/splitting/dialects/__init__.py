r"""Expressions of other engines, translated exactly to `regex`, or refused by name.

tiktoken's patterns run in Rust's fancy-regex, those of a `tokenizer.json` in Oniguruma. The three
engines read the same text differently: `[a-c[x-z]]`, `[\p{L}&&[^\p{Han}]]`, `\h`, `$`, `a{1,3}+`,
`[[:alpha:]]`, `(?i:s)`, `\w`. A parser for each dialect makes a tree of what is certain, and the
tree is written for version 1 of `regex`. `backtracking` refuses expressions that could take
exponential time.

Only `patterns` imports this package, and only for an expression of a foreign dialect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.splitting.dialects.automaton import (
    NoAutomatonError,
    SplitAutomaton,
    Step,
    build_automaton,
)
from tokenizer_core.splitting.dialects.backtracking import check_backtracking
from tokenizer_core.splitting.dialects.parsing import PARSERS
from tokenizer_core.splitting.dialects.syntax import lengths, node_text, sets_in, unrolled_size

__all__ = ["SplitAutomaton", "Translation", "make_automaton", "sets_of_matches", "translate"]

MAX_UNROLLED_SIZE: Final = 50_000


@dataclass(frozen=True, slots=True)
class Translation:
    """The expression for version 1 of `regex`, and whether it can match the empty text."""

    expression: str
    matches_empty: bool


def translate(expression: str, dialect: str) -> Translation:
    """Translate an expression of `fancy-regex` or `oniguruma`. Raises UnknownPatternError: a
    construct that has no certain equal (named, with its offset), or that can take exponential time.

    Example:
        >>> translate(r"[a-c[x-z]]\\h$", "fancy-regex").expression
        '[a-cx-z][0-9A-Fa-f]\\\\Z'
        >>> translate(r"$a{1,3}+", "oniguruma").expression
        '(?![^\\\\n])(?:a{1,3})+'
    """
    parser = PARSERS[dialect](expression)
    node = parser.parse()
    matches_empty = lengths(node)[0] == 0
    if matches_empty and dialect == "fancy-regex":
        parser.refuse("an expression that can match nothing, on which tiktoken stops")
    if unrolled_size(node) > MAX_UNROLLED_SIZE:
        parser.refuse(f"repetitions of more than {MAX_UNROLLED_SIZE} characters in all")
    check_backtracking(node, parser.refuse)
    return Translation(node_text(node), matches_empty)


def make_automaton(steps: Iterable[tuple[str, str, str, bool, bool]]) -> SplitAutomaton | None:
    """The automaton of a pattern's steps, each an expression, its dialect, behavior, `invert`, and
    whether text without a match is dropped. None if an expression has no automaton."""
    try:
        return build_automaton(
            [
                Step(PARSERS[dialect](expression).parse(), behavior, invert, drops)
                for expression, dialect, behavior, invert, drops in steps
            ]
        )
    except (NoAutomatonError, UnknownPatternError):
        return None


def sets_of_matches(expression: str, dialect: str) -> list[str] | None:
    """The sets, as expressions for one character, of which matches consist. None if a match depends
    on text around it, or may be empty. Raises as `translate`."""
    node = PARSERS[dialect](expression).parse()
    return sets_in(node) if lengths(node)[0] else None
