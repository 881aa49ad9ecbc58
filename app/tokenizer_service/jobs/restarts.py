"""Whether a job runs again.

    its server stops      yes (`runner`)
    its process died      if `may_resume`, else it fails
    its server died       if `may_restart`, else it fails

If it has published a version, only the promotion runs again (`runner`). If it was cancelled
meanwhile, it ends instead of running again (`JobStore.requeue`).
"""

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
    is_no_suspect = job.owner == me or not job.is_of_this_host  # `me`: see `runner._take_lost`
    return may_resume(job) or (is_no_suspect and job.deaths < MAX_DEATHS)
