"""Processes that are killed or asked to end: P2, P3, P5, P9, P10, and no process remains."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.server_process import (
    Server,
    publish_bytes,
    serve,
    wait_for_job,
    wait_until_gone,
)
from tokenizer_service.commands import serving
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.jobs.queue import JobStore

GONE_SECONDS = 8.0
"""The promise is two seconds on an idle machine, which `test_orphans_have_less_than_two_seconds`
tests; this is less than GRACEFUL_SECONDS, after which some would end in any case."""


@pytest.mark.promise(5)
def test_orphans_have_less_than_two_seconds() -> None:
    assert serving._PARENT_POLL_SECONDS + serving._ORPHAN_GRACE_SECONDS < 2
    assert GONE_SECONDS < GRACEFUL_SECONDS


@dataclass(frozen=True)
class SlowTraining:
    """A run that takes a second or more on `engine`, at the trainer's low priority: its request,
    and the settings of its server."""

    request: dict[str, Any]
    settings: dict[str, str]


@pytest.fixture(scope="session")
def slow_training(engine: str, tmp_path_factory: pytest.TempPathFactory) -> SlowTraining:
    """Separate for each engine: a run of a second on one is over at once, or never, on the other.
    Some tests wait for its end, with all the processors busy."""
    n_bytes, vocab_size = {"python": (350_000, 4_000), "native": (8_000_000, 60_000)}[engine]
    letters = bytes(ord(" ") if byte % 10 == 0 else ord("a") + byte % 26 for byte in range(256))
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "slow.txt").write_bytes(random.Random(2).randbytes(n_bytes).translate(letters))
    return SlowTraining(
        {"input_paths": ["slow.txt"], "vocab_size": vocab_size, "name": "slow"},
        {"corpus_roots": str(folder), "engine": engine},
    )


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    folder = tmp_path / "artifacts"
    publish_bytes(folder, "starter")
    return folder


def start_slow_job(server: Server, artifacts: Path, slow: SlowTraining) -> tuple[str, int, int]:
    """The job, the pid of the serving process that runs it, and that of its trainer."""
    with server.client() as client:
        job_id = client.post("/train", json=slow.request).raise_for_status().json()["id"]
    jobs = JobStore.open(artifacts)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        job = jobs.get(job_id)
        if job is not None and job.child is not None and job.phase in ("count", "learn"):
            assert job.owner is not None
            return job_id, job.owner.pid, job.child.pid
        time.sleep(0.01)
    raise AssertionError("the job never began")


def wait_for_requests(server: Server, wanted: int) -> None:
    """Wait until this many requests are in progress, besides this one."""
    deadline = time.monotonic() + 60
    while f"\ntokenizer_inflight {wanted + 1}.0\n" not in httpx.get(f"{server.url}/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_database(artifacts: Path) -> None:
    with sqlite3.connect(artifacts / "jobs.sqlite3") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@pytest.mark.promise(10)
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_while_training_requeues_and_the_next_start_finishes(
    artifacts: Path, slow_training: SlowTraining, workers: int
) -> None:
    with serve(artifacts, workers=workers, **slow_training.settings) as server:
        job_id, _, trainer = start_slow_job(server, artifacts, slow_training)
        pids = [process.pid for process in server.processes()]
        assert trainer in pids
        # The server does not wait for the trainer as it does for a request.
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS
        wait_until_gone(pids, seconds=10)
    waiting = JobStore.open(artifacts).get(job_id)
    assert waiting is not None
    assert waiting.state == "queued"
    with (
        serve(artifacts, workers=workers, **slow_training.settings) as server,
        server.client() as client,
    ):
        job = wait_for_job(client, job_id)
        assert job["state"] == "live", job
    done = JobStore.open(artifacts).get(job_id)
    assert done is not None
    assert done.deaths == 0
    # A process that has not got the signal yet may start the job that its neighbour put back.
    assert 2 <= done.attempt <= 1 + workers


@pytest.mark.promise(2, 17)
def test_kill_9_of_the_server_leaves_no_trainer_and_fails_the_job(
    artifacts: Path, slow_training: SlowTraining
) -> None:
    with serve(artifacts, **slow_training.settings) as server:
        job_id, _, trainer = start_slow_job(server, artifacts, slow_training)
        pids = [process.pid for process in psutil.Process(trainer).children(recursive=True)]
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until_gone([trainer, *pids], seconds=GONE_SECONDS)
    check_database(artifacts)
    with serve(artifacts, **slow_training.settings) as server, server.client() as client:
        job = wait_for_job(client, job_id)
        assert (job["state"], job["error"]["code"]) == ("failed", "runner_died")
        request = {"documents": ["aa bb"], "vocab_size": 258, "name": "next"}
        after = wait_for_job(client, client.post("/train", json=request).json()["id"])
        assert after["state"] == "live"


@pytest.mark.promise(3)
def test_kill_9_of_the_worker_that_trains_is_seen_by_the_other(
    artifacts: Path, slow_training: SlowTraining
) -> None:
    with serve(artifacts, workers=2, **slow_training.settings) as server:
        job_id, owner, trainer = start_slow_job(server, artifacts, slow_training)
        os.kill(owner, signal.SIGKILL)
        wait_until_gone([trainer], seconds=GONE_SECONDS)
        deadline = time.monotonic() + 60
        served = 0
        state = ""
        while state != "failed":
            assert time.monotonic() < deadline
            try:
                answer = server.encode_on_new_connection("a")
            except httpx.TransportError:
                continue  # the killed worker was processing it (P3)
            assert answer.status_code == 200
            served += 1
            job = JobStore.open(artifacts).get(job_id)
            assert job is not None
            state = job.state
        assert served
        assert job.error is not None
        assert job.error["code"] == "runner_died"
        # The supervisor has started a replacement, and both take jobs.
        server.wait_until_ready(workers=3)
        with server.client() as client:
            request = {"documents": ["aa bb"], "vocab_size": 258, "name": "next"}
            after = wait_for_job(client, client.post("/train", json=request).json()["id"])
        assert after["state"] == "live", after


@pytest.mark.promise(2)
def test_kill_9_of_the_trainer_costs_no_request(
    artifacts: Path, slow_training: SlowTraining
) -> None:
    with serve(artifacts, **slow_training.settings) as server, server.client() as client:
        job_id, _, trainer = start_slow_job(server, artifacts, slow_training)
        os.kill(trainer, signal.SIGKILL)
        for _ in range(50):
            assert client.post("/encode", json={"text": "a"}).status_code == 200
        job = wait_for_job(client, job_id)
        assert (job["state"], job["error"]["code"]) == ("failed", "trainer_killed")


@pytest.mark.promise(5, 17)
def test_kill_9_of_the_supervisor_leaves_nobody(
    artifacts: Path, slow_training: SlowTraining
) -> None:
    with serve(artifacts, workers=2, **slow_training.settings) as server:
        _, _, trainer = start_slow_job(server, artifacts, slow_training)
        pids = [process.pid for process in server.processes()]
        assert trainer in pids
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until_gone(pids, seconds=GONE_SECONDS)
    check_database(artifacts)


@pytest.mark.promise(5)
@pytest.mark.parametrize("workers", [1, 2])
def test_it_ends_with_its_parent_when_asked_to(artifacts: Path, workers: int) -> None:
    program = textwrap.dedent(
        """
        import subprocess, sys, time
        serve = ["-m", "tokenizer_service.cli", "serve", "--exit-with-parent"]
        subprocess.Popen([sys.executable, *serve])
        time.sleep(600)
        """
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")} | {
        "TOKENIZER_ARTIFACTS_DIR": str(artifacts),
        "TOKENIZER_PORT": "0",
        "TOKENIZER_WORKERS": str(workers),
    }
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as parent:
        server = Server(parent)
        try:
            server.wait_until_ready(workers=workers)
            pids = [process.pid for process in server.processes()]
            assert len(pids) >= 2
        finally:
            parent.kill()
        try:
            wait_until_gone(pids, seconds=GONE_SECONDS)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.promise(9)
def test_sigterm_waits_for_the_request_in_hand(artifacts: Path) -> None:
    """P9: the server responds to an accepted request, and still ends in time."""
    # The native engine would have responded before the signal arrived.
    with serve(artifacts, engine="python") as server:
        text = "x y " * 1_000_000
        results: list[tuple[httpx.Response, float]] = []

        def encode() -> None:
            results.append((server.encode_on_new_connection(text), time.monotonic()))

        thread = threading.Thread(target=encode)
        thread.start()
        wait_for_requests(server, 1)
        told = time.monotonic()
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS + 10
        thread.join(10)
        ((answer, answered),) = results
        assert answered > told  # it was in progress when the signal came
        assert answer.status_code == 200
        assert answer.json()["count"] == len(text)
