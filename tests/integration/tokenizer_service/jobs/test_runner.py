"""The runner with real child processes: cancel, kill, limits, restart, orphans (P2, P10, P15).

`test_runner_states.py` tests the transitions between states without processes.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.jobs import runner as job_runner
from tokenizer_service.jobs.folder import JobFolder, escape_control_characters
from tokenizer_service.jobs.process import JobLock
from tokenizer_service.jobs.worker.__main__ import NICENESS
from tokenizer_service.serving.workers import ProcessIdentity, this_host

from tests.native_module import native_module
from tests.tokenizer_service.jobs.conftest import SLOW, SLOW_VOCAB_SIZE, Fields, Service
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.training.count_pretokens import SMALL_CORPUS_BYTES


def is_gone(pid: int) -> bool:
    return ProcessIdentity.of(pid) is None


def test_progress_is_seen_to_grow_through_the_phases(service: Service) -> None:
    job_id = service.start(**SLOW)
    seen: list[tuple[str, float]] = []
    deadline = time.monotonic() + 300
    while not seen or seen[-1][0] not in ("live", "failed"):
        assert time.monotonic() < deadline, seen
        job = service.job(job_id)
        seen.append((job["phase"], job["progress"]))
        time.sleep(0.1)
    assert [progress for _, progress in seen] == sorted(progress for _, progress in seen)
    during = {progress for phase, progress in seen if phase == "learn"}
    assert len(during) >= 3, seen
    assert all(0.5 <= progress <= 0.95 for progress in during)
    assert seen[-1] == ("live", 1.0)
    counters = service.job(job_id)["counters"]
    assert counters["count_done"] == counters["count_total"] > 500_000
    assert counters["learn_total"] == SLOW_VOCAB_SIZE - 257


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


def test_a_trainer_that_does_not_heed_sigterm_is_killed(service: Service) -> None:
    job_id = service.start(**SLOW)
    pid = service.wait_for_child(job_id)
    os.kill(pid, signal.SIGSTOP)  # a stopped process acts on no signal but SIGKILL
    service.client.delete(f"/train/{job_id}")
    assert service.wait(job_id)["state"] == "cancelled"
    assert is_gone(pid)


@pytest.mark.promise(2)
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGKILL, "trainer_killed", "memory"), (signal.SIGSEGV, "trainer_crashed", "SIGSEGV")],
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


def test_the_memory_limit(service: Service) -> None:
    job_id = service.start(**SLOW, limits={"memory_bytes": 8 << 20})
    job = service.wait(job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "memory_limit")
    assert "limits.memory_bytes" in job["error"]["detail"]
    assert service.store.names() == ["starter"]


def test_a_corpus_is_counted_by_as_many_threads_as_the_operator_allows(
    start_service: Callable[..., Service],
) -> None:
    service = start_service(train_threads=3)
    text = (service.corpus / "small.txt").read_text()
    n_copies = SMALL_CORPUS_BYTES // len(text) + 1  # small corpora use one
    (service.corpus / "big.txt").write_text(text * n_copies)
    service.wait(service.start(input_paths=["big.txt"], name="trained"), "live")
    training = service.store.read_manifest(service.store.resolve("trained")).training
    assert training is not None
    assert training["num_workers"] == 3


def test_the_engine_asked_for_trains_and_the_manifest_names_it(
    start_service: Callable[..., Service], engine: str
) -> None:
    service = start_service(engine=engine)
    job_id = service.start(name="trained")
    assert service.wait(job_id)["state"] == "live"
    store = ArtifactStore(service.settings.artifacts_dir)
    training = store.read_manifest(store.resolve("trained")).training
    assert training is not None
    assert (training["engine"], training["counting_engine"]) == (engine, engine)


def test_by_default_the_faster_engine_there_is_trains(
    start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKENIZER_ENGINE", raising=False)
    service = start_service(engine="auto")
    job = service.wait(service.start(name="trained"))
    assert job["state"] == "live"
    best = "python" if native_unavailable_reason() else "native"
    store = ArtifactStore(service.settings.artifacts_dir)
    assert store.read_manifest(store.resolve("trained")).training["engine"] == best
    assert any(f"the {best} engine trains" in line for line in job["log_tail"])


def test_a_native_run_is_watched_limited_and_cancelled(
    start_service: Callable[..., Service],
) -> None:
    """Its long calls let the rest of the process run, above all the reader of the server's pipe."""
    native_module()
    service = start_service(engine="native")
    letters = bytes(ord(" ") if byte % 10 == 0 else ord("a") + byte % 26 for byte in range(256))
    text = random.Random(2).randbytes(12_000_000).translate(letters)
    (service.corpus / "big.txt").write_bytes(text)
    slow: Fields = {"input_paths": ["big.txt"], "vocab_size": 150_000}
    job_id = service.start(**slow)
    pid = service.wait_for_child(job_id, phases=("learn",))
    seen = {service.job(job_id)["progress"]}
    deadline = time.monotonic() + 120
    while len(seen) < 4:  # a run that ended, or reported nothing until its end, would fail below
        assert time.monotonic() < deadline, seen
        assert service.job(job_id)["state"] == "running", seen
        seen.add(service.job(job_id)["progress"])
    assert service.client.delete(f"/train/{job_id}").status_code in (200, 202)
    assert service.wait(job_id)["state"] == "cancelled"
    assert is_gone(pid)
    limited = service.wait(service.start(**slow, limits={"seconds": 1}))
    assert limited["error"]["code"] == "time_limit"
    assert service.store.names() == ["starter"]


def test_the_trainer_is_nice_leads_a_session_and_knows_no_key(
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
    service.client.delete(f"/train/{job_id}")


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
    assert service.wait(service.start())["state"] == "live"


@pytest.mark.promise(10, 18)
def test_stopping_requeues_and_the_next_start_ends_with_the_same_digest(
    start_service: Callable[..., Service],
) -> None:
    first = start_service()
    reference = first.wait(first.start(**SLOW, promote="manual"))
    (digest,) = [reference["result"]["digest"]]
    job_id = first.start(**(SLOW | {"name": "again"}))
    pid = first.wait_for_child(job_id)
    started = time.monotonic()
    first.client.__exit__(None, None, None)
    assert time.monotonic() - started < GRACEFUL_SECONDS
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
            "UPDATE jobs SET state = 'running', attempt = 9, owner = ?, child = ? WHERE id = ?",
            (dead_mark().to_json(), child and child.to_json(), job_id),
        )


@pytest.mark.promise(2)
def test_a_job_of_a_killed_server_fails_and_its_orphan_ends(
    service: Service, orphan: subprocess.Popen[bytes]
) -> None:
    job_id = service.start(**SLOW)
    give_to_a_dead_server(service, job_id, ProcessIdentity.of(orphan.pid))
    job = service.wait(job_id)
    assert (job["state"], job["error"]["code"]) == ("failed", "runner_died")
    assert orphan.wait(30) == -signal.SIGKILL


@pytest.mark.promise(15)
def test_an_orphan_nobody_knows_is_waited_for(
    service: Service, orphan: subprocess.Popen[bytes]
) -> None:
    """The kill came before its server recorded the pid: only the lock shows that it runs."""
    job_id = service.start(**SLOW)
    give_to_a_dead_server(service, job_id, None)
    queued = service.start(name="next")
    time.sleep(2)
    assert service.job(job_id)["state"] == "running"
    assert service.job(queued)["state"] == "queued"
    orphan.kill()
    assert service.wait(job_id)["error"]["code"] == "runner_died"
    assert service.wait(queued)["state"] == "live"


def test_a_stranger_with_the_orphans_pid_is_left_alone(service: Service) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        mark = ProcessIdentity(stranger.pid, started=1.0)  # same pid, other start time
        running = service.start(**SLOW)
        service.wait_for_child(running)
        job_id = service.start()
        service.client.delete(f"/train/{running}")
        with service.jobs.database.transaction() as run:
            run(
                "UPDATE jobs SET state = 'running', attempt = 1, owner = ?, child = ? WHERE id = ?",
                (mark.to_json(), mark.to_json(), job_id),
            )
        assert service.wait(job_id)["error"]["code"] == "runner_died"
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()


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


def test_a_job_of_another_host_is_judged_by_its_lease_alone(
    service: Service, queued: str, orphan: subprocess.Popen[bytes]
) -> None:
    """A process of this host holds the marks and the lock; neither matters."""
    runner, child = service.services.runner, ProcessIdentity.of(orphan.pid)
    give_to_another_host(service, queued, lease_seconds=30, child=child)
    runner._reap()
    assert service.job(queued)["state"] == "running"
    for deaths in range(job_runner.MAX_DEATHS):
        give_to_another_host(service, queued, lease_seconds=-0.1, child=child)
        runner._reap()
        waiting = service.jobs.get(queued)
        assert waiting is not None
        assert (waiting.state, waiting.deaths, waiting.takeovers) == (
            *("queued", deaths + 1, deaths + 1),
        )
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
def test_the_log_tail_is_bounded_and_escaped(service: Service) -> None:
    job_id = service.start()
    service.wait(job_id)
    folder = JobFolder.of(service.settings.artifacts_dir, job_id)
    folder.log_path.write_bytes(
        b"x" * 100_000 + b"\n" + b"line\n" * 100 + b"a\x1b[31mred\r\rforged\x00\xff\n" + b"y" * 5000
    )
    tail = service.job(job_id)["log_tail"]
    assert len(tail) == 20
    assert tail[-2] == "a\\x1b[31mred\\r\\rforged\\x00\ufffd"
    assert tail[-1] == "y" * 500
    assert escape_control_characters("\u202e\ud800") == "\\u202e\\ud800"


@pytest.mark.promise(5)
def test_the_trainer_ends_at_once_when_its_server_is_gone(service: Service) -> None:
    """The child sees a killed server as the end of its standard input."""
    running = service.start(**SLOW)
    pid = service.wait_for_child(running)
    process = psutil.Process(pid)
    folder = JobFolder.of(service.settings.artifacts_dir, running)
    service.client.delete(f"/train/{running}")
    service.wait(running)
    assert not process.is_running()
    job = service.jobs.get(running)
    assert job is not None
    folder.write_request(
        {
            **job.request,
            "kind": "train",
            "job_id": running,
            "store": None,
            "artifacts_dir": str(service.settings.artifacts_dir.absolute()),
            "engine": "python",
            "lock_host": "",
            "num_workers": None,
            "name": "orphan",
        }
    )
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
            assert child.wait(30) == -signal.SIGKILL
        finally:
            child.kill()
    assert JobLock(service.settings.artifacts_dir.absolute()).is_free()
    assert "orphan" not in service.store.names()
