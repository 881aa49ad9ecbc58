"""P6, P7, P8: swaps under load. The long test is `slow`; the short one always runs."""

from pathlib import Path

import pytest

from tests.integration.server_process import publish_bytes, serve
from tests.integration.swap_load import (
    SECOND_FIRST_ID,
    SwapReport,
    run_small_requests,
    run_swaps,
)

pytestmark = pytest.mark.promise(6, 7, 8)


def swap(tmp_path: Path, *, workers: int, n_swaps: int) -> SwapReport:
    first = publish_bytes(tmp_path, "starter")
    second = publish_bytes(tmp_path, "other", first_id=SECOND_FIRST_ID)
    with serve(tmp_path, workers=workers) as server:
        report = run_swaps(server, first, second, n_swaps=n_swaps)
        assert server.terminate() < 12
    return report


def check(report: SwapReport, n_swaps: int) -> None:
    assert report.failures == []
    assert report.swaps == n_swaps
    # The test proves nothing without responses of both tokenizers on both routes.
    assert min(report.answers.values()) >= n_swaps
    assert report.encodes >= n_swaps
    assert report.streams >= n_swaps / 4
    assert report.streams_across_a_swap >= 3


@pytest.mark.parametrize("workers", [1, 2])
def test_twenty_swaps_under_load(tmp_path: Path, workers: int) -> None:
    check(swap(tmp_path, workers=workers, n_swaps=20), 20)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_two_hundred_swaps_under_load(tmp_path: Path, workers: int) -> None:
    check(swap(tmp_path, workers=workers, n_swaps=200), 200)


@pytest.mark.slow
def test_ten_thousand_small_requests_over_200_connections_and_a_hundred_swaps(
    tmp_path: Path,
) -> None:
    first = publish_bytes(tmp_path, "starter")
    second = publish_bytes(tmp_path, "other", first_id=SECOND_FIRST_ID)
    with serve(tmp_path, workers=2) as server:
        report = run_small_requests(
            server, first, second, n_requests=10_000, n_connections=200, n_swaps=100
        )
    assert report.failures == []
    assert (report.encodes, report.swaps) == (10_000, 100)
    assert min(report.answers.values()) >= 1000
