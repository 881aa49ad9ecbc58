"""Retries: whether to repeat a failed call, when, and for how long.

Exponential backoff with full jitter: each wait is drawn from 0 to a bound that doubles, so that
clients that failed together do not retry together (M. Brooker, "Exponential Backoff And Jitter",
AWS Architecture Blog, 2015). This module computes waits and never waits itself.
"""

from __future__ import annotations

import enum
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tokenizer_client.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    UnavailableError,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait between attempts.

    `max_attempts` includes the first; `RetryPolicy(max_attempts=1)` never retries. The wait before
    attempt n + 1 is drawn from 0 to `first_wait_seconds * 2 ** (n - 1)`, is at most
    `longest_wait_seconds`, and at least what the service asks for in Retry-After.
    """

    max_attempts: int = 6
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 20.0

    def bound_seconds(self, n_failed: int) -> float:
        """The longest wait after this many failed attempts.

        Example:
            >>> [RetryPolicy().bound_seconds(n) for n in (1, 2, 3, 9, 2000)]
            [0.5, 1.0, 2.0, 20.0, 20.0]
        """
        doublings = min(n_failed - 1, 60)
        return min(self.first_wait_seconds * 2.0**doublings, self.longest_wait_seconds)


class Repeat(enum.Enum):
    """When a request may be sent again."""

    ALWAYS = enum.auto()
    """The request is idempotent: it changes nothing, or has an idempotency key."""

    UNLESS_DONE = enum.auto()
    """Only if the service refused the request or never received it."""


class Deadline:
    """The time at which a call and all its attempts must end; None for no limit."""

    def __init__(self, clock: Callable[[], float], seconds: float | None) -> None:
        self._clock, self._seconds = clock, seconds
        self._end = math.inf if seconds is None else clock() + seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline: negative after it, infinite without one."""
        return self._end - self._clock()

    def check(self, cause: BaseException | None = None) -> None:
        """Raise DeadlineExceededError after the deadline."""
        if self.seconds_left <= 0:
            raise self.exceeded(cause) from cause

    def exceeded(self, cause: BaseException | None) -> DeadlineExceededError:
        """Make the error, which names the last failure."""
        last = "" if cause is None else f". The last attempt failed: {cause}"
        return DeadlineExceededError(
            f"the call did not finish within {self._seconds:g} s; raise deadline_seconds, or send "
            f"less{last}"
        )


class Attempts:
    """Counts the attempts of one call and decides whether there is another.

    Example:
        >>> attempts = Attempts(RetryPolicy(), Deadline(lambda: 0.0, None), draw=lambda: 0.5)
        >>> lost = ConnectionLostError("reset", was_sent=True)
        >>> attempts.wait_seconds(lost), attempts.wait_seconds(lost)
        (0.25, 0.5)
    """

    def __init__(
        self,
        policy: RetryPolicy,
        deadline: Deadline,
        *,
        repeat: Repeat = Repeat.ALWAYS,
        draw: Callable[[], float] = random.random,
        reached: threading.Event | None = None,
    ) -> None:
        """`reached` is set once the service has responded to any call. Before that a refused
        connection is not retried: the address is probably wrong, or the service not started.
        """
        self._policy, self._deadline, self._draw = policy, deadline, draw
        self._repeat, self._reached = repeat, reached
        self._n_failed = 0
        self.may_be_done = False
        """Whether the service may have carried out an attempt whose response was lost."""

    def wait_seconds(self, error: ClientError) -> float:
        """How long to wait before the next attempt, after one that failed with `error`.

        Raises:
            ClientError: `error` itself, if it must not be retried, or if the connection was refused
                until the deadline.
            DeadlineExceededError: the next attempt would begin after the deadline.
        """
        self._n_failed += 1
        if isinstance(error, ConnectionLostError) and error.was_sent:
            self.may_be_done = True
        if not self._may_help(error) or self._n_failed >= self._policy.max_attempts:
            raise error
        seconds = self._draw() * self._policy.bound_seconds(self._n_failed)
        if isinstance(error, UnavailableError):
            seconds = max(seconds, error.retry_after_seconds or 0.0)
        if seconds >= self._deadline.seconds_left:
            if isinstance(error, ConnectionLostError) and error.refused_by:
                raise error
            raise self._deadline.exceeded(error) from error
        return seconds

    def _may_help(self, error: ClientError) -> bool:
        if isinstance(error, ConnectionLostError):
            if error.refused_by and self._reached is not None and not self._reached.is_set():
                return False
            return self._repeat is Repeat.ALWAYS or not error.was_sent
        if not isinstance(error, UnavailableError):
            return False
        # 502 and 504: a proxy lost the service, perhaps after the service received the request.
        return self._repeat is Repeat.ALWAYS or error.status in (429, 503)


@dataclass(frozen=True, slots=True)
class Session:
    """The settings that all calls of a client share: retries, timeouts and the pinned tokenizer."""

    policy: RetryPolicy = RetryPolicy()
    timeout_seconds: float = 60.0
    deadline_seconds: float | None = 300.0
    socket_path: str | None = None
    tokenizer: str | None = None
    digest: str | None = None
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random
    reached: threading.Event = field(default_factory=threading.Event)
    """Set by the first response."""

    @property
    def pin_fields(self) -> dict[str, str]:
        """The pinned tokenizer as fields of a request."""
        return {} if self.tokenizer is None else {"tokenizer": self.tokenizer}

    @property
    def pin_headers(self) -> dict[str, str]:
        """The pinned digest as headers of a request."""
        return {} if self.digest is None else {"If-Match": f'"{self.digest}"'}

    def deadline(self, seconds: float | None) -> Deadline:
        """The deadline `seconds` from now."""
        return Deadline(self.clock, seconds)

    def attempts(self, deadline: Deadline, repeat: Repeat = Repeat.ALWAYS) -> Attempts:
        """The attempts of one call."""
        return Attempts(self.policy, deadline, repeat=repeat, draw=self.draw, reached=self.reached)
