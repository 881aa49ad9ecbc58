"""The document of a job: its row, and the end of its log. Reads the disk: call it from a thread."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tokenizer_client.schemas.jobs import AnyJobSummary, EncodeJobView, JobSummary, JobView
from tokenizer_service.jobs.attempt import WAITED
from tokenizer_service.jobs.folder import JobFolder, is_job_id
from tokenizer_service.jobs.queue import Job


def view_of(job: Job, artifacts_dir: Path) -> JobView | EncodeJobView:
    """The response of `GET /jobs/{id}` and, for a training job, `GET /train/{id}`."""
    made = JobView if job.kind == "train" else EncodeJobView
    is_sound = is_job_id(job.id)  # a damaged id names no folder
    log_tail = JobFolder.of(artifacts_dir, job.id).log_tail() if is_sound else []
    return made(**_fields(job), log_tail=log_tail)


def summary_of(job: Job) -> AnyJobSummary:
    """An entry in a list of jobs, without the log."""
    made = JobSummary if job.kind == "train" else AnyJobSummary
    return made(**_fields(job))


def _fields(job: Job) -> dict[str, Any]:
    cancelling = job.cancel_requested and not job.is_final
    return {
        "id": job.id,
        "name": job.request.get("name" if job.kind == "train" else "token_files_id", ""),
        "state": job.state,
        "phase": "cancelling" if cancelling else job.phase,
        "progress": round(job.progress, 4),
        "counters": job.counters,
        "waits_for": _waits_for(job),
        "result": job.result,
        "error": job.error,
        "created_at": _moment(job.created_at),
        "started_at": _moment(job.started_at),
        "finished_at": _moment(job.finished_at),
        "kind": job.kind,
    }


def _waits_for(job: Job) -> str | None:
    percent = job.counters.get(WAITED)
    if job.state == "queued":
        return "a server to run it: one job runs at a time"
    if job.state != "running" or percent is None:
        return None
    return (
        f"a processor: its process waited {percent} % of the last second, because other programs "
        f"use them; a lower TOKENIZER_JOB_NICE gives it more"
    )


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
