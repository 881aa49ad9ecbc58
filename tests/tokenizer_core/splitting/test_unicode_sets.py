"""Sets of code points, and expressions that any release of `regex` matches alike."""

from importlib.metadata import version
from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core.errors import UnknownPatternError
from tokenizer_core.splitting import unicode_sets
from tokenizer_core.splitting.unicode_data import RANGES
from tokenizer_core.splitting.unicode_sets import (
    LAST,
    compile_exactly,
    complement,
    for_installed_regex,
    intersect,
    join,
    ranges_of,
    set_members,
    subtract,
)

POINTS = st.sets(st.integers(0, 40) | st.integers(LAST - 20, LAST))


def as_ranges(points):
    return join(((point, point),) for point in points)


def as_points(ranges):
    return {point for first, last in ranges for point in range(first, last + 1)}


@given(POINTS, POINTS)
def test_sets_are_those_of_python(one, other):
    a, b = as_ranges(one), as_ranges(other)
    assert as_points(a) == one
    assert as_points(join([a, b])) == one | other
    assert as_points(intersect(a, b)) == one & other
    assert as_points(subtract(a, b)) == one - other
    assert complement(complement(a)) == a
    assert not as_points(intersect(complement(a), ((0, 60),))) & one
    # Ascending, with a gap between two ranges.
    bounds = [bound for pair in join([a, b]) for bound in pair]
    assert bounds == sorted(bounds)
    assert all(first - last > 1 for (_, last), (first, _) in pairwise(a))


@pytest.fixture
def other_release(monkeypatch):
    """An installed release in whose `\\p{L}` is `7` and not `b`, and in whose `\\w` is `-`."""

    def difference(written):
        if written == r"\p{L}":
            return ((55, 55),), ((98, 98),)
        return (((45, 45),), ()) if written == r"\w" else ((), ())

    monkeypatch.setattr(unicode_sets, "_is_table_release", lambda: False)
    monkeypatch.setattr(unicode_sets, "_difference", difference)


_WORD = r"[[\w--[\U0000002D]]]"
REWRITTEN = [
    (r"\s\p{N}.", r"\s\p{N}."),
    (r"\p{L}+", r"[[\p{L}--[\U00000037]]\U00000062]+"),
    (r"\P{L}", r"[^[\p{L}--[\U00000037]]\U00000062]"),
    (r"\p{^L}", r"[^[\p{L}--[\U00000037]]\U00000062]"),
    (r"\pL", r"[[\p{L}--[\U00000037]]\U00000062]"),
    (r"[^\s\p{L}x]", r"[^\s[[\p{L}--[\U00000037]]\U00000062]x]"),
    (r"\\p{L}", r"\\p{L}"),
    (r"[]\w]", r"[][[\w--[\U0000002D]]]]"),
    (r"\B", rf"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))"),
    (r"[\b]", r"[\b]"),
]  # fmt: skip


@pytest.mark.usefixtures("other_release")
@pytest.mark.parametrize(("given", "expected"), REWRITTEN)
def test_classes_that_differ_are_written_out(given, expected):
    assert for_installed_regex(given) == expected


@pytest.mark.usefixtures("other_release")
def test_in_version_0_a_class_that_differs_is_written_out_whole():
    found = for_installed_regex(r"[^\p{L}[]|\P{L}", has_nested_sets=False)
    letters = ranges_of("L")
    expected = rf"[^{set_members(letters)}[]|[{set_members(complement(letters))}]"
    assert found == expected
    assert regex.compile(found, regex.VERSION0).findall("ab7") == ["7"]
    assert regex.findall(f"[{set_members(((97, 99), (93, 93)))}]", "a]b-c[d") == list("a]bc")
    # An exact expression is compiled in version 1 only where classes differ.
    assert compile_exactly(r"\p{L}").flags & regex.VERSION1
    assert not compile_exactly(r"\p{N}").flags & regex.VERSION1


def test_properties_have_tables_or_are_refused_where_the_release_differs(monkeypatch):
    monkeypatch.setattr(unicode_sets, "_is_table_release", lambda: False)
    for name in ("InGreek", "Script_Extensions=Grek", "Klingon", ""):
        with pytest.raises(UnknownPatternError, match="no table"):
            for_installed_regex(rf"\p{{{name}}}")
    for name in ("han", "Script=Han", "sc=HAN", "IsHan", "white space", "Lu", "l", "S"):
        assert regex.compile(for_installed_regex(rf"\p{{{name}}}"))
    with pytest.raises(KeyError):
        ranges_of("Klingon")
    assert unicode_sets.version_of_regex() == version("regex")
    monkeypatch.setattr(regex, "__file__", None)
    assert unicode_sets.version_of_regex() == version("regex")


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["{}", "[{}]", "[^{}x]", "[\r{}]"])
def test_every_class_matches_the_tables_with_the_installed_release(monkeypatch, form):
    """With the release of the tables this checks the tables; with another, the rewriting."""
    monkeypatch.setattr(unicode_sets, "_is_table_release", lambda: False)
    everything = "".join(map(chr, range(LAST + 1)))
    names = {rf"\{letter}": rf"\{letter}" for letter in "sdw"}
    names |= {key: rf"\p{{{key}}}" for key in (*"CLMNPSZ", *RANGES) if key != "word"}
    for name, written in names.items():
        table = ranges_of(name)
        expected = {
            "[^{}x]": complement(join([table, ((120, 120),)])),
            "[\r{}]": join([table, ((13, 13),)]),
        }.get(form, table)
        expression = for_installed_regex(form.format(written))
        found = regex.finditer(f"(?:{expression})+", everything, flags=regex.VERSION1)
        spans = tuple((match.start(), match.end() - 1) for match in found)
        assert spans == expected, written
