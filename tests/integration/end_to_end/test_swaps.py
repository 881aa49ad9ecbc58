"""P6, P7, P8: swaps under load."""

from collections import Counter

import pytest

from tests.integration.server_process import publish_bytes, serve
from tests.integration.swap_load import SECOND_FIRST_ID, SwapLoad

SLOW = pytest.mark.slow


@pytest.mark.promise(6, 7, 8)
@pytest.mark.parametrize(
    ("workers", "n_swaps"),
    [(2, 10), pytest.param(1, 200, marks=SLOW), pytest.param(2, 200, marks=SLOW)],
)
def test_swaps_under_load_lose_and_mix_nothing(tmp_path, workers, n_swaps):
    first = publish_bytes(tmp_path, "starter")
    second = publish_bytes(tmp_path, "other", first_id=SECOND_FIRST_ID)
    with serve(tmp_path, workers=workers) as server:
        load = SwapLoad(server, first, second)
        load.run(n_swaps)
        server.terminate()
    # The test proves nothing without responses of both tokenizers on both routes.
    routes, versions = map(Counter, zip(*load.answers, strict=True))
    assert min(versions[str(first)], versions[str(second)]) >= n_swaps
    assert routes["encode"] >= n_swaps
    assert routes["stream across a swap"] >= 3
    assert routes["stream across a swap"] + routes["stream"] >= n_swaps / 4
