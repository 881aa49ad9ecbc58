"""P16: the time of day may jump; no duration is measured by it."""

from __future__ import annotations

import ast

import pytest

from tests.conftest import REPOSITORY

READS_THE_CLOCK = {
    ("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "today"),
    ("datetime", "utcnow"), ("date", "today"), ("time", "gmtime"), ("time", "localtime"),
}  # fmt: skip

STAMPS = {
    "tokenizer_client/errors.py": "a Retry-After that is a date; a call's deadline bounds the wait",
    "app/tokenizer_service/rendering/jobs.py": "the names of jobs, with a random part",
    "app/tokenizer_service/jobs/worker/context.py": "lines of a job's log",
    "app/tokenizer_service/jobs/corpora.py": "when a corpus was uploaded",
    "app/tokenizer_service/jobs/views.py": "when a job came, began and ended, written out",
    "app/tokenizer_service/jobs/database/sqlite.py": "the same, and leases, which fencing guards",
    "app/tokenizer_service/serving/live_tokenizer.py": "since when a version is served",
    "app/tokenizer_service/jobs/token_files.py": "when token files were written",
    "tokenizer_core/chat/template.py": "strftime_now of chat templates, which writes the date",
    "tokenizer_core/registry/versions.py": "the names of versions, which increase whatever it says",
    "tokenizer_core/registry/pointer.py": "when a version was promoted",
    "tokenizer_core/registry/manifest.py": "when a version was made",
    "tokenizer_core/registry/bucket_store.py": "the age of what a killed process left",
}
"""Where the code reads the clock, and why: to show times. A new use needs such a reason."""


@pytest.mark.promise(16)
def test_the_clock_is_read_for_stamps_only() -> None:
    readers = set()
    for package in ("app", "tokenizer_client", "tokenizer_core"):
        for path in (REPOSITORY / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = {
                (node.value.id, node.attr)
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            } | {
                (node.module, alias.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            if names & READS_THE_CLOCK:
                readers.add(path.relative_to(REPOSITORY).as_posix())
    assert readers == set(STAMPS)
