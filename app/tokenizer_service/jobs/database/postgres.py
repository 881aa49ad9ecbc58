"""The jobs of several replicas in a PostgreSQL database.

Only this module imports psycopg (extra `postgres`), and only when it is used.

A network can fail silently, so every wait has a limit: for a connection, for a response (here, and
`statement_timeout` on the server), for a session that stalls within a transaction and holds locks,
and for unacknowledged packets. An idle connection is tested before use, and an error closes all
connections. While the server is unreachable, one call per second tries to reach it and all others
fail immediately, because they run in threads that serving needs as well.

The first connection, not the start of the service, creates the table under an advisory
lock. So a service starts and serves without its database.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tokenizer_service.jobs.database import JobDatabaseError, Rows, Run, creation

if TYPE_CHECKING:
    from types import ModuleType

    import psycopg

log = logging.getLogger("tokenizer_service.jobs")

CALL_SECONDS: Final = 6.0
"""How long a call waits for a response; the server times out earlier if it can."""

_RETRY_SECONDS: Final = 1.0
_IDLE_CONNECTIONS: Final = 3
_PARAMETERS: Final = {
    "connect_timeout": "3",
    "application_name": "tokenizer-service",
    # Choose the host that accepts writes: a standby would refuse them all.
    "target_session_attrs": "read-write",
    "options": "-c statement_timeout=5s -c idle_in_transaction_session_timeout=5s",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "5000",  # milliseconds
}
"""Defaults of libpq's parameters; the address may override them."""

_DISK_FULL: Final = "53100"
_TROUBLE: Final = (
    "The job database cannot be used at present; jobs wait, requests are served. The log of the "
    "server says why."
)


class PostgresDatabase:
    """The database at `address`, a `postgresql://` URL; the first use connects.

    Raises: JobDatabaseError if psycopg is not installed or the address is invalid; from every
        other method if the server is unreachable or refuses.
    """

    is_shared = True

    def __init__(self, address: str) -> None:
        self._psycopg = _import_psycopg()
        self._parameters = _parse_address(self._psycopg, address)
        self._idle: list[psycopg.Connection[Any]] = []
        self._lock = threading.Lock()
        self._trying = threading.Lock()
        self._is_prepared = False
        self._trouble: str | None = None
        self._retry_at = 0.0
        self._answers_since: float | None = None

    @property
    def trouble(self) -> str | None:
        return self._trouble

    @property
    def answers_for_seconds(self) -> float:
        since = self._answers_since
        return 0.0 if since is None else time.monotonic() - since

    @contextlib.contextmanager
    def read(self) -> Iterator[Run]:
        with self._connection() as connection:
            yield _runner(connection)

    @contextlib.contextmanager
    def transaction(self, *, alone: str = "") -> Iterator[Run]:
        with self._connection() as connection, connection.transaction():
            if alone:
                lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
                connection.execute(lock, (alone,))
            yield _runner(connection)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        try:
            connection = self._take()
            try:
                yield connection
            except self._psycopg.Error:
                connection.close()
                raise
            except BaseException:
                self._give_back(connection)
                raise
            self._give_back(connection)
        except self._psycopg.Error as error:
            # Not `from error`: the original message may hold secrets.
            raise self._note_error(error) from None
        self._note_answer()

    def _take(self) -> psycopg.Connection[Any]:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            try:
                connection.execute("SELECT 1")
                return connection
            except self._psycopg.Error as error:  # the connection died while it was idle
                connection.close()
                if isinstance(error, _no_answer_class()):  # a new connection would fail as well
                    raise

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        idle = self._psycopg.pq.TransactionStatus.IDLE
        if not connection.closed and connection.info.transaction_status == idle:
            with self._lock:
                if len(self._idle) < _IDLE_CONNECTIONS:
                    self._idle.append(connection)
                    return
        connection.close()

    def _connect(self) -> psycopg.Connection[Any]:
        if self._trouble is None:
            return self._open()
        if time.monotonic() < self._retry_at or not self._trying.acquire(blocking=False):
            raise JobDatabaseError("it was unreachable a moment ago", is_away=True)
        try:
            return self._open()
        finally:
            self._trying.release()

    def _open(self) -> psycopg.Connection[Any]:
        connection = _connection_class().connect(
            **self._parameters,
            autocommit=True,
            prepare_threshold=None,  # a pooler may not know prepared statements
            row_factory=self._psycopg.rows.dict_row,
        )
        try:
            if not self._is_prepared:
                _prepare(connection)
                self._is_prepared = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _note_error(self, error: psycopg.Error) -> JobDatabaseError:
        self.close()
        reason = " ".join(str(error).split()) or type(error).__name__
        password = self._parameters.get("password")
        if password:  # libpq never prints it; a server or a pooler might
            reason = reason.replace(password, "***")
        if error.sqlstate == _DISK_FULL:
            return JobDatabaseError(reason, is_full=True)
        if self._trouble is None:
            log.warning("the job database cannot be used: %s", reason)
        self._trouble, self._retry_at = _TROUBLE, time.monotonic() + _RETRY_SECONDS
        self._answers_since = None
        self._is_prepared = False  # the next server may be another one, or restored from a backup
        return JobDatabaseError(reason, is_away=True)

    def _note_answer(self) -> None:
        if self._trouble is not None:
            log.warning("the job database is reachable again")
            self._trouble = None
        if self._answers_since is None:
            self._answers_since = time.monotonic()


def _import_psycopg() -> ModuleType:
    try:
        import psycopg
        import psycopg.conninfo
        import psycopg.rows
    except ImportError:
        raise JobDatabaseError(
            "a job database on PostgreSQL needs the extra postgres; pip install "
            "'tokenizer-service[postgres]'"
        ) from None
    return psycopg


@functools.cache
def _no_answer_class() -> type[psycopg.OperationalError]:
    import psycopg

    class NoAnswerError(psycopg.OperationalError):
        """The server sent nothing for CALL_SECONDS."""

    return NoAnswerError


@functools.cache
def _connection_class() -> type[psycopg.Connection[Any]]:
    import psycopg

    active = psycopg.pq.TransactionStatus.ACTIVE

    class BoundedConnection(psycopg.Connection[Any]):
        """A connection that waits at most CALL_SECONDS for a response."""

        def wait(
            self, gen: Any, interval: float = 0.5, timeout: float | None = CALL_SECONDS
        ) -> Any:
            try:
                return super().wait(gen, interval, timeout)
            except psycopg.OperationalError:
                if self.pgconn.transaction_status == active:  # timed out without a response
                    self.pgconn.finish()  # the next query must not read a late response
                    raise _no_answer_class()(f"no answer in {timeout} seconds") from None
                raise

    return BoundedConnection


def _runner(connection: psycopg.Connection[Any]) -> Run:
    def run(statement: str, values: Sequence[object]) -> Rows:
        cursor = connection.execute(_translate(statement), values)
        return cursor.fetchall() if cursor.description else []

    return run


@functools.lru_cache(maxsize=64)
def _translate(statement: str) -> bytes:
    """Translate a statement of the queue into PostgreSQL's dialect."""
    # Not now(): it is the start of the transaction, which may then wait long for a lock.
    clock = "EXTRACT(EPOCH FROM clock_timestamp())::double precision"
    return statement.replace("?", "%s").replace("unix_now()", clock).encode()


def _prepare(connection: psycopg.Connection[Any]) -> None:
    """Create the table; a lock keeps other processes from doing so."""
    with connection.transaction():
        lock = "SELECT pg_advisory_xact_lock(hashtextextended('tokenizer-service jobs table', 0))"
        connection.execute(lock)
        rows = connection.execute(
            "SELECT 1 FROM information_schema.tables"
            " WHERE table_schema = current_schema() AND table_name = 'jobs'"
        ).fetchall()
        if not rows:
            sequence = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
            for statement in creation(sequence=sequence):
                connection.execute(statement.encode())


def _parse_address(psycopg: ModuleType, address: str) -> dict[str, Any]:
    try:
        given: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error:
        raise JobDatabaseError(
            "TOKENIZER_JOBS_DATABASE is no address of a PostgreSQL database; it reads like "
            "postgresql://user:password@host/database"
        ) from None
    return {**_PARAMETERS, **given}
