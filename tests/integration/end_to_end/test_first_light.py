"""The whole path over a real socket: serve, encode, train, watch, live, roll back, end."""

import re
import shutil
import subprocess

import httpx
import pytest

from tests.integration.server_process import publish_bytes, serve
from tests.tokenizer_service.routes.exchanges import wait_for_job

_SENTENCES = ("The lowest of the low went slowly west.", "A newer, wider river ran to the east.")


@pytest.fixture
def corpora(tmp_path):
    folder = tmp_path / "corpora"
    folder.mkdir()
    (folder / "news.txt").write_text("<|endoftext|>".join(_SENTENCES * 200))
    return str(folder)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_lines_it_prints_work_as_they_stand(tmp_path, corpora):
    """Without an admin key the service makes one, prints it once, and puts it into the commands."""
    artifacts = tmp_path / "artifacts"
    publish_bytes(artifacts, "starter")
    with serve(artifacts, workers=2, corpus_roots=corpora, admin_keys="") as server:
        (key,) = re.findall(r"^admin key of this run .*: (\S+)$", server.output, re.MULTILINE)
        assert "admin key for this run" not in server.output  # a worker has made its own key
        lines = [line.strip() for line in server.lines if line.startswith("  ")]
        assert sum("curl" in line for line in lines) >= 6
        assert f"ADMIN_KEY={key}" in lines
        script = "set -e -o pipefail\n" + "\n".join(
            line.replace("curl ", "curl -sS --fail-with-body ") + "; echo" for line in lines
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"text":"Hello, world!"' in done.stdout
        assert '"done":true' in done.stdout
        assert httpx.get(f"{server.url}/train").status_code == 401
        for _ in range(4):  # one connection each: either worker may take it
            answer = httpx.get(f"{server.url}/train", headers={"X-API-Key": key})
            (job,) = answer.raise_for_status().json()["jobs"]
        with httpx.Client(base_url=server.url, headers={"X-API-Key": key}) as client:
            assert wait_for_job(client, job["id"])["state"] == "live"
