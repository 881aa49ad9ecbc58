"""RayExecutor runs the tasks of a run on a Ray cluster, as `LocalExecutor` does on this machine.

It uses Ray's tasks without Ray's retries: the run decides what to retry and how often. Ray moves
only the arguments and the small result of a function; the output goes to the storage. Ray is
imported only when a cluster is used.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar, cast

from tokenizer_core.errors import TokenizerCoreError, WorkerProcessError, missing_extra
from tokenizer_core.parallel.executors import TaskFailure

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")

_CONNECT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
_IN_FLIGHT_PER_PROCESSOR: Final = 2
_CANCEL_SECONDS: Final = 10.0
_CANCEL_AGAIN_SECONDS: Final = 0.5


@contextlib.contextmanager
def connect_to_ray(address: str = "auto") -> Iterator[RayExecutor]:
    """An executor on the Ray cluster at `address`; the connection ends with the context.

    An address is `host:port`, `auto` (this machine's cluster, or RAY_ADDRESS), `ray://host:port` or
    `local`: a cluster of this machine's processors, which ends with the context. If this process is
    already connected, use that connection and keep it.

    Every node needs the same version of this package, and the credentials of the storage.

    Raises:
        WorkerProcessError: Ray is not installed, or the cluster cannot be reached.
    """
    try:
        import ray
    except ImportError:
        raise missing_extra(WorkerProcessError, "a run on a Ray cluster", "ray") from None
    if ray.is_initialized():
        yield RayExecutor(address)
        return
    # Options apply only to the cluster that this call starts.
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    with _keeping_sigterm():
        try:
            _check_port(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **options)
        except Exception as error:
            raise WorkerProcessError(
                f"no Ray cluster could be reached at {address!r} ({type(error).__name__}); check "
                f"that it runs (ray status) and has the same version of Ray, {ray.__version__}"
            ) from error
    try:
        yield RayExecutor(address)
    finally:
        ray.shutdown()


def _check_port(address: str) -> None:
    """Raise OSError if no process listens at `address`; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return
    hosts = [host.strip("[]")]
    if host in ("127.0.0.1", "localhost"):
        from ray import util

        # For these names Ray connects to the network address of this machine.
        hosts.append(cast("Any", util).get_node_ip_address())
    for host in hosts:
        try:
            socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
            return
        except OSError as error:
            refused = error
    raise refused


@contextlib.contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Restore this process's SIGTERM handler, which Ray replaces. If it had none, keep Ray's, which
    cancels the tasks before the process ends."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


class RayExecutor:
    """An `Executor` on the cluster of this process; use `connect_to_ray` to make one."""

    def __init__(self, address: str) -> None:
        self.shown = f"the Ray cluster at {address}"

    def run(
        self,
        function: Callable[[State, Task], Result],
        tasks: Sequence[Task],
        *,
        state: State,
        while_waiting: Callable[[], object] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailure], None, None]:
        import ray

        call: Any = ray.remote(max_retries=0)(_call)
        work = ray.put((function, state))
        processors = cast("Any", ray).cluster_resources().get("CPU", 1)
        room = _IN_FLIGHT_PER_PROCESSOR * max(1, int(processors))
        remaining = enumerate(tasks)
        running: dict[Any, int] = {}
        try:
            while True:
                for index, task in islice(remaining, room - len(running)):
                    running[call.remote(work, task)] = index
                if not running:
                    return
                if while_waiting is not None:
                    while_waiting()
                ready, _ = ray.wait(list(running), num_returns=1, timeout=_POLL_SECONDS)
                for reference in ready:
                    yield running.pop(reference), self._result_of(reference)
        finally:
            _cancel(running)

    def _result_of(self, reference: Any) -> Any:
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            return ray.get(reference)
        except RayTaskError as error:
            if isinstance(error.cause, TokenizerCoreError):
                raise error.cause from error
            raise WorkerProcessError(
                f"a task failed on {self.shown}: {type(error.cause).__name__}; see that every node "
                f"has this package in the same version"
            ) from error
        except RayError as error:  # the worker, its node, or an argument was lost
            first_line = next(iter(str(error).strip().splitlines()), "")
            return TaskFailure(f"{type(error).__name__} on {self.shown}: {first_line}")


def _call(work: tuple[Callable[[State, Task], Result], State], task: Task) -> Result:
    function, state = work
    return function(state, task)


def _cancel(running: Iterable[Any]) -> None:
    """Cancel these tasks, and wait until they have ended."""
    import ray

    left = list(running)
    deadline = time.monotonic() + _CANCEL_SECONDS
    with contextlib.suppress(Exception):  # the caller needs the original error, not this one
        while left and time.monotonic() < deadline:
            # Repeat: a cancellation misses a task that is just being handed to a worker.
            for reference in left:
                ray.cancel(reference, force=True)
            _, left = ray.wait(left, num_returns=len(left), timeout=_CANCEL_AGAIN_SECONDS)
