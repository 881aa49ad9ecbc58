"""P6, P7, P8: swaps under load."""

from pathlib import Path

import pytest

from tests.integration.server_process import publish_bytes, serve
from tests.integration.swap_load import SECOND_FIRST_ID, run_swaps

SLOW = pytest.mark.slow


@pytest.mark.promise(6, 7, 8)
@pytest.mark.parametrize(
    ("workers", "n_swaps"),
    [(2, 10), pytest.param(1, 200, marks=SLOW), pytest.param(2, 200, marks=SLOW)],
)
def test_swaps_under_load_lose_and_mix_nothing(tmp_path: Path, workers: int, n_swaps: int) -> None:
    first = publish_bytes(tmp_path, "starter")
    second = publish_bytes(tmp_path, "other", first_id=SECOND_FIRST_ID)
    with serve(tmp_path, workers=workers) as server:
        report = run_swaps(server, first, second, n_swaps=n_swaps)
        server.terminate()
    assert report.failures == []
    assert report.swaps == n_swaps
    # The test proves nothing without responses of both tokenizers on both routes.
    assert min(report.answers.values()) >= n_swaps
    assert report.encodes >= n_swaps
    assert report.streams >= n_swaps / 4
    assert report.streams_across_a_swap >= 3
