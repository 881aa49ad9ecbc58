"""Deadlines, the memory budget, and work on threads that nobody waits for any more."""

import asyncio
import gc
import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import ClientDisconnect

from tokenizer_service.access import work_queue
from tokenizer_service.access.deadlines import Departure, Pace, within
from tokenizer_service.access.errors import OverloadedError, WorkTooLongError
from tokenizer_service.access.limits import ByteBudget, TurnLimit
from tokenizer_service.access.work_queue import (
    CheapestFirst,
    FairThreads,
    WorkQueue,
    check_not_abandoned,
    reserve_memory,
)
from tokenizer_service.observability.logs import REQUEST_ID

pytestmark = pytest.mark.anyio

SECONDS = 20


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        yield executor


class Steps:
    """Work that waits for permission to end and records its steps."""

    def __init__(self):
        self.began = threading.Event()
        self.may_go_on = threading.Event()
        self.ended = threading.Event()

    def run(self):
        self.began.set()
        try:
            assert self.may_go_on.wait(SECONDS)
            check_not_abandoned()
            return "done"
        finally:
            self.ended.set()


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - threads set it
            await asyncio.sleep(0.001)


def test_a_slow_sender_uses_up_its_time_and_a_steady_one_does_not():
    slow, steady, quick = (
        Pace(grace_seconds=10, most_seconds=300, bytes_per_second=1024) for _ in range(3)
    )
    for _ in range(10):
        slow.note(waited_seconds=1, n_bytes=1)
    assert 0 < slow.seconds_left < 0.1
    for _ in range(1000):
        steady.note(waited_seconds=5, n_bytes=5 * 1024)
    assert steady.seconds_left == pytest.approx(10)
    quick.note(waited_seconds=0, n_bytes=1 << 30)
    assert quick.seconds_left == 300
    generous = Pace(grace_seconds=10, most_seconds=1, bytes_per_second=1024)
    generous.note(waited_seconds=0, n_bytes=1)
    assert generous.seconds_left == 10


async def test_a_wait_ends_at_its_deadline():
    assert await within(math.inf, asyncio.sleep(0.001, "done")) == "done"
    with pytest.raises(TimeoutError):
        await within(0.01, asyncio.sleep(60))


def test_a_lease_holds_what_it_was_last_told():
    budget = ByteBudget(100)
    one, other = budget.lease(), budget.lease()
    one.hold(60)
    other.hold(40)
    with pytest.raises(OverloadedError):
        other.hold(41)
    one.hold(10)
    other.reserve(50)
    assert budget.used == 100
    other.release()
    one.hold(500)  # a single request may need more than the budget
    with pytest.raises(OverloadedError):
        other.hold(1)
    other.release()
    one.hold(400)  # to hold less is never refused
    assert budget.used == 400
    one.release()
    assert budget.used == 0


def test_what_is_expected_is_reserved_once():
    budget = ByteBudget(100)
    other, lease = budget.lease(), budget.lease()
    other.hold(1)
    lease.hold(10)
    lease.expect(40)
    lease.reserve(30)
    lease.reserve(5)
    assert budget.used == 51
    with pytest.raises(OverloadedError):
        lease.reserve(60)
    lease.reserve(8)  # 5 of them are expected
    assert budget.used == 54
    with pytest.raises(OverloadedError):
        lease.expect(50)
    lease.release()
    assert budget.used == 1


async def test_the_result_comes_back_and_the_lease_stays(executor):
    budget = ByteBudget(100)
    lease = budget.lease()
    REQUEST_ID.set("r-7")

    def work(n):
        check_not_abandoned()
        reserve_memory(50)
        assert REQUEST_ID.get() == "r-7"  # for the lines that it logs
        return n + 1

    assert await WorkQueue(executor).run_for(Departure(), lease, work, 20) == 21
    assert budget.used == 50
    lease.release()
    assert budget.used == 0
    reserve_memory(1 << 60)  # outside of work
    check_not_abandoned()


@pytest.mark.parametrize(
    ("max_waiting", "error"), [(64, ValueError), (0, OverloadedError)], ids=["fails", "full queue"]
)
async def test_work_that_gives_no_result_frees_its_lease(executor, max_waiting, error):
    budget = ByteBudget(100)
    depths = []
    lease = budget.lease()
    lease.hold(60)
    queue = WorkQueue(executor, depths.append, max_waiting=max_waiting)
    with pytest.raises(error):
        await queue.run_for(None, lease, int, "no number")
    assert (budget.used, sum(depths)) == (0, 0)


@pytest.mark.parametrize("leaves", [True, False], ids=["client leaves", "cancelled"])
async def test_work_that_runs_ends_at_its_next_check(executor, leaves):
    """Its memory is held until it has ended: it still exists."""
    budget, departure, steps = ByteBudget(100), Departure(), Steps()
    lease = budget.lease()
    lease.hold(60)
    call = WorkQueue(executor).run_for(departure, lease, steps.run)
    request = asyncio.create_task(call)
    await until(steps.began.is_set)
    if leaves:
        departure.note()
    else:
        request.cancel()
    with pytest.raises(ClientDisconnect if leaves else asyncio.CancelledError):
        await request
    assert budget.used == 60
    steps.may_go_on.set()
    await until(lambda: budget.used == 0)
    assert steps.ended.is_set()


async def test_work_that_waits_is_dropped_with_all_it_holds(executor):
    class Body:
        pass

    budget, departure, steps = ByteBudget(100), Departure(), Steps()
    depths = []
    called = []
    queue = WorkQueue(executor, depths.append)
    first = asyncio.create_task(queue.run(steps.run))
    await until(steps.began.is_set)
    body = Body()
    seen = weakref.ref(body)
    lease = budget.lease()
    lease.hold(60)
    second = asyncio.create_task(queue.run_for(departure, lease, called.append, body))
    del body
    await until(lambda: sum(depths) == 1)
    departure.note()
    with pytest.raises(ClientDisconnect):
        await second
    del second
    with pytest.raises(ClientDisconnect):  # one that left before does not wait at all
        await queue.run_for(departure, budget.lease(), int)
    assert (budget.used, sum(depths)) == (0, 0)
    await until(lambda: seen() is None)
    steps.may_go_on.set()
    assert await first == "done"
    assert await queue.run(int, "7") == 7
    assert called == []


async def test_work_that_ended_just_before_the_client_left_frees_its_lease(executor):
    budget, departure = ByteBudget(100), Departure()
    ended = threading.Event()
    lease = budget.lease()
    lease.hold(60)
    request = asyncio.create_task(WorkQueue(executor).run_for(departure, lease, ended.set))
    await asyncio.sleep(0)
    assert ended.wait(SECONDS)
    # The thread is done, and the event loop has not seen it.
    executor.submit(int).result(SECONDS)
    departure.note()
    with pytest.raises(ClientDisconnect):
        await request
    assert budget.used == 0


async def test_work_ends_at_its_deadline_however_long_it_waited(executor):
    budget, first, second = ByteBudget(100), Steps(), Steps()
    queue = WorkQueue(executor, work_seconds=0.2)
    patient = WorkQueue(executor)
    busy = asyncio.create_task(patient.run(first.run))
    await until(first.began.is_set)
    lease = budget.lease()
    lease.hold(60)
    late = asyncio.create_task(queue.run_for(None, lease, second.run))
    await asyncio.sleep(0.5)
    assert not late.done()
    first.may_go_on.set()
    assert await busy == "done"
    with pytest.raises(WorkTooLongError):
        await late
    assert budget.used == 60
    second.may_go_on.set()
    await until(lambda: budget.used == 0)


async def test_a_turn_of_the_loop_has_its_limit():
    limit = TurnLimit(2)
    for _ in range(2):
        assert [limit.take() for _ in range(4)] == [True, True, False, False]
        await asyncio.sleep(0)


async def test_cheap_calls_pass_costly_ones_that_came_a_moment_before():
    busy, order = Steps(), []
    with ThreadPoolExecutor(1) as pool:
        queue, lease = WorkQueue(pool), ByteBudget(100).lease()

        def call(name, seconds):
            return asyncio.create_task(
                queue.run_for(None, lease, order.append, name, seconds=seconds)
            )

        calls = [asyncio.create_task(queue.run(busy.run))]
        await until(busy.began.is_set)
        calls += [call("dear", 60), call("second", 0.01), call("first", 0.001)]
        calls += [call("third", 0.01), call("left", 0.001)]
        await asyncio.sleep(0)
        left = calls.pop()
        left.cancel()
        await asyncio.wait([left])
        busy.may_go_on.set()
        await asyncio.gather(*calls)
    assert order == ["first", "second", "third", "dear"]


def test_a_costly_call_does_not_wait_for_ever(monkeypatch):
    order, may_go_on = [], threading.Event()
    now = 0.0
    monkeypatch.setattr(work_queue.time, "monotonic", lambda: now)
    with ThreadPoolExecutor(1) as pool:
        threads = CheapestFirst(pool)
        threads.submit(0, may_go_on.wait)
        threads.submit(60, order.append, "dear")
        for now in (29.0, 31.0):
            threads.submit(0.001, order.append, f"at {now}")
        monkeypatch.undo()
        may_go_on.set()
    assert order == ["at 29.0", "dear", "at 31.0"]


async def test_calls_of_one_owner_do_not_hold_all_threads():
    ended = threading.Event()
    order = []

    def work(name):
        order.append(name)
        return name

    with ThreadPoolExecutor(3) as pool:
        threads = FairThreads(pool, 2)
        queue = WorkQueue(threads)
        lease = ByteBudget(100).lease()
        looping = [asyncio.create_task(queue.run_for(None, lease, ended.wait)) for _ in range(9)]
        await asyncio.sleep(0)
        for _ in range(9):  # whenever it comes, it does not wait
            assert await queue.run_for(None, lease, work, "other", owner="other") == "other"
        assert not any(task.done() for task in looping)
        ended.set()
        assert all(await asyncio.gather(*looping))
        with pytest.raises(ValueError, match="invalid literal"):
            await queue.run_for(None, lease, int, "no number")
    assert threads._owners == {}


def test_an_error_of_a_call_keeps_nothing_of_it():
    with ThreadPoolExecutor(1) as pool:
        text = frozenset({"no number"})
        kept = weakref.ref(text)
        gc.collect()
        gc.disable()  # else it would hide a cycle of the error and the frame that raised it
        try:
            call = FairThreads(pool, 1).submit("a", int, text)
            assert isinstance(call.exception(), TypeError)
            call = CheapestFirst(pool).submit(1, int, text)
            assert isinstance(call.exception(), TypeError)
            pool.shutdown()
            del call, text
            assert kept() is None
        finally:
            gc.enable()


async def test_calls_that_wait_for_a_thread_end_with_the_threads():
    ended = threading.Event()
    pool = ThreadPoolExecutor(1)
    threads = FairThreads(pool, 1)
    calls = [threads.submit(owner, ended.wait) for owner in ("a", "a", "b")]
    threads.shutdown(wait=False, cancel_futures=True)
    ended.set()
    pool.shutdown()
    assert [call.cancelled() for call in calls] == [False, True, True]
    ended.clear()
    pool = ThreadPoolExecutor(1)
    cheapest = CheapestFirst(pool)
    calls = [cheapest.submit(seconds, ended.wait) for seconds in (0, 2, 1)]
    pool.shutdown(wait=False, cancel_futures=True)
    ended.set()
    pool.shutdown()
    assert [call.cancelled() for call in calls] == [False, True, True]
