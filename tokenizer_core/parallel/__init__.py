"""Concurrent work: `run_tasks` in processes, `run_ahead` and `map_ahead` in threads, and executors,
which continue after a worker dies."""

from tokenizer_core.parallel.executors import Executor, LocalExecutor, TaskFailure
from tokenizer_core.parallel.run_ahead import map_ahead, run_ahead, until_error
from tokenizer_core.parallel.worker_processes import (
    CAN_START_WORKERS,
    WorkerTracebackError,
    resident_bytes_of_tree,
    run_tasks,
)

__all__ = [
    "CAN_START_WORKERS",
    "Executor",
    "LocalExecutor",
    "TaskFailure",
    "WorkerTracebackError",
    "map_ahead",
    "resident_bytes_of_tree",
    "run_ahead",
    "run_tasks",
    "until_error",
]
