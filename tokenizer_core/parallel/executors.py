"""Executors run the tasks of a run: the protocol, and the one on processes of this machine.

`run_tasks` ends when a worker dies. An executor instead reports the worker's task and continues;
its caller decides whether to retry. `ray_cluster` has the executor on a Ray cluster.
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
    """Why a task has no result; the caller can retry it."""

    reason: str


class Executor(Protocol):
    """Runs tasks on this machine or a cluster; its caller decides which ones to retry."""

    shown: str
    """The machine or cluster that runs them, for messages."""

    def run(
        self,
        function: Callable[[State, Task], Result],
        tasks: Sequence[Task],
        *,
        state: State,
        while_waiting: Callable[[], object] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailure], None, None]:
        """Yield `(index, function(state, task))` for every task, in the order they finish; a
        TaskFailure instead of the result if the worker was lost.

        Every worker must be able to import `function` by name. The number of running tasks is
        bounded. `while_waiting` is called several times a second; an exception in it ends the run.
        Closing the generator, or any error, ends the running tasks.

        Raises:
            WorkerProcessError: workers cannot be started or reached.
            Exception: any exception of `function`.
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
        left = dict(enumerate(tasks))
        while left:
            indices = list(left)
            results = run_tasks(
                function,
                [left[index] for index in indices],
                num_workers=self.num_workers,
                state=state,
                # One task per worker, so that we know which task killed it.
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
                # The other workers ended too; start their tasks again.
                for position in error.tasks:
                    del left[indices[position]]
                    yield indices[position], TaskFailure(str(error))
