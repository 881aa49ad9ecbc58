"""Run a part of the tests: `pytest -p tests.part_of_all --part 1/2` and, elsewhere, `--part 2/2`.

Each part has every N-th test, so that all parts together have all of them and each has some of
every file. What runs depends on nothing but the order of the tests, as `tests.slow_share` does.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        type=_parse,
        default=(1, 1),
        metavar="K/N",
        help="run every N-th test, from the K-th on (default: all)",
    )


def _parse(text: str) -> tuple[int, int]:
    part, _, of = text.partition("/")
    if not 1 <= int(part) <= int(of):
        raise ValueError
    return int(part), int(of)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, of = config.getoption("--part")
    kept = items[part - 1 :: of]
    left_out = [item for index, item in enumerate(items) if index % of != part - 1]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
