"""The database of the jobs: one interface, one table and one error for two kinds of databases.

`sqlite` is a file in the artifacts folder, for the servers of that folder; `postgres` is a server
that replicas on several hosts share. The queue writes its statements once, in SQL that both accept,
with three forms that each database translates:

    ?                          a value
    unix_now()                 Unix seconds by the clock of the database (SQLite: of this host)
    FOR UPDATE SKIP LOCKED     skip rows that others are writing (SQLite has one writer and drops
                               the clause)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from tokenizer_service.jobs.errors import JobsError

Rows = list[dict[str, Any]]
Run = Callable[[str, Sequence[object]], Rows]
"""Runs one statement with its values and returns the rows."""


class JobDatabaseError(JobsError):
    """The jobs cannot be read or written; the message says why, for the log, and holds no secret.

    `is_full`: the disk of the database is full; `is_read_only`: it takes no writes. `is_away`: the
    database as a whole is unusable, not only this statement; the outage was logged once, when it
    began.
    """

    code = "job_store_unavailable"

    def __init__(
        self,
        reason: str,
        *,
        is_full: bool = False,
        is_read_only: bool = False,
        is_away: bool = False,
    ) -> None:
        self.is_full, self.is_read_only, self.is_away = is_full, is_read_only, is_away
        super().__init__(reason)


class JobDatabaseUnusableError(JobDatabaseError):
    """An operator must repair or replace the database; `remedy` says how, in words for clients."""

    code = "job_database_unusable"

    def __init__(self, reason: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(reason, is_away=True)


class JobDatabase(Protocol):
    """One table of jobs. Safe to use from several threads, processes and, if `is_shared`, hosts.

    Raises (from every method): JobDatabaseError; acknowledged writes persist.
    """

    is_shared: bool
    """Whether servers of several hosts and folders use it; each host then runs its own job."""

    def read(self) -> AbstractContextManager[Run]:
        """Run statements that change nothing."""
        ...

    def transaction(self, *, alone: str = "") -> AbstractContextManager[Run]:
        """Run statements that take effect together or not at all, durable at the end of the block.

        An error in the block rolls back. Transactions with the same `alone` exclude each other.
        """
        ...

    def close(self) -> None:
        """Close idle connections; a later call opens new ones."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the database is unusable now, as far as known, in words for clients."""
        ...

    @property
    def answers_for_seconds(self) -> float:
        """How long the database has been usable without interruption, as far as known."""
        ...


TABLE: Final = """
CREATE TABLE jobs (
    sequence         {sequence},
    id               TEXT NOT NULL UNIQUE,
    idempotency_key  TEXT UNIQUE,
    request_digest   TEXT NOT NULL,
    request          TEXT NOT NULL,
    state            TEXT NOT NULL,
    phase            TEXT NOT NULL,
    progress         DOUBLE PRECISION NOT NULL DEFAULT 0,
    counters         TEXT NOT NULL DEFAULT '{{}}',
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    attempt          INTEGER NOT NULL DEFAULT 0,
    owner            TEXT,
    owner_host       TEXT,
    lease_ends_at    DOUBLE PRECISION,
    child            TEXT,
    kind             TEXT NOT NULL,
    deaths           INTEGER NOT NULL DEFAULT 0,
    result           TEXT,
    error            TEXT,
    created_at       DOUBLE PRECISION NOT NULL,
    started_at       DOUBLE PRECISION,
    finished_at      DOUBLE PRECISION,
    folder           TEXT NOT NULL,
    takeovers        INTEGER NOT NULL DEFAULT 0
)
"""
_NULL: Final = type(None)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    name: types
    for types, names in (
        ((str,), "id request_digest request state phase counters kind folder"),
        ((str, _NULL), "idempotency_key owner owner_host child result error"),
        ((int,), "sequence attempt cancel_requested deaths takeovers"),
        ((int, float), "progress created_at"),
        ((int, float, _NULL), "lease_ends_at started_at finished_at"),
    )
    for name in names.split()
}
INDEX: Final = "CREATE INDEX jobs_by_state ON jobs (state, sequence)"


def creation(*, sequence: str) -> list[str]:
    """The statements that create the table, with this type of its `sequence`."""
    return [TABLE.format(sequence=sequence), INDEX]


def check_types(row: Mapping[str, Any]) -> None:
    """Raise TypeError, KeyError or UnicodeEncodeError for a column without a value of its type.

    SQLite stores any type in any column, and compares them: a text is greater than every number.
    """
    for name, types in _TYPES.items():
        value = row[name]
        if not isinstance(value, types):
            raise TypeError(f"{name} is of type {type(value).__name__}")
        if isinstance(value, str):
            value.encode()
