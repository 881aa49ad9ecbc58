"""Connections: how many a process holds, how long it waits for them, and how one ends.

One `ConnectionGuard` belongs to one serving process and decides who is in and who must leave;
`protocol` asks it for each connection. `ClosingTransport` sits between uvicorn's protocol and the
real transport and ends a connection so that the client sees the response. Neither knows HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from app.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("app.connections")

STATE_KEY: Final = "connection_guard"
"""Where the lifespan's state, which the server hands to the protocol, holds the guard."""

LINGER_SECONDS: Final = 2.0
"""How long the rest of a body that nobody wants is read, so that its sender sees the answer."""

LINE_SECONDS: Final = 60.0
"""At most one line a minute says that connections are refused; the metrics count them."""

_RESERVE: Final = 64
_MOST_BY_DEFAULT: Final = 10_000  # with their buffers about 100 MB
_MOST_HELD_BYTES: Final = 1 << 16
_KEPT_FILES: Final = 2560  # 512 for the service itself, 2048 that one burst of accepts may take


class Waiting(Protocol):
    """A connection beyond the limit."""

    def turn_away(self, problem: Problem) -> None:
        """Say this and end at once."""


class ConnectionGuard:
    """Who is in, who is in the reserve; used from the event loop only.

    A connection beyond the limit comes into the reserve, where only a question after health is
    answered. The reserve is a queue: when it is full the one that waits longest leaves it, so that
    connections that say nothing never keep out one that asks at once.
    """

    def __init__(
        self,
        *,
        max_connections: int | None = None,
        header_seconds: float = 10.0,
        send_seconds: float = 60.0,
        stall_seconds: float = 300.0,
        max_drained_bytes: int = 1 << 20,
        count: Callable[[str], None] = lambda code: None,
    ) -> None:
        self.max_connections = max_connections or derive_max_connections()
        self.header_seconds = header_seconds
        self.send_seconds = send_seconds
        self.stall_seconds = stall_seconds
        self.max_drained_bytes = max_drained_bytes
        self._count = count
        self._admitted: set[Waiting] = set()
        self._reserve: dict[Waiting, None] = {}  # in the order of their coming
        self._next_line = 0.0

    @property
    def n_connections(self) -> int:
        """Connections held, those in the reserve included."""
        return len(self._admitted) + len(self._reserve)

    def admit(self, connection: Waiting) -> None:
        """Take in a new connection, or one of the reserve where there is room by now."""
        if len(self._admitted) < self.max_connections:
            self._reserve.pop(connection, None)
            self._admitted.add(connection)
        elif connection not in self._reserve:
            self._reserve[connection] = None
            if len(self._reserve) > _RESERVE:
                oldest = next(iter(self._reserve))
                del self._reserve[oldest]
                oldest.turn_away(self.too_many())

    def is_admitted(self, connection: Waiting) -> bool:
        """Whether it may ask for anything, not only after health."""
        return connection in self._admitted

    def release(self, connection: Waiting) -> None:
        """A connection has ended."""
        self._admitted.discard(connection)
        self._reserve.pop(connection, None)

    def too_many(self) -> Problem:
        """What one beyond the limit is told."""
        return Problem(
            503,
            "too_many_connections",
            f"This process holds {self.max_connections} connections, as many as it may; try again, "
            "or keep fewer open. Whoever runs the server can raise TOKENIZER_MAX_CONNECTIONS.",
            limit=self.max_connections,
            headers={"Retry-After": "1"},
        )

    def note(self, problem: Problem) -> None:
        """Count a request that never came to the service, and say so from time to time."""
        self._count(problem.code)
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            log.warning(
                "a connection was refused: %s (no more such lines for a minute; the metric "
                "tokenizer_rejected_total counts them)",
                problem.code,
            )


def raise_open_files() -> None:
    """Let this process, and those it starts, open as many files as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems say "no limit" and mean another
            log.debug("the limit of open files stays at %d", soft)


def derive_max_connections(n_files: int | None = None) -> int:
    """How many connections a process may hold that may open `n_files`; default: this one's limit.

    Example:
        >>> derive_max_connections(80), derive_max_connections(4096)
        (40, 2048)
        >>> derive_max_connections(8192), derive_max_connections(1 << 20)
        (5632, 10000)
    """
    if n_files is None:
        n_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if n_files == resource.RLIM_INFINITY:
            return _MOST_BY_DEFAULT
    return max(1, min(_MOST_BY_DEFAULT, n_files - min(_KEPT_FILES, n_files // 2)))


class ClosingTransport(asyncio.Transport):
    """What uvicorn writes to; see the module."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        has_unread: Callable[[], bool],
        linger_seconds: float,
        max_drained_bytes: int,
        send_seconds: float,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._has_unread = has_unread
        self._linger_seconds = linger_seconds
        self._left_to_drain = max_drained_bytes
        self._send_seconds = send_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._held: bytes | None = None
        self.is_lingering = False

    def close(self) -> None:
        """End: at once, or when the rest of what the client sends was read or waited for."""
        if self.is_closing():
            return
        if self._has_unread():
            self.linger()
        else:
            self.end()

    def linger(self) -> None:
        """End, and expect that the client is still sending."""
        if self.is_closing():
            return
        self.is_lingering = True
        self._send_held()
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(self._linger_seconds, self.end)

    def drop(self, n_bytes: int) -> None:
        """Note that so many bytes came that nobody wants; too many, and no more are read."""
        self._left_to_drain -= n_bytes
        # Not closed: the client has stopped sending then, and has time to read.
        if self._left_to_drain < 0 and not self._transport.is_closing():
            self._transport.pause_reading()

    def forget(self) -> None:
        """The connection is lost; nothing is to be done for it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Close, once the client has taken what was written; it has `send_seconds` for that."""
        self.forget()
        self._send_held()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._timer = self._loop.call_later(self._send_seconds, self.abort)

    def abort(self) -> None:
        """End at once; what was not sent is lost, and the client is told so by a reset."""
        self.forget()
        # Else the kernel would go on offering what it has to a client that does not read.
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it has ended for those who write."""
        return self.is_lingering or self._transport.is_closing()

    def write(self, data: Any) -> None:
        """Send, or drop what comes after the end.

        Of requests sent ahead, uvicorn tells only the last that the connection is lost.
        """
        if self.is_closing():
            return
        if self._held is None:
            # Head and body of a small answer go out together, at the end of the loop's turn: a
            # client is woken once for them, and all that were answered in one turn together. It
            # makes small requests a third faster.
            self._held = data
            self._loop.call_soon(self._send_held)
        elif len(self._held) + len(data) <= _MOST_HELD_BYTES:
            self._held += data
        else:
            self._send_held()
            self._transport.write(data)

    def _send_held(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken."""
        return self._transport.get_write_buffer_size() + len(self._held or b"")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the transport below."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """As the transport below, which may be closing."""
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """As the transport below, which may be closing."""
        if not self.is_closing():
            self._transport.resume_reading()
