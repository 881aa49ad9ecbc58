"""Metrics and logs of a real server with several processes."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import serve, wait_until


def test_several_processes_are_added_up_and_log_json(store, tmp_path):
    folder = tmp_path / "metrics"
    command = ("env", f"PROMETHEUS_MULTIPROC_DIR={folder}", sys.executable)
    command += ("-m", "tokenizer_service.cli", "serve")
    with serve(store.root, workers=2, command=command, log_format="json") as server:

        def files(kind):
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
        server.terminate()
    # Lines of uvicorn, its supervisor and the service alike.
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert {line["logger"].partition(".")[0] for line in lines} == {"tokenizer_service", "uvicorn"}
    assert [line for line in server.lines if line and not line.startswith("{")] == []


SERVE_AND_ASK = """
import sys
from pathlib import Path

import httpx

from tests.integration.server_process import serve

root, folder = Path(sys.argv[1]), sys.argv[2]
command = ("env", f"PROMETHEUS_MULTIPROC_DIR={folder}", sys.executable)
with serve(root, workers=2, command=(*command, "-m", "tokenizer_service.cli", "serve")) as server:
    for _ in range(20):
        assert server.encode_on_new_connection("a b").status_code == 200
        assert httpx.get(server.url + "/metrics").status_code == 200
    text = server.output
assert "died" not in text, text
assert "No space left" in text, text
"""


@pytest.mark.row(36)
@pytest.mark.promise(14)
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_several_processes_serve_with_a_full_metrics_folder(tmp_path, store):
    full = tmp_path / "full"
    full.mkdir()
    apart = ["unshare", "--user", "--map-root-user", "--mount"]
    tried = subprocess.run([*apart, "mount", "-t", "tmpfs", "tmpfs", str(full)], check=False)
    if tried.returncode:
        pytest.skip("no file system can be mounted here")
    script = (
        f'mount -t tmpfs -o size=64k tmpfs "{full}" && '
        f'{{ head -c 1m /dev/zero > "{full}/filler" 2>/dev/null; exec "$@"; }}'
    )
    command = [*apart, "sh", "-c", script, "sh", sys.executable, "-c", SERVE_AND_ASK]
    done = subprocess.run(
        [*command, str(store.root), str(full)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
