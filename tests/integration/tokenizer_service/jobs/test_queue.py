"""The job queue across replicas on PostgreSQL, and across processes that are killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from tokenizer_service.jobs.queue import (
    LEASE_SECONDS,
    JobStore,
)

from tests.tokenizer_service.jobs.conftest import OpenJobs
from tests.tokenizer_service.jobs.test_queue import (
    ME,
    OTHER,
    add,
    claim,
    end_lease,
    path_of,
    sqlite_store,
)

__all__ = ["sqlite_store"]


def address_of(store: JobStore) -> str:
    from tokenizer_service.jobs.database.postgres import PostgresDatabase

    assert isinstance(store.database, PostgresDatabase)
    given = store.database._parameters
    return "postgresql://{user}:{password}@{host}:{port}/{dbname}".format(**given)


@pytest.mark.promise(16)
def test_a_clock_hours_off_changes_nothing_on_postgres(
    postgres_jobs: OpenJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All times are the database's: neither the owner nor another host uses its own clock."""
    store, real = postgres_jobs(), time.time
    for hours in (-5, 5):
        monkeypatch.setattr(time, "time", lambda: real() + 3600 * hours)  # noqa: B023
        add(store, f"job{hours}")
        job = claim(store)
        assert abs(job.created_at - real()) < 60
        assert job.lease_ends_at is not None
        assert LEASE_SECONDS - 60 < job.lease_ends_at - real() < LEASE_SECONDS + 60
        monkeypatch.setattr(time, "time", lambda: real() - 3600 * hours)  # noqa: B023
        assert store.take_over(job, OTHER, if_lease_ended=True) is None
        assert store.finish(job, "live")
        ended = store.get(job.id)
        assert ended is not None
        assert ended.finished_at is not None
        assert abs(ended.finished_at - real()) < 60


def test_hosts_run_a_job_each_and_claim_each_job_once(
    postgres_jobs: OpenJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgres_jobs()
    for index in range(40):
        add(store, f"job{index:02d}", queue_limit=100)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _CLAIMER, address_of(store), f"host{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    claimed, most_at_once = [], 0
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        for line in output.splitlines():
            job_id, own, all_running = line.split()
            claimed.append(job_id)
            assert own == "1"
            most_at_once = max(most_at_once, int(all_running))
    assert sorted(claimed) == [f"job{index:02d}" for index in range(40)]
    assert most_at_once > 1


_CLAIMER = """
import sys, threading, time
from tokenizer_service.jobs import queue as job_store
from tokenizer_service.jobs.database.postgres import PostgresDatabase
from tokenizer_service.serving.workers import ProcessIdentity
job_store.this_host = lambda: sys.argv[2]
me = ProcessIdentity.of_this_process()
def work():
    store = job_store.JobStore(PostgresDatabase(sys.argv[1]), folder="the folder")
    while store.count_unfinished():
        job = store.claim_next(me)
        if job is not None:
            running = store.running()
            own = [other for other in running if other.owner_host == sys.argv[2]]
            print(f"{job.id} {len(own)} {len(running)}\\n", end="", flush=True)
            time.sleep(0.01)
            store.finish(job, "succeeded")
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_a_job_is_run_where_its_folder_is_and_shown_and_cancelled_everywhere(
    postgres_jobs: OpenJobs,
) -> None:
    here, elsewhere = postgres_jobs(), postgres_jobs("another folder")
    add(here, "a", queue_limit=0)
    assert elsewhere.claim_next(ME) is None
    assert elsewhere.count_unfinished() == 0
    add(elsewhere, "b", queue_limit=0)  # jobs that wait there use no place here
    job = claim(here)
    end_lease(here, "a")
    assert elsewhere.running() == []  # a replica without the folder cannot clean up after the job
    assert [job.id for job in elsewhere.latest()] == ["b", "a"]
    assert {job.id for job in elsewhere.unfinished()} == {"a", "b"}
    asked = elsewhere.request_cancel("a")
    assert asked is not None
    assert asked.cancel_requested
    assert here.is_cancel_requested(job)
    assert here.finish(job, "cancelled")
    assert elsewhere.forget_old(kept=0) == []
    assert here.forget_old(kept=0) == ["a"]


_WRITER = """
import sys
from pathlib import Path
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.serving.workers import ProcessIdentity
store = JobStore.open(Path(sys.argv[1]))
me = ProcessIdentity.of_this_process()
number = 0
while True:
    job_id = f"{sys.argv[2]}-{number}"
    store.add(job_id, {"name": "x" * 2000}, request_digest="d", idempotency_key=None,
              queue_limit=10**9)
    print("added", job_id, flush=True)
    job = store.claim_next(me)
    if job is not None and store.finish(job, "succeeded"):
        print("finished", job.id, flush=True)
    number += 1
"""


@pytest.mark.promise(17)
def test_kill_9_loses_no_acknowledged_row(sqlite_store: JobStore) -> None:
    """This does not test loss of power: a killed process leaves the system's caches intact."""
    folder = path_of(sqlite_store).parent
    acknowledged: dict[str, str] = {}
    for round_number in range(4):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _WRITER, str(folder), f"{round_number}{name}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("a", "b")
        ]
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(5 + round_number):
                verb, job_id = writer.stdout.readline().split()
                acknowledged[job_id] = verb
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        for writer in writers:
            rest, _ = writer.communicate()
            for line in rest.splitlines():
                if len(line.split()) == 2:
                    verb, job_id = line.split()
                    acknowledged[job_id] = verb
        reopened = JobStore.open(folder)
        with sqlite3.connect(path_of(reopened)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        for job in reopened.running():  # leftovers of a killed owner
            reopened.finish(job, "failed", error_code="runner_died")
        for job_id, verb in acknowledged.items():
            row = reopened.get(job_id)
            assert row is not None, job_id
            if verb == "finished":
                assert row.state == "succeeded"
    assert len(acknowledged) >= 40
