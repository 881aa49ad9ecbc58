"""Retries: whether a call that failed is tried again, when, and until when.

Decisions only; nobody waits here. Exponential backoff with full jitter: each wait is drawn from 0
to a bound that doubles, so that clients which failed together do not come back together
(M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import enum
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tokenizer_client.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    UnavailableError,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how long between.

    Of the `max_attempts` the first is one; `RetryPolicy(max_attempts=1)` tries nothing again. The
    wait before attempt n + 1 is drawn from 0 to `first_wait_seconds * 2 ** (n - 1)`, at most
    `longest_wait_seconds`, and no shorter than what the service asks for in Retry-After.
    """

    max_attempts: int = 6
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 20.0

    def bound_seconds(self, n_failed: int) -> float:
        """The longest wait after so many failed attempts.

        Example:
            >>> [RetryPolicy().bound_seconds(n) for n in (1, 2, 3, 9, 2000)]
            [0.5, 1.0, 2.0, 20.0, 20.0]
        """
        doublings = min(n_failed - 1, 60)
        return min(self.first_wait_seconds * 2.0**doublings, self.longest_wait_seconds)


class Repeat(enum.Enum):
    """What may be sent again."""

    ALWAYS = enum.auto()
    """Doing it twice is doing it once: it changes nothing, or has an idempotency key."""

    UNLESS_DONE = enum.auto()
    """Not where it may have been done: only what was refused, or never sent."""


class Deadline:
    """The end of the time that a call has, with all its attempts; None for no end."""

    def __init__(self, clock: Callable[[], float], seconds: float | None) -> None:
        self._clock, self._seconds = clock, seconds
        self._end = math.inf if seconds is None else clock() + seconds

    @property
    def seconds_left(self) -> float:
        """May be below zero; infinite where there is no end."""
        return self._end - self._clock()

    def check(self, cause: BaseException | None = None) -> None:
        """Raise DeadlineExceededError where the time is over."""
        if self.seconds_left <= 0:
            raise self.exceeded() from cause

    def exceeded(self) -> DeadlineExceededError:
        """The error to raise."""
        return DeadlineExceededError(
            f"the call was not done within {self._seconds:g} s; give it more (deadline_seconds), "
            f"or less to do"
        )


class Attempts:
    """The attempts of one call.

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
    ) -> None:
        self._policy, self._deadline, self._draw = policy, deadline, draw
        self._repeat = repeat
        self._n_failed = 0
        self.may_be_done = False
        """Whether an attempt may have been done by the service, its answer lost."""

    def wait_seconds(self, error: ClientError) -> float:
        """How long to wait before the next attempt, after one that failed with `error`.

        Raises:
            ClientError: `error` itself, where there is no next one.
            DeadlineExceededError: it would begin after the deadline.
        """
        self._n_failed += 1
        if isinstance(error, ConnectionLostError) and error.was_sent:
            self.may_be_done = True
        if not self._is_worth_it(error) or self._n_failed >= self._policy.max_attempts:
            raise error
        seconds = self._draw() * self._policy.bound_seconds(self._n_failed)
        if isinstance(error, UnavailableError):
            seconds = max(seconds, error.retry_after_seconds or 0.0)
        if seconds >= self._deadline.seconds_left:
            raise self._deadline.exceeded() from error
        return seconds

    def _is_worth_it(self, error: ClientError) -> bool:
        if isinstance(error, ConnectionLostError):
            return self._repeat is Repeat.ALWAYS or not error.was_sent
        if not isinstance(error, UnavailableError):
            return False
        # 502 and 504 say that a proxy lost the service, perhaps after it had the request.
        return self._repeat is Repeat.ALWAYS or error.status in (429, 503)


@dataclass(frozen=True, slots=True)
class Session:
    """What all calls of a client share: how patient it is, and which tokenizer it is pinned to."""

    policy: RetryPolicy = RetryPolicy()
    timeout_seconds: float = 60.0
    deadline_seconds: float | None = 300.0
    tokenizer: str | None = None
    digest: str | None = None
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random

    @property
    def pin_fields(self) -> dict[str, str]:
        """Which tokenizer, as a request says it."""
        return {} if self.tokenizer is None else {"tokenizer": self.tokenizer}

    @property
    def pin_headers(self) -> dict[str, str]:
        """Which digest, as a request says it."""
        return {} if self.digest is None else {"If-Match": f'"{self.digest}"'}

    def deadline(self, seconds: float | None) -> Deadline:
        """An end, `seconds` from now."""
        return Deadline(self.clock, seconds)

    def attempts(self, deadline: Deadline, repeat: Repeat = Repeat.ALWAYS) -> Attempts:
        """The attempts of one call."""
        return Attempts(self.policy, deadline, repeat=repeat, draw=self.draw)
