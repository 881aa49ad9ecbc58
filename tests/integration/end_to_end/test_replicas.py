"""Two replicas on one artifacts folder and one PostgreSQL database: the owner of a job is paused or
killed, and the other takes the job over.

Each has its own host name and process namespace (`unshare`), so that neither sees the other's
processes: as between machines, only leases show which owner is alive. Needs root, or user
namespaces.
"""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.postgres_server import PASSWORD, run_postgres
from tests.integration.server_process import (
    Server,
    publish_bytes,
    serve,
    slow_corpus,
    wait_for_job,
    wait_until,
)
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.queue import Job, JobStore

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


def ask(server: Server, method: str, path: str, **options: Any) -> Any:
    with server.client() as client:
        return client.request(method, path, **options).raise_for_status().json()


def serves(server: Server, version: str) -> bool:
    return bool(ask(server, "GET", "/readyz")["tokenizer"]["version"] == version)


def resume(server: Server) -> None:
    """The trainer first, until it has finished and asks for permission to publish: its server
    resumes with that request."""
    processes = server.processes()
    (trainer,) = [p for p in processes if "tokenizer_service.jobs.worker" in p.cmdline()]
    for process in [trainer, *trainer.children(recursive=True)]:
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


class Pair:
    """Two replicas, and their artifacts and jobs."""

    def __init__(self, servers: list[Server], artifacts: Path, address: str) -> None:
        self.servers, self.store = servers, ArtifactStore(artifacts)
        self.jobs = JobStore.open(artifacts, address)

    def start_slow_job(self) -> tuple[str, Server, Server]:
        """A job in training: its id, the replica that runs it, the other one."""
        job_id: str = ask(self.servers[0], "POST", "/train", json=SLOW)["id"]
        begun = f"job {job_id}: attempt 1 begins"
        wait_until(lambda: any(begun in server.output for server in self.servers))
        wait_until(lambda: self.job(job_id).phase in ("count", "learn"), seconds=240)
        holder, other = sorted(self.servers, key=lambda server: begun not in server.output)
        return job_id, holder, other

    def job(self, job_id: str) -> Job:
        job = self.jobs.get(job_id)
        assert job is not None
        return job

    def check_second_owner(self, job_id: str, owner: Server) -> str:
        """The second owner's job went live, and the pointer names its version; returns that."""
        with owner.client() as client:
            version: str = wait_for_job(client, job_id)["result"]["version"]
        job = self.job(job_id)
        assert (job.state, job.attempt, job.deaths, job.takeovers) == ("live", 3, 1, 1), job
        active = self.store.active()
        assert active is not None
        assert (active.name, active.version) == ("slow", version)
        wait_until(partial(serves, owner, version))
        return version


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    artifacts, corpora = tmp_path / "artifacts", tmp_path / "corpora"
    publish_bytes(artifacts, "starter")
    slow_corpus(corpora, 700_000)
    with contextlib.ExitStack() as running:
        address = running.enter_context(run_postgres()).make("replicas")
        settings = {
            "jobs_database": address,
            "lease_seconds": "3",
            "corpus_roots": str(corpora),
            "engine": "python",
            "log_level": "info",
        }
        module = (sys.executable, "-m", "tokenizer_service.cli", "serve")
        servers = [
            running.enter_context(serve(artifacts, command=(*own_host(name), *module), **settings))
            for name in ("replica-1", "replica-2")
        ]
        yield Pair(servers, artifacts, address)
        for server in servers:
            assert PASSWORD not in server.output


@pytest.mark.slow
@pytest.mark.promise(15)
def test_a_paused_owner_loses_its_job_and_publishes_nothing_when_it_wakes(pair: Pair) -> None:
    job_id, holder, other = pair.start_slow_job()
    for process in holder.processes():
        process.suspend()
    version = pair.check_second_owner(job_id, other)
    row = pair.job(job_id)
    resume(holder)
    late = f"job {job_id}: cancelled, but another process has taken over the job"
    wait_until(lambda: late in holder.output)
    assert pair.job(job_id) == row
    assert pair.check_second_owner(job_id, other) == version
    wait_until(partial(serves, holder, version))
    assert len(pair.store.versions("slow")) == 1
    # Both run as before: whichever is first takes the next job.
    small = {"documents": ["aa bb"], "vocab_size": 258, "name": "next"}
    for server in (holder, other):
        after = ask(server, "POST", "/train", json=small)["id"]
        with other.client() as client:
            assert wait_for_job(client, after)["state"] == "live"


@pytest.mark.slow
@pytest.mark.promise(15)
def test_the_job_of_a_killed_replica_is_restarted_by_the_other(pair: Pair) -> None:
    job_id, holder, other = pair.start_slow_job()
    for process in holder.processes():
        process.kill()
    pair.check_second_owner(job_id, other)
