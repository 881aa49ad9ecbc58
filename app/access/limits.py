"""Limits on memory for bodies, on threads and on time. The schemas define the limits of shape.

The byte budget limits the bodies that all requests of a process hold in memory together; a request
that exceeds it is refused and may be sent again.
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
"""Bodies up to this size are processed on the event loop: a thread costs more than the work."""

MAX_DETAILED_TOKENS: Final = 1_000_000
"""Most tokens of a response with pieces or offsets, which cost a hundred bytes per token."""

DECODED_BYTES_PER_BODY_BYTE: Final = 4
"""Decoded text may be this many times `max_body_bytes`: a token may be longer than its id."""

BODY_GRACE_SECONDS: Final = 10.0
MIN_BODY_BYTES_PER_SECOND: Final = 1024
"""After the grace time a body must arrive at this rate; a slower one is refused."""

STREAM_IDLE_SECONDS: Final = 300.0
"""A stream is closed if its client sends too little text or reads nothing for this long."""

MIN_STREAM_BYTES: Final = 1024
"""Bytes that the client must send within that time, so that single bytes do not keep a stream."""

SEND_IDLE_SECONDS: Final = 60.0
"""A client that reads nothing of its response for this long is treated as disconnected."""

BODIES_IN_MEMORY: Final = 4
"""The byte budget of a process, as a multiple of the largest body."""

MAX_WAITING: Final = 256
"""Limit on large requests that wait for a thread."""

Result = TypeVar("Result")


def max_decoded_bytes(max_body_bytes: int) -> int:
    """Most bytes of text that one decode request may produce."""
    return DECODED_BYTES_PER_BODY_BYTE * max_body_bytes


class ByteBudget:
    """Counts the bytes of request bodies in this process. Use it only from the event loop.

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
        """The share of one request, which must release it at its end."""
        return Lease(self)


class Lease:
    """The bytes that one request has reserved."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def reserve(self, n_bytes: int) -> None:
        """Reserve `n_bytes` more.

        Raises:
            OverloadedError: the budget is used up.
        """
        budget = self._budget
        # Always admit a single request, since no body is larger than the budget.
        if budget.used > self._held and budget.used + n_bytes > budget.maximum:
            raise OverloadedError("use all the memory reserved for bodies")
        budget.used += n_bytes
        self._held += n_bytes

    def release(self) -> None:
        """Return all bytes to the budget; a second call does nothing."""
        self._budget.used -= self._held
        self._held = 0


class WorkQueue:
    """Runs work that would block the event loop in threads, and limits how many calls wait."""

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
        """Call `function(*arguments)` in a thread, and return its result.

        Raises:
            OverloadedError: too many calls are waiting.
        """
        if self._waiting >= self._max_waiting:
            raise OverloadedError("wait for a thread")
        return await self.run_admitted(function, *arguments)

    async def run_admitted(self, function: Callable[..., Result], *arguments: object) -> Result:
        """As `run` without the limit, for a request whose response has begun."""
        self._change(1)

        def call() -> Result:
            self._change(-1)
            return function(*arguments)

        in_context = contextvars.copy_context().run  # for the request id in the logs
        return await asyncio.get_running_loop().run_in_executor(self._executor, in_context, call)

    def _change(self, change: int) -> None:
        with self._lock:
            self._waiting += change
        self._on_depth(change)
