"""Processes that are killed or asked to end: P2, P3, P5, P9, P10, and no process remains."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.server_process import (
    Server,
    publish_bytes,
    serve,
    slow_corpus,
    wait_for_job,
    wait_until,
    wait_until_gone,
)
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.jobs.queue import Job, JobStore

GONE_SECONDS = 8.0
"""The promise is two seconds on an idle machine; this is less than GRACEFUL_SECONDS, after which
some would end in any case."""
SMALL = {"documents": ["aa bb"], "vocab_size": 258, "name": "next"}
SLOW = {"input_paths": ["slow.txt"], "name": "slow"}
SIZES = {"python": (350_000, 4_000), "native": (8_000_000, 60_000)}
"""Bytes and vocabulary of a training that takes a second or more, at the trainer's low priority."""


class Artifacts:
    """A folder of artifacts whose servers train `slow.txt`, and the jobs in its database."""

    def __init__(self, root: Path, engine: str) -> None:
        self.folder = root / "artifacts"
        publish_bytes(self.folder, "starter")
        n_bytes, vocab_size = SIZES[engine]
        slow_corpus(root / "corpora", n_bytes)
        self.request = {**SLOW, "vocab_size": vocab_size}
        self.settings = {"corpus_roots": str(root / "corpora"), "engine": engine}

    def serve(self, *, workers: int = 1) -> contextlib.AbstractContextManager[Server]:
        return serve(self.folder, workers=workers, **self.settings)

    def job(self, job_id: str) -> Job:
        job = JobStore.open(self.folder).get(job_id)
        assert job is not None
        return job

    def start_slow_job(self, server: Server) -> tuple[str, int, int]:
        """The job, the pid of the serving process that runs it, and that of its trainer."""
        with server.client() as client:
            job_id = client.post("/train", json=self.request).raise_for_status().json()["id"]
        wait_until(
            lambda: self.job(job_id).child and self.job(job_id).phase in ("count", "learn"),
            seconds=240,  # the trainer starts at a low priority
        )
        job = self.job(job_id)
        assert job.owner is not None
        assert job.child is not None
        return job_id, job.owner.pid, job.child.pid

    def check_database(self) -> None:
        with sqlite3.connect(self.folder / "jobs.sqlite3") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return Artifacts(tmp_path, "python")


def outcome(server: Server, job_id: str) -> tuple[str, Any]:
    """The state of a job at its end, and the code of its error."""
    with server.client() as client:
        job = wait_for_job(client, job_id)
    return job["state"], (job["error"] or {}).get("code")


def train_small(server: Server) -> tuple[str, Any]:
    with server.client() as client:
        job_id = client.post("/train", json=SMALL).raise_for_status().json()["id"]
    return outcome(server, job_id)


@pytest.mark.promise(10)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sigterm_while_training_requeues_and_the_next_start_finishes(
    artifacts: Artifacts, workers: int
) -> None:
    with artifacts.serve(workers=workers) as server:
        job_id, _, trainer = artifacts.start_slow_job(server)
        pids = [process.pid for process in server.processes()]
        assert trainer in pids
        # The server does not wait for the trainer as it does for a request.
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS
        wait_until_gone(pids, seconds=10)
    assert artifacts.job(job_id).state == "queued"
    with artifacts.serve(workers=workers) as server:
        assert outcome(server, job_id) == ("live", None)
    done = artifacts.job(job_id)
    assert done.deaths == 0
    # A process that has not got the signal yet may start the job that its neighbour put back.
    assert 2 <= done.attempt <= 1 + workers


@pytest.mark.promise(2, 17)
def test_kill_9_of_trainer_and_server_fails_their_jobs_only(tmp_path: Path, engine: str) -> None:
    artifacts = Artifacts(tmp_path, engine)
    with artifacts.serve() as server, server.client() as client:
        job_id, _, trainer = artifacts.start_slow_job(server)
        os.kill(trainer, signal.SIGKILL)
        for _ in range(50):
            assert client.post("/encode", json={"text": "a"}).status_code == 200
        assert outcome(server, job_id) == ("failed", "trainer_killed")

        job_id, _, trainer = artifacts.start_slow_job(server)
        pids = [process.pid for process in psutil.Process(trainer).children(recursive=True)]
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until_gone([trainer, *pids], seconds=GONE_SECONDS)
    artifacts.check_database()
    with artifacts.serve() as server:
        assert outcome(server, job_id) == ("failed", "runner_died")
        assert train_small(server) == ("live", None)


@pytest.mark.promise(3, 5, 17)
def test_kill_9_of_worker_is_seen_by_the_other_and_of_supervisor_by_all(
    artifacts: Artifacts,
) -> None:
    with artifacts.serve(workers=2) as server:
        job_id, owner, trainer = artifacts.start_slow_job(server)
        os.kill(owner, signal.SIGKILL)
        wait_until_gone([trainer], seconds=GONE_SECONDS)
        served = 0

        def has_failed() -> bool:
            nonlocal served
            with contextlib.suppress(httpx.TransportError):  # the killed worker had it (P3)
                assert server.encode_on_new_connection("a").status_code == 200
                served += 1
            return artifacts.job(job_id).state == "failed"

        wait_until(has_failed)
        assert served
        assert artifacts.job(job_id).error is not None
        assert outcome(server, job_id) == ("failed", "runner_died")
        # The supervisor has started a replacement, and both take jobs.
        server.wait_until_ready(workers=3)
        assert train_small(server) == ("live", None)

        _, _, trainer = artifacts.start_slow_job(server)
        pids = [process.pid for process in server.processes()]
        assert trainer in pids
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until_gone(pids, seconds=GONE_SECONDS)
    artifacts.check_database()


@pytest.mark.promise(5)
def test_it_ends_with_its_parent_when_asked_to(artifacts: Artifacts) -> None:
    program = textwrap.dedent(
        """
        import subprocess, sys, time
        serve = ["-m", "tokenizer_service.cli", "serve", "--exit-with-parent"]
        subprocess.Popen([sys.executable, *serve])
        time.sleep(600)
        """
    )
    with (
        contextlib.ExitStack() as left,
        serve(artifacts.folder, workers=2, command=(sys.executable, "-c", program)) as server,
    ):
        pids = [process.pid for process in server.processes()]
        assert len(pids) >= 2
        for pid in pids:
            left.callback(subprocess.run, ["kill", "-9", str(pid)], capture_output=True)
        server.process.kill()
        wait_until_gone(pids, seconds=GONE_SECONDS)


@pytest.mark.promise(9)
def test_sigterm_waits_for_the_request_in_hand(artifacts: Artifacts) -> None:
    # The native engine would have responded before the signal arrived.
    with artifacts.serve() as server:
        text = "x y " * 500_000
        results: list[tuple[httpx.Response, float]] = []

        def encode() -> None:
            results.append((server.encode_on_new_connection(text), time.monotonic()))

        thread = threading.Thread(target=encode)
        thread.start()
        server.wait_for_in_flight(1)
        told = time.monotonic()
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS + 10
        thread.join(10)
        ((answer, answered),) = results
        assert answered > told  # it was in progress when the signal came
        assert answer.status_code == 200
        assert answer.json()["count"] == len(text)
