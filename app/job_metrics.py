"""Job metrics: how the training jobs stand, read from their database at every scrape.

Counting them in a process would be wrong as soon as there are two, or one restarts. May import
`jobs`.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from app.jobs.job_store import FINAL_STATES, JOBS_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from app.jobs.job_store import JobStore

_UNFINISHED: Final = 100


class JobCollector(Collector):
    """`tokenizer_train_jobs_total{status}` and `tokenizer_train_progress_ratio`."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """The metrics now; nothing while the database cannot be read."""
        ended = CounterMetricFamily(
            "tokenizer_train_jobs",
            f"Training jobs that ended, of the last {JOBS_KEPT} kept.",
            labels=["status"],
        )
        progress = GaugeMetricFamily(
            "tokenizer_train_progress_ratio", "Progress of the running training job; 0 without one."
        )
        try:
            jobs = self._jobs.latest(limit=JOBS_KEPT + _UNFINISHED)
        except sqlite3.Error:
            return
        counts = Counter(str(job.state) for job in jobs)
        for state in sorted(FINAL_STATES):
            ended.add_metric([state], counts[state])
        progress.add_metric([], max((j.progress for j in jobs if j.state == "running"), default=0))
        yield ended
        yield progress
