"""Deadlines: how long each wait lasts, and what a cancelled waiter sees."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from tokenizer_service.access.deadlines import Pace, within


def pace() -> Pace:
    return Pace(grace_seconds=10, most_seconds=300, bytes_per_second=1024)


def test_a_slow_sender_uses_up_its_time_and_a_steady_one_does_not() -> None:
    slow, steady, quick = pace(), pace(), pace()
    for _ in range(10):
        slow.note(waited_seconds=1, n_bytes=1)
    assert 0 < slow.seconds_left < 0.1
    for _ in range(1000):
        steady.note(waited_seconds=5, n_bytes=5 * 1024)
    assert steady.seconds_left == pytest.approx(10)
    quick.note(waited_seconds=0, n_bytes=1 << 30)
    assert quick.seconds_left == 300


def test_the_grace_time_is_never_reduced() -> None:
    generous = Pace(grace_seconds=10, most_seconds=1, bytes_per_second=1024)
    generous.note(waited_seconds=0, n_bytes=1)
    assert generous.seconds_left == 10


def test_an_error_from_a_thread_holds_no_object() -> None:
    class Tokenizer:
        pass

    async def fail() -> None:
        held = Tokenizer()
        seen.append(weakref.ref(held))
        await asyncio.to_thread(int, "no number")

    async def run() -> None:
        with contextlib.suppress(ValueError):
            await within(30, fail())

    seen: list[weakref.ref[Tokenizer]] = []
    gc.disable()
    try:
        asyncio.run(run())
        assert [ref() for ref in seen] == [None]
    finally:
        gc.enable()


class Waiter:
    """Waits the given number of times and records how the waits ended."""

    def __init__(self, *seconds: float, answer: str = "done") -> None:
        self.seconds, self.answer = seconds, answer
        self.heard: list[str] = []

    async def wait(self) -> str:
        try:
            for seconds in self.seconds:
                await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.heard.append("cancelled")
            await asyncio.sleep(0)  # cleanup may take a while
            self.heard.append("put away")
            raise
        if self.answer == "error":
            raise ValueError
        return self.answer


@pytest.mark.parametrize("seconds", [(), (0,), (0, 0.001, 0)])
def test_within_gives_the_result_however_often_it_waits(seconds: tuple[float, ...]) -> None:
    assert asyncio.run(within(60, Waiter(*seconds).wait())) == "done"
    with pytest.raises(ValueError):
        asyncio.run(within(60, Waiter(*seconds, answer="error").wait()))


@pytest.mark.parametrize("seconds", [(60,), (0, 60)])
def test_a_waiter_is_cancelled_at_its_deadline(seconds: tuple[float, ...]) -> None:
    waiter = Waiter(*seconds)
    with pytest.raises(TimeoutError):
        asyncio.run(within(0.01, waiter.wait()))
    assert waiter.heard == ["cancelled", "put away"]


def test_a_cancellation_reaches_the_waiter() -> None:
    async def cancel(waiter: Waiter) -> None:
        task = asyncio.create_task(within(60, waiter.wait()))
        await asyncio.sleep(0.01)
        task.cancel()
        await task

    waiter = Waiter(60)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel(waiter))
    assert waiter.heard == ["cancelled", "put away"]
