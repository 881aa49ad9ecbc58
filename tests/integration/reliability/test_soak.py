"""P20, no leak: how a soak judges, and a short soak. `make soak` runs the long one."""

from __future__ import annotations

from collections import Counter
from typing import cast

import httpx
import pytest

from tests.conftest import REPOSITORY
from tests.integration.reliability.soak import MAX_MORE, Sample, leaks, soak
from tests.integration.reliability.soak_load import SoakLoad
from tests.integration.server_process import Server
from tokenizer_core.registry import ArtifactStore


def series(name: str, added: list[int]) -> list[Sample]:
    """Samples of a server that always holds the same, but of `name` so much more."""
    flat = dict.fromkeys(MAX_MORE, 1000)
    return [
        Sample(float(at), {**flat, name: 1000 + more}, Counter()) for at, more in enumerate(added)
    ]


def test_only_steady_growth_is_a_leak() -> None:
    for name, allowed in MAX_MORE.items():
        most, step = 100 * allowed + 100, allowed // 10 + 1
        assert leaks(series(name, [0] * 30)) == []
        assert leaks(series(name, [min(at, 9) * most for at in range(30)])) == []
        assert leaks(series(name, [most * (at not in (12, 22)) for at in range(30)])) == []
        (leak,) = leaks(series(name, [at * step for at in range(30)]))
        assert leak.startswith(f"{name} grew by {10 * step:,}")


def test_another_status_and_other_ids_are_failures() -> None:
    load = SoakLoad(cast(Server, None), REPOSITORY / "artifacts", [])
    broken = httpx.MockTransport(lambda request: httpx.Response(500, text="broken"))
    with httpx.Client(transport=broken, base_url="http://test") as client:
        load.ask(client, "GET", "/livez")
        load.ask(client, "GET", "/livez", 500)
    starter = ArtifactStore(REPOSITORY / "artifacts").resolve("starter")
    answer = httpx.Response(200, headers={"Tokenizer-Version": str(starter)})
    load.check("encode", answer, "a", [ord("a")])
    load.check("encode", answer, "a", [ord("b")])
    assert load.failures == ["GET /livez: 500 broken", f"encode: ids not those of {starter}"]


@pytest.mark.promise(20)
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_a_server_under_every_load_holds_no_more_at_the_end() -> None:
    samples, failures = soak(minutes=1.25)
    assert failures == []
    # Ten minutes are flat after two; in this short one memory still grows to its maximum.
    assert leaks(samples, MAX_MORE | {"bytes of memory": 24 << 20}) == []
    done = sum((sample.done for sample in samples), Counter())
    assert {"swaps", "jobs", "cancelled", "watched", "hung up", "checked"} <= set(done)
