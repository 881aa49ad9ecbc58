"""RayExecutor: the tasks of a run on a Ray cluster, as `LocalExecutor` runs them here.

Tasks only, and no retries of Ray's own: what is tried again, and how often, is the run's to say.
Ray moves nothing but what the function was given and the little it returns; what is made goes to
the storage. The only module that imports Ray, and only when a cluster is asked for.
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

from tokenizer_core.errors import TokenizerCoreError, WorkerProcessError
from tokenizer_core.parallel.executors import TaskFailure

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")

_KNOCK_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
_IN_FLIGHT_PER_PROCESSOR: Final = 2
_CANCEL_SECONDS: Final = 10.0
_CANCEL_AGAIN_SECONDS: Final = 0.5


@contextlib.contextmanager
def connect_to_ray(address: str = "auto") -> Iterator[RayExecutor]:
    """An executor on the Ray cluster at `address`; the connection ends with the context.

    An address is `host:port`, `auto` (of this machine's cluster, or RAY_ADDRESS), `ray://host:port`
    or `local`: a cluster of this machine's processors that ends with the context. Where this
    process is connected already, that connection is used and kept.

    Every node needs this package in the same version, and the credentials of the storage.

    Raises:
        WorkerProcessError: Ray is not installed, or no cluster is there.
    """
    try:
        import ray
    except ImportError:
        raise WorkerProcessError(
            "running on a Ray cluster needs a package: pip install 'tokenizer-service[ray]'"
        ) from None
    if ray.is_initialized():
        yield RayExecutor(address)
        return
    # What a cluster is made of is for who started it to say.
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    with _own_end():
        try:
            _knock(address)
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


def _knock(address: str) -> None:
    """Raise OSError where nobody listens; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return
    hosts = [host.strip("[]")]
    if host in ("127.0.0.1", "localhost"):
        from ray import util

        # By these names Ray means this machine, and looks for it under its address in the network.
        hosts.append(cast("Any", util).get_node_ip_address())
    for host in hosts:
        try:
            socket.create_connection((host, int(port)), _KNOCK_SECONDS).close()
            return
        except OSError as error:
            refused = error
    raise refused


@contextlib.contextmanager
def _own_end() -> Iterator[None]:
    """Keep what this process does at SIGTERM, which Ray replaces. What does nothing is left to Ray:
    its own ends the process in order, so that its tasks are cancelled."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


class RayExecutor:
    """An `Executor` on the cluster this process is connected to; made by `connect_to_ray`."""

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
        """See `Executor`."""
        import ray

        call: Any = ray.remote(max_retries=0)(_call)
        told = ray.put((function, state))
        processors = cast("Any", ray).cluster_resources().get("CPU", 1)
        room = _IN_FLIGHT_PER_PROCESSOR * max(1, int(processors))
        not_begun = enumerate(tasks)
        under_way: dict[Any, int] = {}
        try:
            while True:
                for index, task in islice(not_begun, room - len(under_way)):
                    under_way[call.remote(told, task)] = index
                if not under_way:
                    return
                if while_waiting is not None:
                    while_waiting()
                ready, _ = ray.wait(list(under_way), num_returns=1, timeout=_POLL_SECONDS)
                for reference in ready:
                    yield under_way.pop(reference), self._result_of(reference)
        finally:
            _cancel(under_way)

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
        except RayError as error:  # the worker, its node, or what it was given is gone
            return TaskFailure(f"{type(error).__name__} on {self.shown}: {_first_line(error)}")


def _call(told: tuple[Callable[[State, Task], Result], State], task: Task) -> Result:
    function, state = told
    return function(state, task)


def _cancel(under_way: Iterable[Any]) -> None:
    """End these tasks, and wait until they are."""
    import ray

    left = list(under_way)
    deadline = time.monotonic() + _CANCEL_SECONDS
    with contextlib.suppress(Exception):  # what brought us here is to be told, not this
        while left and time.monotonic() < deadline:
            # Again and again: what is just being handed to a worker is missed.
            for reference in left:
                ray.cancel(reference, force=True)
            _, left = ray.wait(left, num_returns=len(left), timeout=_CANCEL_AGAIN_SECONDS)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
