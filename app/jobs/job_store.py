"""The jobs of an artifacts folder, in one SQLite file that every server process shares.

It stands alone because a job must outlive the process that took it: a request may be answered by
one server process, the training run by a second and its end noticed by a third. Calls block for a
few milliseconds (an fsync): call them from a thread, not from the event loop.

Who runs a job holds a lease on it, which other hosts judge it by: a pid means nothing there. A
lease ends at a time of the wall clock of the host that wrote it, and is compared with that of the
host that reads it. Renewed every few seconds for a minute to come, it bears clocks that differ by
most of a minute; a larger difference, or jump, may cost a running job, but no exactness: `attempt`
fences what a late owner would write. On its own host an owner is judged by its process, and no
clock matters. May import `job_database` and `process_marks`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from app.jobs.job_database import JobDatabase
from app.jobs.process_marks import ProcessMark, this_host

Kind = Literal["train", "encode"]
State = Literal["queued", "running", "live", "succeeded", "failed", "cancelled"]
FINAL_STATES: Final = frozenset({"live", "succeeded", "failed", "cancelled"})

DATABASE_NAME: Final = "jobs.sqlite3"
"""The file of the jobs in the artifacts folder."""

JOBS_KEPT: Final = 1000
"""Finished jobs beyond this many are forgotten, oldest first, so that the file stays bounded."""

LEASE_SECONDS: Final = 60.0
"""How long a claim holds without being renewed: `JobStore.renew_lease`."""


class QueueFullError(Exception):
    """No place for another job; `unfinished` jobs are running or queued."""

    def __init__(self, unfinished: int) -> None:
        self.unfinished = unfinished
        super().__init__(f"{unfinished} jobs are running or queued")


class IdempotencyConflictError(Exception):
    """The Idempotency-Key was used before with another request; `job_id` is that job."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"the Idempotency-Key belongs to job {job_id}, whose request differs")


@dataclass(frozen=True, slots=True)
class Job:
    """One row: what was asked for, how far it is, how it ended. Times are Unix seconds."""

    id: str
    kind: Kind
    request: Mapping[str, Any]
    state: State
    phase: str
    progress: float
    counters: Mapping[str, int]
    cancel_requested: bool
    attempt: int
    deaths: int
    owner: ProcessMark | None
    owner_host: str | None
    lease_ends_at: float | None
    child: ProcessMark | None
    result: Mapping[str, Any] | None
    error: Mapping[str, str] | None
    created_at: float
    started_at: float | None
    finished_at: float | None

    @property
    def is_final(self) -> bool:
        """Whether nothing will change this job any more."""
        return self.state in FINAL_STATES

    @property
    def is_of_this_host(self) -> bool:
        """Whether the marks of its processes mean processes that can be looked for here."""
        return self.owner_host in (None, this_host())  # None: a version before leases claimed it


class JobStore(JobDatabase):
    """All jobs in the SQLite file `path`, which is made when it is not there.

    Raises (from every method): sqlite3.OperationalError when the file cannot be read or written,
    for one because the disk is full; what was acknowledged before stays.
    """

    def add(
        self,
        job_id: str,
        request: Mapping[str, Any],
        *,
        kind: Kind = "train",
        request_digest: str,
        idempotency_key: str | None,
        queue_limit: int,
    ) -> Job:
        """Store a queued job, on the disk when this returns, or give back the one with that key.

        `queue_limit` jobs may wait behind the one that runs; with 0 a job is taken only when none
        is running.

        Raises:
            QueueFullError: no place.
            IdempotencyConflictError: the key was used for another request.
        """
        with self._transaction() as connection:
            earlier = _select_by_key(connection, idempotency_key, request_digest)
            if earlier is not None:
                return earlier
            unfinished = _count_unfinished(connection)
            if unfinished > queue_limit:
                raise QueueFullError(unfinished)
            connection.execute(
                "INSERT INTO jobs (id, kind, idempotency_key, request_digest, request, state,"
                " phase, created_at) VALUES (?, ?, ?, ?, ?, 'queued', 'queued', ?)",
                (job_id, kind, idempotency_key, request_digest, json.dumps(request), time.time()),
            )
            return _select(connection, job_id)

    def find_by_key(self, idempotency_key: str | None, request_digest: str) -> Job | None:
        """The job made earlier with this key, or None.

        Raises:
            IdempotencyConflictError: the key was used for another request.
        """
        with self._connection() as connection:
            return _select_by_key(connection, idempotency_key, request_digest)

    def count_unfinished(self) -> int:
        """How many jobs are running or queued."""
        with self._connection() as connection:
            return _count_unfinished(connection)

    def get(self, job_id: str) -> Job | None:
        """The job, or None."""
        with self._connection() as connection:
            row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        return None if row is None else _to_job(row)

    def latest(self, *, limit: int = 100, kind: Kind | None = None) -> list[Job]:
        """The latest jobs, newest first, of one kind if that is named."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT * FROM jobs WHERE ? IN ('', COALESCE(kind, 'train'))"
                " ORDER BY sequence DESC LIMIT ?",
                (kind or "", limit),
            ).fetchall()
        return [_to_job(row) for row in rows]

    def running(self) -> list[Job]:
        """The jobs some process holds: one at most, unless the file was written by hand."""
        with self._connection() as connection:
            rows = connection.execute("SELECT * FROM jobs WHERE state = 'running'").fetchall()
        return [_to_job(row) for row in rows]

    def unfinished(self) -> list[Job]:
        """The jobs that are running or queued."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT * FROM jobs WHERE state IN ('queued', 'running')"
            ).fetchall()
        return [_to_job(row) for row in rows]

    def claim_next(self, owner: ProcessMark) -> Job | None:
        """Take the oldest queued job for `owner`, or None when none waits or one is running.

        One transaction decides, so that over all processes only one child runs.
        """
        with self._connection() as connection:
            # Asked twice a second by every server process: a read takes no write lock.
            if not connection.execute("SELECT 1 FROM jobs WHERE state = 'queued'").fetchone():
                return None
        with self._transaction() as connection:
            if connection.execute("SELECT 1 FROM jobs WHERE state = 'running'").fetchone():
                return None
            row = connection.execute(
                "SELECT id FROM jobs WHERE state = 'queued' ORDER BY sequence LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            connection.execute(
                "UPDATE jobs SET state = 'running', phase = 'start', progress = 0,"
                " attempt = attempt + 1, owner = ?, owner_host = ?, lease_ends_at = ?,"
                " child = NULL, started_at = ? WHERE id = ?",
                (owner.to_json(), this_host(), _lease_end(), time.time(), row["id"]),
            )
            return _select(connection, row["id"])

    def renew_lease(self, job: Job) -> bool:
        """Hold the job for another LEASE_SECONDS; False when it is no longer this attempt's."""
        return self._update_held(job, "lease_ends_at = ?", (_lease_end(),))

    def set_child(self, job: Job, child: ProcessMark) -> bool:
        """Note the trainer's process; False when the job is no longer this attempt's."""
        return self._update_held(job, "child = ?", (child.to_json(),))

    def set_progress(
        self, job: Job, phase: str, progress: float, counters: Mapping[str, int]
    ) -> bool:
        """Note how far the job is; False when the job is no longer this attempt's."""
        return self._update_held(
            job,
            "phase = ?, progress = ?, counters = ?",
            (phase, progress, json.dumps(counters)),
        )

    def allow_publishing(self, job: Job) -> bool:
        """Let the trainer publish; False when it was cancelled or the job is another's by now.

        This is the one moment that decides between a cancelled job and a published version.
        """
        return self._update_held(
            job,
            "phase = 'publish', progress = 0.95, lease_ends_at = ?",
            (_lease_end(),),
            extra="AND cancel_requested = 0",
        )

    def set_result(self, job: Job, result: Mapping[str, Any]) -> bool:
        """Note what was published; a job requeued after this is not run again, only settled."""
        return self._update_held(
            job, "result = ?, phase = 'promote', progress = 0.98", (json.dumps(result),)
        )

    def requeue(self, job: Job, *, died: bool = False, if_lease_ended: bool = False) -> bool:
        """Put a running job back, in its old place, to be started again; `if_lease_ended` as in
        `finish`. `died` counts a death of its process, or of its server's."""
        now = time.time()
        return self._update_held(
            job,
            "state = CASE cancel_requested WHEN 1 THEN 'cancelled' ELSE 'queued' END,"
            " finished_at = CASE cancel_requested WHEN 1 THEN ? ELSE NULL END,"
            " phase = CASE cancel_requested WHEN 1 THEN 'cancelled' ELSE 'queued' END,"
            " progress = 0, owner = NULL, owner_host = NULL, lease_ends_at = NULL, child = NULL,"
            " deaths = COALESCE(deaths, 0) + ?",
            (now, int(died)),
            **_unless_renewed(now, if_lease_ended),
        )

    def finish(
        self,
        job: Job,
        state: State,
        *,
        error_code: str | None = None,
        detail: str = "",
        if_lease_ended: bool = False,
    ) -> bool:
        """End a running job; False when the job is no longer this attempt's.

        A job that ended well has progress 1; any other keeps the progress it had. With
        `if_lease_ended`, for who is not the owner, False also when the lease still holds: the
        same transaction looks, so that an owner that renews meanwhile keeps its job.
        """
        error = None if error_code is None else json.dumps({"code": error_code, "detail": detail})
        done = state in ("live", "succeeded")
        now = time.time()
        return self._update_held(
            job,
            "state = ?, phase = ?, error = ?, finished_at = ?, child = NULL,"
            " progress = CASE ? WHEN 1 THEN 1.0 ELSE progress END",
            (state, state, error, now, done),
            **_unless_renewed(now, if_lease_ended),
        )

    def request_cancel(self, job_id: str) -> Job | None:
        """Cancel a queued job at once, ask a running one to stop, leave a finished one as it is.

        Returns the job afterwards, or None when there is none.
        """
        with self._transaction() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'cancelled', phase = 'cancelled', finished_at = ?"
                " WHERE id = ? AND state = 'queued'",
                (time.time(), job_id),
            )
            connection.execute(
                "UPDATE jobs SET cancel_requested = 1 WHERE id = ? AND state = 'running'",
                (job_id,),
            )
            row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
            return None if row is None else _to_job(row)

    def is_cancel_requested(self, job: Job) -> bool:
        """Whether somebody asked to cancel it, or the job is no longer this attempt's."""
        now = self.get(job.id)
        return (
            now is None
            or now.cancel_requested
            or now.state != "running"
            or now.attempt != job.attempt
        )

    def forget_old(self, *, kept: int = JOBS_KEPT) -> list[str]:
        """Delete the finished jobs beyond the newest `kept`; returns their ids."""
        with self._transaction() as connection:
            rows = connection.execute(
                "DELETE FROM jobs WHERE state NOT IN ('queued', 'running') AND sequence <="
                " (SELECT MAX(sequence) FROM jobs) - ? RETURNING id",
                (kept,),
            ).fetchall()
        return [row["id"] for row in rows]

    def _update_held(
        self,
        job: Job,
        assignments: str,
        values: tuple[object, ...],
        *,
        extra: str = "",
        extra_values: tuple[object, ...] = (),
    ) -> bool:
        # `attempt` fences: a process that lost the job (it was thought dead, the job was requeued
        # and claimed again) can no longer write to it.
        with self._transaction() as connection:
            done = connection.execute(
                f"UPDATE jobs SET {assignments} WHERE id = ? AND state = 'running'"  # noqa: S608 - constants of this file
                f" AND attempt = ? {extra}",
                (*values, job.id, job.attempt, *extra_values),
            )
            return done.rowcount == 1


def _lease_end() -> float:
    return time.time() + LEASE_SECONDS


def _unless_renewed(now: float, if_lease_ended: bool) -> dict[str, Any]:
    """Arguments of `_update_held`."""
    return {"extra": "AND lease_ends_at < ?", "extra_values": (now,)} if if_lease_ended else {}


def _count_unfinished(connection: sqlite3.Connection) -> int:
    row = connection.execute(
        "SELECT COUNT(*) FROM jobs WHERE state IN ('queued', 'running')"
    ).fetchone()
    return int(row[0])


def _select(connection: sqlite3.Connection, job_id: str) -> Job:
    return _to_job(connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone())


def _select_by_key(
    connection: sqlite3.Connection, idempotency_key: str | None, request_digest: str
) -> Job | None:
    if idempotency_key is None:
        return None
    row = connection.execute(
        "SELECT * FROM jobs WHERE idempotency_key = ?", (idempotency_key,)
    ).fetchone()
    if row is None:
        return None
    if row["request_digest"] != request_digest:
        raise IdempotencyConflictError(row["id"])
    return _to_job(row)


def _to_job(row: sqlite3.Row) -> Job:
    return Job(
        id=row["id"],
        kind=row["kind"] or "train",  # None: an earlier version took it
        request=json.loads(row["request"]),
        state=row["state"],
        phase=row["phase"],
        progress=row["progress"],
        counters=json.loads(row["counters"]),
        cancel_requested=bool(row["cancel_requested"]),
        attempt=row["attempt"],
        deaths=row["deaths"] or 0,
        owner=ProcessMark.from_json(row["owner"]),
        owner_host=row["owner_host"],
        lease_ends_at=row["lease_ends_at"],
        child=ProcessMark.from_json(row["child"]),
        result=None if row["result"] is None else json.loads(row["result"]),
        error=None if row["error"] is None else json.loads(row["error"]),
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )
