"""Who runs the tasks of a run: the contract, and the processes of this machine.

Beside `run_tasks`, which a dead worker ends, an executor tells of the task that died with it and
goes on: its caller decides what is tried again. `ray_cluster` has the same on a Ray cluster.
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
    """What stands in the place of a result where a task can be tried again, and why."""

    reason: str


class Executor(Protocol):
    """Runs tasks somewhere; knows nothing of what they do, nor of what is to be tried again."""

    shown: str
    """Where it runs them, for people."""

    def run(
        self,
        function: Callable[[State, Task], Result],
        tasks: Sequence[Task],
        *,
        state: State,
        while_waiting: Callable[[], object] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailure], None, None]:
        """Yield `(index, function(state, task))` for every task, in the order they finish; a
        TaskFailure in place of the result where the worker was lost.

        `function` must be found by name in a module, wherever it runs. A bounded number is under
        way. `while_waiting` is called several times a second, and what it raises ends the run.
        Closing the generator, or any error, ends what is under way.

        Raises:
            WorkerProcessError: workers cannot be started, or are out of reach.
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
            answers = run_tasks(
                function,
                [left[index] for index in indices],
                num_workers=self.num_workers,
                state=state,
                # One each: so it is known which task a worker died of.
                max_in_flight_per_worker=1,
                while_waiting=while_waiting,
            )
            try:
                with contextlib.closing(answers):
                    for place, result in answers:
                        del left[indices[place]]
                        yield indices[place], result
            except WorkerProcessError as error:
                if not error.tasks:
                    raise
                # What the others were at was ended with them, and is begun again.
                for place in error.tasks:
                    del left[indices[place]]
                    yield indices[place], TaskFailure(str(error))
