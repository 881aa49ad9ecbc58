"""The option that runs a part of the tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.parametrize("case", range(5))
def test_many(case):
    pass

def test_one():
    pass
"""


def collected(pytester: pytest.Pytester, *options: str) -> list[str]:
    pytester.makepyfile(test_suite=SUITE)
    result = pytester.runpytest("-p", "tests.part_of_all", "--collect-only", "-q", *options)
    return [line for line in result.outlines if "::" in line]


def test_the_parts_together_are_all_tests_once(pytester: pytest.Pytester) -> None:
    whole = collected(pytester)
    assert len(whole) == 6
    parts = [collected(pytester, "--part", f"{part}/4") for part in (1, 2, 3, 4)]
    assert [len(part) for part in parts] == [2, 2, 1, 1]
    assert sorted(name for part in parts for name in part) == sorted(whole)


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "2", "a/b"])
def test_what_is_no_part(pytester: pytest.Pytester, wrong: str) -> None:
    result = pytester.runpytest("-p", "tests.part_of_all", "--part", wrong)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
