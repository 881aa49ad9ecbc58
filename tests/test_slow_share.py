"""The shortened run touches every slow test, and leaves the others alone."""

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", range(7))
def test_many(n): pass

@pytest.mark.slow
def test_one(): pass

@pytest.mark.parametrize("n", range(4))
def test_quick(n): pass
"""


def test_one_of_every_three_cases_of_each_slow_test(pytester):
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\nmarkers = slow")
    collected = pytester.runpytest(
        "-p", "tests.slow_share", "--slow-share", "3", "--collect-only", "-q"
    )
    cases = [line.partition("::")[2] for line in collected.outlines if "::" in line]
    assert [case for case in cases if "many" in case] == [
        "test_many[0]",
        "test_many[3]",
        "test_many[6]",
    ]
    assert "test_one" in cases
    assert sum("quick" in case for case in cases) == 4


def test_all_without_the_option(pytester):
    pytester.makepyfile(SUITE)
    pytester.makeini("[pytest]\nmarkers = slow")
    collected = pytester.runpytest("-p", "tests.slow_share", "--collect-only", "-q")
    assert sum("::" in line for line in collected.outlines) == 12
