"""Every row and every promise has a test."""

import re

import pytest

from tests.conftest import REPOSITORY
from tests.reliability.names import ALL_NAMES

pytest_plugins = ["pytester"]

MARK = re.compile(r"pytest\.mark\.(row|promise)\(([\d, ]+)\)")


def test_each_row_and_promise_has_a_test() -> None:
    held = {
        f"{kind}_{int(number):02}"
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        if path.name != "test_names.py"
        for kind, numbers in MARK.findall(path.read_text(encoding="utf-8"))
        for number in numbers.split(",")
    }
    assert len(ALL_NAMES) == 36 + 20
    assert sorted(set(ALL_NAMES) - held) == []


def test_tests_are_chosen_and_reported_by_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
import pytest

@pytest.mark.row(5, 7)
@pytest.mark.promise(20)
def test_a(): pass

@pytest.mark.row(7)
@pytest.mark.parametrize("n", range(2))
def test_b(n): assert n

def test_c(): pass
""")
    pytester.makeini("[pytest]\nmarkers = row\n    promise")
    ran = pytester.runpytest("-p", "tests.reliability.names", "-k", "row_07")
    ran.assert_outcomes(passed=2, failed=1, deselected=1)
    ran.stdout.re_match_lines(["row_05 .* 1 passed", "row_07 .* 2 passed, 1 failed"])
    ran.stdout.re_match_lines(["promise_20 .* 1 passed"])
