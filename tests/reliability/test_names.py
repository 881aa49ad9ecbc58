"""Every row and every promise has a test, or a reason why not."""

import ast

import pytest

from tests.conftest import REPOSITORY
from tests.reliability.names import ALL_NAMES, NAMED, NOT_HELD, PROMISES, ROWS

pytest_plugins = ["pytester"]


def held() -> set[str]:
    """The names in the marks of all tests, read from the source: collecting the tests is slow."""
    found = set()
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                kind = node.func.attr
                if kind in NAMED and ast.unparse(node.func.value) == "pytest.mark":
                    found |= {f"{kind}_{ast.literal_eval(arg):02}" for arg in node.args}
    return found


def test_there_are_36_rows_and_20_promises() -> None:
    assert list(ROWS) == list(range(1, 37))
    assert list(PROMISES) == list(range(1, 21))


def test_each_has_a_test_or_a_reason() -> None:
    assert sorted(set(ALL_NAMES) - held()) == sorted(NOT_HELD)


@pytest.mark.parametrize("kind", NAMED)
def test_a_number_that_there_is_not_is_an_error(kind: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
import pytest

@pytest.mark.{kind}(5, 99)
def test_a(): pass
""")
    pytester.makeini("[pytest]\nmarkers = row\n    promise")
    ran = pytester.runpytest("-p", "tests.reliability.names")
    ran.stderr.fnmatch_lines([f"*test_a: there is no {kind} 99"])


def test_chosen_by_name_and_told_by_name(pytester: pytest.Pytester) -> None:
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
    assert pytester.runpytest("-p", "tests.reliability.names", "-m", "promise").ret == 0
