"""Whether a job runs again.

    its server stops      yes
    its process died      if its kind can resume
    its server died       if its kind can resume, or nothing indicates that it killed the server

A job that was cancelled meanwhile ends instead of running again: one statement of the database
decides (`JobStore.requeue`). How far an encoding job is when it runs again is read from its files
(`worker.encode`).
"""

from __future__ import annotations

from typing import Final, Literal

from tokenizer_service.jobs.attempt import Outcome
from tokenizer_service.jobs.kinds import KINDS
from tokenizer_service.jobs.queue import Job
from tokenizer_service.serving.workers import ProcessIdentity

MAX_DEATHS: Final = 3
"""How often a job may restart after a death of its process or server. A job that uses up the memory
must not restart for ever."""


def next_step(
    job: Job, outcome: Outcome, me: ProcessIdentity
) -> Literal["requeue", "settle", "cancelled", "failed"]:
    """What to do after this outcome: run the job again, settle what it published, or end it.

    A lost job that cannot resume restarts from the beginning if nothing indicates that it killed
    its server, as on another host. A restart costs only time.
    """
    if outcome.kind == "published":
        return "settle"
    if outcome.kind == "stopped":
        return "requeue"
    if outcome.kind == "cancelled":
        return "cancelled"
    is_suspect = job.owner != me and job.is_of_this_host  # `me`: see `runner._take_lost`
    can_restart = KINDS[job.kind].resumes or (outcome.kind == "lost" and not is_suspect)
    if outcome.kind != "failed" and can_restart and job.deaths < MAX_DEATHS:
        return "requeue"
    return "failed"
