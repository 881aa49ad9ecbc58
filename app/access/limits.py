"""Limits: what a request may cost, and who waits when all is taken.

The limits of shape (batch size, names) stand in `schemas`, those of cost here. The byte budget
bounds the bodies that all requests of a process hold in memory together: past it a request is told
to come back.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from app.access.errors import OverloadedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

INLINE_BODY_BYTES: Final = 4096
"""Bodies up to this size are answered on the event loop: a thread costs more than the work."""

MAX_DETAILED_TOKENS: Final = 1_000_000
"""Tokens of one answer with pieces or offsets, which cost a hundred bytes each."""

DECODED_BYTES_PER_BODY_BYTE: Final = 4
"""Decoded text may be this many times `max_body_bytes`: a short id can mean a long token."""

BODY_GRACE_SECONDS: Final = 10.0
MIN_BODY_BYTES_PER_SECOND: Final = 1024
"""A body must arrive at this rate after the grace time; a slower one is 408."""

STREAM_IDLE_SECONDS: Final = 300.0
"""A stream that brings too little text, or takes nothing of its answer, for this long is closed."""

MIN_STREAM_BYTES: Final = 1024
"""What a stream must bring before that: a byte now and then is not enough."""

SEND_IDLE_SECONDS: Final = 60.0
"""A client that takes nothing of its answer for this long is gone."""

BODIES_IN_MEMORY: Final = 4
"""Bodies of the largest size that a process holds at once."""


MAX_WAITING: Final = 256
"""Large requests that may wait for a thread."""

Result = TypeVar("Result")


def max_decoded_bytes(max_body_bytes: int) -> int:
    """How much text one decode request may mean."""
    return DECODED_BYTES_PER_BODY_BYTE * max_body_bytes


class ByteBudget:
    """Bytes of request bodies this process holds; used from the event loop only.

    Example:
        >>> budget = ByteBudget(100)
        >>> lease = budget.lease()
        >>> lease.reserve(60)
        >>> budget.used
        60
        >>> lease.release()
        >>> budget.used
        0
    """

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0

    def lease(self) -> Lease:
        """What one request holds of the budget; to be released at its end."""
        return Lease(self)


class Lease:
    """Bytes one request holds."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def reserve(self, n_bytes: int) -> None:
        """Hold `n_bytes` more.

        Raises:
            OverloadedError: the budget is used up.
        """
        budget = self._budget
        # A request alone always gets in: one body is never larger than the budget.
        if budget.used > self._held and budget.used + n_bytes > budget.maximum:
            raise OverloadedError("fill the memory set aside for them")
        budget.used += n_bytes
        self._held += n_bytes

    def release(self) -> None:
        """Give everything back; a second call does nothing."""
        self._budget.used -= self._held
        self._held = 0


class WorkQueue:
    """Runs what is too long for the event loop on the service's threads, with a bounded wait."""

    def __init__(
        self,
        executor: ThreadPoolExecutor,
        on_depth: Callable[[int], None] = lambda change: None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._executor = executor
        self._on_depth = on_depth
        self._max_waiting = max_waiting
        self._waiting = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The result of `function(*arguments)`, called on a thread.

        Raises:
            OverloadedError: too much is waiting.
        """
        if self._waiting >= self._max_waiting:
            raise OverloadedError("wait for a thread")
        return await self.run_admitted(function, *arguments)

    async def run_admitted(self, function: Callable[..., Result], *arguments: object) -> Result:
        """As `run`, for what has begun to answer: it waits however much is waiting."""
        self._change(1)

        def call() -> Result:
            self._change(-1)
            return function(*arguments)

        in_context = contextvars.copy_context().run  # what is logged there names the request too
        return await asyncio.get_running_loop().run_in_executor(self._executor, in_context, call)

    def _change(self, change: int) -> None:
        with self._lock:
            self._waiting += change
        self._on_depth(change)
