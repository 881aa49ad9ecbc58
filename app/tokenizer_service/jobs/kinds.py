"""The kinds of jobs: their messages, the settings of their processes, their last steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.token_files import TokenFilesFolder

if TYPE_CHECKING:
    from tokenizer_service.jobs.queue import Job, JobStore
    from tokenizer_service.settings import Settings


@dataclass(frozen=True, slots=True)
class JobKind:
    """The words and figures in which the kinds differ.

    `process` and `agent` name the child process in messages and in codes. `less_text`,
    `less_memory` and `when_lost` are remedies: for a job that takes too long, one that takes too
    much memory, and one whose server was killed. `progress_of_phase` maps each phase to the
    progress at its start and end. A job that `resumes` continues from the files that its dead
    process wrote.
    """

    process: str
    agent: str
    less_text: str
    less_memory: str
    when_lost: str
    progress_of_phase: Mapping[str, tuple[float, float]]
    resumes: bool


TRAINING: Final = JobKind(
    process="training",
    agent="trainer",
    less_text="train on less text",
    less_memory="train on a part of the corpus, or break up text that goes on without a space",
    when_lost=(
        "post the request again. A version it had published is in /tokenizers and can be promoted"
    ),
    progress_of_phase={
        "download": (0.0, 0.2),
        "count": (0.0, 0.5),
        "learn": (0.5, 0.95),
    },
    resumes=False,
)
ENCODING: Final = JobKind(
    process="encoding",
    agent="encoder",
    less_text="encode fewer corpora in one job",
    less_memory="ask for fewer workers",
    when_lost="it has been restarted as often as allowed. Ask for fewer workers, or give the "
    "machine more memory, and post the request again",
    progress_of_phase={"encode": (0.0, 0.9), "shuffle": (0.9, 0.95)},
    resumes=True,
)
IMPORTING: Final = JobKind(
    process="import",
    agent="importer",
    less_text="import a smaller vocabulary",
    less_memory="import it with the command tokenizer import",
    when_lost="post the request again",
    progress_of_phase={},
    resumes=False,
)
KINDS: Final[Mapping[str, JobKind]] = {"train": TRAINING, "encode": ENCODING}
"""Those of the queue."""


def child_settings(job: Job, settings: Settings) -> dict[str, Any]:
    """The settings that the child process needs in addition to the job's request."""
    if job.kind == "encode":
        most = settings.train_threads or os.cpu_count() or 1
        return {"num_workers": min(job.request["workers"] or most, most)}
    return {
        "num_workers": settings.train_threads,
        "corpus_url_hosts": settings.corpus_url_hosts,
        "corpus_s3_prefixes": settings.corpus_s3_prefixes,
        "max_download_bytes": settings.corpora_max_bytes,
    }


def cancel_job(store: JobStore, artifacts_dir: Path, job_id: str) -> Job | None:
    """Cancel a queued job, or ask the runner of a running one to stop it.

    Returns the job afterwards, None if no job has this id. The runner may be in another process or
    on another host; it looks for requests to cancel several times a second.
    """
    job = store.request_cancel(job_id)
    if job is not None and job.is_final:  # no runner removes the files of a queued job
        clear_away(artifacts_dir, job)
    return job


def clear_away(artifacts_dir: Path, job: Job) -> None:
    """Remove the inputs of an ended job, and everything it wrote and did not publish."""
    JobFolder.of(artifacts_dir, job.id).remove_inputs()
    if job.kind == "encode":
        TokenFilesFolder.of(artifacts_dir).drop(job.id)
