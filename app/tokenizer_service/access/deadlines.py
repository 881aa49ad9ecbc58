"""Deadlines: how long the service waits for a client, and works for one.

`asyncio.timeout` costs a timer and five Python calls, a tenth of a small request. So the hot path
uses it only for a real wait: the body of a small request is complete before the request is served,
and `send` waits only while the client does not read. The protocol reports both in the scope.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Message, Scope, Send

Result = TypeVar("Result")

FLOW: Final = "tokenizer_service.flow"
"""Key of uvicorn's flow control in the scope; its `write_paused` says whether `send` waits."""

DEPARTURE: Final = "tokenizer_service.departure"
"""Key of the connection's `Departure` in the scope."""


class Departure:
    """Whether the client of a connection has left; used from the event loop only."""

    __slots__ = ("_callbacks", "has_left")

    def __init__(self) -> None:
        self.has_left = False
        self._callbacks: set[Callable[[], object]] = set()

    def note(self) -> None:
        """The client has left: make all calls that wait for it."""
        self.has_left = True
        while self._callbacks:
            self._callbacks.pop()()

    def call_then(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the client leaves; at once, if it has left."""
        if self.has_left:
            callback()
        else:
            self._callbacks.add(callback)

    def forget(self, callback: Callable[[], object]) -> None:
        """Do not call `callback`."""
        self._callbacks.discard(callback)


class Pace:
    """How long to wait for the next piece of data that must arrive at a minimum rate.

    The time starts at `grace_seconds`. Each wait is subtracted, and each piece adds the time that
    it may take at `bytes_per_second`, up to `most_seconds`. So a fast sender may pause, but not for
    ever.
    """

    def __init__(self, *, grace_seconds: float, most_seconds: float, bytes_per_second: int) -> None:
        self.seconds_left = grace_seconds
        self._most_seconds = max(grace_seconds, most_seconds)
        self._bytes_per_second = bytes_per_second

    def note(self, *, waited_seconds: float, n_bytes: int) -> None:
        """Record that `n_bytes` arrived after `waited_seconds`."""
        gained = n_bytes / self._bytes_per_second
        self.seconds_left = min(self._most_seconds, self.seconds_left - waited_seconds + gained)


async def within(seconds: float, awaitable: Awaitable[Result]) -> Result:
    """The result of `awaitable`; raises TimeoutError after `seconds`, which may be infinite."""
    async with asyncio.timeout(seconds if seconds < math.inf else None):
        return await awaitable


async def send_within(seconds: float, scope: Scope, send: Send, message: Message) -> None:
    """Send a part of a response; raises ClientDisconnect if nothing is read for `seconds`."""
    flow = scope.get(FLOW)
    if flow is not None and not flow.write_paused:
        await send(message)
        return
    try:
        await within(seconds, send(message))
    except TimeoutError:
        raise ClientDisconnect from None
