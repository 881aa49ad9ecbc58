"""Job databases on a real PostgreSQL server: set-up, versions, locks and outages."""

import logging
import time

import pytest
from pydantic import SecretStr

from tests.integration.postgres_server import PASSWORD
from tests.integration.server_process import wait_until
from tests.tokenizer_service.jobs.conftest import SLOW, start_child
from tokenizer_service.jobs import runner as job_runner
from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.database import postgres as postgres_database
from tokenizer_service.jobs.database.postgres import PostgresDatabase
from tokenizer_service.jobs.queue import LEASE_SECONDS, JobStore
from tokenizer_service.serving.workers import ProcessIdentity

ME = ProcessIdentity.of_this_process()
OTHER = ProcessIdentity(pid=1, started=0.5)


def add(store, job_id, *, queue_limit=8):
    store.add(job_id, {}, request_digest="d", idempotency_key=None, queue_limit=queue_limit)


@pytest.fixture
def patient_store(own_server, monkeypatch):
    monkeypatch.setattr(postgres_database, "_RETRY_SECONDS", 0.05)
    return JobStore(PostgresDatabase(own_server.address()), folder="f")


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_loses_no_job(patient_store, own_server, caplog):
    caplog.set_level(logging.WARNING)
    store = patient_store
    add(store, "a")
    job = store.claim_next(ME)
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND application_name = 'tokenizer-service'"
    )
    assert own_server.execute(end)
    assert [job.id for job in store.latest()] == ["a"]  # the connection is replaced silently
    assert caplog.messages == []
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


@pytest.mark.slow
def test_a_silent_server_is_noticed_and_asked_by_one_at_a_time(
    patient_store, own_server, monkeypatch
):
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


def test_a_transaction_that_fails_leaves_nothing_and_a_usable_connection(postgres_jobs):
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


def test_no_password_is_in_a_message(postgres_server, caplog):
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


@pytest.mark.promise(16)
def test_a_clock_hours_off_changes_nothing(postgres_jobs, monkeypatch):
    """All times are the database's: neither the owner nor another host uses its own clock."""
    store, real = postgres_jobs(), time.time
    for hours in (-5, 5):
        monkeypatch.setattr(time, "time", lambda: real() + 3600 * hours)  # noqa: B023
        add(store, f"job{hours}")
        job = store.claim_next(ME)
        assert abs(job.created_at - real()) < 60
        assert job.lease_ends_at is not None
        assert LEASE_SECONDS - 60 < job.lease_ends_at - real() < LEASE_SECONDS + 60
        monkeypatch.setattr(time, "time", lambda: real() - 3600 * hours)  # noqa: B023
        assert store.take_over(job, OTHER, if_lease_ended=True) is None
        assert store.finish(job, "live")
        ended = store.get(job.id)
        assert ended.finished_at is not None
        assert abs(ended.finished_at - real()) < 60


def test_a_job_runs_where_its_folder_is_and_is_cancelled_from_anywhere(postgres_jobs):
    here, elsewhere = postgres_jobs(), postgres_jobs("another folder")
    add(here, "a", queue_limit=0)
    assert elsewhere.claim_next(ME) is None
    assert elsewhere.count_unfinished() == 0
    add(elsewhere, "b", queue_limit=0)  # jobs that wait there use no place here
    job = here.claim_next(ME)
    with here.database.transaction() as run:
        run("UPDATE jobs SET lease_ends_at = 1.0 WHERE id = 'a'", ())
    assert elsewhere.running() == []  # a replica without the folder cannot clean up after the job
    assert [job.id for job in elsewhere.latest()] == ["b", "a"]
    assert {job.id for job in elsewhere.unfinished()} == {"a", "b"}
    assert elsewhere.request_cancel("a")
    assert here.is_cancel_requested(job)
    assert here.finish(job, "cancelled")
    assert elsewhere.forget_old(kept=0) == []
    assert here.forget_old(kept=0) == ["a"]


def wait_for_readiness(service, status):
    wait_until(lambda: service.client.get("/readyz").json()["status"] == status)


@pytest.mark.slow
def test_an_outage_of_the_database_loses_no_job(start_service, own_server, monkeypatch, caplog):
    monkeypatch.setattr(postgres_database, "_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(job_runner, "_RETRY_SECONDS", 0.1)
    address = own_server.make("outage")
    service = start_service(
        start_process=start_child, engine="python", jobs_database=SecretStr(address)
    )
    assert service.wait(service.start())["state"] == "live"
    job_id = service.start(**SLOW)
    pid = service.wait_for_child(job_id)
    own_server.stop()
    try:
        wait_for_readiness(service, "degraded")
        assert "job database" in service.client.get("/readyz").json()["reason"]
        for method, path, body in (
            ("GET", "/jobs", None),
            ("GET", f"/jobs/{job_id}/events", None),
            ("DELETE", f"/jobs/{job_id}", None),
            ("POST", "/train", {"documents": ["a a"]}),
            ("DELETE", "/tokenizers/n/20261121T041500Z-1a2b3c4d", None),
        ):
            answer = service.client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "job_store_unavailable"), (
                path,
                answer.text,
            )
            assert answer.headers["retry-after"]
            assert "Encoding" in answer.json()["detail"]
        assert service.client.post("/encode", json={"text": "low"}).status_code == 200
        assert "tokenizer_jobs{" not in service.client.get("/metrics").raise_for_status().text
    finally:
        own_server.start()
    wait_for_readiness(service, "ok")
    job = service.jobs.get(job_id)
    assert (job.state, job.attempt) == ("running", 1)
    assert job.child.pid == pid  # the job continued
    service.client.delete(f"/jobs/{job_id}")
    assert service.wait(job_id)["state"] == "cancelled"
    assert service.wait(service.start(name="after"))["state"] == "live"
    assert PASSWORD not in caplog.text
