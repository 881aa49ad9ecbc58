"""Run a share of the slow tests: `pytest -p tests.slow_share --slow-share 5 -m slow`.

Of each slow test function every fifth case runs, the first always, so that a shortened run still
touches each of them; `make test-full` runs all. Which cases run depends on nothing but their
order, so that every process of a run, and every run, chooses the same.
"""

from collections import defaultdict

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-share",
        type=int,
        default=1,
        metavar="N",
        help="run one of every N cases of each test marked slow (default: all)",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = config.getoption("--slow-share")
    seen: defaultdict[str, int] = defaultdict(int)
    kept, left_out = [], []
    for item in items:
        if item.get_closest_marker("slow") is None:
            kept.append(item)
            continue
        function = item.nodeid.partition("[")[0]
        (left_out if seen[function] % share else kept).append(item)
        seen[function] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def pytest_report_header(config: pytest.Config) -> str | None:
    share = config.getoption("--slow-share")
    return f"slow tests: one of every {share} cases of each" if share > 1 else None
