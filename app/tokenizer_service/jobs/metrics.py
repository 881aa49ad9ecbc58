"""Gauges of the jobs, read from the job database at every scrape.

All processes and replicas share the database, so each reports the same values: aggregate them with
`max`. What counts up, `tokenizer_train_jobs_total` and the like, belongs to the process that ended
the job (`JobStore.on_end`), because the database forgets old jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.kinds import KINDS
from tokenizer_service.jobs.queue import JobStore, State


class JobCollector(Collector):
    """Collects `tokenizer_jobs{kind,state}`, for each kind `tokenizer_KIND_progress_ratio`, and
    `tokenizer_job_database_away`."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """The metrics now; while the database is unusable only that it is."""
        away = GaugeMetricFamily(
            "tokenizer_job_database_away", "1 while the job database cannot be used."
        )
        try:
            counts, unfinished = self._jobs.count_by_state(), self._jobs.unfinished()
        except JobDatabaseError:
            away.add_metric([], 1)
            yield away
            return
        away.add_metric([], 0)
        yield away
        jobs = GaugeMetricFamily(
            "tokenizer_jobs",
            "Jobs in the job database, which keeps the latest finished ones.",
            labels=["kind", "state"],
        )
        for name in KINDS:
            for state in get_args(State):
                jobs.add_metric([name, state], counts.get((name, state), 0))
        yield jobs
        for name, kind in KINDS.items():
            running = [job for job in unfinished if (job.kind, job.state) == (name, "running")]
            yield GaugeMetricFamily(
                f"tokenizer_{name}_progress_ratio",
                f"Progress of the running {kind.process} job; 0 without one.",
                max((job.progress for job in running), default=0),
            )
