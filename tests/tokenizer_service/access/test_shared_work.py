"""Work that many requests share: how often it runs, and what each of them gets."""

import asyncio
import threading
import time

import pytest

from tokenizer_service.access.shared_work import SharedWork

pytestmark = pytest.mark.anyio

SECONDS = 20


class Counted:
    """Work that counts its runs and waits for permission to end."""

    def __init__(self):
        self.n_runs = 0
        self.may_end = threading.Event()

    def run(self):
        self.n_runs += 1
        number = self.n_runs
        assert self.may_end.wait(SECONDS)
        return number


async def test_calls_that_wait_share_the_next_run_and_none_gets_one_that_began_before_it():
    shared, work = SharedWork(), Counted()
    first = asyncio.create_task(shared.run("key", work.run))
    while not work.n_runs:  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(0.001)
    later = [asyncio.create_task(shared.run("key", work.run)) for _ in range(10)]
    other = asyncio.create_task(shared.run("other key", lambda: "other"))
    assert await other == "other"
    work.may_end.set()
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 10
    assert work.n_runs == 2


async def test_a_caller_that_leaves_does_not_end_the_work_of_the_others():
    shared, work = SharedWork(), Counted()
    calls = [asyncio.create_task(shared.run("key", work.run)) for _ in range(3)]
    await asyncio.sleep(0.01)
    calls[0].cancel()
    work.may_end.set()
    assert await asyncio.gather(*calls[1:]) == [1, 1]
    assert calls[0].cancelled()


async def test_all_callers_get_the_error_and_the_next_call_runs_again():
    def fail():
        raise ValueError("a reason")

    shared = SharedWork()
    calls = [asyncio.create_task(shared.run("key", fail)) for _ in range(2)]
    for found in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(found, ValueError)
    assert await shared.run("key", lambda: "again") == "again"


async def test_the_next_run_waits_for_as_long_as_the_last_one_took():
    shared, ended_at = SharedWork(), []

    def work():
        began_at = time.monotonic()
        time.sleep(0.1)
        ended_at.append(time.monotonic())
        return began_at

    await shared.run("key", work)
    assert await shared.run("key", work) - ended_at[0] >= 0.09
