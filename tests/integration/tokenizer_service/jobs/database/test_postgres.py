"""Job databases on a real PostgreSQL server: set-up, versions, locks and outages."""

import logging
import time
from collections.abc import Iterator

import pytest

from tests.integration.postgres_server import PASSWORD, PostgresServer, run_postgres
from tests.tokenizer_service.jobs.conftest import OpenJobs
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.database import postgres as postgres_database
from tokenizer_service.jobs.database.postgres import PostgresDatabase
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.serving.workers import ProcessIdentity

ME = ProcessIdentity.of_this_process()


def add(store: JobStore, job_id: str) -> None:
    store.add(job_id, {}, request_digest="d", idempotency_key=None, queue_limit=100)


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with run_postgres() as server:
        yield server


@pytest.fixture
def patient_store(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    monkeypatch.setattr(postgres_database, "_RETRY_SECONDS", 0.05)
    return JobStore(PostgresDatabase(own_server.address()), folder="f")


@pytest.mark.slow
def test_lost_connections_are_replaced_silently(
    postgres_jobs: OpenJobs, postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = postgres_jobs()
    add(store, "a")
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND application_name = 'tokenizer-service'"
    )
    for _ in range(3):
        assert postgres_server.execute(end)
        assert [job.id for job in store.latest()] == ["a"]
    assert caplog.messages == []
    assert store.database.trouble is None


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_loses_no_job(
    patient_store: JobStore, own_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = patient_store
    add(store, "a")
    job = store.claim_next(ME)
    assert job is not None
    own_server.stop()
    try:
        for _ in range(3):
            with pytest.raises(JobDatabaseError) as raised:
                store.renew_lease(job)
            assert raised.value.is_away
        assert store.database.trouble is not None
        assert store.database.answers_for_seconds == 0
        fresh = JobStore(PostgresDatabase(own_server.address()), folder="f")  # starts without it
        with pytest.raises(JobDatabaseError):
            fresh.latest()
    finally:
        own_server.start()
    time.sleep(0.06)
    assert store.renew_lease(job)
    assert store.database.trouble is None
    assert 0 <= store.database.answers_for_seconds < 60
    assert [job.id for job in fresh.latest()] == ["a"]
    said = [line for line in caplog.messages if "cannot be used" in line]
    assert len(said) == 2  # each store connects once, for any number of calls
    assert store.finish(job, "live")


@pytest.mark.slow
def test_a_silent_server_is_noticed_and_asked_by_one_at_a_time(
    patient_store: JobStore, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "CALL_SECONDS", 0.4)
    postgres_database._connection_class.cache_clear()
    store = JobStore(PostgresDatabase(own_server.address()), folder="f")
    patient = store.database
    assert isinstance(patient, PostgresDatabase)
    store.latest()
    try:
        with own_server.frozen():
            with pytest.raises(JobDatabaseError, match="no answer"):
                store.latest()
            patient._retry_at = time.monotonic() + 3600
            for _ in range(100):
                with pytest.raises(JobDatabaseError, match="a moment ago"):
                    store.latest()
        patient._retry_at = 0.0
        assert store.latest() is not None
    finally:
        postgres_database._connection_class.cache_clear()


def test_a_transaction_that_fails_leaves_nothing_and_a_usable_connection(
    postgres_jobs: OpenJobs,
) -> None:
    store = postgres_jobs()
    add(store, "a")
    with pytest.raises(ZeroDivisionError), store.database.transaction() as run:
        1 / len(run("UPDATE jobs SET state = 'failed'", ()))  # it returns no rows
    (job,) = store.latest()
    assert job.state == "queued"
    with pytest.raises(JobDatabaseError), store.database.read() as run:
        run("SELECT nothing FROM nowhere", ())
    assert store.database.trouble is not None
    database = store.database
    assert isinstance(database, PostgresDatabase)
    database._retry_at = 0.0
    assert store.latest() == [job]


def test_no_password_is_in_a_message(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = postgres_server.address().replace(PASSWORD, "wr%6fng-secret")
    for address in (
        wrong,
        wrong.replace(f":{postgres_server.port}", ":1"),
        "postgresql://u:wrong-secret@h@no-such-host.invalid/d",
        "postgresql://u:wrong-secret@[half/d",
        "host=x password='wrong-secret",
    ):
        with pytest.raises(JobDatabaseError) as raised:
            JobStore(PostgresDatabase(address)).latest()
        assert "secret" not in str(raised.value)
        assert raised.value.__cause__ is None
    assert "secret" not in caplog.text
