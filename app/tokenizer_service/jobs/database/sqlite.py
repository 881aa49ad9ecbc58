"""The jobs of one artifacts folder in a SQLite file, which every server process on it shares.

Every use opens its own connection (0.1 ms), does one short transaction and closes it, so that no
fork, thread or `kill -9` can damage shared state.

The database uses `journal_mode=DELETE` because SQLite before 3.51.3 can corrupt a database in WAL
mode when two connections checkpoint at once. It uses `synchronous=EXTRA` because an acknowledged
row must be on the disk: FULL does not sync the removal of the journal, and a journal that comes
back after a power cut undoes the last transaction.

The service starts and serves with a file that it cannot use. Each use looks at the file again, and
goes on when an operator has put a sound one there. A damaged file is not read again until it
changes, so that nothing writes to it.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tokenizer_core.blobs.atomic_files import make_folder
from tokenizer_service.jobs.database import (
    JobDatabaseError,
    JobDatabaseUnusableError,
    Rows,
    Run,
    creation,
)

log = logging.getLogger("tokenizer_service.jobs")

DATABASE_NAME: Final = "jobs.sqlite3"
"""The name of the file in the artifacts folder."""

_BUSY_TIMEOUT_SECONDS: Final = 15.0
_LEAST_SQLITE: Final = (3, 35)
"""The first with RETURNING; the Python 3.11 of RHEL 9 uses 3.34."""
_NO_TABLE: Final = "it holds no table of jobs"
_decode: Final = functools.partial(str, encoding="utf-8", errors="surrogateescape")
"""Decodes a text. The default refuses a query if one text of one row is not UTF-8; `Job.of_row`
refuses only that row, for its lone surrogates."""


class SqliteDatabase:
    """The database in the file `path`; creates the file and its table.

    Raises: JobDatabaseError from every method, not from the constructor, when the file cannot be
        read or written, for example because the disk is full; JobDatabaseUnusableError when the
        file is damaged, was removed or cannot be opened.
    """

    is_shared = False

    def __init__(self, path: Path, busy_timeout_seconds: float = _BUSY_TIMEOUT_SECONDS) -> None:
        self.path, self.busy_timeout_seconds = path, busy_timeout_seconds
        self._may_create = True
        self._is_prepared = False
        self._unusable: JobDatabaseUnusableError | None = None
        self._damaged_file: tuple[int, ...] | None = None
        self._lock = threading.Lock()
        make_folder(path.parent)
        try:
            self._prepare()
        except JobDatabaseError as error:
            if not error.is_away:
                log.warning("the job database cannot be used yet: %s", error)

    def close(self) -> None:
        """Does nothing: no connection is open between two uses."""

    @property
    def trouble(self) -> str | None:
        return None if self._unusable is None else self._unusable.remedy

    @property
    def answers_for_seconds(self) -> float:
        """Always infinite: no server of another host waits for an outage to end."""
        return math.inf

    @contextmanager
    def read(self) -> Iterator[Run]:
        with self._prepared_connection() as connection:
            yield _runner(connection)

    @contextmanager
    def transaction(self, *, alone: str = "") -> Iterator[Run]:
        """See `JobDatabase`. SQLite has one writer at a time anyway."""
        del alone
        with self._prepared_connection() as connection, _transaction(connection):
            yield _runner(connection)

    @contextmanager
    def _prepared_connection(self) -> Iterator[sqlite3.Connection]:
        if not self._is_prepared:
            self._prepare()
        with self._connection() as connection:
            yield connection

    def _prepare(self) -> None:
        """Check the file, and create its table.

        Only the start creates them. If an operator moves the file away later, an empty new file
        would be in the way when it is moved back.
        """
        known = self._unusable
        if sqlite3.sqlite_version_info < _LEAST_SQLITE:
            if known is None:
                has = f"this Python has SQLite {sqlite3.sqlite_version}"
                self._unusable = known = JobDatabaseUnusableError(
                    has,
                    f"Jobs need SQLite 3.35 or newer, and {has}. Run the service with another "
                    "Python, as in the container image, or keep the jobs in PostgreSQL "
                    "(TOKENIZER_JOBS_DATABASE). Encoding of requests is not affected.",
                )
                log.error("%s", known.remedy)
            raise known
        if known is not None and self._damaged_file == _signature(self.path):
            raise known
        with self._connection(mode="rwc" if self._may_create else "rw") as connection:
            # The file's header stores this mode, while each connection must set `synchronous`.
            connection.execute("PRAGMA journal_mode=DELETE")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.OperationalError(" ".join(found.split()))
            with _transaction(connection):
                if connection.execute("PRAGMA table_info(jobs)").fetchone() is None:
                    if not self._may_create:
                        raise sqlite3.OperationalError(_NO_TABLE)
                    for statement in creation(sequence="INTEGER PRIMARY KEY AUTOINCREMENT"):
                        connection.execute(statement)
        with self._lock:
            if self._unusable is not None:
                log.warning("the job database can be used again")
            self._is_prepared, self._may_create = True, False
            self._unusable = self._damaged_file = None

    @contextmanager
    def _connection(self, *, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        used = _signature(self.path)
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=self.busy_timeout_seconds,
                isolation_level=None,
            )
            try:
                connection.row_factory = sqlite3.Row
                connection.text_factory = _decode
                connection.create_function("unix_now", 0, time.time)
                connection.execute("PRAGMA synchronous=EXTRA")
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            if _is_away(error) or _is_damage(error):
                raise self._note_unusable(error, used) from error
            raise JobDatabaseError(
                str(error),
                is_full=_is_full_disk(error),
                is_read_only=_is_read_only_disk(error, self.path),
            ) from error

    def _note_unusable(
        self, error: sqlite3.Error, used: tuple[int, ...] | None
    ) -> JobDatabaseUnusableError:
        """Refuse further uses of the file `used` until `_prepare` succeeds; log the beginning."""
        reason = _reason(self.path, error)
        unusable = JobDatabaseUnusableError(
            f"{self.path}: {reason}",
            f"The job database ({self.path.name} in the artifacts folder) cannot be used: "
            f"{reason}. Jobs cannot be requested, run or read; encoding of requests is not "
            "affected. Put a sound copy of the file in its place. Or stop the service, move the "
            f"file away (and {self.path.name}-journal, if there is one) and start the service: "
            "it has no queue and no history of jobs then, and keeps tokenizers, corpora and token "
            "files.",
        )
        with self._lock:
            if used != _signature(self.path):
                return unusable  # the file was replaced meanwhile, and may be sound
            if self._unusable is None:
                log.error(
                    "the job database cannot be used (%s); put a sound copy in its place, or move "
                    "it away and restart the service, which then forgets its jobs",
                    unusable,
                )
            self._unusable, self._is_prepared, self._may_create = unusable, False, False
            self._damaged_file = used if _is_damage(error) else None
        return unusable


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    # IMMEDIATE takes the write lock first. Otherwise two readers that both begin to write deadlock,
    # and SQLite reports an error in spite of the timeout.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back if the disk is full
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _runner(connection: sqlite3.Connection) -> Run:
    def run(statement: str, values: Sequence[object]) -> Rows:
        own = statement.replace(" FOR UPDATE SKIP LOCKED", "")
        return [dict(row) for row in connection.execute(own, tuple(values))]

    return run


def _signature(path: Path) -> tuple[int, ...] | None:
    """Changes whenever the file is replaced or written; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_full_disk(error: sqlite3.Error) -> bool:
    """Whether the disk is full; an I/O error while writing usually means that as well."""
    name = _name(error)
    return name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR_WRITE")


def _is_read_only_disk(error: sqlite3.Error, path: Path) -> bool:
    """Whether the disk takes no writes, and not only the file."""
    if not _name(error).startswith("SQLITE_READONLY"):
        return False
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:  # the folder is gone
        return False


def _is_away(error: sqlite3.Error) -> bool:
    """Whether the file cannot be opened."""
    return _name(error).startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"))


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the content of the file is the reason.

    SQLITE_ERROR means that the table or a column is missing. An error without a name is one of
    `_prepare`.
    """
    name = _name(error)
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or (
        name in ("", "SQLITE_ERROR") and type(error) is sqlite3.OperationalError
    )


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _reason(path: Path, error: sqlite3.Error) -> str:
    """Why the file is unusable: the operating system's reason where there is one."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as refused:
        return f"{error} ({refused.strerror})"
    return str(error)
