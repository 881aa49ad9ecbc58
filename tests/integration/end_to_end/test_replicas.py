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
from functools import partial

import psutil
import pytest

from tests.integration.postgres_server import PASSWORD, run_postgres
from tests.integration.server_process import publish_bytes, serve, slow_corpus, wait_until
from tests.tokenizer_service.routes.exchanges import wait_for_job
from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.queue import JobStore


def own_host(name):
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


def ask(server, method, path, **options):
    with server.client() as client:
        return client.request(method, path, **options).raise_for_status().json()


def serves(server, version):
    return ask(server, "GET", "/readyz")["tokenizer"]["version"] == version


def resume(server):
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


@pytest.mark.slow
@pytest.mark.promise(15)
@pytest.mark.parametrize("how", ["kill", "suspend"])
def test_an_owner_that_is_gone_loses_its_job_and_publishes_nothing_when_it_wakes(tmp_path, how):
    artifacts, corpora = tmp_path / "artifacts", tmp_path / "corpora"
    publish_bytes(artifacts, "starter")
    slow_corpus(corpora, 700_000)
    store = ArtifactStore(artifacts)
    command = (sys.executable, "-m", "tokenizer_service.cli", "serve")
    with contextlib.ExitStack() as running:
        address = running.enter_context(run_postgres()).make("replicas")
        jobs = JobStore.open(artifacts, address)
        settings = {
            "jobs_database": address,
            "lease_seconds": "3",
            "corpus_roots": str(corpora),
            "engine": "python",
            "log_level": "info",
        }
        servers = [
            running.enter_context(serve(artifacts, command=(*own_host(name), *command), **settings))
            for name in ("replica-1", "replica-2")
        ]
        slow = {"input_paths": ["slow.txt"], "vocab_size": 6000, "name": "slow"}
        job_id = ask(servers[0], "POST", "/train", json=slow)["id"]
        begun = f"job {job_id} begins"
        wait_until(lambda: any(begun in server.output for server in servers))
        wait_until(lambda: jobs.get(job_id).phase in ("count", "learn"), seconds=240)
        holder, other = sorted(servers, key=lambda server: begun not in server.output)
        for process in holder.processes():
            getattr(process, how)()

        def check_second_owner():
            """The second owner's job went live, and the pointer names its version."""
            with other.client() as client:
                version = wait_for_job(client, job_id)["result"]["version"]
            job = jobs.get(job_id)
            assert (job.state, job.attempt, job.deaths, job.takeovers) == ("live", 3, 1, 1), job
            active = store.active()
            assert (active.name, active.version) == ("slow", version)
            wait_until(partial(serves, other, version))
            return job

        row = check_second_owner()
        if how == "suspend":
            resume(holder)
            late = f"job {job_id}: cancelled, but another process has taken over the job"
            wait_until(lambda: late in holder.output)
            assert check_second_owner() == row
            wait_until(partial(serves, holder, store.active().version))
            assert len(store.versions("slow")) == 1
            # Both run as before: whichever is first takes the next job.
            small = {"documents": ["aa bb"], "vocab_size": 258, "name": "next", "promote": "always"}
            for server in (holder, other):
                after = ask(server, "POST", "/train", json=small)["id"]
                with other.client() as client:
                    assert wait_for_job(client, after)["state"] == "live"
        for server in servers:
            assert PASSWORD not in server.output
