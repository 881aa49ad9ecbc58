"""The database of several replicas: created once, lost and reconnected, and its error messages."""

import sys
from pathlib import Path

import pytest

from tokenizer_service.jobs.database import JobDatabaseError
from tokenizer_service.jobs.queue import JobStore

psycopg = pytest.importorskip("psycopg")

from tokenizer_service.jobs.database.postgres import PostgresDatabase  # noqa: E402


def test_without_psycopg_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(JobDatabaseError, match=r"tokenizer-service\[postgres\]"):
        PostgresDatabase("postgresql://u@h/d")


def test_a_folder_on_sqlite_needs_no_id(tmp_path: Path) -> None:
    JobStore.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.sqlite3"]
