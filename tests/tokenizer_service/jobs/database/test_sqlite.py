"""A database that cannot be used: the service serves, and the routes of jobs say the remedy."""

import logging
import sqlite3
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tokenizer_core.registry import ArtifactStore
from tokenizer_service.jobs.database import JobDatabaseError, JobDatabaseUnusableError
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME, SqliteDatabase
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.main import create_app
from tokenizer_service.settings import Settings

KEY = "an-admin-key-for-the-tests"


def write_garbage(path):
    path.write_bytes(bytes(range(256)) * 64)


def truncate(path):
    path.write_bytes(path.read_bytes()[:5000])


def zero_index(path):
    """Damage that only some statements meet."""
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'jobs_by_state'"
        ).fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(content)


def make_folder(path):
    path.unlink()
    path.mkdir()


@pytest.fixture
def path(tmp_path, small_spec):
    """The database of a folder with a tokenizer, with one job."""
    store = ArtifactStore(tmp_path)
    store.promote(store.publish(small_spec, name="small"))
    jobs = JobStore.open(tmp_path)
    jobs.add("a", {"name": "x"}, request_digest="d", idempotency_key=None, queue_limit=8)
    jobs.request_cancel("a")
    return tmp_path / DATABASE_NAME


@pytest.fixture
def start(path):
    settings = Settings(artifacts_dir=path.parent, admin_keys=(KEY,))
    headers = {"X-API-Key": KEY}
    with ExitStack() as running:
        yield lambda: running.enter_context(TestClient(create_app(settings), headers=headers))


def check_degraded(client):
    job = "20261121T041500Z-0123456789ab"
    train = {"documents": ["x x"], "vocab_size": 258, "name": "n"}
    for method, route, body in (
        ("POST", "/train", train),
        ("GET", f"/train/{job}", None),
        ("GET", "/jobs", None),
        ("GET", f"/jobs/{job}/events", None),
        ("DELETE", f"/jobs/{job}", None),
        ("POST", "/corpora/c/encode", {}),
        ("DELETE", "/corpora/c", None),
    ):
        response = client.request(method, route, json=body)
        problem = response.json()
        assert (response.status_code, problem["code"]) == (503, "job_database_unusable"), route
        assert DATABASE_NAME in problem["detail"]
        assert "move the file away" in problem["detail"]
        assert "Retry-After" not in response.headers
    assert client.post("/encode", json={"text": "low"}).status_code == 200
    assert client.get("/health").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert DATABASE_NAME in ready.json()["reason"]
    assert "\ntokenizer_job_database_away 1.0\n" in client.get("/metrics").text


def check_sound(client, *jobs):
    assert [job["id"] for job in client.get("/jobs").json()["jobs"]] == list(jobs)
    assert client.get("/readyz").json()["status"] == "ok"
    assert "\ntokenizer_job_database_away 0.0\n" in client.get("/metrics").text


def restore(path, content):
    """What an operator does with a copy of the file."""
    path.rename(path.with_suffix(".aside"))
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [write_garbage, make_folder])
def test_the_service_starts_and_serves(path, damage, start):
    sound = path.read_bytes()
    damage(path)
    client = start()
    check_degraded(client)
    restore(path, sound)
    check_sound(client, "a")
    path.rename(path.with_suffix(".moved"))  # the remedy of the message
    check_sound(start())


@pytest.mark.parametrize("damage", [truncate, zero_index])
def test_a_running_service_notices_the_damage(path, damage, start, caplog):
    client = start()
    check_sound(client, "a")
    sound = path.read_bytes()
    with caplog.at_level(logging.WARNING):
        damage(path)
        client.get("/jobs")
        client.post("/train", json={"documents": ["x x"], "vocab_size": 258, "name": "n"})
        check_degraded(client)
    (line,) = [line for line in caplog.messages if "job database" in line]
    assert str(path) in line
    restore(path, sound)
    check_sound(client, "a")


def test_an_sqlite_without_returning_is_named(path, start, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    client = start()
    problem = client.get("/jobs").json()
    assert problem["code"] == "job_database_unusable"
    assert "Jobs need SQLite 3.35 or newer" in problem["detail"]
    assert client.get("/readyz").json()["status"] == "degraded"


def test_a_damaged_file_is_not_written(path):
    zero_index(path)
    damaged = path.read_bytes()
    store = JobStore.open(path.parent)
    with pytest.raises(JobDatabaseUnusableError):
        store.get("a")  # needs only pages that are sound
    with pytest.raises(JobDatabaseUnusableError):
        store.request_cancel("a")
    assert path.read_bytes() == damaged


def test_a_missing_or_emptied_file_is_not_initialised(tmp_path):
    store = JobStore.open(tmp_path / "a folder? of 100 %23")
    path = tmp_path / "a folder? of 100 %23" / DATABASE_NAME
    assert list(path.parent.iterdir()) == [path]  # on SQLite a folder needs no id
    aside = path.rename(path.with_suffix(".aside"))
    for _ in range(2):
        with pytest.raises(JobDatabaseError, match="unable to open"):
            store.request_cancel("a")
    assert not path.exists()
    aside.rename(path)
    assert store.latest() == []
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(JobDatabaseUnusableError):
            store.latest()
    assert path.read_bytes() == b""
    assert JobStore.open(path.parent).latest() == []  # a start makes the table


def test_a_postgres_database_without_psycopg_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(JobDatabaseError, match=r"tokenizer-service\[postgres\]"):
        JobStore.open(Path("anywhere"), "postgresql://u@h/d")


def test_a_busy_file_is_not_damaged(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    database = SqliteDatabase(path, busy_timeout_seconds=0.01)
    with pytest.raises(JobDatabaseError, match="locked") as raised, database.read() as run:
        run("SELECT 1 FROM jobs", ())
    assert not raised.value.is_away
    assert database.trouble is None
    other.close()
    with database.read() as run:
        assert run("SELECT id FROM jobs", ()) == [{"id": "a"}]
