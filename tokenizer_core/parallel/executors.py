"""Executors run the tasks of a run: the protocol, and the one on processes of this machine.

A dead worker ends `run_tasks`. An executor instead reports the task that the worker had, and goes
on; its caller decides whether to retry. `ray_cluster` has the executor on a Ray cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tokenizer_core.errors import WorkerProcessError
from tokenizer_core.parallel.worker_processes import run_tasks

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Returned instead of a result where the task can be retried, with the reason."""

    reason: str


class Executor(Protocol):
    """Runs tasks somewhere. It knows neither what they do nor which ones to retry."""

    shown: str
    """Where it runs them, for messages."""

    def run(
        self,
        function: Callable[[State, Task], Result],
        tasks: Sequence[Task],
        *,
        state: State,
        while_waiting: Callable[[], object] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailure], None, None]:
        """Yield `(index, function(state, task))` for every task, in the order they finish; a
        TaskFailure instead of the result where the worker was lost.

        Every worker must be able to import `function` by name. The number of running tasks is
        bounded. `while_waiting` is called several times a second; an exception in it ends the run.
        Closing the generator, or any error, ends the running tasks.

        Raises:
            WorkerProcessError: workers cannot be started or reached.
            Exception: whatever `function` raised.
        """
        ...


class LocalExecutor:
    """Worker processes of this machine; with one worker, this process itself.

    Example:
        >>> from operator import mul
        >>> sorted(LocalExecutor(1).run(mul, [1, 2, 3], state=10))
        [(0, 10), (1, 20), (2, 30)]
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.shown = f"{num_workers} worker process{'es' if num_workers > 1 else ''} here"

    def run(
        self,
        function: Callable[[State, Task], Result],
        tasks: Sequence[Task],
        *,
        state: State,
        while_waiting: Callable[[], object] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailure], None, None]:
        """See `Executor`."""
        left = dict(enumerate(tasks))
        while left:
            indices = list(left)
            results = run_tasks(
                function,
                [left[index] for index in indices],
                num_workers=self.num_workers,
                state=state,
                # One each, so that the task which killed a worker is known.
                max_in_flight_per_worker=1,
                while_waiting=while_waiting,
            )
            try:
                with contextlib.closing(results):
                    for position, result in results:
                        del left[indices[position]]
                        yield indices[position], result
            except WorkerProcessError as error:
                if not error.tasks:
                    raise
                # The other workers ended too; their tasks start again.
                for position in error.tasks:
                    del left[indices[position]]
                    yield indices[position], TaskFailure(str(error))
