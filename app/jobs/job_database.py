"""The SQLite file of the jobs: its table, how an older one is brought up, transactions.

It stands alone because it knows how the file is opened and nothing of what a job is. Every use
opens its own connection (0.1 ms), does one short transaction and closes it, so nothing is held that
a fork, a thread or a `kill -9` could spoil.

`journal_mode=DELETE` and `synchronous=FULL` on purpose: SQLite before 3.51.3 can corrupt a
database in WAL mode when two connections checkpoint at once, and a row that was acknowledged must
be on the disk. May import the standard library only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_BUSY_TIMEOUT_SECONDS: Final = 15.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    sequence         INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT NOT NULL UNIQUE,
    idempotency_key  TEXT UNIQUE,
    request_digest   TEXT NOT NULL,
    request          TEXT NOT NULL,
    state            TEXT NOT NULL,
    phase            TEXT NOT NULL,
    progress         REAL NOT NULL DEFAULT 0,
    counters         TEXT NOT NULL DEFAULT '{}',
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    attempt          INTEGER NOT NULL DEFAULT 0,
    owner            TEXT,
    owner_host       TEXT,
    lease_ends_at    REAL,
    child            TEXT,
    kind             TEXT,
    deaths           INTEGER,
    result           TEXT,
    error            TEXT,
    created_at       REAL NOT NULL,
    started_at       REAL,
    finished_at      REAL
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, sequence);
"""

_COLUMNS_SINCE: Final = {
    "owner_host": "TEXT",
    "lease_ends_at": "REAL",
    "kind": "TEXT",
    "deaths": "INTEGER",
}
"""What the table of 0.1.0 lacks. All may be NULL, so that a server of that version, still running
beside this one, goes on reading and writing."""


@dataclass(frozen=True)
class JobDatabase:
    """The file `path`, made when it is not there, its table as this version wants it.

    Raises: sqlite3.OperationalError when the file cannot be read or written.
    """

    path: Path
    busy_timeout_seconds: float = field(default=_BUSY_TIMEOUT_SECONDS)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as connection:
            # Kept in the file's header, unlike `synchronous`, which is each connection's own.
            connection.execute("PRAGMA journal_mode=DELETE")
        with self._transaction() as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            there = {row["name"] for row in connection.execute("PRAGMA table_info(jobs)")}
            for name, kind in _COLUMNS_SINCE.items():
                if name not in there:
                    connection.execute(f"ALTER TABLE jobs ADD COLUMN {name} {kind}")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(
            self.path, timeout=self.busy_timeout_seconds, isolation_level=None
        )
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA synchronous=FULL")
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            # IMMEDIATE: taking the write lock first avoids the deadlock of two readers that both
            # want to write, which SQLite answers with an error no timeout helps against.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:  # a full disk has rolled it back already
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
