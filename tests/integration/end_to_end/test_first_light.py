"""The whole path over a real socket: serve, encode, train, watch, live, roll back, end."""

import re
import shutil
import subprocess

import httpx
import pytest

from tests.integration.server_process import publish_bytes, serve, wait_for_job, wait_until_gone
from tokenizer_service.commands.serving import GRACEFUL_SECONDS

_SENTENCES = ("The lowest of the low went slowly west.", "A newer, wider river ran to the east.")


@pytest.fixture
def corpora(tmp_path):
    folder = tmp_path / "corpora"
    folder.mkdir()
    (folder / "news.txt").write_text("<|endoftext|>".join(_SENTENCES * 200))
    return str(folder)


def test_encode_train_live_roll_back_end(tmp_path, corpora):
    artifacts = tmp_path / "artifacts"
    starter = str(publish_bytes(artifacts, "starter"))
    with serve(artifacts, workers=2, corpus_roots=corpora) as server:
        pids = [process.pid for process in server.processes()]
        with server.client() as client:
            before = client.post("/encode", json={"text": "slowest"})
            assert before.json()["tokens"] == list(b"slowest")
            assert before.headers["tokenizer-version"] == starter

            request = {"input_paths": ["news.txt"], "vocab_size": 400, "name": "news"}
            request["promote"] = "always"  # the text is too short for 400
            accepted = client.post("/train", json=request)
            assert accepted.status_code == 202
            job = wait_for_job(client, accepted.json()["id"])
            assert job["state"] == "live", job
            news = f"{job['result']['name']}@{job['result']['version']}"

            # P7: no process responds with the old version, unless the request names it.
            for _ in range(16):
                after = server.encode_on_new_connection("slowest")
                assert after.headers["tokenizer-version"] == news
                assert after.json()["count"] < len("slowest")
            pinned = client.post("/encode", json={"text": "slowest", "tokenizer": starter})
            assert pinned.json()["tokens"] == list(b"slowest")
            decoded = client.post("/decode", json={"tokens": after.json()["tokens"]})
            assert decoded.json()["text"] == "slowest"

            back = client.put("/tokenizers/active", json={"tokenizer": starter})
            assert back.status_code == 200
            for _ in range(16):
                answer = server.encode_on_new_connection("slowest")
                assert answer.headers["tokenizer-version"] == starter
            # A later promotion never changes a job.
            assert client.get(f"/train/{job['id']}").json()["state"] == "live"
            assert 'tokenizer_train_jobs_total{status="live"} 1.0' in client.get("/metrics").text
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS  # no wait
        assert server.process.returncode == 0
        wait_until_gone(pids, seconds=10)
        assert "Traceback" not in server.output
    # The next start serves the last promoted version.
    with serve(artifacts) as server:
        assert server.encode_on_new_connection("a").headers["tokenizer-version"] == starter


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
