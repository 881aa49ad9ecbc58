"""Metrics of a real server with several processes."""

import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.integration.running_server import run_server
from tests.tokenizer_service.observability.test_metrics import NAMES, values
from tokenizer_core.registry import ArtifactStore


def test_several_processes_are_added_up(store: ArtifactStore, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    with run_server(store.root, "--workers", "2", PROMETHEUS_MULTIPROC_DIR=str(folder)) as server:
        n_requests = 40
        for _ in range(n_requests):  # one connection each: either process may take it
            httpx.post(f"{server.url}/encode", json={"text": "a b"}).raise_for_status()
        key = 'http_requests_total{handler="/encode",method="POST",status="200"}'

        def ask() -> dict[str, float]:
            return values(httpx.get(f"{server.url}/metrics").text)

        expected = {
            key: n_requests,
            "tokenizer_encode_bytes_total": 3 * n_requests,
            "tokenizer_inflight": 1,
        }
        for _ in range(6):
            deadline = time.monotonic() + 60
            # A process publishes its counts to the others twice a second, and counts a request as
            # finished a moment after its response.
            while not expected.items() <= (found := ask()).items():
                assert time.monotonic() < deadline, found
                time.sleep(0.1)
            for name in NAMES:
                assert name in found, name
        assert len({path.stem.rpartition("_")[2] for path in folder.glob("counter_*.db")}) == 2
        # A process that ended leaves no gauge.
        gone = subprocess.Popen([sys.executable, "-c", "pass"])
        gone.wait()
        template = next(folder.glob("gauge_livesum_*.db"))
        (folder / f"gauge_livesum_{gone.pid}.db").write_bytes(template.read_bytes())
        httpx.get(f"{server.url}/metrics").raise_for_status()
        assert not (folder / f"gauge_livesum_{gone.pid}.db").exists()
