"""One damaged row of the SQLite table harms no other job, in any column and with any value.

SQLite stores any type in any column. Each damaged row is between two sound jobs.
"""

import sqlite3
from contextlib import closing
from functools import partial

import pytest

from tests.tokenizer_service.jobs.fake_process import FakeRunner
from tokenizer_service.jobs.database import creation
from tokenizer_service.jobs.database.sqlite import DATABASE_NAME
from tokenizer_service.jobs.errors import IdempotencyConflictError
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.queue import JobStore
from tokenizer_service.jobs.views import summary_of, view_of
from tokenizer_service.serving.workers import ProcessIdentity

ME = ProcessIdentity.of_this_process()
DAMAGED_ID = "20261121T041500Z-00000000000d"


def columns():
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in creation(sequence="INTEGER PRIMARY KEY AUTOINCREMENT"):
            connection.execute(statement)
        found = connection.execute("PRAGMA table_info(jobs)").fetchall()
    return {name: kind for _, name, kind, _, _, key in found if not key}


COLUMNS = columns()
NUMBERS = {name for name, kind in COLUMNS.items() if kind != "TEXT"}
INTEGERS = {name for name, kind in COLUMNS.items() if kind == "INTEGER"}
UNIQUE = {"id", "idempotency_key"}
FREE = {"id", "idempotency_key", "request_digest", "phase", "owner_host", "folder"}
"""Any text is possible in these."""

WRONG = [
    (name, value)
    for value, names in (
        ("X'6a6f62'", set(COLUMNS)),
        ("X''", set(COLUMNS)),
        ("CAST(X'61ff' AS TEXT)", set(COLUMNS)),
        ("'x'", set(COLUMNS) - FREE),
        ("''", set(COLUMNS) - FREE),
        ("9e999", NUMBERS),
        ("-1e300", NUMBERS),
        ("1.5", INTEGERS),
        ("9223372036854775807", INTEGERS),
        ("-1", INTEGERS),
    )
    for name in COLUMNS
    if name in names
] + [
    ("counters", """'{"\\ud800": 1}'"""),
    ("result", """'{"name": "\\ud800", "version": "v", "digest": "d", "vocab_size": 1}'"""),
    ("result", """'{"name": "n", "version": "v", "digest": "d", "vocab_size": "x"}'"""),
    ("owner", """'{"pid": Infinity, "started": 1}'"""),
    ("request", """'{"corpus_ids": 5}'"""),
]
"""A column, and an SQL expression of a value that it cannot have."""


def connect(folder):
    return closing(sqlite3.connect(folder / DATABASE_NAME, isolation_level=None, timeout=20))


def add(store, job_id, key=None):
    store.add(job_id, {"name": "x"}, request_digest="d", idempotency_key=key, queue_limit=99)


def make_running(connection, sequence):
    """As a server of another host that has just renewed the lease."""
    connection.execute(
        "UPDATE jobs SET state = 'running', attempt = 1, owner = ?, owner_host = 'other',"
        " lease_ends_at = unixepoch() + 1000, started_at = 1 WHERE sequence = ?",
        (ME.to_json(), sequence),
    )


def damage_copies(connection, job_id, wrong):
    """Insert for each column, value and state a copy of the job in this state with this value."""
    names = ", ".join(name for name in COLUMNS if name not in UNIQUE)
    connection.execute("BEGIN IMMEDIATE")
    for number, (column, value, state) in enumerate(wrong):
        row = connection.execute(
            f"INSERT INTO jobs (id, idempotency_key, {names})"
            f" SELECT ?, ?, {names} FROM jobs WHERE id = ?",
            (id_of(number), f"key-{number}", job_id),
        ).lastrowid
        if state == "running":
            make_running(connection, row)
        connection.execute(f"UPDATE jobs SET {column} = {value} WHERE sequence = {row}")
    connection.execute("COMMIT")


def id_of(number):
    return f"20261121T041500Z-{number:012x}"


def test_the_queue_refuses_the_rows_and_runs_the_others(tmp_path):
    for column in COLUMNS:
        # Each value in a queued and in a running job; once if it must be unique.
        states = ["queued"] if column in UNIQUE else ["queued", "running"]
        values = [value for name, value in WRONG if name == column]
        wrong = [(column, value, state) for value in values for state in states]
        check_column(tmp_path / column, column, wrong)


def check_column(folder, column, wrong):
    """Put each wrong value of the column between two sound jobs."""
    store = JobStore.open(folder)
    ended = []
    store.on_end = lambda job: ended.append(job.is_damaged)
    add(store, "first")
    with connect(folder) as connection:
        damage_copies(connection, "first", wrong)
    add(store, "last")

    expected = [False, *[True] * len(wrong), False]
    last, *damaged, first = store.latest()
    assert [job.is_damaged for job in (last, *damaged, first)] == expected, wrong
    assert (first.id, last.id) == ("first", "last")
    for number, job in enumerate(reversed(damaged)):
        assert job.id == (f"row-{job.sequence}" if column == "id" else id_of(number))
        assert (job.state, job.error and job.error["code"]) == ("failed", "job_damaged")
        assert b"job_damaged" in summary_of(job).model_dump_json().encode()
        assert b"job_damaged" in view_of(job, folder).model_dump_json().encode()
        if column == "idempotency_key":
            assert store.find_by_key(f"key-{number}", "d") is None
        else:
            with pytest.raises(IdempotencyConflictError, match=job.id):
                store.find_by_key(f"key-{number}", "other")

    for job in store.running():
        assert job.is_damaged
        store.fail_damaged(job)
        assert store.is_cancel_requested(job)
        assert not store.allow_publishing(job)
    for sound in (first, last):
        claimed = store.claim_next(ME)
        assert claimed.id == sound.id
        assert store.finish(claimed, "succeeded")
    assert store.claim_next(ME) is None
    assert [job.is_damaged for job in store.latest()] == expected
    if column not in ("state", "folder"):  # else none of this folder waits or runs
        assert sorted(ended) == sorted(expected)


def test_a_damaged_attempt_or_lease_belongs_to_nobody(tmp_path):
    store = JobStore.open(tmp_path)
    add(store, DAMAGED_ID)
    with connect(tmp_path) as connection:
        make_running(connection, 1)
        assert [job.is_damaged for job in store.running()] == [False]
        connection.execute("UPDATE jobs SET lease_ends_at = NULL")
        assert [job.is_damaged for job in store.running()] == [True]  # else nobody takes it over
        connection.execute("UPDATE jobs SET state = 'queued', attempt = 'x'")
        assert store.claim_next(ME) is None
        found = connection.execute("SELECT state, attempt FROM jobs").fetchall()
    assert found == [("failed", "x")]  # attempt + 1 would be 1: the fence of an earlier owner


def test_the_service_trains_beside_damaged_rows(start_service, tmp_path, caplog):
    folder = tmp_path / "artifacts"
    store = JobStore.open(folder)
    for number in range(3):
        add(store, id_of(number))
    with connect(folder) as connection:
        make_running(connection, 3)
        connection.execute("UPDATE jobs SET progress = 'x' WHERE sequence = 1")
        # Only the runner refuses an id that is a text, but not a job's.
        connection.execute("UPDATE jobs SET id = 'x' || sequence WHERE sequence > 1")
    service = start_service(engine="auto")
    last = service.start(name="last")
    assert service.wait(last)["state"] == "live"
    assert [record.message for record in caplog.records if record.exc_info] == []
    newest, *damaged = service.client.get("/jobs").json()["jobs"]
    assert (newest["id"], newest["error"]) == (last, None)
    assert [job["id"] for job in damaged] == ["x3", "x2", id_of(0)]
    for job in damaged:
        assert (job["state"], job["error"]["code"]) == ("failed", "job_damaged")
    for method, route in (("GET", "/jobs"), ("GET", "/train"), ("DELETE", "/jobs")):
        answer = service.client.request(method, f"{route}/{id_of(0)}")
        assert (answer.status_code, answer.json()["error"]) == (200, damaged[-1]["error"])
    assert "job_damaged" in service.client.get(f"/jobs/{id_of(0)}/events").text
    assert service.client.get("/jobs/x3").status_code == 404
    for path in ("/corpora/absent", "/tokenizers/absent/20261121T041500Z-1a2b3c4d"):
        assert service.client.delete(path).status_code == 404
    starter = service.store.resolve("starter")
    assert service.client.delete(f"/tokenizers/starter/{starter.version}").status_code == 409


def test_an_encoding_job_that_names_no_tokenizer_is_damaged(tmp_path):
    store = JobStore.open(tmp_path)
    options = {"request_digest": "d", "idempotency_key": None, "queue_limit": 9}
    sound = {"name": "n", "version": "v", "digest": "d"}
    wrong = [5, {}, {"name": 1, "version": 2, "digest": 3}, [["name", "n"]]]
    for number, tokenizer in enumerate([sound, *wrong]):
        store.add(f"job{number}", {"tokenizer": tokenizer}, kind="encode", **options)
    assert [job.is_damaged for job in store.latest()] == [True] * len(wrong) + [False]


def test_old_rows_with_damaged_ids_are_forgotten_and_no_path_is_removed(tmp_path):
    fake = FakeRunner(tmp_path)
    for job_id in ("first", "second", DAMAGED_ID, "last"):
        add(fake.jobs, job_id)
        fake.jobs.request_cancel(job_id)
    with connect(tmp_path) as connection:
        connection.execute("UPDATE jobs SET id = X'ff' WHERE id = 'second'")
        connection.execute("UPDATE jobs SET id = '../x' WHERE id = 'first'")
    folder = JobFolder.of(tmp_path, DAMAGED_ID)
    folder.make()
    (tmp_path / "x").mkdir()
    fake.jobs.forget_old = partial(fake.jobs.forget_old, kept=1)
    fake.runner._forget_old()
    assert [job.id for job in fake.jobs.latest()] == ["last"]
    assert not folder.path.exists()
    assert (tmp_path / "x").exists()
