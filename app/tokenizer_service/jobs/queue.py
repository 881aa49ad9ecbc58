"""The queue: the jobs of a service, in the database that all its processes and replicas share.

A job must outlive the process that accepted it: one server process may serve the request, a second
run the job, and a third notice its end. Calls block for some milliseconds, and for seconds if the
database is unreachable: call them from a thread, not from the event loop.

The process that runs a job, its owner, holds a lease on it. Other hosts check the lease, because
they cannot check a pid. On PostgreSQL all times are the database's, and no host's clock matters. On
SQLite the owner's clock sets the end of the lease, and a reader compares that with its own clock.
The owner renews the lease a dozen times before it ends, so clocks may differ by most of a lease. A
larger difference, or a jump, may end a running job, but never makes a result wrong: on both
databases, `attempt` is the epoch that fences every write of an earlier owner. Processes on the
owner's host check its pid and start time, without any clock.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from tokenizer_core.blobs.atomic_files import create_synced, make_folder
from tokenizer_service.jobs.database import JobDatabase, Run, check_types
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME, SqliteDatabase
from tokenizer_service.jobs.errors import IdempotencyConflictError, JobRunningError, QueueFullError
from tokenizer_service.serving.workers import ProcessIdentity, this_host

log = logging.getLogger("tokenizer_service.jobs")

JOBS_KEPT: Final = 1000
"""Number of newest finished jobs that the table keeps."""

LEASE_SECONDS: Final = 60.0
"""The default lease of a job."""

FOLDER_ID_NAME: Final = ".folder-id"
"""The file with the id of an artifacts folder; one database may hold the jobs of several."""

Kind = Literal["train", "encode"]
State = Literal["queued", "running", "live", "succeeded", "failed", "cancelled"]
FINAL_STATES: Final = frozenset({"live", "succeeded", "failed", "cancelled"})

DAMAGED: Final = "job_damaged"
"""The error code of a job whose row cannot be read."""

_DAMAGED_ERROR: Final = {
    "code": DAMAGED,
    "detail": "The row of this job in the job database is damaged, so its request and its result "
    "are unknown; request the job again. Other jobs are not affected.",
}
_LATEST: Final = 1e11
"""Later moments, in Unix seconds, have no date."""

_MOST: Final = 2**31 - 2
"""Most attempts, deaths and takeovers: PostgreSQL can still add one."""

_NAMES: Final = {"train": "name", "encode": "token_files_id"}
_RESULTS: Final[Mapping[str, Mapping[str, type]]] = {
    "train": {"name": str, "version": str, "digest": str, "vocab_size": int},
    "encode": {"id": str, "documents": int, "tokens": int, "bytes": int},
}
"""For each kind: the field of the request that names the job, and the fields of its result."""


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the table. Times are Unix seconds by the clock of the database."""

    sequence: int
    """Its position in the queue. It addresses the row even if the id is damaged."""

    id: str
    kind: Kind
    request: Mapping[str, Any]
    state: State
    phase: str
    progress: float
    counters: Mapping[str, int]
    cancel_requested: bool
    attempt: int
    """How often it was claimed or taken over; the database refuses writes of earlier attempts."""

    deaths: int
    takeovers: int
    """How often another host took it over. Each takeover works in a new folder, because the earlier
    owner may still write to the previous one."""

    owner: ProcessIdentity | None
    owner_host: str | None
    lease_ends_at: float | None
    child: ProcessIdentity | None
    result: Mapping[str, Any] | None
    error: Mapping[str, str] | None
    created_at: float
    started_at: float | None
    finished_at: float | None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Job:
        """The job in a row of the table; of a damaged row, a failed job with error `DAMAGED`."""
        try:
            check_types(row)
            job = cls._of_sound_row(row)
            job._check()
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return cls._of_damaged_row(row)
        return job

    @classmethod
    def _of_sound_row(cls, row: Mapping[str, Any]) -> Job:
        parsed = {
            "request": json.loads(row["request"]),
            "counters": json.loads(row["counters"]),
            "cancel_requested": {0: False, 1: True}[row["cancel_requested"]],
            "owner": ProcessIdentity.from_json(row["owner"]),
            "child": ProcessIdentity.from_json(row["child"]),
            "result": None if row["result"] is None else json.loads(row["result"]),
            "error": None if row["error"] is None else json.loads(row["error"]),
        }
        return cls(**{**{field.name: row[field.name] for field in fields(cls)}, **parsed})

    def _check(self) -> None:
        """Check the values that routes show and that the runner relies on, for `of_row`."""
        shown = [self.phase, self.request.get(_NAMES[self.kind], ""), *self.counters]
        moments = (self.created_at, self.started_at, self.finished_at, self.lease_ends_at)
        if self.error is not None:
            shown += [self.error["code"], self.error["detail"]]
        results = {} if self.result is None else _RESULTS[self.kind]
        shown += [(self.result or {})[name] for name, kind in results.items() if kind is str]
        tokenizer = self.request.get("tokenizer") if self.kind == "encode" else None
        if tokenizer is not None:
            shown += [tokenizer[part] for part in ("name", "version", "digest")]
        is_sound = (
            self.state in get_args(State)
            and 0 <= self.progress <= 1
            and (self.lease_ends_at is not None or self.state != "running")
            and all(abs(moment or 0) < _LATEST for moment in moments)
            and all(0 <= n <= _MOST for n in (self.attempt, self.deaths, self.takeovers))
            and all(isinstance(number, int) for number in self.counters.values())
            and isinstance(self.request.get("corpus_ids"), list | None)
            and all(isinstance((self.result or {})[name], kind) for name, kind in results.items())
        )
        "".join(shown).encode()  # strings, without a lone surrogate
        if not is_sound:
            raise ValueError(f"job {self.id}: a value in its row is impossible")

    @classmethod
    def _of_damaged_row(cls, row: Mapping[str, Any]) -> Job:
        job_id, attempt = row["id"], row["attempt"]
        is_shown = isinstance(job_id, str) and job_id.isprintable()  # has no lone surrogate
        known = {
            "sequence": row["sequence"],
            "id": job_id if is_shown else f"row-{row['sequence']}",
            "kind": row["kind"] if row["kind"] in get_args(Kind) else "train",
            "request": dict.fromkeys(_NAMES.values(), ""),
            "state": "failed",
            "phase": "failed",
            "counters": {},
            "attempt": attempt if isinstance(attempt, int) else 0,
            "error": _DAMAGED_ERROR,
        }
        zeros = dict.fromkeys(("progress", "created_at"), 0.0)
        zeros |= dict.fromkeys(("cancel_requested", "deaths", "takeovers"), 0)
        return cls(**{**dict.fromkeys(field.name for field in fields(cls)), **zeros, **known})

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL_STATES

    @property
    def run_seconds(self) -> float | None:
        """Seconds from its last start to its end; None if it never ran, or has not ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at

    @property
    def is_damaged(self) -> bool:
        """Whether its row cannot be read."""
        return self.error is not None and self.error["code"] == DAMAGED

    @property
    def is_of_this_host(self) -> bool:
        """Whether its owner and child are processes of this host."""
        return self.owner_host == this_host()


class JobStore:
    """All jobs in `database`; adds, claims and forgets those of one artifacts folder.

    `folder` is the id of that folder, or "" with SQLite, whose file is in the folder. A job belongs
    to the folder of the server that accepted it: its uploads, documents, log and results are there.
    Every replica shows and cancels every job; only a server with its folder runs it.

    Raises (from every method): JobDatabaseError when the database is unusable, for example because
    the disk is full; acknowledged writes persist.
    """

    def __init__(
        self, database: JobDatabase, *, folder: str = "", lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self.database, self.lease_seconds = database, lease_seconds
        self._folder = folder
        self.host = this_host() if database.is_shared else ""
        """One job runs at a time on this host, or, if "", on all hosts that share the folder."""
        self.on_end: Callable[[Job], object] = lambda job: None
        """Called with each job that a call of this store has ended: once for each job among all
        processes, except for a damaged row, which two may fail at once."""

    @classmethod
    def open(
        cls,
        artifacts_dir: Path,
        address: str | None = None,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> JobStore:
        """The jobs of an artifacts folder: in its SQLite file, or in the database at `address`."""
        if address is None:
            database = SqliteDatabase(artifacts_dir / DATABASE_NAME)
            return cls(database, lease_seconds=lease_seconds)
        from tokenizer_service.jobs.database.postgres import (
            PostgresDatabase,  # needs the extra `postgres`
        )

        return cls(
            PostgresDatabase(address), folder=folder_id(artifacts_dir), lease_seconds=lease_seconds
        )

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
        """Store a queued job durably, or return the earlier job with that key.

        `queue_limit` jobs may wait for a running one; with 0, a job is accepted only if none runs.
        """
        with self.database.transaction(alone="add") as run:
            earlier = _select_by_key(run, idempotency_key, request_digest)
            if earlier is not None:
                return earlier
            _require_place(self._count_unfinished(run), queue_limit)
            (row,) = run(
                "INSERT INTO jobs (id, kind, folder, idempotency_key, request_digest, request,"
                " state, phase, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, 'queued', 'queued', unix_now()) RETURNING *",
                (job_id, kind, self._folder, idempotency_key, request_digest, json.dumps(request)),
            )
            return Job.of_row(row)

    def find_by_key(self, idempotency_key: str | None, request_digest: str) -> Job | None:
        """The earlier job with this key, or None; raises IdempotencyConflictError."""
        with self.database.read() as run:
            return _select_by_key(run, idempotency_key, request_digest)

    def count_unfinished(self) -> int:
        """Number of jobs of this folder that count against `queue_limit`: the queued jobs, and 1 if
        any job runs."""
        with self.database.read() as run:
            return self._count_unfinished(run)

    def require_place(self, queue_limit: int) -> None:
        """Raise QueueFullError or JobRunningError if `add` would."""
        _require_place(self.count_unfinished(), queue_limit)

    def get(self, job_id: str) -> Job | None:
        """The job, or None."""
        with self.database.read() as run:
            rows = run("SELECT * FROM jobs WHERE id = ?", (job_id,))
        return Job.of_row(rows[0]) if rows else None

    def latest(self, *, limit: int = 100, kind: Kind | None = None) -> list[Job]:
        """The latest jobs, newest first; only of `kind` if it is given."""
        return self._select(
            "SELECT * FROM jobs WHERE ? IN ('', kind) ORDER BY sequence DESC LIMIT ?",
            (kind or "", limit),
        )

    def running(self) -> list[Job]:
        """The running jobs of this folder."""
        return self._select(
            "SELECT * FROM jobs WHERE state = 'running' AND folder = ?", (self._folder,)
        )

    def unfinished(self) -> list[Job]:
        """The running and queued jobs of all folders."""
        return self._select("SELECT * FROM jobs WHERE state IN ('queued', 'running')", ())

    def claim_next(self, owner: ProcessIdentity) -> Job | None:
        """Claim the oldest queued job for `owner`; None if the queue is empty or a job runs.

        Fails damaged jobs before it, so that they do not block the queue. One transaction decides.
        So one child at a time runs on a host (with SQLite: on all hosts), and only one process of
        all hosts claims a job.
        """
        with self.database.read() as run:
            # Read first, without a write lock: every server process asks twice a second.
            if not run(
                "SELECT 1 FROM jobs WHERE state = 'queued' AND folder = ? LIMIT 1", (self._folder,)
            ):
                return None
        with self.database.transaction(alone=f"claim {self._folder} {self.host}") as run:
            claimed, damaged = self._claim(run, owner)
        for job in damaged:
            self.on_end(job)
        return claimed

    def _claim(self, run: Run, owner: ProcessIdentity) -> tuple[Job | None, list[Job]]:
        """The claimed job, and the damaged jobs that failed before it."""
        damaged: list[Job] = []
        if run(
            "SELECT 1 FROM jobs WHERE state = 'running' AND folder = ?"
            " AND ? IN ('', owner_host) LIMIT 1",
            (self._folder, self.host),
        ):
            return None, damaged
        while rows := run(
            "SELECT * FROM jobs WHERE state = 'queued' AND folder = ?"
            " ORDER BY sequence LIMIT 1 FOR UPDATE SKIP LOCKED",
            (self._folder,),
        ):
            # Check before the update: it would overwrite damaged values, the fence among them.
            job = Job.of_row(rows[0])
            if job.is_damaged:
                _fail_damaged(run, job)
                damaged.append(job)
                continue
            rows = run(
                "UPDATE jobs SET state = 'running', phase = 'start', progress = 0,"
                " attempt = attempt + 1, owner = ?, owner_host = ?,"
                " lease_ends_at = unix_now() + ?, child = NULL, started_at = unix_now()"
                " WHERE sequence = ? RETURNING *",
                (owner.to_json(), this_host(), self.lease_seconds, job.sequence),
            )
            return Job.of_row(rows[0]), damaged
        return None, damaged

    def take_over(self, job: Job, owner: ProcessIdentity, *, if_lease_ended: bool) -> Job | None:
        """Take a running job over from a dead owner, so that `owner` requeues or ends it.

        Returns the job afterwards, None if another process was first. For an owner on another host,
        set `if_lease_ended`: then the result is None also while the lease holds. The same statement
        checks the lease, so that an owner that renews it meanwhile keeps its job. Counts a death.
        From now on the database refuses all writes of the earlier owner.
        """
        with self.database.transaction() as run:
            rows = run(
                "UPDATE jobs SET attempt = attempt + 1, owner = ?, owner_host = ?, child = NULL,"
                " lease_ends_at = unix_now() + ?, deaths = deaths + 1,"
                " takeovers = takeovers + ?"
                " WHERE id = ? AND state = 'running' AND attempt = ?"
                " AND (? = 0 OR lease_ends_at < unix_now()) RETURNING *",
                (
                    owner.to_json(),
                    this_host(),
                    self.lease_seconds,
                    int(if_lease_ended),
                    job.id,
                    job.attempt,
                    int(if_lease_ended),
                ),
            )
        return Job.of_row(rows[0]) if rows else None

    def renew_lease(self, job: Job) -> bool:
        """Extend the lease by `lease_seconds`; False if the job is no longer this attempt's."""
        return self._update_held(job, "lease_ends_at = unix_now() + ?", (self.lease_seconds,))

    def set_child(self, job: Job, child: ProcessIdentity) -> bool:
        """Store the child process; False if the job is no longer this attempt's."""
        return self._update_held(job, "child = ?", (child.to_json(),))

    def set_progress(
        self, job: Job, phase: str, progress: float, counters: Mapping[str, int]
    ) -> bool:
        """Store the progress; False if the job is no longer this attempt's."""
        return self._update_held(
            job, "phase = ?, progress = ?, counters = ?", (phase, progress, json.dumps(counters))
        )

    def allow_publishing(self, job: Job) -> bool:
        """Whether the child may publish: the job was not cancelled and is still this attempt's.

        This one statement decides between a cancelled job and a published version.
        """
        return self._update_held(
            job,
            "phase = 'publish', progress = 0.95, lease_ends_at = unix_now() + ?",
            (self.lease_seconds,),
            extra=" AND cancel_requested = 0",
        )

    def set_result(self, job: Job, result: Mapping[str, Any]) -> bool:
        """Store what the job published. If the job is requeued after this, no child runs again."""
        return self._update_held(
            job, "result = ?, phase = 'promote', progress = 0.98", (json.dumps(result),)
        )

    def requeue(self, job: Job, *, died: bool = False) -> bool:
        """Put a running job back at its position in the queue, or end it if it was cancelled.

        With `died`, counts a death of its process.
        """
        return self._update_held(
            job,
            "state = CASE cancel_requested WHEN 1 THEN 'cancelled' ELSE 'queued' END,"
            " finished_at = CASE cancel_requested WHEN 1 THEN unix_now() ELSE NULL END,"
            " phase = CASE cancel_requested WHEN 1 THEN 'cancelled' ELSE 'queued' END,"
            " progress = 0, owner = NULL, owner_host = NULL, lease_ends_at = NULL, child = NULL,"
            " deaths = deaths + ?",
            (int(died),),
        )

    def finish(
        self, job: Job, state: State, *, error_code: str | None = None, detail: str = ""
    ) -> bool:
        """End a running job; False if the job is no longer this attempt's.

        A successful job gets progress 1; any other keeps its progress.
        """
        error = None if error_code is None else json.dumps({"code": error_code, "detail": detail})
        done = state in ("live", "succeeded")
        return self._update_held(
            job,
            "state = ?, phase = ?, error = ?, finished_at = unix_now(), child = NULL,"
            " progress = CASE ? WHEN 1 THEN 1.0 ELSE progress END",
            (state, state, error, int(done)),
        )

    def request_cancel(self, job_id: str) -> Job | None:
        """End a queued job, ask a running one to stop, and leave a finished one unchanged.

        Returns the job afterwards, or None if no job has this id.
        """
        with self.database.transaction() as run:
            # In one statement: a job that starts or is requeued between two would miss both.
            changed = run(
                "UPDATE jobs SET"
                " finished_at = CASE state WHEN 'queued' THEN unix_now() ELSE finished_at END,"
                " phase = CASE state WHEN 'queued' THEN 'cancelled' ELSE phase END,"
                " cancel_requested = CASE state WHEN 'running' THEN 1 ELSE cancel_requested END,"
                " state = CASE state WHEN 'queued' THEN 'cancelled' ELSE state END"
                " WHERE id = ? AND state IN ('queued', 'running') RETURNING *",
                (job_id,),
            )
            rows = changed or run("SELECT * FROM jobs WHERE id = ?", (job_id,))
        if not rows:
            return None
        job = Job.of_row(rows[0])
        if changed and job.is_final:
            self.on_end(job)
        return job

    def is_cancel_requested(self, job: Job) -> bool:
        """Whether a client asked to cancel the job, or it is no longer this attempt's."""
        now = self.get(job.id)
        return (
            now is None
            or now.cancel_requested
            or now.state != "running"
            or now.attempt != job.attempt
        )

    def forget_old(self, *, kept: int = JOBS_KEPT) -> list[str]:
        """Delete finished jobs of this folder that are not among the newest `kept` of all jobs.

        Returns their ids; those of damaged rows may have any form.
        """
        with self.database.transaction() as run:
            rows = run(
                "DELETE FROM jobs WHERE state NOT IN ('queued', 'running') AND sequence <="
                " (SELECT MAX(sequence) FROM jobs) - ? AND folder = ? RETURNING id",
                (kept, self._folder),
            )
        return [row["id"] for row in rows if isinstance(row["id"], str)]

    def fail_damaged(self, job: Job) -> None:
        """Fail an unfinished job whose row cannot be read, so that it does not block the queue."""
        with self.database.transaction() as run:
            _fail_damaged(run, job)
        self.on_end(job)

    def count_by_state(self) -> dict[tuple[str, str], int]:
        """(kind, state) -> number of jobs in the table, of all folders."""
        with self.database.read() as run:
            rows = run("SELECT kind, state, COUNT(*) AS n_jobs FROM jobs GROUP BY kind, state", ())
        return {(row["kind"], row["state"]): int(row["n_jobs"]) for row in rows}

    def _count_unfinished(self, run: Run) -> int:
        rows = run(
            "SELECT state FROM jobs WHERE state IN ('queued', 'running') AND folder = ?",
            (self._folder,),
        )
        n_running = len([row for row in rows if row["state"] == "running"])
        return len(rows) - n_running + min(1, n_running)

    def _select(self, statement: str, values: tuple[object, ...]) -> list[Job]:
        with self.database.read() as run:
            return [Job.of_row(row) for row in run(statement, values)]

    def _update_held(
        self, job: Job, assignments: str, values: tuple[object, ...], *, extra: str = ""
    ) -> bool:
        # `attempt` is the fence: a process that seemed dead and lost the job can no longer write to
        # it after the job was requeued and claimed again.
        with self.database.transaction() as run:
            rows = run(
                f"UPDATE jobs SET {assignments} WHERE id = ? AND state = 'running'"  # noqa: S608 - constants of this file
                f" AND attempt = ?{extra} RETURNING *",
                (*values, job.id, job.attempt),
            )
        if rows and rows[0]["state"] in FINAL_STATES:
            self.on_end(Job.of_row(rows[0]))
        return len(rows) == 1


def folder_id(artifacts_dir: Path) -> str:
    """The id of an artifacts folder; the first process that asks creates it."""
    path = artifacts_dir / FOLDER_ID_NAME
    if not path.exists():
        make_folder(artifacts_dir)
        create_synced(path, secrets.token_hex(16).encode())  # unless another process was first
    return path.read_text(encoding="ascii").strip()


def _fail_damaged(run: Run, job: Job) -> None:
    run(
        "UPDATE jobs SET state = 'failed', phase = 'failed', error = ?, finished_at = unix_now()"
        " WHERE sequence = ?",
        (json.dumps(_DAMAGED_ERROR), job.sequence),
    )
    log.error(
        "job %r: its row in the job database (sequence %s) is damaged; the job failed",
        job.id,
        job.sequence,
    )


def _require_place(unfinished: int, queue_limit: int) -> None:
    if unfinished > queue_limit:
        raise QueueFullError(unfinished, queue_limit) if queue_limit else JobRunningError


def _select_by_key(run: Run, idempotency_key: str | None, request_digest: str) -> Job | None:
    if idempotency_key is None:
        return None
    rows = run("SELECT * FROM jobs WHERE idempotency_key = ?", (idempotency_key,))
    if not rows:
        return None
    job = Job.of_row(rows[0])
    if rows[0]["request_digest"] != request_digest:
        raise IdempotencyConflictError(job.id)
    return job
