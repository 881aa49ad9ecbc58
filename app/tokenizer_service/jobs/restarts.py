"""Whether a job runs again after its process or its server died."""

from __future__ import annotations

from typing import Final

from tokenizer_service.jobs.kinds import KINDS
from tokenizer_service.jobs.queue import Job
from tokenizer_service.serving.workers import ProcessIdentity

MAX_DEATHS: Final = 3
"""How often a job may restart after a death of its process or server. A job that uses up the memory
must not restart for ever."""


def may_resume(job: Job) -> bool:
    """Whether a job whose process died starts again from the files of that process."""
    return KINDS[job.kind].resumes and job.deaths < MAX_DEATHS


def may_restart(job: Job, me: ProcessIdentity) -> bool:
    """Whether a job whose server died starts again.

    A job that cannot resume restarts from the beginning if nothing indicates that it killed its
    server, as on another host. A restart costs only time.
    """
    is_unknown = job.owner == me or not job.is_of_this_host
    return may_resume(job) or (is_unknown and job.deaths < MAX_DEATHS)
