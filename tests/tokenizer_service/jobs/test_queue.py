"""The job database: transitions, fences, and one trainer at a time (P15, P17)."""

import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.errors import IdempotencyConflictError, JobRunningError, QueueFullError
from tokenizer_service.jobs.queue import LEASE_SECONDS, JobStore, folder_id
from tokenizer_service.serving.workers import ProcessIdentity, this_host

ME = ProcessIdentity.of_this_process()
OTHER = ProcessIdentity(pid=1, started=0.5)
RESULT = {"name": "n", "version": "v", "digest": "d", "vocab_size": 1}


@pytest.fixture
def store(open_jobs):
    return open_jobs()


@pytest.fixture
def sqlite_store(tmp_path):
    return JobStore.open(tmp_path)


def add(store, job_id, **changes):
    options = {"request_digest": "d", "idempotency_key": None, "queue_limit": 8} | changes
    return store.add(job_id, {"name": "x"}, **options)


def in_threads(number, work):
    begin = threading.Barrier(number)

    def start(_):
        begin.wait()
        work()

    with ThreadPoolExecutor(number) as threads:
        list(threads.map(start, range(number)))


@pytest.mark.promise(17)
def test_the_file_is_in_delete_mode_and_extra_synchronous(sqlite_store):
    with sqlite3.connect(sqlite_store.database.path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
    with sqlite_store.database.read() as run:
        assert run("PRAGMA synchronous", ()) == [{"synchronous": 3}]


def test_jobs_of_all_kinds_are_claimed_in_order_one_at_a_time(store):
    add(store, "a", kind="encode")
    add(store, "b")
    add(store, "c", kind="encode")
    first = store.claim_next(ME)
    assert (first.id, first.state, first.attempt, first.owner) == ("a", "running", 1, ME)
    assert first.kind == "encode"
    assert store.claim_next(OTHER) is None
    assert store.finish(first, "succeeded")
    assert store.claim_next(OTHER).id == "b"
    assert [job.id for job in store.latest()] == ["c", "b", "a"]
    assert [job.id for job in store.latest(kind="encode")] == ["c", "a"]
    assert [job.id for job in store.latest(kind="encode", limit=1)] == ["c"]
    assert [job.id for job in store.latest(kind="train")] == ["b"]


@pytest.mark.promise(15)
def test_many_threads_claim_each_job_once(store, open_jobs):
    for index in range(8):
        add(store, f"job{index:02d}", queue_limit=100)
    claimed = []
    at_once = []

    def work():
        own = open_jobs()
        while own.count_unfinished():
            job = own.claim_next(ME)
            if job is not None:
                at_once.append(len(own.running()))
                claimed.append(job.id)
                own.finish(job, "succeeded")

    in_threads(4, work)
    assert sorted(claimed) == [f"job{index:02d}" for index in range(8)]
    assert set(at_once) == {1}


def test_the_queue_holds_as_many_jobs_as_its_limit(store):
    add(store, "a", queue_limit=0)
    with pytest.raises(JobRunningError):
        add(store, "b", queue_limit=0)
    add(store, "b", queue_limit=1)
    with pytest.raises(QueueFullError) as full:
        add(store, "c", queue_limit=1)
    assert (full.value.unfinished, full.value.limit) == (2, 1)
    store.finish(store.claim_next(ME), "failed", error_code="x")
    add(store, "c", queue_limit=1)


@pytest.mark.row(32)
def test_an_idempotency_key_gives_the_same_job_or_a_conflict(store):
    first = add(store, "a", idempotency_key="k", request_digest="1")
    assert add(store, "b", idempotency_key="k", request_digest="1").id == first.id
    with pytest.raises(IdempotencyConflictError, match="job a"):
        add(store, "b", idempotency_key="k", request_digest="2")
    store.finish(store.claim_next(ME), "failed", error_code="x")
    again = add(store, "b", idempotency_key="k", request_digest="1", queue_limit=0)
    assert again.state == "failed"
    assert len(store.latest()) == 1


@pytest.mark.row(33)
def test_cancel_in_every_state(store):
    assert store.request_cancel("none") is None
    add(store, "queued")
    cancelled = store.request_cancel("queued")
    assert cancelled.state == "cancelled"
    assert store.request_cancel("queued") == cancelled

    add(store, "running")
    job = store.claim_next(ME)
    assert not store.is_cancel_requested(job)
    asked = store.request_cancel("running")
    assert (asked.state, asked.cancel_requested) == ("running", True)
    assert store.is_cancel_requested(job)
    assert not store.allow_publishing(job)
    assert store.requeue(job)
    assert store.get("running").state == "cancelled"
    assert store.claim_next(ME) is None

    for state in ("live", "succeeded", "failed"):
        add(store, state)
        store.finish(store.claim_next(ME), state)
        after = store.request_cancel(state)
        assert (after.state, after.cancel_requested) == (state, False)


def test_a_requeued_job_keeps_its_place_its_version_and_the_deaths_of_its_child(store):
    add(store, "a")
    add(store, "b")
    job = store.claim_next(ME)
    store.set_result(job, RESULT)
    assert store.requeue(job)
    again = store.claim_next(ME)
    assert (again.id, again.attempt, again.deaths) == ("a", 2, 0)
    assert again.result == RESULT
    assert store.requeue(again, died=True)
    # A dead owner of this host loses it without the end of a lease.
    taken = store.take_over(store.claim_next(ME), OTHER, if_lease_ended=False)
    assert (taken.deaths, taken.takeovers) == (2, 0)
    assert store.requeue(taken)
    store.claim_next(ME)
    (running,) = store.running()
    assert (running.id, running.deaths, running.attempt) == ("a", 2, 5)


def end_lease(store, job_id):
    with store.database.transaction() as run:
        run("UPDATE jobs SET lease_ends_at = 1.0 WHERE id = ?", (job_id,))


def test_a_claim_is_a_lease_that_is_renewed_by_its_attempt_only(store):
    add(store, "a")
    job = store.claim_next(ME)
    assert (job.owner_host, job.is_of_this_host) == (this_host(), True)
    for hold in (store.renew_lease, store.allow_publishing):
        end_lease(store, "a")
        before = time.time()
        assert hold(job)
        ends = store.get("a").lease_ends_at
        assert before + LEASE_SECONDS <= ends <= time.time() + LEASE_SECONDS
    store.requeue(job)
    waiting = store.get("a")
    assert (waiting.owner_host, waiting.lease_ends_at) == (None, None)
    store.claim_next(OTHER)
    assert not store.renew_lease(job)


def test_an_ended_lease_is_taken_over_once(store, open_jobs):
    """Many claims at once, with and without a renewal by the owner: one statement decides."""
    add(store, "a")
    job = store.claim_next(ME)
    assert store.take_over(job, OTHER, if_lease_ended=True) is None
    end_lease(store, "a")
    assert store.renew_lease(job)  # in time: no other process had claimed it
    assert store.take_over(job, OTHER, if_lease_ended=True) is None
    end_lease(store, "a")
    won = []
    in_threads(8, lambda: won.append(open_jobs().take_over(job, OTHER, if_lease_ended=True)))
    (taken,) = [job for job in won if job is not None]
    assert len(won) == 8
    assert (taken.owner, taken.attempt, taken.deaths, taken.takeovers) == (OTHER, 2, 1, 1)
    assert taken.lease_ends_at > time.time() + LEASE_SECONDS - 10


@pytest.mark.promise(15)
def test_an_owner_whose_lease_was_taken_can_write_nothing(store):
    add(store, "a")
    late = store.claim_next(ME)
    end_lease(store, "a")
    taken = store.take_over(late, OTHER, if_lease_ended=True)
    before = store.get("a")
    assert store.is_cancel_requested(late)
    assert not store.renew_lease(late)
    assert not store.set_child(late, ME)
    assert not store.set_progress(late, "learn", 0.9, {})
    assert not store.allow_publishing(late)
    assert not store.set_result(late, RESULT)
    assert not store.requeue(late)
    assert not store.finish(late, "live")
    assert store.take_over(late, ME, if_lease_ended=False) is None
    assert store.get("a") == before
    assert store.finish(taken, "failed", error_code="runner_died")
    assert store.get("a").state == "failed"


def test_concurrent_processes_give_a_folder_one_id(tmp_path):
    ids = []
    in_threads(8, lambda: ids.append(folder_id(tmp_path / "artifacts")))
    assert len(ids) == 8
    assert set(ids) == {folder_id(tmp_path / "artifacts")}
    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == [".folder-id"]
    assert folder_id(tmp_path / "other") != ids[0]


def test_progress_error_and_times_are_kept(store):
    add(store, "a")
    job = store.claim_next(ME)
    store.set_child(job, OTHER)
    store.set_progress(job, "count", 0.25, {"count_done": 5})
    now = store.get("a")
    assert (now.phase, now.progress, now.counters) == ("count", 0.25, {"count_done": 5})
    assert now.child == OTHER
    store.finish(job, "failed", error_code="time_limit", detail="too long")
    now = store.get("a")
    assert (now.error, now.progress) == ({"code": "time_limit", "detail": "too long"}, 0.25)
    assert now.finished_at is not None
    assert now.child is None


def test_old_finished_jobs_are_forgotten_and_unfinished_ones_are_not(store):
    add(store, "waiting", queue_limit=100)
    for index in range(5):
        add(store, f"job{index}", queue_limit=100)
        store.request_cancel(f"job{index}")
    assert sorted(store.forget_old(kept=2)) == ["job0", "job1", "job2"]
    assert [job.id for job in store.latest()] == ["job4", "job3", "waiting"]


def test_each_end_of_a_job_is_reported_once_by_the_store_that_ended_it(store, open_jobs):
    ended = []
    other = open_jobs()
    for each in (store, other):
        each.on_end = lambda job: ended.append((job.id, job.state, job.run_seconds is not None))
    for name in ("waiting", "failing", "restarted", "stopped"):
        add(store, name, queue_limit=100)
    store.request_cancel("waiting")
    other.request_cancel("waiting")
    job = store.claim_next(ME)
    store.set_progress(job, "count", 0.5, {})
    other.request_cancel("failing")  # it runs: only asked to stop
    assert store.finish(job, "failed", error_code="x")
    assert not store.finish(job, "failed", error_code="x")
    job = store.claim_next(ME)
    store.requeue(job)
    store.finish(store.claim_next(ME), "live")
    job = store.claim_next(ME)
    other.request_cancel("stopped")
    store.requeue(job)
    assert ended == [
        ("waiting", "cancelled", False),
        ("failing", "failed", True),
        ("restarted", "live", True),
        ("stopped", "cancelled", True),
    ]
    store.forget_old(kept=1)
    assert store.count_by_state() == {("train", "cancelled"): 1}


@pytest.mark.row(36)
def test_a_full_or_read_only_disk_is_an_error_and_leaves_the_database_whole(
    sqlite_store, monkeypatch
):
    store = sqlite_store
    add(store, "before")
    pages = sqlite3.connect(store.database.path).execute("PRAGMA page_count").fetchone()[0]
    real_connect = sqlite3.connect

    def connect_to_a_full_disk(address, **options):
        connection = real_connect(address, **options)
        connection.execute(f"PRAGMA max_page_count={pages}")
        return connection

    def connect_to_a_read_only_disk(address, **options):
        return real_connect(address.replace("mode=rw", "mode=ro"), **options)

    for connect, flag, says in (
        (connect_to_a_full_disk, 0, "full"),
        (connect_to_a_read_only_disk, os.ST_RDONLY, "readonly"),
        (connect_to_a_read_only_disk, 0, "readonly"),  # the file alone may not be written
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", connect)
            patch.setattr(os, "statvfs", lambda path, flag=flag: SimpleNamespace(f_flag=flag))
            with pytest.raises(JobDatabaseError, match=says) as raised:
                add(store, "after", request_digest="d" * 100_000)
            assert raised.value.is_full is (says == "full")
            assert raised.value.is_read_only is bool(flag)
            assert store.get("before") is not None
    assert store.get("after") is None
    with sqlite3.connect(store.database.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    add(store, "after")
