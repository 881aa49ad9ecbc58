"""A job as it is answered: its row, and the end of its log.

It stands alone because the routes answer it once and `job_events` each time it changes. Reads the
disk: call it from a thread. May import its neighbours in `app.jobs`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from app.jobs.job_folder import JobFolder
from app.jobs.job_schemas import JobSummary, JobView
from app.jobs.job_store import Job


def view_of(job: Job, artifacts_dir: Path) -> JobView:
    """What `GET /train/{id}` answers."""
    return JobView(**_fields(job), log_tail=JobFolder.of(artifacts_dir, job.id).log_tail())


def summary_of(job: Job) -> JobSummary:
    """One job of the list, without its log."""
    return JobSummary(**_fields(job))


def _fields(job: Job) -> dict[str, Any]:
    cancelling = job.cancel_requested and not job.is_final
    return {
        "id": job.id,
        "name": job.request["name"],
        "state": job.state,
        "phase": "cancelling" if cancelling else job.phase,
        "progress": round(job.progress, 4),
        "counters": job.counters,
        "result": job.result,
        "error": job.error,
        "created_at": _moment(job.created_at),
        "started_at": _moment(job.started_at),
        "finished_at": _moment(job.finished_at),
    }


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
