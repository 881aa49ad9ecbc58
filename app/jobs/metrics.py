"""Job metrics: how the jobs stand, read from their database at every scrape.

Counting them in a process would be wrong as soon as there are two, or one restarts.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from app.jobs.database import JobDatabaseError
from app.jobs.job import FINAL_STATES
from app.jobs.queue import JOBS_KEPT
from app.jobs.work import WORK_OF_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from app.jobs.job import Job
    from app.jobs.queue import JobStore

_UNFINISHED: Final = 100


class JobCollector(Collector):
    """`tokenizer_train_jobs_total{status}` and `tokenizer_train_progress_ratio`, and the same of
    encoding jobs as `tokenizer_encode_jobs_total` and `tokenizer_encode_progress_ratio`."""

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        """The metrics now; nothing while the database cannot be read."""
        try:
            jobs = self._jobs.latest(limit=JOBS_KEPT + _UNFINISHED)
        except JobDatabaseError:
            return
        for kind, work in WORK_OF_KIND.items():
            yield from _metrics(kind, work.process, [job for job in jobs if job.kind == kind])


def _metrics(kind: str, process: str, jobs: list[Job]) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        f"tokenizer_{kind}_jobs",
        f"{process.capitalize()} jobs that ended, of the last {JOBS_KEPT} jobs kept.",
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
