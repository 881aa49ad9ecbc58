"""Two replicas on one artifacts folder and one PostgreSQL database: swaps, pauses, kills.

Each has its own host name and process namespace (`unshare`), so that neither sees the other's
processes: as between machines, only leases show which owner is alive. Needs root, or user
namespaces.
"""

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.integration.postgres_server import PASSWORD, PostgresServer, run_postgres
from tests.integration.server_process import ADMIN, Server, publish_bytes, serve
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.queue import Job, JobStore

pytestmark = [pytest.mark.slow, pytest.mark.promise(15)]

LEASE_SECONDS = 3
SECOND_FIRST_ID = 1000
SLOW = {"input_paths": ["slow.txt"], "vocab_size": 6000, "name": "slow"}


def own_host(name: str) -> list[str]:
    """The prefix of a command line that runs on a host of that name."""
    tool = shutil.which("unshare")
    if tool is None:
        pytest.skip("no unshare here (util-linux)")
    command = [tool, "--map-root-user", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command += ["sh", "-c", 'hostname "$0" && exec "$@"', name]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr.strip()}")
    return command


@dataclass
class Replica:
    """One of the two, and its current processes."""

    server: Server

    def processes(self) -> list[psutil.Process]:
        return self.server.processes()

    def pause(self) -> None:
        for process in self.processes():
            process.suspend()

    def resume(self) -> None:
        """The trainer first, until it has finished and asks for permission to publish: its server
        resumes with that request."""
        processes = self.processes()
        (trainer,) = [p for p in processes if "tokenizer_service.jobs.worker" in p.cmdline()]
        trainers = [trainer, *trainer.children(recursive=True)]
        for process in trainers:
            process.resume()
        used, idle_since = -1.0, time.monotonic()
        while time.monotonic() - idle_since < 2:
            before, used = used, sum(trainer.cpu_times()[:4])
            if used != before:
                idle_since = time.monotonic()
            time.sleep(0.1)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def kill(self) -> None:
        for process in self.processes():
            process.kill()

    def get(self, path: str) -> Any:
        answer = httpx.get(f"{self.server.url}{path}", headers=ADMIN, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait_for(self, job_id: str, *, seconds: float = 300) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            job: dict[str, Any] = self.get(f"/jobs/{job_id}")
            if job["state"] not in ("queued", "running"):
                return job
            assert time.monotonic() < deadline, job
            time.sleep(0.05)

    def wait_until_said(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.server.output:
            assert time.monotonic() < deadline, self.server.output
            time.sleep(0.05)

    def wait_until_served(self, version: str) -> None:
        deadline = time.monotonic() + 60
        while self.get("/readyz")["tokenizer"]["version"] != version:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@dataclass
class Pair:
    first: Replica
    second: Replica
    artifacts: Path
    jobs: JobStore

    def start_slow_job(self) -> tuple[str, Replica, Replica]:
        """A job in training: its id, the replica that runs it, the other one."""
        answer = httpx.post(f"{self.first.server.url}/train", json=SLOW, headers=ADMIN, timeout=30)
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["id"]
        deadline = time.monotonic() + 60
        while self.job(job_id).phase not in ("count", "learn"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        begun = f"job {job_id}: attempt 1 begins"
        if begun in self.first.server.output:
            return job_id, self.first, self.second
        self.second.wait_until_said(begun)
        return job_id, self.second, self.first

    def job(self, job_id: str) -> Job:
        job = self.jobs.get(job_id)
        assert job is not None
        return job


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


_numbers = itertools.count()


@pytest.fixture
def pair(tmp_path: Path, postgres: PostgresServer) -> Iterator[Pair]:
    commands = [own_host(name) for name in ("replica-1", "replica-2")]
    artifacts, corpora = tmp_path / "artifacts", tmp_path / "corpora"
    publish_bytes(artifacts, "starter")
    corpora.mkdir()
    letters = bytes(ord(" ") if byte % 10 == 0 else ord("a") + byte % 26 for byte in range(256))
    (corpora / "slow.txt").write_bytes(random.Random(2).randbytes(700_000).translate(letters))
    address = postgres.make(f"replicas_{next(_numbers)}")
    settings = {
        "jobs_database": address,
        "lease_seconds": str(LEASE_SECONDS),
        "corpus_roots": str(corpora),
        "engine": "python",
        "log_level": "info",
    }
    with contextlib.ExitStack() as running:
        replicas = [
            Replica(
                running.enter_context(
                    serve(
                        artifacts,
                        command=(*command, sys.executable, "-m", "tokenizer_service.cli", "serve"),
                        **settings,
                    )
                )
            )
            for command in commands
        ]
        jobs = JobStore.open(artifacts, address)
        yield Pair(*replicas, artifacts, jobs)
        for replica in replicas:
            assert PASSWORD not in replica.server.output


def check_where_all_ended(pair: Pair, job_id: str, winner: Replica) -> dict[str, Any]:
    """The second owner's job went live, and the pointer names the version it made."""
    result: dict[str, Any] = winner.wait_for(job_id)["result"]
    job = pair.job(job_id)
    assert (job.state, job.attempt, job.deaths, job.takeovers) == ("live", 3, 1, 1), job
    active = ArtifactStore(pair.artifacts).active()
    assert active is not None
    assert (active.name, active.version) == ("slow", result["version"])
    winner.wait_until_served(result["version"])
    return result


def test_a_paused_leaseholder_loses_its_job_and_publishes_nothing_when_it_wakes(
    pair: Pair,
) -> None:
    job_id, holder, other = pair.start_slow_job()
    holder.pause()
    assert other.wait_for(job_id)["state"] == "live"
    result = check_where_all_ended(pair, job_id, other)
    other.wait_until_said(f"job {job_id}: its server process is gone, requeued")
    row = pair.job(job_id)
    holder.resume()
    holder.wait_until_said(f"job {job_id}: cancelled, but another process has taken over the job")
    assert pair.job(job_id) == row
    assert check_where_all_ended(pair, job_id, other) == result
    holder.wait_until_served(result["version"])
    assert len(ArtifactStore(pair.artifacts).versions("slow")) == 1
    # Both run as before: whichever is first takes the next job.
    after = [
        httpx.post(
            f"{replica.server.url}/train",
            json={"documents": ["aa bb"], "vocab_size": 258 + number, "name": f"next{number}"},
            headers=ADMIN,
        ).json()["id"]
        for number, replica in enumerate((holder, other))
    ]
    assert [other.wait_for(job_id)["state"] for job_id in after] == ["live", "live"]


def test_the_job_of_a_replica_that_is_killed_is_begun_again_by_the_other(pair: Pair) -> None:
    job_id, holder, other = pair.start_slow_job()
    holder.kill()
    assert other.wait_for(job_id)["state"] == "live"
    check_where_all_ended(pair, job_id, other)


def test_both_converge_on_each_promotion_and_no_answer_fails_or_is_mixed(pair: Pair) -> None:
    second = publish_bytes(pair.artifacts, "other", first_id=SECOND_FIRST_ID)
    first = ArtifactStore(pair.artifacts).resolve("starter")
    first_ids = {str(first): 0, str(second): SECOND_FIRST_ID}
    failures: list[str] = []
    answers: list[str] = []
    stop = threading.Event()
    text = "a replica answers with one tokenizer " * 200

    def encode(url: str) -> None:
        with httpx.Client(base_url=url, headers=ADMIN, timeout=30) as client:
            while not stop.is_set():
                answer = client.post("/encode", json={"text": text})
                version = answer.headers.get("tokenizer-version", "")
                shift = first_ids.get(version)
                wanted = None if shift is None else [shift + byte for byte in text.encode()]
                if answer.status_code != 200 or answer.json()["tokens"] != wanted:
                    failures.append(f"{answer.status_code} {version} {answer.text[:200]}")
                answers.append(version)

    urls = [pair.first.server.url, pair.second.server.url]
    threads = [threading.Thread(target=encode, args=(url,)) for url in urls for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            ref = (second, first)[number % 2]
            promoted = httpx.put(
                f"{urls[number // 2 % 2]}/tokenizers/active",
                json={"tokenizer": str(ref)},
                headers=ADMIN,
                timeout=60,
            )
            assert promoted.status_code == 200, promoted.text
            for replica in (pair.first, pair.second):
                replica.wait_until_served(ref.version)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert min(answers.count(version) for version in first_ids) >= 20
