r"""Sets of code points, from tables that no release of `regex` changes.

`\p{L}` and the other classes decide ids, and their members differ between releases of `regex`. The
tables in `unicode_data` are those of one release, whose classes equal tiktoken's and Hugging
Face's. `for_installed_regex` rewrites an expression so that any release matches what that one does:
where the installed release differs, the characters that it added or lost are written out.
"""

from __future__ import annotations

import os
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.splitting.unicode_data import RANGES, RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import regex

Ranges = tuple[tuple[int, int], ...]
"""Code points: the first and the last of each range, ascending, with a gap between two ranges."""

LAST: Final = 0x10FFFF
EVERYTHING: Final[Ranges] = ((0, LAST),)

_SHORTHANDS: Final = {r"\s": "White_Space", r"\d": "Nd", r"\w": "word"}
_MAJOR: Final = "CLMNPSZ"


def join(parts: Iterable[Ranges]) -> Ranges:
    """The code points of any of the sets."""
    made: list[tuple[int, int]] = []
    for first, last in sorted(chain.from_iterable(parts)):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(made[-1][1], last)
        else:
            made.append((first, last))
    return tuple(made)


def complement(ranges: Ranges) -> Ranges:
    """All other code points."""
    bounds = [-1, *chain.from_iterable(ranges), LAST + 1]
    gaps = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple((last + 1, first - 1) for last, first in gaps if last + 1 < first)


def intersect(one: Ranges, other: Ranges) -> Ranges:
    """The code points of both sets."""
    return complement(join([complement(one), complement(other)]))


def subtract(one: Ranges, other: Ranges) -> Ranges:
    """The code points of the first set that are not in the second."""
    return complement(join([complement(one), other]))


@cache
def ranges_of(name: str) -> Ranges:
    r"""The code points of `\s`, `\d`, `\w`, or of a property: a general category (`L`, `Lu`),
    `Alphabetic` and its like, `Script=Han`.

    Raises KeyError for another name.
    """
    if len(name) == 1 and name in _MAJOR:
        return join(ranges_of(known) for known in RANGES if len(known) == 2 and known[0] == name)
    if name == "Cn":
        return complement(join(ranges_of(one) for one in RANGES if len(one) == 2 and one != "Cn"))
    listed = RANGES[_SHORTHANDS.get(name, name)].split()
    whole = [one for one in listed if one in RANGES]
    bounds = (one.partition("-") for one in listed[len(whole) :])
    ranges = tuple((int(first, 16), int(last or first, 16)) for first, _, last in bounds)
    return join([ranges, *map(ranges_of, whole)]) if whole else ranges


def set_members(ranges: Ranges) -> str:
    """The set as `regex` reads it within brackets."""
    return "".join(
        f"\\U{first:08X}" if first == last else f"\\U{first:08X}-\\U{last:08X}"
        for first, last in ranges
    )


def version_of_regex() -> str:
    """The version of the installed `regex`, from the name of its metadata folder.

    `importlib.metadata` gives the same version but takes 40 ms to import, so it is only the
    fallback. (`regex.__version__` is another number.)
    """
    import regex

    if regex.__file__ is not None:
        beside = Path(regex.__file__).parent.parent
        names = os.listdir(beside) if beside.is_dir() else []  # noqa: PTH208 - names alone, once
        found = [name for name in names if name[:6] == "regex-" and name.endswith(".dist-info")]
        if len(found) == 1:
            return found[0].removeprefix("regex-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("regex")


WHITE_SPACE: Final = "".join(
    chr(code) for first, last in ranges_of("White_Space") for code in range(first, last + 1)
)
"""The white space of Unicode, which `lstrip` and `rstrip` tokens include and `Strip` removes."""


@cache
def _is_table_release() -> bool:
    return version_of_regex() == RELEASE


def compile_exactly(expression: str, flags: int = 0) -> regex.Pattern[str]:
    r"""Compile an expression of this package for the classes of the tables.

    Where those of the installed release differ, the expression is compiled in version 1, whatever
    the flags say. It must read alike in both versions: no brackets within brackets, and no letter
    under `(?i)` that folds to several.
    """
    import regex

    exact = for_installed_regex(expression)
    return regex.compile(exact, flags if exact == expression else flags | regex.VERSION1)


def for_installed_regex(expression: str, *, has_nested_sets: bool = True) -> str:
    r"""An expression that the installed `regex` matches as the release of the tables matches the
    given one. `has_nested_sets`: it is for version 1; in version 0, classes that differ are written
    out whole, which is slower. Raises UnknownPatternError: the installed release differs, and the
    expression names a property that is not in the tables."""
    if _is_table_release():
        return expression
    return _Rewriter(expression, has_nested_sets=has_nested_sets).rewritten()


class _Rewriter:
    """Copies an expression and replaces the classes in it."""

    def __init__(self, expression: str, *, has_nested_sets: bool) -> None:
        self._text = expression
        self._at = 0
        self._depth = 0  # of brackets
        self._has_nested_sets = has_nested_sets

    def rewritten(self) -> str:
        made = []
        while self._at < len(self._text):
            made.append(self._next())
        return "".join(made)

    def _next(self) -> str:
        character = self._text[self._at]
        if character == "\\":
            return self._escape()
        start = self._at
        if character == "[" and (not self._depth or self._has_nested_sets):
            self._depth += 1
            self._at += 1 + self._text.startswith("^", self._at + 1)
            # A bracket in the first place is a member.
            self._at += self._text.startswith("]", self._at)
        elif character == "[" and self._text.startswith("[:", self._at):
            self._at = max(self._text.find(":]", self._at) + 2, self._at + 1)
        else:
            self._depth -= bool(character == "]" and self._depth)
            self._at += 1
        return self._text[start : self._at]

    def _escape(self) -> str:
        start = self._at
        letter = self._text[start + 1 : start + 2]
        self._at += 2
        if letter and letter in "sSdDwW":
            return self._class(rf"\{letter.lower()}", is_negative=letter.isupper(), start=start)
        if letter and letter in "bB" and not self._depth:
            return self._boundary(is_negative=letter == "B", start=start)
        if letter and letter in "pP":
            name = self._property_name()
            is_negative = (letter == "P") != name.startswith("^")
            written = rf"\p{{{name.removeprefix('^')}}}"
            return self._class(written, is_negative=is_negative, start=start)
        return self._text[start : self._at]

    def _property_name(self) -> str:
        start = self._at
        if self._text.startswith("{", start):
            end = self._text.find("}", start)
            self._at = end + 1 if end > 0 else len(self._text)
            return self._text[start + 1 : self._at - 1]
        self._at += 1
        return self._text[start : self._at]

    def _class(self, written: str, *, is_negative: bool, start: int) -> str:
        added, lost = _difference(written)
        if not (added or lost):
            return self._text[start : self._at]
        if not self._has_nested_sets:
            ranges = ranges_of(_table_name(written))
            members = set_members(complement(ranges) if is_negative else ranges)
            return members if self._depth else f"[{members}]"
        kept = f"[{written}--[{set_members(added)}]]" if added else written
        sign = "^" if is_negative else ""
        return f"[{sign}{kept}{set_members(lost)}]"

    def _boundary(self, *, is_negative: bool, start: int) -> str:
        word = self._class(r"\w", is_negative=False, start=start)
        if word == self._text[start : self._at]:
            return word
        if is_negative:
            return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"
        return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"


@cache
def _table_name(written: str) -> str:
    """The name in the tables of a class as `regex` writes it."""
    if written in _SHORTHANDS:
        return written
    name = loose(written[3:-1])
    known: dict[str, str] = {loose(key): key for key in (*_MAJOR, *RANGES)}
    script = f"script={name.removeprefix('script=').removeprefix('sc=').removeprefix('is')}"
    for candidate in (name, script):
        if candidate in known:
            return known[candidate]
    raise UnknownPatternError(
        f"the split pattern names the property {written!r:.60}, for which there is no table: the "
        f"installed regex {version_of_regex()} may know other characters by it than regex "
        f"{RELEASE}; install that release, or write general categories or scripts"
    )


def loose(name: str) -> str:
    """The name of a property as all libraries compare it: without case, spaces, `_` and `-`."""
    return "".join(character for character in name.lower() if character not in " _-")


@cache
def _difference(written: str) -> tuple[Ranges, Ranges]:
    """What the installed class has more, and what it lacks."""
    import regex

    table = ranges_of(_table_name(written))
    found = regex.finditer(f"{written}+", _all_characters())
    installed = tuple((match.start(), match.end() - 1) for match in found)
    return subtract(installed, table), subtract(table, installed)


@cache
def _all_characters() -> str:
    return "".join(map(chr, range(LAST + 1)))
