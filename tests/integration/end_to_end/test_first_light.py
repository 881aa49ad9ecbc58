"""The whole path over a real socket: serve, encode, train, watch, live, roll back, end."""

import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.integration.server_process import (
    ADMIN_KEY,
    publish_bytes,
    serve,
    wait_for_job,
    wait_until_gone,
)
from tokenizer_service.commands.serving import GRACEFUL_SECONDS

_SENTENCES = ("The lowest of the low went slowly west.", "A newer, wider river ran to the east.")
_CORPUS = "<|endoftext|>".join(_SENTENCES * 2000)


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    folder = tmp_path / "corpora"
    folder.mkdir()
    (folder / "news.txt").write_text(_CORPUS)
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_encode_train_live_roll_back_end(tmp_path: Path, corpora: Path, workers: int) -> None:
    artifacts = tmp_path / "artifacts"
    starter = publish_bytes(artifacts, "starter")
    with serve(artifacts, workers=workers, corpus_roots=str(corpora)) as server:
        pids = [process.pid for process in server.processes()]
        with server.client() as client:
            before = client.post("/encode", json={"text": "slowest"})
            assert before.json()["tokens"] == list(b"slowest")
            assert before.headers["tokenizer-version"] == str(starter)

            request = {"input_paths": ["news.txt"], "vocab_size": 400, "name": "news"}
            accepted = client.post("/train", json=request)
            assert accepted.status_code == 202
            job = wait_for_job(client, accepted.json()["id"])
            assert job["state"] == "live", job
            news = f"{job['result']['name']}@{job['result']['version']}"

            # P7: no process responds with the old version, unless the request names it.
            for _ in range(8 * workers):
                after = server.encode_on_new_connection("slowest")
                assert after.headers["tokenizer-version"] == news
                assert after.json()["count"] < len("slowest")
            pinned = client.post("/encode", json={"text": "slowest", "tokenizer": str(starter)})
            assert pinned.json()["tokens"] == list(b"slowest")
            ids = after.json()["tokens"]
            decoded = client.post("/decode", json={"tokens": ids})
            assert decoded.json()["text"] == "slowest"

            back = client.put("/tokenizers/active", json={"tokenizer": str(starter)})
            assert back.status_code == 200
            for _ in range(8 * workers):
                answer = server.encode_on_new_connection("slowest")
                assert answer.headers["tokenizer-version"] == str(starter)
            # A later promotion never changes a job.
            assert client.get(f"/train/{job['id']}").json()["state"] == "live"

            scraped = client.get("/metrics").text
            assert re.search(r'tokenizer_train_jobs_total\{status="live"\} 1\.0', scraped)
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS  # no wait
        assert server.process.returncode == 0
        wait_until_gone(pids, seconds=10)
        assert "Traceback" not in server.output
    # The next start serves the last promoted version.
    with serve(artifacts, workers=workers) as server:
        assert server.encode_on_new_connection("a").headers["tokenizer-version"] == str(starter)


def test_the_lines_it_prints_work_as_they_stand(tmp_path: Path, corpora: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    publish_bytes(tmp_path / "artifacts", "starter")
    roots = str(corpora)
    # Without an admin key the service makes one, prints it once, and puts it into the commands.
    with serve(tmp_path / "artifacts", corpus_roots=roots, admin_keys="") as server:
        assert len(re.findall(r"^admin key of this run .*: \S+$", server.output, re.MULTILINE)) == 1
        lines = [line.strip() for line in server.lines if line.startswith("  ")]
        assert sum("curl" in line for line in lines) >= 6
        script = "set -e -o pipefail\n" + "\n".join(
            line.replace("curl ", "curl -sS --fail-with-body ") + "; echo" for line in lines
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"text":"Hello, world!"' in done.stdout
        assert '"done":true' in done.stdout
        key = next(line for line in lines if line.startswith("ADMIN_KEY=")).partition("=")[2]
        with httpx.Client(base_url=server.url, headers={"X-API-Key": key}) as client:
            (job,) = client.get("/train").json()["jobs"]
            assert wait_for_job(client, job["id"])["state"] == "live"


def test_several_workers_share_one_made_key(tmp_path: Path) -> None:
    publish_bytes(tmp_path, "starter")
    with serve(tmp_path, workers=2, admin_keys="") as server:
        (key,) = re.findall(r"^admin key of this run .*: (\S+)$", server.output, re.MULTILINE)
        assert "admin key for this run" not in server.output  # a worker has made its own key
        for _ in range(10):
            answer = httpx.get(f"{server.url}/train", headers={"X-API-Key": key})
            assert answer.status_code == 200
        assert httpx.get(f"{server.url}/train").status_code == 401


def test_the_queue_is_one_for_all_workers(tmp_path: Path, corpora: Path) -> None:
    publish_bytes(tmp_path / "artifacts", "starter")
    with serve(
        tmp_path / "artifacts", workers=2, corpus_roots=str(corpora), train_queue="100"
    ) as server:
        ids = []
        for number in range(4):
            with server.client() as client:  # one connection each: either worker may take it
                request = {"documents": ["aa bb"], "vocab_size": 258, "name": f"n{number}"}
                ids.append(client.post("/train", json=request).json()["id"])
        with server.client() as client:
            jobs = [wait_for_job(client, job_id) for job_id in ids]
        assert [job["state"] for job in jobs] == ["live"] * 4
        runs = sorted((job["started_at"], job["finished_at"]) for job in jobs)
        assert [run[0] for run in runs] == [job["started_at"] for job in jobs]


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    publish_bytes(tmp_path, "starter")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tokenizer_service.cli",
                "serve",
                f"--port={port}",
                f"--artifacts-dir={tmp_path}",
            ],
            capture_output=True,
            text=True,
            timeout=30,
            env={"PATH": "/usr/bin:/bin", "TOKENIZER_ADMIN_KEYS": ADMIN_KEY},
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "TOKENIZER_PORT" in done.stderr


def test_health_answers_while_a_run_takes_all_processors(tmp_path: Path, corpora: Path) -> None:
    publish_bytes(tmp_path / "artifacts", "starter")
    (corpora / "large.txt").write_text(_CORPUS * 60)
    with (
        serve(tmp_path / "artifacts", corpus_roots=str(corpora)) as server,
        server.client() as client,
    ):
        request = {"input_paths": ["large.txt"], "vocab_size": 400, "name": "large"}
        job_id = client.post("/train", json=request).json()["id"]
        seconds: list[float] = []
        deadline = time.monotonic() + 120
        while client.get(f"/train/{job_id}").json()["state"] in ("queued", "running"):
            assert time.monotonic() < deadline
            started = time.perf_counter()
            assert client.post("/encode", json={"text": "a"}).status_code == 200
            seconds.append(time.perf_counter() - started)
        assert wait_for_job(client, job_id)["state"] == "live"
        # Other processes may delay one or another response; a run that blocks the loop delays all.
        assert statistics.quantiles(seconds, n=10)[-1] < 0.5
