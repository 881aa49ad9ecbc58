"""The runner with real child processes: priority, cancel, kill, limits, restart.

`test_runner_states.py` and `test_lost_jobs.py` test the transitions without processes.
"""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.server_process import wait_until
from tests.tokenizer_service.jobs.conftest import SLOW
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.process import JobProcess
from tokenizer_service.serving.workers import ProcessIdentity


@pytest.mark.row(33)
def test_a_trainer_has_low_priority_and_no_keys_and_is_killed_after_sigterm(
    start_service, monkeypatch
):
    service = start_service(start_process=JobProcess.start)
    secrets = {"TOKENIZER_ADMIN_KEYS", "TOKENIZER_READ_KEYS", "TOKENIZER_JOBS_DATABASE"}
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    job_id = service.start(**SLOW)
    wait_until(lambda: service.jobs.get(job_id).child, seconds=300)
    child = service.jobs.get(job_id).child
    process = psutil.Process(child.pid)
    wait_until(lambda: process.nice() == 10, seconds=300)
    os.kill(child.pid, signal.SIGSTOP)  # a stopped process acts on no signal but SIGKILL
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
    assert not secrets & set(process.environ())
    answer = service.client.delete(f"/train/{job_id}")
    assert (answer.status_code, answer.json()["phase"]) == (202, "cancelling")
    assert service.wait(job_id)["state"] == "cancelled"
    assert ProcessIdentity.of(child.pid) is None


@pytest.mark.slow
@pytest.mark.promise(2)
def test_workers_of_a_killed_trainer_do_not_outlive_it(process_service):
    service = process_service
    big = service.corpus / "big.txt"
    text = (service.corpus / "slow.txt").read_text()
    big.write_text("\n".join([text] * 60))  # enough for worker processes to count
    job_id = service.start(input_paths=["big.txt"], vocab_size=20_000)
    pid = service.wait_for_child(job_id)
    workers = []
    wait_until(lambda: workers.extend(psutil.Process(pid).children(recursive=True)) or workers)
    for worker in workers:
        os.kill(worker.pid, signal.SIGSTOP)  # so that they cannot notice it themselves
    os.kill(pid, signal.SIGKILL)
    assert service.wait(job_id)["error"]["code"] == "trainer_killed"
    psutil.wait_procs(workers, timeout=30)
    assert not any(ProcessIdentity.of(worker.pid) for worker in workers)


@pytest.mark.row(36)
def test_a_full_log_and_too_much_memory_are_failed_jobs(process_service, monkeypatch):
    """The child's standard error is a full device: writing its first line fails."""
    service = process_service
    with monkeypatch.context() as patch:
        patch.setattr(JobFolder, "log_path", Path("/dev/full"))
        job = service.wait(service.start())
    assert (job["state"], job["error"]["code"]) == ("failed", "disk_full")
    job = service.wait(service.start(**SLOW, limits={"memory_bytes": 8 << 20}))
    assert (job["state"], job["error"]["code"]) == ("failed", "memory_limit")
    assert service.store.names() == ["starter"]
