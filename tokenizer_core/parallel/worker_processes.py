"""Run one function over many tasks in worker processes, with a bounded number running.

Each pool of the standard library has a fault that a service or a long training run meets sooner or
later:

- `multiprocessing.Pool` waits forever when a worker is killed, for example by the kernel for its
  memory;
- `ProcessPoolExecutor` with `max_tasks_per_child` can deadlock (cpython issue 115634), and without
  it cannot release memory;
- `fork` in a process with threads, such as a server, can deadlock the child;
- `spawn` and `forkserver` import the caller's `__main__` again: a script without a main guard
  starts itself over, and daemonic processes may have no children.

Here a worker is a fresh interpreter (`worker.py`) that exchanges pickled frames over its standard
input and output. It gets the parent's `sys.path` and never imports its `__main__`. When the parent
dies, the pipe ends and so does the worker; when a worker dies, its pipe ends and the parent raises.
POSIX only: the parent waits on pipes with `selectors`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import IO, Any, Final, Generic, NoReturn, TypeVar

from tokenizer_core.errors import WorkerProcessError
from tokenizer_core.parallel.worker import FRAME_HEADER, write_frame

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")

# `-P` keeps the working directory off the path until the parent's path is set, so that a stray
# `pickle.py` there is not imported. The first line makes the worker ignore Ctrl-C.
_BOOTSTRAP: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = sys.argv[1:]; "
    "from tokenizer_core.parallel.worker import serve; serve()"
)
_READ_SIZE_BYTES: Final = 1 << 20
# With the usual 64 kB a worker blocks in the middle of a response whenever the parent is busy.
_PIPE_SIZE_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.1
_EXIT_GRACE_SECONDS: Final = 2.0

CAN_START_WORKERS: Final = sys.platform != "win32" and bool(sys.executable)
"""Whether this Python can start worker processes."""


def resident_bytes_of_tree(pid: int) -> int:
    """Resident memory of a process and all its descendants; 0 if the process has ended.

    This is an upper bound: it counts a shared page once for each process that maps it.
    """
    # psutil takes tens of milliseconds to import; do not import it in every worker process.
    import psutil

    total = 0
    try:
        leader = psutil.Process(pid)
        members = [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return 0
    for member in members:
        with contextlib.suppress(psutil.Error):
            total += member.memory_info().rss
    return total


class WorkerTracebackError(Exception):
    """The traceback inside the worker, as text: the `__cause__` of the function's exception."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def run_tasks(
    function: Callable[[State, Task], Result],
    tasks: Iterable[Task],
    *,
    num_workers: int,
    state: State,
    max_tasks_per_worker: int | None = None,
    caller_takes_part: bool = False,
    max_in_flight_per_worker: int = 2,
    max_ahead: int | None = None,
    while_waiting: Callable[[], object] | None = None,
) -> Generator[tuple[int, Result], None, None]:
    """Yield `(index, function(state, task))` for every task, in the order they finish.

    `tasks` is read lazily: at most `num_workers * max_in_flight_per_worker` are in progress.
    `state` is pickled once and unpickled once in each worker, so it may be large. Workers must be
    able to import `function` by name, from a module other than `__main__`. Closing the generator,
    or any error, ends all workers at once.

    - `num_workers`: processes, the caller's own included if it takes part; 1 or less runs all
      tasks here, without a process.
    - `max_tasks_per_worker`: a worker is replaced after this many, which releases its memory.
    - `caller_takes_part`: the calling process also works on tasks while all workers are busy.
    - `max_ahead`: how far tasks may run ahead of the oldest unfinished one: bounds the results that
      a caller holds to put them in order.
    - `while_waiting`: called at least every 0.1 s while waiting, and between results; an exception
      in it ends the run (raise one to cancel).

    Raises:
        WorkerProcessError: a worker died (`tasks` has the indices of its unfinished tasks), or
            cannot be started.
        Exception: any exception of `function`; in a worker, with the worker's traceback as cause.

    Example:
        >>> from operator import mul
        >>> sorted(run_tasks(mul, [1, 2, 3], num_workers=1, state=10))
        [(0, 10), (1, 20), (2, 30)]
    """
    bounds = (max_in_flight_per_worker, max_tasks_per_worker, max_ahead)
    if any(bound is not None and bound < 1 for bound in bounds):
        raise ValueError(
            "max_in_flight_per_worker, max_tasks_per_worker and max_ahead must be at least 1"
        )
    if num_workers <= 1:
        return _run_here(function, tasks, state, while_waiting)
    _check_processes_can_work(function)
    crew = _Crew(
        pickle.dumps((function, state), pickle.HIGHEST_PROTOCOL),
        max_workers=num_workers - caller_takes_part,
        max_tasks_per_worker=max_tasks_per_worker,
        max_in_flight_per_worker=max_in_flight_per_worker,
    )
    here = (lambda task: function(state, task)) if caller_takes_part else None
    return _run_in_workers(crew, _Window(enumerate(tasks), max_ahead), here, while_waiting)


def _run_here(
    function: Callable[[State, Task], Result],
    tasks: Iterable[Task],
    state: State,
    while_waiting: Callable[[], object] | None,
) -> Generator[tuple[int, Result], None, None]:
    for index, task in enumerate(tasks):
        if while_waiting is not None:
            while_waiting()
        yield index, function(state, task)


def _check_processes_can_work(function: Callable[..., object]) -> None:
    name = getattr(function, "__qualname__", "the function")
    if getattr(function, "__module__", None) == "__main__" or "<" in name:
        raise ValueError(
            f"{name} cannot be found by a worker process: move it to the top level of a module "
            f"that can be imported, or run with num_workers=1"
        )
    if not CAN_START_WORKERS:
        raise WorkerProcessError(
            "this Python cannot start worker processes (they need POSIX pipes and an interpreter "
            "that knows its own path); use one worker (--workers 1, in Python num_workers=1)"
        )


def _run_in_workers(
    crew: _Crew,
    window: _Window[Task],
    here: Callable[[Task], Result] | None,
    while_waiting: Callable[[], object] | None,
) -> Generator[tuple[int, Result], None, None]:
    finished = False
    try:
        while window.more_tasks or crew.in_flight:
            while crew.has_room() and (numbered := window.take()) is not None:
                crew.hand_out(*numbered)
            if while_waiting is not None:
                while_waiting()
            helping = here is not None and window.is_open
            results = crew.collect(timeout_seconds=0.0 if helping else _POLL_SECONDS)
            for index, result in results:
                window.note_done(index)
                yield index, result
            if here is not None and not results and (numbered := window.take()) is not None:
                result = here(numbered[1])
                window.note_done(numbered[0])
                yield numbered[0], result
        finished = True
    finally:
        crew.end(kill=not finished)


class _Window(Generic[Task]):
    """The tasks that may begin: those less than `size` after the oldest unfinished one."""

    def __init__(self, numbered_tasks: Iterator[tuple[int, Task]], size: int | None) -> None:
        self._numbered_tasks, self._size = numbered_tasks, size
        self.more_tasks = True
        self._n_begun = self._oldest = 0
        self._done: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Whether the next task, if any, may begin."""
        is_far = self._size is not None and self._n_begun - self._oldest >= self._size
        return self.more_tasks and not is_far

    def take(self) -> tuple[int, Task] | None:
        """The next task, if it may begin."""
        if not self.is_open:
            return None
        numbered = next(self._numbered_tasks, None)
        if numbered is None:
            self.more_tasks = False
        else:
            self._n_begun += 1
        return numbered

    def note_done(self, index: int) -> None:
        """Note that a task has finished."""
        self._done.add(index)
        while self._oldest in self._done:
            self._done.remove(self._oldest)
            self._oldest += 1


class _Worker:
    """One process, its pipes, and its unfinished tasks."""

    def __init__(self) -> None:
        path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109 - '' means this
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", _BOOTSTRAP, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdin is not None  # noqa: S101 - PIPE above sets it; for mypy
        assert self.process.stdout is not None  # noqa: S101
        self.stdin: IO[bytes] = self.process.stdin
        self.stdout: IO[bytes] = self.process.stdout
        _widen_pipe(self.stdout)
        self.unfinished: set[int] = set()
        self.handed_out = 0
        self.received = bytearray()
        self._unsent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # A separate thread writes: a worker takes tenths of a second to start and reads nothing
        # before, and the caller must not wait for it.
        self._writer = threading.Thread(target=self._write_frames, daemon=True)
        self._writer.start()

    def send(self, payload: bytes) -> None:
        """Queue one frame for writing; `collect` notices if the worker has died."""
        self._unsent.put(payload)

    def _write_frames(self) -> None:
        # Ignore a broken pipe: `collect` reads the worker's last responses and notices its end.
        with contextlib.suppress(BrokenPipeError), self.stdin:
            while (payload := self._unsent.get()) is not None:
                write_frame(self.stdin, payload)

    def receive(self) -> list[tuple[int, bool, Any]] | None:
        """The complete responses that have arrived, or None if the worker has ended."""
        data = os.read(self.stdout.fileno(), _READ_SIZE_BYTES)
        if not data:
            return None
        self.received += data
        responses: list[tuple[int, bool, Any]] = []
        while len(self.received) >= FRAME_HEADER.size:
            (size,) = FRAME_HEADER.unpack_from(self.received)
            end = FRAME_HEADER.size + size
            if len(self.received) < end:
                break
            with memoryview(self.received) as view, view[FRAME_HEADER.size : end] as frame:
                responses.append(pickle.loads(frame))  # noqa: S301 - written by our own worker
            del self.received[:end]
        return responses

    def end(self, *, kill: bool) -> None:
        """End the process and reap it."""
        if kill:
            self.process.kill()
        self._unsent.put(None)
        try:
            self.process.wait(_EXIT_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._writer.join()
        self.stdout.close()


def _widen_pipe(pipe: IO[bytes]) -> None:
    try:
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_SIZE_BYTES)
    except (ImportError, AttributeError, OSError):
        pass  # not Linux, or over the user's limit: slower, but correct


class _Crew:
    """The workers of one run: which are idle, due for replacement, or dead."""

    def __init__(
        self,
        setup: bytes,
        *,
        max_workers: int,
        max_tasks_per_worker: int | None,
        max_in_flight_per_worker: int,
    ) -> None:
        self._setup = setup
        self._max_workers = max_workers
        self._max_tasks = max_tasks_per_worker
        self._max_in_flight = max_in_flight_per_worker
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    @property
    def in_flight(self) -> int:
        """Number of tasks that were handed out and have no result yet."""
        return sum(len(worker.unfinished) for worker in self._workers)

    def has_room(self) -> bool:
        """Whether a task can be handed out now."""
        return len(self._workers) < self._max_workers or self._least_busy() is not None

    def hand_out(self, index: int, task: object) -> None:
        """Give the task to the worker with the fewest tasks; start a worker if the limit allows
        it."""
        payload = pickle.dumps((index, task), pickle.HIGHEST_PROTOCOL)
        worker = self._least_busy()
        if worker is None or (worker.unfinished and len(self._workers) < self._max_workers):
            worker = self._start()
        worker.unfinished.add(index)
        worker.handed_out += 1
        if worker.handed_out == 1:
            worker.send(self._setup)
        worker.send(payload)

    def _least_busy(self) -> _Worker | None:
        free = [
            worker
            for worker in self._workers
            if len(worker.unfinished) < self._max_in_flight
            and (self._max_tasks is None or worker.handed_out < self._max_tasks)
        ]
        return min(free, key=lambda worker: len(worker.unfinished), default=None)

    def _start(self) -> _Worker:
        try:
            worker = _Worker()
        except OSError as error:
            raise WorkerProcessError(
                f"a worker process could not be started ({error}); use fewer workers, or one "
                f"(--workers 1, in Python num_workers=1) to do the work in this process"
            ) from error
        self._workers.append(worker)
        self._selector.register(worker.stdout, selectors.EVENT_READ, worker)
        return worker

    def collect(self, *, timeout_seconds: float) -> list[tuple[int, Any]]:
        """The results that have arrived; wait at most `timeout_seconds` for the first."""
        results: list[tuple[int, Any]] = []
        if not self._workers:
            return results
        for key, _ in self._selector.select(timeout_seconds):
            worker: _Worker = key.data
            responses = worker.receive()
            if responses is None:
                self._dismiss(worker)
                if worker.unfinished:
                    death = _describe_death(worker.process.returncode)
                    raise WorkerProcessError(death, tuple(worker.unfinished))
                continue
            for index, succeeded, value in responses:
                if not succeeded:
                    _raise_failure(*value)
                worker.unfinished.discard(index)
                results.append((index, value))
            if not worker.unfinished and worker.handed_out == self._max_tasks:
                self._dismiss(worker)
        return results

    def _dismiss(self, worker: _Worker) -> None:
        self._selector.unregister(worker.stdout)
        self._workers.remove(worker)
        worker.end(kill=False)

    def end(self, *, kill: bool) -> None:
        """End all workers, at once if `kill`."""
        self._selector.close()
        if kill:  # kill all of them before waiting for the first
            for worker in self._workers:
                worker.process.kill()
        while self._workers:
            self._workers.pop().end(kill=kill)


def _describe_death(status: int) -> str:
    if status >= 0:
        return (
            f"a worker process ended with exit status {status} before it gave its answer; what it "
            f"wrote to standard error says why"
        )
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    remedy = (
        "the machine may have run out of memory: use fewer workers, or give it more memory"
        if name == "SIGKILL"
        else "this is a crash in compiled code or a signal from outside; try num_workers=1"
    )
    return f"a worker process was killed by {name} before it gave its answer; {remedy}"


def _raise_failure(error: BaseException | None, traceback_text: str) -> NoReturn:
    cause = WorkerTracebackError(traceback_text)
    if error is None:
        last_line = traceback_text.strip().rsplit("\n", 1)[-1]
        raise WorkerProcessError(f"the task failed in its worker process: {last_line}") from cause
    raise error from cause
