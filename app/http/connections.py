"""The connection guard: how many connections a process holds, and for how long it waits for them.

One `ConnectionGuard` belongs to one serving process; `http_protocol` asks it for each connection.
It stands alone because it knows no server and no socket: who is in and who must leave is decided
here, and tried without a network.
"""

from __future__ import annotations

import logging
import resource
import time
from typing import TYPE_CHECKING, Final, Protocol

from app.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

log = logging.getLogger("app.connections")

STATE_KEY: Final = "connection_guard"
"""Where the lifespan's state, which the server hands to the protocol, holds the guard."""

LINGER_SECONDS: Final = 2.0
"""How long the rest of a body that nobody wants is read, so that its sender sees the answer."""

LINE_SECONDS: Final = 60.0
"""At most one line a minute says that connections are refused; the metrics count them."""

_RESERVE: Final = 64
_MOST_BY_DEFAULT: Final = 10_000  # with their buffers about 100 MB
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
        short_paths: Collection[str] = frozenset(),
        count: Callable[[str], None] = lambda code: None,
    ) -> None:
        self.max_connections = max_connections or derive_max_connections()
        self.header_seconds = header_seconds
        self.send_seconds = send_seconds
        self.stall_seconds = stall_seconds
        self.max_drained_bytes = max_drained_bytes
        self.short_paths = short_paths
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
