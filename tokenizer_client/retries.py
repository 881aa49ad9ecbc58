"""Retries: whether to repeat a failed call, when, and for how long.

Exponential backoff with full jitter: each wait is drawn from 0 to a bound that doubles, so that
clients that failed together do not retry together (M. Brooker, "Exponential Backoff And Jitter",
AWS Architecture Blog, 2015). This module computes waits and never waits itself. `errors` says
which statuses are an UnavailableError, and whether a lost request was sent.
"""

from __future__ import annotations

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
        """The longest wait after this many failed attempts."""
        doublings = min(n_failed - 1, 60)
        return min(self.first_wait_seconds * 2.0**doublings, self.longest_wait_seconds)


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


@dataclass(frozen=True, slots=True)
class Session:
    """The settings that all calls of a client share: retries, timeouts and the pinned tokenizer."""

    policy: RetryPolicy = RetryPolicy()
    timeout_seconds: float = 60.0
    deadline_seconds: float | None = 300.0
    tokenizer: str | None = None
    digest: str | None = None
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = random.random
    reached: threading.Event = field(default_factory=threading.Event)
    """Set by the first response to any call. Before that a refused connection is not retried: the
    address is probably wrong, or the service not started."""

    @property
    def pin_headers(self) -> dict[str, str]:
        """The pinned digest as headers of a request."""
        return {} if self.digest is None else {"If-Match": f'"{self.digest}"'}


class Attempts:
    """Counts the attempts of one call and decides whether there is another.

    A request that is not idempotent is repeated only if the service refused or never received it.
    With `patience_seconds` the number of attempts has no limit: there is another until the service
    was silent for this long.
    """

    def __init__(
        self,
        session: Session,
        deadline_seconds: float | None,
        *,
        is_idempotent: bool = True,
        patience_seconds: float | None = None,
    ) -> None:
        self._session, self._is_idempotent = session, is_idempotent
        self._patience_seconds = patience_seconds
        self.deadline = Deadline(session.clock, deadline_seconds)
        self.may_be_done = False
        """Whether the service may have carried out an attempt whose response was lost."""
        self.restart()

    def restart(self) -> None:
        """Count from the beginning, because the service sent something."""
        self._n_failed, self._heard = 0, self._session.clock()

    def wait_seconds(self, error: ClientError, *, is_repeatable: bool = True) -> float:
        """How long to wait before the next attempt, after one that failed with `error`.
        `is_repeatable`: the body of the request can be sent again.

        Raises:
            ClientError: `error` itself, if it must not be retried, or if the connection was refused
                until the deadline.
            DeadlineExceededError: the next attempt would begin after the deadline.
        """
        self._n_failed += 1
        if isinstance(error, ConnectionLostError) and error.was_sent:
            self.may_be_done = True
        if not is_repeatable or not self._may_help(error) or self._is_last():
            raise error
        seconds = self._session.draw() * self._session.policy.bound_seconds(self._n_failed)
        if isinstance(error, UnavailableError):
            seconds = max(seconds, error.retry_after_seconds or 0.0)
        if seconds >= self.deadline.seconds_left:
            if isinstance(error, ConnectionLostError) and error.refused_by:
                raise error
            raise self.deadline.exceeded(error) from error
        return seconds

    def _is_last(self) -> bool:
        if self._patience_seconds is None:
            return self._n_failed >= self._session.policy.max_attempts
        return self._session.clock() - self._heard > self._patience_seconds

    def _may_help(self, error: ClientError) -> bool:
        if isinstance(error, ConnectionLostError):
            if error.refused_by and not self._session.reached.is_set():
                return False
            return self._is_idempotent or not error.was_sent
        if not isinstance(error, UnavailableError):
            return False
        # 502 and 504: a proxy lost the service, perhaps after the service received the request.
        return self._is_idempotent or error.status in (429, 503)
