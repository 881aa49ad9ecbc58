"""The jobs of one artifacts folder in a SQLite file, which every server process on it shares.

Every use opens its own connection (0.1 ms), does one short transaction and closes it, so that no
fork, thread or `kill -9` can damage shared state.

The database uses `journal_mode=DELETE` because SQLite before 3.51.3 can corrupt a database in WAL
mode when two connections checkpoint at once. It uses `synchronous=EXTRA` because an acknowledged
row must be on the disk: FULL does not sync the removal of the journal, and a journal that comes
back after a power cut undoes the last transaction.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.jobs.database import JobDatabaseError, Rows, Run, migrations
from tokenizer_core.blobs.atomic_files import make_folder

DATABASE_NAME: Final = "jobs.sqlite3"
"""The name of the file in the artifacts folder."""

_BUSY_TIMEOUT_SECONDS: Final = 15.0


@dataclass(frozen=True)
class SqliteDatabase:
    """The database in the file `path`; creates the file and migrates its table.

    Raises: JobDatabaseError when the file cannot be read or written, for example because the disk
        is full or the file was removed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SqliteDatabase(Path(folder) / DATABASE_NAME).read() as run:
        ...         run("SELECT COUNT(*) AS n_jobs FROM jobs", ())
        [{'n_jobs': 0}]
    """

    path: Path
    busy_timeout_seconds: float = field(default=_BUSY_TIMEOUT_SECONDS)
    is_shared = False

    def __post_init__(self) -> None:
        make_folder(self.path.parent)
        with self._connection(mode="rwc") as connection:
            # The file's header stores this mode, while each connection must set `synchronous`.
            connection.execute("PRAGMA journal_mode=DELETE")
        with self.transaction() as run:
            there = [row["name"] for row in run("PRAGMA table_info(jobs)", ())]
            for statement in migrations(there, sequence="INTEGER PRIMARY KEY AUTOINCREMENT"):
                run(statement, ())

    def close(self) -> None:
        """Does nothing: no connection is open between two uses."""

    @property
    def trouble(self) -> None:
        """Always None: each use opens its own connection, so that no error lasts."""

    @property
    def answers_for_seconds(self) -> float:
        """Always infinite, see `trouble`."""
        return math.inf

    @contextmanager
    def read(self) -> Iterator[Run]:
        """See `JobDatabase`."""
        with self._connection() as connection:
            yield _runner(connection)

    @contextmanager
    def transaction(self, *, alone: str = "") -> Iterator[Run]:
        """See `JobDatabase`. SQLite has one writer at a time anyway."""
        del alone
        with self._connection() as connection:
            # IMMEDIATE takes the write lock first. Otherwise two readers that both begin to write
            # deadlock, and SQLite reports an error in spite of the timeout.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield _runner(connection)
            except BaseException:
                if connection.in_transaction:  # SQLite itself rolls back if the disk is full
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self, *, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        # Only the start creates the file ("rwc"). If an operator moves the file away later, an
        # empty new file would be in the way when it is moved back.
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=self.busy_timeout_seconds,
                isolation_level=None,
            )
            try:
                connection.row_factory = sqlite3.Row
                connection.create_function("unix_now", 0, _unix_now)
                connection.execute("PRAGMA synchronous=EXTRA")
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise JobDatabaseError(str(error), is_full=_is_full_disk(error)) from error


def _runner(connection: sqlite3.Connection) -> Run:
    def run(statement: str, values: Sequence[object]) -> Rows:
        own = statement.replace(" FOR UPDATE SKIP LOCKED", "")
        return [dict(row) for row in connection.execute(own, tuple(values))]

    return run


def _unix_now() -> float:
    return time.time()


def _is_full_disk(error: sqlite3.Error) -> bool:
    """Whether the disk is full; an I/O error while writing usually means that as well."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR_WRITE")
