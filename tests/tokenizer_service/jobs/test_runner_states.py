"""How the runner moves jobs from state to state; the child processes are objects."""

import asyncio
import errno
import itertools
import json
import os
import time

import pytest

from tests.tokenizer_service.jobs.fake_process import FakeRunner, error_of, running
from tokenizer_core import TokenizerSpec
from tokenizer_core.errors import ArtifactCorruptError
from tokenizer_service.jobs import attempt, job_limits, restarts, runner
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.kinds import cancel_job
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.jobs.views import summary_of
from tokenizer_service.serving.errors import SwapTimeoutError
from tokenizer_service.serving.workers import ProcessIdentity

pytestmark = pytest.mark.anyio

MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(attempt, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(attempt, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(runner, "_RETRY_SECONDS", 0.01)


@pytest.mark.promise(15)
async def test_one_job_runs_and_the_others_wait_in_order(fake):
    limits = {"seconds": 60, "memory_bytes": MEBIBYTE}
    ids = [fake.add(name=f"n{index}", limits=limits) for index in range(3)]
    for job_id in ids:
        child = await fake.next_child()
        assert child.request["job_id"] == job_id
        assert [job.id for job in fake.jobs.running()] == [job_id]
        assert fake.started.empty()
        ref = await fake.succeed(child)
        job = await fake.wait(job_id)
        assert (job.state, job.result and job.result["version"]) == ("live", ref.version)
        assert fake.live.require_active().ref == fake.store.active() == ref


async def test_progress_grows_through_the_phases_and_counters_add_up(fake):
    job_id = fake.add()
    child = await fake.next_child()
    seen = []
    for phase, done, total in [
        ("count", 1, 4),
        ("count", 1, 8),  # the total was an estimate
        ("count", 8, 8),
        ("learn", 1, 2),
        ("other", 1, 1),
        ("learn", 2, 2),
    ]:
        child.report(phase, done, total, vocabulary=done)
        if phase != "other":
            counter = (f"{phase}_done", done)
            job = await fake.until(job_id, lambda job, c=counter: c in job.counters.items())
            seen.append((job.phase, job.progress))
    assert seen[0] == ("count", 0.125)
    assert seen[-1] == ("learn", 0.95)
    assert [progress for _, progress in seen] == sorted(progress for _, progress in seen)
    child.report("learn", 2, 2, vocabulary=3)  # the last counters, without progress
    await fake.succeed(child)
    job = await fake.wait(job_id)
    assert (job.state, job.phase, job.progress) == ("live", "live", 1.0)
    assert (job.counters["count_total"], job.counters["vocabulary"]) == (8, 3)


async def test_a_job_says_what_it_waits_for(fake, monkeypatch):
    monkeypatch.setattr(attempt, "_WAITED_SECONDS", 0.0)
    started, queued = fake.add(), fake.add()
    child = await fake.next_child()
    looks = itertools.count(1)
    child.processor_times = lambda: ((look := next(looks)), 4 * look)
    job = await fake.until(started, lambda job: job.counters)
    assert (job.phase, job.counters) == ("start", {"processor_wait_percent": 80})
    assert "a lower TOKENIZER_JOB_NICE" in summary_of(job).waits_for
    assert "one job runs at a time" in summary_of(fake.jobs.get(queued)).waits_for
    child.processor_times = lambda: (0, 0)
    job = await fake.until(started, lambda job: not job.counters)
    assert summary_of(job).waits_for is None
    await fake.succeed(child)


@pytest.mark.row(33)
async def test_cancel_while_queued_running_and_finished(fake, tmp_path):
    def cancel(job_id):
        return cancel_job(fake.jobs, tmp_path, job_id)

    first, queued, last = fake.add(), fake.add(), fake.add(name="last")
    child = await fake.next_child()
    for _ in range(2):
        assert cancel(queued).state == "cancelled"
    for _ in range(2):
        assert cancel(first).state in ("running", "cancelled")
    assert error_of(await fake.wait(first)) == ("cancelled", None)
    assert child.has_ended
    assert child.grace_seconds == attempt.GRACE_SECONDS
    await fake.succeed(await fake.next_child())
    await fake.wait(last)
    assert cancel(last).state == "live"
    assert cancel("20261121T041500Z-ffffffffffff") is None
    assert sorted(fake.store.names()) == ["last", "starter"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_job_that_was_cancelled_or_lost_after_the_last_look_publishes_nothing(
    fake, tmp_path, monkeypatch, is_lost
):
    """The runner does not poll until its child asks for permission to publish."""

    with monkeypatch.context() as patch:
        patch.setattr(JobStore, "is_cancel_requested", lambda self, job: False)
        job_id, following = fake.add(), fake.add()
        child = await fake.next_child()
        if is_lost:
            other = ProcessIdentity(1, 0.5)
            taken = fake.jobs.take_over(fake.jobs.get(job_id), other, if_lease_ended=False)
            assert fake.jobs.finish(taken, "failed", error_code="runner_died")
        else:
            cancel_job(fake.jobs, tmp_path, job_id)
        child.ready()
        await asyncio.sleep(0.1)
        assert not child.allowed.is_set()
    await fake.succeed(await fake.next_child())  # the attempt is cleaned up
    assert child.has_ended
    assert (await fake.wait(following)).state == "live"
    expected = ("failed", "runner_died") if is_lost else ("cancelled", None)
    assert error_of(fake.jobs.get(job_id)) == expected
    assert fake.store.names() == ["n", "starter"]


@pytest.mark.promise(2)
async def test_a_child_that_dies_is_a_failed_job_and_the_next_one_runs(fake):
    for exit_code, code, words in (
        (-9, "trainer_killed", "memory"),
        (-11, "trainer_crashed", "SIGSEGV"),
        (-15, "trainer_killed", "SIGTERM"),
        (-250, "trainer_crashed", "signal 250"),
        (3, "trainer_crashed", "exit status 3"),
    ):
        job_id = fake.add()
        (await fake.next_child()).exit(exit_code)
        job = await fake.wait(job_id)
        assert error_of(job) == ("failed", code)
        assert words in (job.error or {})["detail"]
    job_id = fake.add()
    child = await fake.next_child()
    error = {"code": "invalid_corpus", "detail": "It is not UTF-8."}
    child._events.put_nowait({"event": "error", **error})
    await asyncio.sleep(0.05)  # it is slow to exit
    child.exit(1)
    assert (await fake.wait(job_id)).error == error
    # A job that can resume does so until it has died too often.
    job_id = fake.add(kind="encode")
    for deaths in range(restarts.MAX_DEATHS + 1):
        child = await fake.next_child()
        assert fake.jobs.get(job_id).deaths == deaths
        child.exit(-9)
    assert error_of(await fake.wait(job_id)) == ("failed", "encoder_killed")


async def test_the_lowest_memory_limit_ends_a_job_also_before_the_first_look(fake, monkeypatch):
    """Of the operator's, the request's and, by default, three quarters of the memory."""
    monkeypatch.setattr(job_limits, "available_memory_bytes", lambda: 16 * MEBIBYTE)
    default = "TOKENIZER_TRAIN_MEMORY_BYTES, by default 3/4 of its memory = 12582912"

    for operators, asked, limit, named in (
        (8 * MEBIBYTE, None, 8 * MEBIBYTE, "TOKENIZER_TRAIN_MEMORY_BYTES = 8388608"),
        (8 * MEBIBYTE, 4 << 30, 8 * MEBIBYTE, "TOKENIZER_TRAIN_MEMORY_BYTES = 8388608"),
        (4 << 30, 8 * MEBIBYTE, 8 * MEBIBYTE, "limits.memory_bytes = 8388608"),
        (None, 1 << 50, 12 * MEBIBYTE, default),
    ):
        changes = {"train_memory_bytes": operators}
        fake.runner._settings = fake.settings.model_copy(update=changes)
        job_id = fake.add(limits={"memory_bytes": asked})
        child = await fake.next_child()
        child.n_resident = limit
        await fake.until(job_id, lambda job: job.state == "running")
        child.n_resident += 1
        job = await fake.wait(job_id)
        assert error_of(job) == ("failed", "memory_limit")
        assert named in (job.error or {})["detail"]
    monkeypatch.setattr(attempt, "LOOK_SECONDS", 600.0)
    job_id = fake.add(limits={"memory_bytes": MEBIBYTE - 1})
    child = await fake.next_child()
    child.ready()
    assert error_of(await fake.wait(job_id)) == ("failed", "memory_limit")
    assert not child.allowed.is_set()
    assert child.has_ended


@pytest.mark.promise(16)
@pytest.mark.parametrize("years", [-20, 20])
async def test_a_clock_that_jumps_ends_no_job_and_keeps_no_limit_away(fake, monkeypatch, years):
    """The wall clock jumps by years: a limit measured by it would end at once, or never."""
    real, looks = time.time, 0

    def jumping():
        nonlocal looks
        looks += 1
        return real() + (looks % 3) * years * 365 * 86_400

    monkeypatch.setattr(time, "time", jumping)

    job_id = fake.add(limits={"seconds": 60})
    child = await fake.next_child()
    await asyncio.sleep(0.1)
    await fake.succeed(child)
    assert (await fake.wait(job_id)).state == "live"
    job_id = fake.add(limits={"seconds": 0.05})
    await fake.next_child()
    job = await fake.wait(job_id)
    assert error_of(job) == ("failed", "time_limit")
    assert "limits.seconds = 0.05" in (job.error or {})["detail"]
    assert looks


@pytest.mark.row(36)
async def test_a_database_that_fails_for_a_while_does_not_lose_the_job(fake, monkeypatch):
    methods = ("finish", "set_result", "set_progress", "allow_publishing", "renew_lease")
    refusals = [method for method in methods for _ in range(2)]

    def refuse(name):
        real = getattr(JobStore, name)

        def call(*arguments, **options):
            if name in refusals:
                refusals.remove(name)
                raise JobDatabaseError("database or disk is full", is_full=True)
            return real(*arguments, **options)

        monkeypatch.setattr(JobStore, name, call)

    for method in methods:
        refuse(method)

    monkeypatch.setattr(fake.runner, "_renew_seconds", 0.02)
    job_id = fake.add()
    child = await fake.next_child()
    ends = set()  # the lease is renewed
    await fake.until(job_id, lambda job: bool(ends.add(job.lease_ends_at)) or len(ends) >= 5)
    child.report("learn", 1, 2)
    await fake.until(job_id, lambda job: job.progress > 0.5)
    await fake.succeed(child)
    assert (await fake.wait(job_id)).state == "live"
    assert not refusals


@pytest.mark.promise(10)
async def test_stopping_requeues_and_the_next_start_runs_it_again(fake, tmp_path):
    job_id = fake.add()
    child = await fake.next_child()
    await fake.runner.stop()
    assert child.grace_seconds == attempt.STOP_GRACE_SECONDS
    waiting = fake.jobs.get(job_id)
    assert (waiting.state, waiting.attempt, waiting.deaths) == ("queued", 1, 0)
    async with running(FakeRunner(tmp_path)) as second:
        await second.succeed(await second.next_child())
        done = await second.wait(job_id)
        assert (done.state, done.attempt) == ("live", 2)


async def test_a_job_requeued_after_publishing_is_promoted_without_another_child(fake):
    ref = fake.publish()
    blocking = fake.add()
    child = await fake.next_child()
    job_id = fake.add()
    result = {"name": ref.name, "version": ref.version, "digest": ref.digest, "vocab_size": 1}
    with fake.jobs.database.transaction() as statement:
        statement("UPDATE jobs SET result = ? WHERE id = ?", (json.dumps(result), job_id))
    child.exit(-9)
    assert (await fake.wait(blocking)).state == "failed"
    job = await fake.wait(job_id)
    assert (job.state, job.result) == ("live", result)
    assert fake.started.empty()


@pytest.mark.parametrize(
    ("promote", "asked", "size", "reason"),
    [
        ("auto", 258, 257, "size_not_reached"),
        ("auto", 257, 2570, "ten_times_smaller"),
        ("auto", 257, 2569, None),
        ("auto", 257, None, "replaced_not_readable"),
        ("always", 5000, 5000, None),
    ],
)
async def test_auto_holds_back_a_vocabulary_that_is_too_small(fake, promote, asked, size, reason):
    vocab = {i: bytes([i]) for i in range(256)}
    tokens = [f"<|{i}|>" for i in range((size or 257) - 256)]

    large = fake.store.publish(TokenizerSpec.from_merges(vocab, [], tokens), name="large")
    await fake.live.promote(large)
    if size is None:  # it was damaged, and this process started after that
        path = fake.store.root / "tokenizers" / "large" / large.version / "manifest.json"
        path.write_bytes(b"")
        fake.live.active = None
    job_id = fake.add(promote=promote, vocab_size=asked)
    ref = await fake.succeed(await fake.next_child())
    job = await fake.wait(job_id)
    if reason is None:
        assert (job.state, fake.store.active()) == ("live", ref)
        assert "not_promoted" not in job.result
        return
    assert (job.state, job.error) == ("succeeded", None)
    assert fake.store.pointer_state().ref() == large
    assert str(ref) not in fake.live.pinned_on_host(), "it may be removed"
    assert job.result["not_promoted"] == {
        "reason": reason,
        "asked": asked,
        "got": 257,
        "replaces": str(large),
        "replaces_vocab_size": size,
    }
    told = JobFolder.of(fake.store.root, job_id).log_tail()[-1]
    assert "not promoted: " in told
    assert '"promote": "always"' in told


async def test_a_failed_promotion_is_a_failed_job_with_its_reason(fake, monkeypatch):
    raised = []

    async def promote(*arguments, **options):
        raise raised[-1]

    monkeypatch.setattr(fake.live, "promote", promote)
    for error, code, words in (
        (SwapTimeoutError(30.0, 2), "swap_timeout", "is published, but: 2 server processes"),
        (ArtifactCorruptError("Damaged."), "artifact_corrupt", "Damaged."),
        (ValueError("x"), "promotion_failed", "PUT /tokenizers/active tries again"),
    ):
        raised.append(error)
        job_id = fake.add(name=f"n{len(raised)}")
        await fake.succeed(await fake.next_child())
        job = await fake.wait(job_id)
        assert error_of(job) == ("failed", code)
        assert words in (job.error or {})["detail"]
        assert job.result is not None


@pytest.mark.row(36)
async def test_a_child_that_cannot_be_started_or_followed_fails_the_job_and_not_the_runner(
    fake, monkeypatch
):
    for owner, name, number, code in (
        (fake.runner, "_start_process", errno.EMFILE, "start_failed"),
        (JobFolder, "write_request", errno.ENOSPC, "disk_full"),
    ):

        def refuse(*arguments, number=number):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refuse)
            assert error_of(await fake.wait(fake.add())) == ("failed", code)
    job_id = fake.add()
    child = await fake.next_child()
    monkeypatch.setattr(child, "resident_bytes", lambda: 1 // 0)
    child.report("learn", 1, 0, broken="x")
    child._events.put_nowait({"event": "progress"})  # lacks its fields
    assert error_of(await fake.wait(job_id)) == ("failed", "internal_error")
    following = fake.add()
    await fake.succeed(await fake.next_child())
    assert (await fake.wait(following)).state == "live"
