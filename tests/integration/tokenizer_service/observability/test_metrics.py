"""Metrics of a real server with several processes."""

import subprocess
import sys
from pathlib import Path

from tests.integration.server_process import serve, wait_until
from tokenizer_core.registry import ArtifactStore


def test_several_processes_are_added_up(store: ArtifactStore, tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    command = ("env", f"PROMETHEUS_MULTIPROC_DIR={folder}", sys.executable)
    command += ("-m", "tokenizer_service.cli", "serve")
    with serve(store.root, workers=2, command=command) as server:

        def files(kind: str) -> list[Path]:
            return list(folder.glob(f"{kind}_*.db"))

        n_requests = 0
        while len(files("counter")) < 2 or n_requests < 20:  # either process may take each
            server.encode_on_new_connection("a b").raise_for_status()
            n_requests += 1
        counted = 'http_requests_total{handler="/encode",method="POST",status="200"}'
        expected = {
            counted: n_requests,
            "tokenizer_encode_bytes_total ": 3 * n_requests,
            "tokenizer_inflight ": 1,
        }
        for _ in range(6):  # whichever process is asked; each publishes its counts twice a second
            wait_until(lambda: {name: server.metric(name) for name in expected} == expected)
        # A process that ended leaves no gauge.
        gone = subprocess.Popen([sys.executable, "-c", "pass"])
        gone.wait()
        left = folder / f"gauge_livesum_{gone.pid}.db"
        left.write_bytes(files("gauge_livesum")[0].read_bytes())
        server.metric("tokenizer_inflight ")
        assert not left.exists()
