"""The job queue across replicas on PostgreSQL, and across processes that are killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tokenizer_service.jobs.conftest import OpenJobs
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.queue import LEASE_SECONDS, Job, JobStore
from tokenizer_service.serving.workers import ProcessIdentity

ME = ProcessIdentity.of_this_process()
OTHER = ProcessIdentity(pid=1, started=0.5)


def add(store: JobStore, job_id: str, *, queue_limit: int = 8) -> None:
    body = {"name": "x"}
    store.add(job_id, body, request_digest="d", idempotency_key=None, queue_limit=queue_limit)


def claim(store: JobStore) -> Job:
    job = store.claim_next(ME)
    assert job is not None
    return job


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


def test_a_job_runs_where_its_folder_is_and_is_cancelled_from_anywhere(
    postgres_jobs: OpenJobs,
) -> None:
    here, elsewhere = postgres_jobs(), postgres_jobs("another folder")
    add(here, "a", queue_limit=0)
    assert elsewhere.claim_next(ME) is None
    assert elsewhere.count_unfinished() == 0
    add(elsewhere, "b", queue_limit=0)  # jobs that wait there use no place here
    job = claim(here)
    with here.database.transaction() as run:
        run("UPDATE jobs SET lease_ends_at = 1.0 WHERE id = 'a'", ())
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
def test_kill_9_loses_no_acknowledged_row(tmp_path: Path) -> None:
    """This does not test loss of power: a killed process leaves the system's caches intact."""
    acknowledged: dict[str, str] = {}
    for round_number in range(2):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _WRITER, str(tmp_path), f"{round_number}{name}"],
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
        reopened = JobStore.open(tmp_path)
        with sqlite3.connect(tmp_path / DATABASE_NAME) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        for job in reopened.running():  # leftovers of a killed owner
            reopened.finish(job, "failed", error_code="runner_died")
        for job_id, verb in acknowledged.items():
            row = reopened.get(job_id)
            assert row is not None, job_id
            if verb == "finished":
                assert row.state == "succeeded"
    assert len(acknowledged) >= 20
