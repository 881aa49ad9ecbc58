"""Job metrics, read from the job database at every scrape.

A counter in one process would be wrong with two processes, or after a restart.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from app.jobs.database import JobDatabaseError
from app.jobs.kinds import KINDS
from app.jobs.queue import FINAL_STATES, JOBS_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from app.jobs.queue import Job, JobStore

_UNFINISHED: Final = 100


class JobCollector(Collector):
    """Collects `tokenizer_train_jobs_total{status}` and `tokenizer_train_progress_ratio`, for
    encoding jobs `tokenizer_encode_jobs_total{status}` and `tokenizer_encode_progress_ratio`, and
    `tokenizer_job_database_away`."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """The metrics now; while the database is unusable only that it is."""
        away = GaugeMetricFamily(
            "tokenizer_job_database_away", "1 while the job database cannot be used."
        )
        jobs: list[Job] | None
        try:
            jobs = self._jobs.latest(limit=JOBS_KEPT + _UNFINISHED)
        except JobDatabaseError:
            jobs = None
        away.add_metric([], jobs is None)
        yield away
        if jobs is None:
            return
        for name, kind in KINDS.items():
            yield from _metrics(name, kind.process, [job for job in jobs if job.kind == name])


def _metrics(kind: str, process: str, jobs: list[Job]) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        f"tokenizer_{kind}_jobs",
        f"{process.capitalize()} jobs that ended, among the last {JOBS_KEPT} jobs kept.",
        labels=["status"],
    )
    progress = GaugeMetricFamily(
        f"tokenizer_{kind}_progress_ratio",
        f"Progress of the running {process} job; 0 without one.",
    )
    counts = Counter(str(job.state) for job in jobs)
    for state in sorted(FINAL_STATES):
        ended.add_metric([state], counts[state])
    progress.add_metric([], max((j.progress for j in jobs if j.state == "running"), default=0))
    yield ended
    yield progress
