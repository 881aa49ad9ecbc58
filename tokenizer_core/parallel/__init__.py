"""Work in several processes: `run_tasks` and nothing else."""

from tokenizer_core.parallel.worker_processes import WorkerTracebackError, run_tasks

__all__ = ["WorkerTracebackError", "run_tasks"]
