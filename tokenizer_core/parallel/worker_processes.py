"""Run one function over many tasks in worker processes, with a bounded number under way.

Why not the pools of the standard library, each of which fails in a way that a service or a long
training run meets sooner or later:

- `multiprocessing.Pool` waits for ever when a worker is killed (by the kernel for its memory, say);
- `ProcessPoolExecutor` with `max_tasks_per_child` can deadlock (cpython issue 115634), and without
  it cannot give memory back;
- starting by `fork` in a process that has threads can deadlock the child, and a server has threads;
- starting by `spawn` or `forkserver` imports the caller's `__main__` again: a script without a main
  guard starts itself over, and daemonic processes may have no children at all.

Here a worker is a fresh interpreter (`worker.py`) that talks pickled frames over its standard
input and output. It knows the parent's `sys.path` and nothing of its `__main__`. When the parent
dies, however it dies, the pipe ends and so does the worker; when a worker dies, its pipe ends and
the parent raises. POSIX only: the parent waits on pipes with `selectors`.

Stands alone: knows nothing of tokenizers.
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
from tokenizer_core.parallel.worker import FRAME_HEADER

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")

# `-P` keeps the working directory off the path until the parent's own path is in place, so that a
# stray `pickle.py` there cannot be imported. Ctrl-C is ignored from the first line on.
_BOOTSTRAP: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "sys.path[:] = sys.argv[1:]; "
    "from tokenizer_core.parallel.worker import serve; serve()"
)
_READ_SIZE_BYTES: Final = 1 << 20
# With the usual 64 kB a worker stands still in the middle of an answer whenever the parent is busy.
_PIPE_SIZE_BYTES: Final = 1 << 20
_POLL_SECONDS: Final = 0.1
_EXIT_GRACE_SECONDS: Final = 2.0


class WorkerTracebackError(Exception):
    """The traceback inside the worker, as text: the `__cause__` of what the function raised."""

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

    `tasks` is read lazily: never more than `num_workers * max_in_flight_per_worker` are under way.
    `state` is pickled once and unpickled once in each worker, so it may be large; `function` must
    be found by name in a module that is not `__main__`. Closing the generator, or any error, ends
    all workers at once.

    - `num_workers`: processes, the caller's own included if it takes part; 1 or less runs all
      tasks here, without a process.
    - `max_tasks_per_worker`: a worker is replaced after that many, which returns its memory.
    - `caller_takes_part`: the calling process works on tasks itself whenever all workers are busy.
    - `max_ahead`: no task begins so many after the oldest one that is not done: for who puts the
      results in order, and holds those that came too early.
    - `while_waiting`: called at least every 0.1 s while there is nothing else to do, and between
      results; what it raises ends the run (this is how to cancel).

    Raises:
        WorkerProcessError: a worker died (`tasks` has the indices of what it had in hand), or
            cannot be started.
        Exception: whatever `function` raised; in a worker, with the worker's traceback as cause.

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
    if os.name != "posix" or not sys.executable:
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
            answers = crew.collect(timeout_seconds=0.0 if helping else _POLL_SECONDS)
            for index, result in answers:
                window.note_done(index)
                yield index, result
            if here is not None and not answers and (numbered := window.take()) is not None:
                result = here(numbered[1])
                window.note_done(numbered[0])
                yield numbered[0], result
        finished = True
    finally:
        crew.end(kill=not finished)


class _Window(Generic[Task]):
    """The tasks that may begin: none so many after the oldest one that is not done."""

    def __init__(self, numbered_tasks: Iterator[tuple[int, Task]], size: int | None) -> None:
        self._numbered_tasks, self._size = numbered_tasks, size
        self.more_tasks = True
        self._n_begun = self._oldest = 0
        self._done: set[int] = set()

    @property
    def is_open(self) -> bool:
        """Whether the next task, if there is one, may begin."""
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
        """A task is done."""
        self._done.add(index)
        while self._oldest in self._done:
            self._done.remove(self._oldest)
            self._oldest += 1


class _Worker:
    """One process, its pipes, and the tasks it has in hand."""

    def __init__(self) -> None:
        path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109 - '' means just that
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", _BOOTSTRAP, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdin is not None  # noqa: S101 - asked for above, for the type checker
        assert self.process.stdout is not None  # noqa: S101
        self.stdin: IO[bytes] = self.process.stdin
        self.stdout: IO[bytes] = self.process.stdout
        _widen_pipe(self.stdout)
        self.in_hand: set[int] = set()
        self.handed_out = 0
        self.received = bytearray()
        self._unsent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # A thread of its own writes: until the worker has started, which takes tenths of a second,
        # nobody reads, and the caller has work of its own to do meanwhile.
        self._writer = threading.Thread(target=self._write_frames, daemon=True)
        self._writer.start()

    def send(self, payload: bytes) -> None:
        """Have one frame written; whether the worker is still there shows when it answers."""
        self._unsent.put(payload)

    def _write_frames(self) -> None:
        # A broken pipe is not judged here: `collect` reads what the worker said before it ended.
        with contextlib.suppress(BrokenPipeError), self.stdin:
            while (payload := self._unsent.get()) is not None:
                for part in (FRAME_HEADER.pack(len(payload)), payload):
                    unsent = memoryview(part)
                    while unsent:
                        unsent = unsent[self.stdin.write(unsent) :]

    def receive(self) -> list[tuple[int, bool, Any]] | None:
        """The complete answers that have arrived, or None if the worker is gone."""
        data = os.read(self.stdout.fileno(), _READ_SIZE_BYTES)
        if not data:
            return None
        self.received += data
        answers: list[tuple[int, bool, Any]] = []
        while len(self.received) >= FRAME_HEADER.size:
            (size,) = FRAME_HEADER.unpack_from(self.received)
            end = FRAME_HEADER.size + size
            if len(self.received) < end:
                break
            with memoryview(self.received) as view, view[FRAME_HEADER.size : end] as frame:
                answers.append(pickle.loads(frame))  # noqa: S301 - written by our own worker
            del self.received[:end]
        return answers

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
        pass  # not Linux, or over the user's limit: slower, never wrong


class _Crew:
    """The workers of one run: who is idle, who is due for replacement, who has died."""

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
        """Tasks handed out and not yet answered."""
        return sum(len(worker.in_hand) for worker in self._workers)

    def has_room(self) -> bool:
        """Whether a task can be handed out now."""
        return len(self._workers) < self._max_workers or self._freest() is not None

    def hand_out(self, index: int, task: object) -> None:
        """Give the task to the freest worker; start one while there are fewer than allowed."""
        payload = pickle.dumps((index, task), pickle.HIGHEST_PROTOCOL)
        worker = self._freest()
        if worker is None or (worker.in_hand and len(self._workers) < self._max_workers):
            worker = self._start()
        worker.in_hand.add(index)
        worker.handed_out += 1
        if worker.handed_out == 1:
            worker.send(self._setup)
        worker.send(payload)

    def _freest(self) -> _Worker | None:
        free = [
            worker
            for worker in self._workers
            if len(worker.in_hand) < self._max_in_flight
            and (self._max_tasks is None or worker.handed_out < self._max_tasks)
        ]
        return min(free, key=lambda worker: len(worker.in_hand), default=None)

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
        """The results that have arrived, waiting for the first at most `timeout_seconds`."""
        results: list[tuple[int, Any]] = []
        if not self._workers:
            return results
        for key, _ in self._selector.select(timeout_seconds):
            worker: _Worker = key.data
            answers = worker.receive()
            if answers is None:
                if worker.in_hand:
                    _raise_death(worker)
                self._dismiss(worker)
                continue
            for index, succeeded, value in answers:
                if not succeeded:
                    _raise_failure(*value)
                worker.in_hand.discard(index)
                results.append((index, value))
            if not worker.in_hand and worker.handed_out == self._max_tasks:
                self._dismiss(worker)
        return results

    def _dismiss(self, worker: _Worker) -> None:
        self._selector.unregister(worker.stdout)
        self._workers.remove(worker)
        worker.end(kill=False)

    def end(self, *, kill: bool) -> None:
        """End all workers, at once if `kill`; after it none is left."""
        self._selector.close()
        if kill:  # all of them first, so that none works on while another is waited for
            for worker in self._workers:
                worker.process.kill()
        while self._workers:
            self._workers.pop().end(kill=kill)


def _raise_death(worker: _Worker) -> NoReturn:
    worker.end(kill=False)
    raise WorkerProcessError(_describe_death(worker.process.returncode), tuple(worker.in_hand))


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
