"""Deadlines: waiting for the other side, for so long and no longer.

`asyncio.timeout` sets a timer and takes it back each time, also where nothing has to be waited for,
which is almost every time: a small body is there before the request is looked at, and an answer
fits into the socket's buffer. Here the timer is set when there is something to wait for; a small
request had three of them.
"""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

Result = TypeVar("Result")


class Pace:
    """How long to wait for the next piece of data that must arrive at a minimum rate.

    The time starts at `grace_seconds`. Waiting uses it up, and each piece adds the time that it may
    take at `bytes_per_second`, up to `most_seconds`. So a fast sender may pause, but not for ever.

    Example:
        >>> pace = Pace(grace_seconds=10, most_seconds=300, bytes_per_second=1024)
        >>> pace.note(waited_seconds=4, n_bytes=2048)
        >>> pace.seconds_left
        8.0
    """

    def __init__(self, *, grace_seconds: float, most_seconds: float, bytes_per_second: int) -> None:
        self.seconds_left = grace_seconds
        self._most_seconds = max(grace_seconds, most_seconds)
        self._bytes_per_second = bytes_per_second

    def note(self, *, waited_seconds: float, n_bytes: int) -> None:
        """`n_bytes` arrived after `waited_seconds`."""
        gained = n_bytes / self._bytes_per_second
        self.seconds_left = min(self._most_seconds, self.seconds_left - waited_seconds + gained)


async def within(seconds: float, awaitable: Awaitable[Result]) -> Result:
    """The result of `awaitable`.

    Raises:
        TimeoutError: it took longer than `seconds`, which may be infinite.

    Example:
        >>> asyncio.run(within(1.0, asyncio.sleep(0, "done")))
        'done'
    """
    steps = awaitable.__await__()
    try:
        waiting = [next(steps)]
    except StopIteration as done:
        result: Result = done.value
        return result
    if asyncio.current_task() is None:
        await asyncio.sleep(0)  # small requests begin without a task, which the timeout is for
    async with asyncio.timeout(seconds):
        return await _go_on(waiting, steps)


async def send_within(seconds: float, sending: Awaitable[None]) -> None:
    """Send a part of an answer.

    Raises:
        ClientDisconnect: the client took nothing for so long.
    """
    try:
        await within(seconds, sending)
    except TimeoutError:
        raise ClientDisconnect from None


async def go_on(waiting: list[Any], steps: Generator[Any, Any, Result]) -> Result:
    """The rest of an awaitable that was begun elsewhere, and waits for the one in `waiting`."""
    return await _go_on(waiting, steps)


@coroutine
def _go_on(waiting: list[Any], steps: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
    # What is waited for, and what it throws, is in no variable here: the traceback of an error
    # leads here, and they would hold each other, and with them all that frames on the way hold,
    # until the garbage collector comes.
    while True:
        try:
            try:
                sent = yield waiting.pop()
            except BaseException as error:  # that the time is over, too, is for it to hear
                waiting.append(steps.throw(error))
            else:
                waiting.append(steps.send(sent))
        except StopIteration as done:
            result: Result = done.value
            return result
