"""Several processes that serve while the disk of their metrics is full."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tokenizer_core.registry import ArtifactStore

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
def test_several_processes_serve_with_a_full_metrics_folder(
    tmp_path: Path, store: ArtifactStore
) -> None:
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
    command = [sys.executable, "-c", SERVE_AND_ASK, str(store.root), str(full)]
    done = subprocess.run(
        [*apart, "sh", "-c", script, "sh", *command],
        cwd=REPOSITORY, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
