"""Connections: how many a process holds, how long it waits for them, and how one is closed.

Each serving process has one `ConnectionGuard`, which decides which connections to admit and which
to close; `protocol` calls it for each connection. `ClosingTransport` wraps the real transport for
uvicorn's protocol and closes a connection so that the client still receives the response. Neither
class knows HTTP. `Turns` spreads the requests that many connections send at once.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from tokenizer_service.access.errors import TooManyConnectionsError
from tokenizer_service.http.cors import SharedReads
from tokenizer_service.http.problem import Problem
from tokenizer_service.ingress import EVERY_HOST, AllowedHosts

log = logging.getLogger("tokenizer_service.connections")

STATE_KEY: Final = "connection_guard"
"""Key of the guard in the lifespan state, which the server passes to the protocol."""

LINGER_SECONDS: Final = 2.0
"""How long to read the rest of an unneeded body, so that its sender receives the response."""

LINE_SECONDS: Final = 60.0
"""Minimum interval between log lines about refused connections; the metrics count them all."""

_RESERVE: Final = 64
_MOST_BY_DEFAULT: Final = 10_000  # about 100 MB with their buffers
_MOST_HELD_BYTES: Final = 1 << 16
_KEPT_FILES: Final = 2560  # 512 for the service itself, 2048 that one burst of accepts may take


class Waiting(Protocol):
    """A connection beyond the limit."""

    def turn_away(self, problem: Problem) -> None:
        """Send `problem` and close at once."""


class ConnectionGuard:
    """Tracks the admitted and the reserve connections; used from the event loop only.

    A connection over the limit enters the reserve, where it may request only the health routes. The
    reserve is a queue: when it is full, the connection that has waited longest is closed. Silent
    connections therefore never keep out a client that sends its request at once.
    """

    def __init__(
        self,
        *,
        max_connections: int | None = None,
        header_seconds: float = 10.0,
        send_seconds: float = 60.0,
        stall_seconds: float = 300.0,
        max_drained_bytes: int = 1 << 20,
        hosts: AllowedHosts | None = None,
        shared: SharedReads | None = None,
        count: Callable[[str], None] = lambda code: None,
        problem_of: Callable[[Exception], Problem | None] = lambda error: None,
    ) -> None:
        self.max_connections = max_connections or derive_max_connections()
        self.header_seconds = header_seconds
        self.send_seconds = send_seconds
        self.stall_seconds = stall_seconds
        self.max_drained_bytes = max_drained_bytes
        self.hosts = AllowedHosts([EVERY_HOST]) if hosts is None else hosts
        self.shared = shared
        self._count, self._problem_of = count, problem_of
        self._admitted: set[Waiting] = set()
        self._reserve: dict[Waiting, None] = {}  # in order of arrival
        self._next_line = 0.0
        self.turns = Turns()

    @property
    def n_connections(self) -> int:
        """The number of connections, including the reserve."""
        return len(self._admitted) + len(self._reserve)

    def admit(self, connection: Waiting) -> bool:
        """Admit a new connection, or one from the reserve if the limit now allows it.

        Returns whether it may request any route, not only the health routes.
        """
        if connection in self._admitted:
            return True
        if len(self._admitted) < self.max_connections:
            self._reserve.pop(connection, None)
            self._admitted.add(connection)
            return True
        if connection not in self._reserve:
            self._reserve[connection] = None
            if len(self._reserve) > _RESERVE:
                oldest = next(iter(self._reserve))
                del self._reserve[oldest]
                oldest.turn_away(self.too_many())
        return False

    def release(self, connection: Waiting) -> None:
        """Remove a connection that has ended."""
        self._admitted.discard(connection)
        self._reserve.pop(connection, None)

    def too_many(self) -> Problem:
        """The problem of a connection over the limit."""
        error = TooManyConnectionsError(self.max_connections)
        return self._problem_of(error) or Problem(503, error.code, str(error))

    def note(self, problem: Problem) -> None:
        """Count a request refused before it reached the app, and log it at most once a minute."""
        self._count(problem.code)
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            log.warning(
                "a connection was refused: %s (no more such lines for a minute; the metric "
                "tokenizer_rejected_total counts them)",
                problem.code,
            )


class Turns:
    """Starts requests in the order of their arrival, a few per iteration of the event loop.

    100 requests that start in one iteration run one after another, and whatever arrives meanwhile
    waits for them all. Here a health check, or a request that is served without a task, waits for a
    few. A sixteenth of the queue starts at a time: with one request, 1,000 connections that are
    served without a task would leave the others a single one in 30 ms.
    """

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._is_first = True  # of this iteration

    def take(self, start: Callable[[], None]) -> None:
        """Call `start`, now or in a later iteration."""
        if not self._is_first:
            self._queue.append(start)
            return
        self._is_first = False
        asyncio.get_running_loop().call_soon(self._go_on)
        start()

    def _go_on(self) -> None:
        self._is_first = not self._queue
        if self._queue:
            asyncio.get_running_loop().call_soon(self._go_on)
            for _ in range(1 + len(self._queue) // 16):
                self._queue.popleft()()


def raise_open_files() -> None:
    """Raise the limit of open files for this process and its children to the system's maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems report no limit but enforce one
            log.debug("the limit of open files stays at %d", soft)


def derive_max_connections(n_files: int | None = None) -> int:
    """The connection limit for a process that may open `n_files`; default: this process's limit."""
    if n_files is None:
        n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if n_files == resource.RLIM_INFINITY:
            return _MOST_BY_DEFAULT
    return max(1, min(_MOST_BY_DEFAULT, n_files - min(_KEPT_FILES, n_files // 2)))


class ClosingTransport(asyncio.Transport):
    """The transport that uvicorn writes to; see the module docstring."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        has_unread: Callable[[], bool],
        max_drained_bytes: int,
        send_seconds: float,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._has_unread = has_unread
        self._left_to_drain = max_drained_bytes
        self._send_seconds = send_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._held: bytes | None = None
        self.is_lingering = False
        self.has_written = False

    def close(self) -> None:
        """Close at once, or after the rest of the client's input was read or its time ran out."""
        if self.is_closing():
            return
        if self._has_unread():
            self.linger()
        else:
            self.end()

    def linger(self) -> None:
        """Close, and expect that the client is still sending."""
        if self.is_closing():
            return
        self.is_lingering = True
        self._send_held()
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(LINGER_SECONDS, self.end)

    def drop(self, n_bytes: int) -> None:
        """Count `n_bytes` of discarded input; stop reading when there are too many."""
        self._left_to_drain -= n_bytes
        # Do not close yet: the client can send no more, and needs time to read.
        if self._left_to_drain < 0 and not self._transport.is_closing():
            self._transport.pause_reading()

    def forget(self) -> None:
        """Cancel the timer: the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Close once the client has received everything written, within `send_seconds`."""
        self.forget()
        self._send_held()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._timer = self._loop.call_later(self._send_seconds, self.abort)

    def abort(self) -> None:
        """Reset the connection at once; unsent data is lost."""
        self.forget()
        # Otherwise the kernel would keep sending its buffer to a client that does not read.
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether writers must treat the transport as closed."""
        return self.is_lingering or self._transport.is_closing()

    def write(self, data: Any) -> None:
        """Send `data`, or drop it after the end.

        With pipelined requests, uvicorn reports a lost connection only to the last one.
        """
        if self.is_closing():
            return
        self.has_written = True
        if self._held is None:
            # Send the head and body of a small response together at the end of the event loop's
            # iteration. The client then wakes once for all responses of that iteration. This makes
            # small requests a third faster.
            self._held = data
            self._loop.call_soon(self._send_held)
        elif len(self._held) + len(data) <= _MOST_HELD_BYTES:
            self._held += data
        else:
            self._send_held()
            self._transport.write(data)

    def write_whole(self, data: bytes) -> None:
        """Send a whole response, or drop it after the end.

        Nothing is held back for it: uvloop writes at the end of the iteration anyway. Through
        `write`, one connection at a Unix socket waited 8 % longer for a small response.
        """
        if self.is_closing():
            return
        self.has_written = True
        self._send_held()
        self._transport.write(data)

    def _send_held(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)

    def get_write_buffer_size(self) -> int:
        """The number of bytes the client has not yet received."""
        return self._transport.get_write_buffer_size() + len(self._held or b"")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Delegate to the wrapped transport."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Delegate to the wrapped transport, unless it is closing."""
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Delegate to the wrapped transport, unless it is closing."""
        if not self.is_closing():
            self._transport.resume_reading()
