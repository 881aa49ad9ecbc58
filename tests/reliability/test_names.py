"""Every row and every promise has a test; and P16, which is about the code."""

import re

import pytest

from tests.conftest import REPOSITORY
from tests.reliability.names import ALL_NAMES

MARK = re.compile(r"pytest\.mark\.(row|promise)\(([\d, ]+)\)")

READS_THE_CLOCK = re.compile(
    r"\b(time\.(time|time_ns|gmtime|localtime)|datetime\.(now|today|utcnow)|date\.today)\b"
)

STAMPS = {
    "tokenizer_client/errors.py": "a Retry-After that is a date; a call's deadline bounds the wait",
    "app/tokenizer_service/handlers/jobs.py": "the names of jobs, with a random part",
    "app/tokenizer_service/jobs/worker/context.py": "lines of a job's log",
    "app/tokenizer_service/jobs/corpora.py": "when a corpus was uploaded",
    "app/tokenizer_service/jobs/vocabulary_import.py": "the age of what a killed process left",
    "app/tokenizer_service/jobs/views.py": "when a job came, began and ended, written out",
    "app/tokenizer_service/jobs/database/sqlite.py": "the same, and leases, which fencing guards",
    "app/tokenizer_service/responses/derender.py": "`created` of a completion",
    "app/tokenizer_service/serving/live_tokenizer.py": "since when a version is served",
    "app/tokenizer_service/jobs/token_files.py": "when token files were written",
    "tokenizer_core/chat/template.py": "strftime_now of chat templates, which writes the date",
    "tokenizer_core/registry/versions.py": "the names of versions, which increase whatever it says",
    "tokenizer_core/registry/pointer.py": "when a version was promoted",
    "tokenizer_core/registry/manifest.py": "when a version was made",
    "tokenizer_core/registry/bucket_store.py": "the age of what a killed process left",
}
"""Where the code reads the clock, and why: to show times. No duration is measured by it, because
the time of day may jump. A new use needs such a reason."""


def test_each_row_and_promise_has_a_test():
    held = {
        f"{kind}_{int(number):02}"
        for path in (REPOSITORY / "tests").rglob("test_*.py")
        for kind, numbers in MARK.findall(path.read_text(encoding="utf-8"))
        for number in numbers.split(",")
    }
    assert len(ALL_NAMES) == 44 + 20
    assert sorted(set(ALL_NAMES) - held) == []


@pytest.mark.promise(16)
def test_the_clock_is_read_for_stamps_only():
    readers = {
        path.relative_to(REPOSITORY).as_posix()
        for package in ("app", "tokenizer_client", "tokenizer_core")
        for path in (REPOSITORY / package).rglob("*.py")
        if READS_THE_CLOCK.search(path.read_text(encoding="utf-8"))
    }
    assert readers == set(STAMPS)
