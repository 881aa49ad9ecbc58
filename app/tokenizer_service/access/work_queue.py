"""Queues of work on threads: how many calls wait, and whose turn it is.

Work on a thread ends when nobody waits for it any more, or when it has run for too long.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count
from typing import Any, Final, Generic, TypeVar

from starlette.requests import ClientDisconnect

from tokenizer_core.engines import make_stop_flag, stoppable
from tokenizer_service.access.deadlines import Departure
from tokenizer_service.access.errors import OverloadedError, WorkTooLongError
from tokenizer_service.access.limits import Lease

MAX_WAITING: Final = 256
"""Limit on requests that wait for the threads of one queue."""

_PATIENCE: Final = 100
"""A call waits for cheaper ones that come within so many times its own cost: 100 clients whose
batches take 40 ms each let a text of 1 ms pass."""

_MOST_SECONDS_BEHIND: Final = 30.0

Result = TypeVar("Result")


class _Work(Generic[Result]):
    """One call that waits for a thread or runs on one."""

    def __init__(
        self,
        queue: WorkQueue,
        lease: Lease | None,
        function: Callable[..., Result],
        arguments: tuple[object, ...],
    ) -> None:
        self.lease = lease
        self.flag = make_stop_flag()
        """Cancelled when nobody waits for the result."""
        self.began_at: float | None = None
        """When a thread took the call, in seconds of `time.monotonic`."""
        self._queue = queue
        self._call: tuple[Callable[..., Result], tuple[object, ...]] | None = function, arguments
        self._is_running = False

    def __call__(self) -> Result:
        """Run on a thread; raises ClientDisconnect for work that was abandoned before it began."""
        call = self._take_call(is_running=True)
        if call is None:
            raise ClientDisconnect
        self.began_at = time.monotonic()
        token = _CURRENT.set(self)
        try:
            with stoppable(self.flag):
                return call[0](*call[1])
        finally:
            _CURRENT.reset(token)
            with self._queue.lock:
                self._is_running = False
                is_unwanted = self.flag.is_cancelled
            if is_unwanted:
                self._release()

    def abandon(self) -> None:
        """Nobody waits for the result: free what the work holds, now or when it has stopped."""
        self._take_call(is_running=False)
        with self._queue.lock:
            self.flag.cancel()
            is_running = self._is_running
        if not is_running:
            self._release()

    def _take_call(
        self, *, is_running: bool
    ) -> tuple[Callable[..., Result], tuple[object, ...]] | None:
        with self._queue.lock:
            call, self._call = self._call, None
            self._is_running = self._is_running or (is_running and call is not None)
        if call is not None:
            self._queue.change(-1)
        return call

    def _release(self) -> None:
        if self.lease is not None:
            self.lease.release()


_CURRENT: Final[contextvars.ContextVar[_Work[Any] | None]] = contextvars.ContextVar(
    "work", default=None
)


def check_not_abandoned() -> None:
    """Raise ClientDisconnect in work that nobody waits for; long loops call this once per step.

    The engines look at the same flag, see `tokenizer_core.engines.stoppable`.
    """
    work = _CURRENT.get()
    if work is not None and work.flag.is_cancelled:
        raise ClientDisconnect


def reserve_memory(n_bytes: int) -> None:
    """Reserve `n_bytes` for what this work is about to make; raises OverloadedError."""
    work = _CURRENT.get()
    if work is not None and work.lease is not None:
        work.lease.reserve(n_bytes)


class _Deadline:
    """Calls `stop` when `work` has run for `seconds`; the time in the queue does not count."""

    def __init__(self, work: _Work[Any], seconds: float, stop: Callable[[], object]) -> None:
        self.is_over = False
        self._work, self._seconds, self._stop = work, seconds, stop
        self._timer: asyncio.TimerHandle | None = None
        if seconds < math.inf:
            self._wait(seconds)

    def forget(self) -> None:
        """Do not call `stop`."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        began_at = self._work.began_at
        left = self._seconds
        if began_at is not None:
            left -= time.monotonic() - began_at
        if left > 0:
            self._wait(left)
        else:
            self.is_over = True
            self._stop()


class _Call:
    """A function that is called once, and the future of its result."""

    __slots__ = ("_held",)

    def __init__(self, future: Future[Any], function: Callable[[], Any]) -> None:
        self._held = [(future, function)]

    def cancel(self) -> None:
        """Cancel the future, unless the call has run."""
        for future, _ in self._held:
            future.cancel()

    def run(self) -> None:
        """Call the function. Afterwards nothing is kept: an error holds the frames it passed, those
        hold this object, and its future would hold the error."""
        future, function = self._held.pop()
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        finally:
            del future, function


class CheapestFirst:
    """Threads that take calls by their arrival plus `_PATIENCE` times their cost: cheap calls pass
    costly ones, and none waits for ever."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._calls: list[tuple[float, int, _Call]] = []
        self._number = count()  # calls of equal order run as they came

    def submit(
        self, seconds: float, function: Callable[..., Result], *arguments: Any
    ) -> Future[Result]:
        """Call `function(*arguments)`, which takes about `seconds`, in a thread."""
        future: Future[Any] = Future()
        call = _Call(future, partial(function, *arguments))
        seconds_behind = min(_MOST_SECONDS_BEHIND, _PATIENCE * seconds)
        order = time.monotonic() + seconds_behind, next(self._number)
        with self._lock:
            heapq.heappush(self._calls, (*order, call))
        try:
            self._executor.submit(self._run_next).add_done_callback(self._end)
        except RuntimeError:  # the service ends
            call.cancel()
            raise
        return future

    def _take(self) -> _Call:
        with self._lock:
            return heapq.heappop(self._calls)[-1]

    def _run_next(self) -> None:
        self._take().run()

    def _end(self, done: Future[None]) -> None:
        if done.cancelled():
            self._take().cancel()


class FairThreads:
    """Threads of which the calls of one owner hold at most `most_of_one`; its other calls wait, and
    those of other owners do not wait for them."""

    def __init__(self, executor: Executor, most_of_one: int) -> None:
        self._executor = executor
        self._most_of_one = most_of_one
        self._lock = threading.Lock()
        self._owners: dict[Hashable, tuple[set[_Call], deque[_Call]]] = {}
        """The calls of each owner that have a thread or are about to get one, and the others."""

    def submit(
        self, owner: Hashable, function: Callable[..., Result], *arguments: Any
    ) -> Future[Result]:
        """Call `function(*arguments)` in a thread."""
        future: Future[Any] = Future()
        call = _Call(future, partial(function, *arguments))
        with self._lock:
            started, waiting = self._owners.setdefault(owner, (set(), deque()))
            if len(started) >= self._most_of_one:
                waiting.append(call)
                return future
            started.add(call)
        self._start(owner, call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As that of the threads."""
        dropped: list[_Call] = []
        with self._lock:
            for _, waiting in self._owners.values() if cancel_futures else ():
                dropped += waiting
                waiting.clear()
        for call in dropped:
            call.cancel()
        self._executor.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _start(self, owner: Hashable, call: _Call) -> None:
        def end(started: Future[None]) -> None:
            if started.cancelled():
                call.cancel()

        self._executor.submit(self._run, owner, call).add_done_callback(end)

    def _run(self, owner: Hashable, call: _Call) -> None:
        call.run()
        with self._lock:
            started, waiting = self._owners[owner]
            started.remove(call)
            following = waiting.popleft() if waiting else None
            if following is not None:
                started.add(following)
            elif not started:
                del self._owners[owner]
        if following is not None:
            self._start(owner, following)  # behind the calls of other owners


class WorkQueue:
    """Runs work that would block the event loop in threads, and limits how many calls wait."""

    def __init__(
        self,
        executor: Executor | FairThreads,
        on_depth: Callable[[int], None] = lambda change: None,
        max_waiting: int = MAX_WAITING,
        work_seconds: float = math.inf,
    ) -> None:
        self.lock = threading.Lock()
        self._threads = executor if isinstance(executor, FairThreads) else CheapestFirst(executor)
        self._on_depth = on_depth
        self._max_waiting = max_waiting
        self._work_seconds = work_seconds
        self._waiting = 0

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """The result of `function(*arguments)` in a thread; raises OverloadedError."""
        self.check_waiting()
        return await self._run(_Work(self, None, function, arguments), None)

    async def run_admitted(
        self, departure: Departure | None, function: Callable[..., Result], *arguments: object
    ) -> Result:
        """As `run_for` without the limit, for a request whose response has begun."""
        return await self._run(_Work(self, None, function, arguments), departure)

    async def run_for(
        self,
        departure: Departure | None,
        lease: Lease,
        function: Callable[..., Result],
        *arguments: object,
        n_expected: int = 0,
        owner: Hashable = None,
        seconds: float = 0.0,
    ) -> Result:
        """As `run`, for as long as the client waits for the result. `lease` first reserves the
        `n_expected` bytes that the work takes as a rule; `owner` matters to
        `FairThreads`, and `seconds`, about how long the work takes, to `CheapestFirst`.

        When the client leaves or this call is cancelled, work that waits is dropped, and work that
        runs ends at its next `check_not_abandoned`. If it fails, `lease` is released when it has
        ended.

        Raises:
            ClientDisconnect: the client has left.
            OverloadedError: too many calls are waiting, or the memory for requests is used up.
            WorkTooLongError: the work ran for longer than the limit.
        """
        try:
            self.check_waiting()
            lease.expect(n_expected)
        except OverloadedError:
            lease.release()
            raise
        return await self._run(_Work(self, lease, function, arguments), departure, owner, seconds)

    async def _run(
        self,
        work: _Work[Result],
        departure: Departure | None,
        owner: Hashable = None,
        seconds: float = 0.0,
    ) -> Result:
        self.change(1)
        in_context = contextvars.copy_context().run  # for the request id in the logs
        future: Future[Result]
        try:
            if isinstance(self._threads, FairThreads):
                future = self._threads.submit(owner, in_context, work)
            else:
                future = self._threads.submit(seconds, in_context, work)
            result = asyncio.wrap_future(future)
            del future  # see below
        except RuntimeError:  # the service ends
            work.abandon()
            raise
        stop = result.cancel
        deadline = _Deadline(work, self._work_seconds, stop)
        try:
            if departure is not None:
                departure.call_then(stop)
            return await result
        except BaseException:
            work.abandon()
            if departure is not None and departure.has_left:
                raise ClientDisconnect from None
            if deadline.is_over:
                raise WorkTooLongError(self._work_seconds) from None
            raise
        finally:
            deadline.forget()
            if departure is not None:
                departure.forget(stop)
            # An error's traceback refers to this frame, and the future to the error: such a cycle
            # would keep a retired tokenizer alive.
            del result, stop, deadline

    def check_waiting(self) -> None:
        """Raise OverloadedError when too many calls wait."""
        if self._waiting >= self._max_waiting:
            raise OverloadedError("wait for a thread")

    def change(self, change: int) -> None:
        """Count calls that begin or end to wait."""
        with self.lock:
            self._waiting += change
        self._on_depth(change)
