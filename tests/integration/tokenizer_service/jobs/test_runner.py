"""The runner with real child processes: cancel, kill, limits, restart, orphans (P2, P10, P15).

`test_runner_states.py` tests the transitions between states without processes.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tokenizer_service.jobs.conftest import SLOW, Service
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.training.count_pretokens import SMALL_CORPUS_BYTES
from tokenizer_service.jobs import runner as job_runner
from tokenizer_service.jobs.folder import JobFolder, escape_control_characters
from tokenizer_service.jobs.process import JobLock
from tokenizer_service.jobs.worker.__main__ import NICENESS
from tokenizer_service.serving.workers import ProcessIdentity, this_host


def is_gone(pid: int) -> bool:
    return ProcessIdentity.of(pid) is None


@pytest.mark.row(33)
def test_cancel_while_queued_running_finished_and_twice(service: Service) -> None:
    running = service.start(**SLOW)
    queued = service.start(input_paths=None, documents=["a b"])
    pid = service.wait_for_child(running)
    documents = JobFolder.of(service.settings.artifacts_dir, queued).documents_path
    assert documents.exists()
    for _ in range(2):
        answer = service.client.delete(f"/train/{queued}")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
        assert not documents.exists()
    answer = service.client.delete(f"/train/{running}")
    assert answer.status_code == 202
    assert answer.json()["phase"] == "cancelling"
    assert service.client.delete(f"/train/{running}").status_code in (200, 202)
    assert service.wait(running)["state"] == "cancelled"
    assert is_gone(pid)
    after = service.client.delete(f"/train/{running}")
    assert (after.status_code, after.json()["state"]) == (200, "cancelled")
    live = service.start()
    service.wait(live, "live")
    after = service.client.delete(f"/train/{live}")
    assert (after.status_code, after.json()["state"]) == (200, "live")
    assert sorted(service.store.names()) == ["n", "starter"]


def test_the_trainer_is_nice_knows_no_key_and_is_killed_if_it_ignores_sigterm(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"TOKENIZER_ADMIN_KEYS", "TOKENIZER_READ_KEYS", "TOKENIZER_JOBS_DATABASE"}
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    job_id = service.start(**SLOW)
    pid = service.wait_for_child(job_id)
    child = psutil.Process(pid)
    assert child.nice() == NICENESS
    autogroup = Path(f"/proc/{child.pid}/autogroup")
    if autogroup.exists() and (said := autogroup.read_text()):  # empty where none exist
        assert said.endswith(f" nice {NICENESS}\n")
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert not secrets & set(child.environ())
    os.kill(pid, signal.SIGSTOP)  # a stopped process acts on no signal but SIGKILL
    service.client.delete(f"/train/{job_id}")
    assert service.wait(job_id)["state"] == "cancelled"
    assert is_gone(pid)


@pytest.mark.promise(2)
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGKILL, "trainer_killed", "memory"),
        pytest.param(signal.SIGSEGV, "trainer_crashed", "SIGSEGV", marks=pytest.mark.slow),
    ],
)
def test_a_killed_trainer_is_a_failed_job_and_serving_goes_on(
    service: Service, number: signal.Signals, code: str, words: str
) -> None:
    job_id = service.start(**SLOW)
    pid = service.wait_for_child(job_id)
    os.kill(pid, number)
    job = service.wait(job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", code)
    assert words in job["error"]["detail"]
    assert service.client.post("/encode", json={"text": "a"}).status_code == 200
    assert service.wait(service.start())["state"] == "live"


@pytest.mark.slow
@pytest.mark.promise(2)
def test_workers_of_a_killed_trainer_do_not_outlive_it(service: Service, slow_text: str) -> None:
    big = service.corpus / "big.txt"
    big.write_text("\n".join([slow_text] * 60))  # enough for worker processes to count
    job_id = service.start(input_paths=["big.txt"], vocab_size=20_000)
    pid = service.wait_for_child(job_id)
    deadline = time.monotonic() + 90
    workers: list[psutil.Process] = []
    while not workers and time.monotonic() < deadline:
        workers = psutil.Process(pid).children(recursive=True)
        time.sleep(0.01)
    if not workers:
        pytest.skip("this machine counts in one process")
    for worker in workers:
        os.kill(worker.pid, signal.SIGSTOP)  # so that they cannot notice it themselves
    os.kill(pid, signal.SIGKILL)
    assert service.wait(job_id)["error"]["code"] == "trainer_killed"
    psutil.wait_procs(workers, timeout=30)
    assert all(is_gone(worker.pid) for worker in workers)


def test_a_trainer_over_its_memory_limit_is_a_failed_job(service: Service) -> None:
    job_id = service.start(**SLOW, limits={"memory_bytes": 8 << 20})
    job = service.wait(job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "memory_limit")
    assert "limits.memory_bytes" in job["error"]["detail"]
    assert service.store.names() == ["starter"]


@pytest.mark.parametrize("asked", ["auto", "python"])
def test_the_engine_asked_for_trains_with_the_threads_allowed(
    start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    service = start_service(engine=asked, train_threads=3)
    text = (service.corpus / "small.txt").read_text()
    (service.corpus / "big.txt").write_text(text * (SMALL_CORPUS_BYTES // len(text) + 1))
    job = service.wait(service.start(input_paths=["big.txt"], name="trained"), "live")
    engine = "python" if asked == "python" or native_unavailable_reason() else "native"
    training = service.store.read_manifest(service.store.resolve("trained")).training
    assert training is not None
    assert (training["engine"], training["counting_engine"]) == (engine, engine)
    assert training["num_workers"] == 3
    assert any(f"the {engine} engine trains" in line for line in job["log_tail"])


@pytest.mark.row(36)
def test_a_log_that_cannot_be_written_is_a_failed_job(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's standard error is a full device: writing its first line fails."""
    monkeypatch.setattr(JobFolder, "log_path", Path("/dev/full"))
    job = service.wait(service.start())
    assert (job["state"], job["error"]["code"]) == ("failed", "disk_full")
    assert "free some space" in job["error"]["detail"].lower()
    monkeypatch.undo()
    assert service.wait(service.start())["state"] == "live"


@pytest.mark.row(36)
@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_FSIZE"), reason="Linux can limit another process")
def test_a_disk_that_refuses_the_artifact_is_a_failed_job(service: Service) -> None:
    """A limit on file sizes, set on the running child: its writes fail for real."""
    job_id = service.start(**SLOW)
    pid = service.wait_for_child(job_id)
    psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (8192, 8192))
    job = service.wait(job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "storage_failed")
    assert service.store.names() == ["starter"]
    assert service.client.post("/encode", json={"text": "a"}).status_code == 200


@pytest.mark.promise(10, 18)
def test_stopping_requeues_and_the_next_start_ends_with_the_same_digest(
    start_service: Callable[..., Service],
) -> None:
    first = start_service()
    reference = first.wait(first.start(**SLOW, promote="manual"))
    (digest,) = [reference["result"]["digest"]]
    job_id = first.start(**(SLOW | {"name": "again"}))
    pid = first.wait_for_child(job_id)
    first.client.__exit__(None, None, None)
    assert is_gone(pid)
    waiting = first.jobs.get(job_id)
    assert waiting is not None
    assert (waiting.state, waiting.attempt) == ("queued", 1)
    second = start_service()
    job = second.wait(job_id)
    assert job["state"] == "live"
    assert job["result"]["digest"] == digest
    done = second.jobs.get(job_id)
    assert done is not None
    assert done.attempt == 2


def dead_mark() -> ProcessIdentity:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        mark = ProcessIdentity.of(process.pid)
        assert mark is not None
        process.communicate(b"\n")
    return mark


@pytest.fixture
def orphan(service: Service) -> Iterator[subprocess.Popen[bytes]]:
    """A trainer without a server: it holds the lock, and leads its own session."""
    program = (
        "import time\nfrom pathlib import Path\n"
        "from tokenizer_service.jobs.process import JobLock\n"
        f"folder = Path({str(service.settings.artifacts_dir.absolute())!r})\n"
        "assert JobLock(folder).acquire(timeout_seconds=60)\n"
        "print('held', flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def give_to_a_dead_server(service: Service, job_id: str, child: ProcessIdentity | None) -> None:
    with service.jobs.database.transaction() as run:
        run(
            "UPDATE jobs SET state = 'running', attempt = 9, owner = ?, child = ?,"
            " owner_host = ?, lease_ends_at = ? WHERE id = ?",
            (
                dead_mark().to_json(),
                child and child.to_json(),
                this_host(),
                time.time() + 300,
                job_id,
            ),
        )


@pytest.mark.promise(2)
def test_a_job_of_a_killed_server_fails_and_its_orphan_ends(
    service: Service, orphan: subprocess.Popen[bytes]
) -> None:
    job_id = service.start(**SLOW)
    give_to_a_dead_server(service, job_id, ProcessIdentity.of(orphan.pid))
    job = service.wait(job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "runner_died")
    assert orphan.wait(60) == -signal.SIGKILL


@pytest.mark.promise(15)
def test_an_unknown_orphan_is_waited_for(service: Service, orphan: subprocess.Popen[bytes]) -> None:
    """The kill came before its server recorded the pid: only the lock shows that it runs."""
    job_id = service.start(**SLOW)
    give_to_a_dead_server(service, job_id, None)
    queued = service.start(name="next")
    time.sleep(1)  # it is looked at several times
    assert service.job(job_id)["state"] == "running"
    assert service.job(queued)["state"] == "queued"
    orphan.kill()
    assert service.wait(job_id)["error"]["code"] == "runner_died"
    assert service.wait(queued)["state"] == "live"


def give_to_another_host(
    service: Service, job_id: str, *, lease_seconds: float, child: ProcessIdentity | None = None
) -> None:
    """Run by pid 1 of another host, whose pids mean nothing here."""
    with service.jobs.database.transaction() as run:
        run(
            "UPDATE jobs SET state = 'running', attempt = 9, owner = ?, owner_host = 'elsewhere',"
            " lease_ends_at = ?, child = ? WHERE id = ?",
            (
                ProcessIdentity(1, 0.5).to_json(),
                time.time() + lease_seconds,
                child and child.to_json(),
                job_id,
            ),
        )


@pytest.fixture
def queued(service: Service) -> str:
    """A job that stays in the queue, because the runner no longer acts by itself."""
    assert service.client.portal is not None
    service.client.portal.call(service.services.runner.stop)
    return service.start()


def test_a_stranger_with_the_orphans_pid_is_left_alone(service: Service, queued: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        mark = ProcessIdentity(stranger.pid, started=1.0)  # same pid, other start time
        with service.jobs.database.transaction() as run:
            run(
                "UPDATE jobs SET state = 'running', attempt = 1, owner = ?, child = ?,"
                " owner_host = ?, lease_ends_at = ? WHERE id = ?",
                (mark.to_json(), mark.to_json(), this_host(), time.time() + 300, queued),
            )
        service.services.runner._reap()
        assert service.job(queued)["error"]["code"] == "runner_died"
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_a_job_of_another_host_is_judged_by_its_lease_alone(
    service: Service, queued: str, orphan: subprocess.Popen[bytes]
) -> None:
    """A process of this host holds the marks and the lock; neither matters."""
    runner, child = service.services.runner, ProcessIdentity.of(orphan.pid)
    give_to_another_host(service, queued, lease_seconds=300, child=child)
    runner._reap()
    assert service.job(queued)["state"] == "running"
    for deaths in range(job_runner.MAX_DEATHS):
        give_to_another_host(service, queued, lease_seconds=-0.1, child=child)
        runner._reap()
        waiting = service.jobs.get(queued)
        assert waiting is not None
        assert (waiting.state, waiting.deaths) == ("queued", deaths + 1)
        assert waiting.takeovers == deaths + 1
    give_to_another_host(service, queued, lease_seconds=-0.1, child=child)
    runner._reap()
    job = service.job(queued)
    assert (job["state"], job["error"]["code"]) == ("failed", "runner_died")
    assert orphan.poll() is None  # it only has the pid of the other host's trainer


def test_a_lease_that_ended_is_taken_over_by_one_of_two_servers(
    service: Service, queued: str, start_service: Callable[..., Service], caplog: Any
) -> None:
    other = start_service()
    assert other.client.portal is not None
    # In one process, they would treat a job that one of them runs as abandoned.
    other.client.portal.call(other.services.runner.stop)
    give_to_another_host(service, queued, lease_seconds=-0.1)
    for _ in range(2):
        for runner in (service.services.runner, other.services.runner):
            runner._reap()
    start_service()  # runs the waiting job
    assert service.wait(queued)["state"] == "live"
    taken = [line for line in caplog.messages if "its server process is gone" in line]
    assert len(taken) == 1
    done = service.jobs.get(queued)
    assert done is not None
    assert (done.attempt, done.deaths) == (11, 1)  # taken over, and claimed


def test_a_jump_of_the_clock_fails_no_job_that_runs_on_this_host(
    service: Service, queued: str
) -> None:
    """For the reader the owner's lease ended a day ago, but its process still runs (P16)."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        mark = ProcessIdentity.of(owner.pid)
        assert mark is not None
        with service.jobs.database.transaction() as run:
            run(
                "UPDATE jobs SET state = 'running', owner = ?, owner_host = ?, lease_ends_at = ?"
                " WHERE id = ?",
                (mark.to_json(), this_host(), time.time() - 86_400, queued),
            )
        service.services.runner._reap()
        assert service.job(queued)["state"] == "running"
        owner.communicate(b"\n")
    service.services.runner._reap()
    assert service.job(queued)["error"]["code"] == "runner_died"


@pytest.mark.row(34)
def test_the_log_tail_is_bounded_and_escaped(service: Service, queued: str) -> None:
    folder = JobFolder.of(service.settings.artifacts_dir, queued)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.log_path.write_bytes(
        b"x" * 100_000 + b"\n" + b"line\n" * 100 + b"a\x1b[31mred\r\rforged\x00\xff\n" + b"y" * 5000
    )
    tail = service.job(queued)["log_tail"]
    assert len(tail) == 20
    assert tail[-2] == "a\\x1b[31mred\\r\\rforged\\x00\ufffd"
    assert tail[-1] == "y" * 500
    assert escape_control_characters("\u202e\ud800") == "\\u202e\\ud800"


@pytest.mark.promise(5)
def test_the_trainer_ends_at_once_when_its_server_is_gone(service: Service, queued: str) -> None:
    """The child sees a killed server as the end of its standard input."""
    slow = service.jobs.get(service.start(**SLOW))
    assert slow is not None
    folder = JobFolder.of(service.settings.artifacts_dir, slow.id)
    folder.write_request(service.services.runner._request_of(slow))
    with subprocess.Popen(
        [sys.executable, "-m", "tokenizer_service.jobs.worker", str(folder.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert b"progress" in child.stdout.readline()
        child.stdin.close()
        try:
            assert child.wait(60) == -signal.SIGKILL
        finally:
            child.kill()
    assert JobLock(service.settings.artifacts_dir.absolute()).is_free()
    assert service.store.names() == ["starter"]
