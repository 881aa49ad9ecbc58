"""The kinds of jobs, as the runner asks them: what the child is to do, what comes after it.

It stands alone because the runner moves a job of any kind from one state to the next; what it does
not know of a job is here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from app.jobs.folder import JobFolder
from app.jobs.job import Job
from app.jobs.queue import JobStore
from app.jobs.token_files_folder import TokenFilesFolder
from app.jobs.worker.cluster import cluster_settings, remove_run_of

if TYPE_CHECKING:
    from app.jobs.version_retention import VersionRetention
    from app.settings import Settings


class JobKind(Protocol):
    """What differs from kind to kind; `job_work` has the rest."""

    def child_settings(self, job: Job) -> dict[str, Any]:
        """What the child needs beside the job's request."""
        ...

    def is_promoted(self, job: Job) -> bool:
        """Whether what the child published is a version to be served now."""
        ...

    def after_success(self, job: Job) -> None:
        """What is left to do once the job has ended well; blocks."""
        ...


class TrainingKind:
    """A tokenizer is trained, published and, by default, promoted."""

    def __init__(self, settings: Settings, retention: VersionRetention) -> None:
        self._settings, self._retention = settings, retention

    def child_settings(self, job: Job) -> dict[str, Any]:
        """How many may count, and what may be fetched."""
        return {
            "num_workers": self._settings.train_threads,
            "corpus_url_hosts": self._settings.corpus_url_hosts,
            "max_download_bytes": self._settings.corpora_max_bytes,
            **cluster_settings(self._settings, job.id),
        }

    def is_promoted(self, job: Job) -> bool:
        """Unless somebody is to do it by hand."""
        return bool(job.request["promote"] != "manual")

    def after_success(self, job: Job) -> None:
        """Old versions of the name go."""
        self._retention.keep_newest(job.request["name"])


class EncodingKind:
    """Corpora become token files, which nobody has to be told of."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def child_settings(self, job: Job) -> dict[str, Any]:
        """As many workers as were asked for and the operator allows, or the cluster's."""
        most = self._settings.train_threads or os.cpu_count() or 1
        return {
            "num_workers": min(job.request["workers"] or most, most),
            **cluster_settings(self._settings, job.id),
        }

    def is_promoted(self, job: Job) -> bool:
        """Never."""
        return False

    def after_success(self, job: Job) -> None:
        """Nothing."""


def job_kinds(settings: Settings, retention: VersionRetention) -> Mapping[str, JobKind]:
    """All kinds, by name."""
    return {"train": TrainingKind(settings, retention), "encode": EncodingKind(settings)}


def cancel_job(store: JobStore, artifacts_dir: Path, job_id: str) -> Job | None:
    """Cancel a job that waits, ask one that runs to stop; it as it is then, None if there is none.

    Whoever runs it looks twice a second and ends it, in whichever process or on whichever host.
    """
    job = store.request_cancel(job_id)
    if job is not None and job.is_final:  # no runner comes to a job that waited
        clear_away(artifacts_dir, job)
    return job


def clear_away(artifacts_dir: Path, job: Job) -> None:
    """Remove what an ended job needs no more, and all that it wrote and did not publish."""
    folder = JobFolder.of(artifacts_dir, job.id)
    remove_run_of(folder)
    folder.remove_inputs()
    if job.kind == "encode":
        TokenFilesFolder.of(artifacts_dir).drop(job.id)
