"""What the child of a job writes into the log when the job fails."""

import errno

import pytest

from tokenizer_core.errors import CorpusError, StorageError
from tokenizer_service.jobs.input_files import InputChangedError
from tokenizer_service.jobs.worker.child import describe_failure, log_failure


def log_of(error: BaseException, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        raise error
    except BaseException as raised:
        log_failure(raised, *describe_failure(raised))
    return capsys.readouterr().err


EXPECTED = [
    (CorpusError("a.txt, line 1: no JSON;\nuse text"), "invalid_corpus: a.txt, line 1: "),
    (InputChangedError("notes.txt was replaced"), "corpus_changed: notes.txt was replaced"),
    (StorageError(errno.EIO, "the bucket is away"), "the bucket is away"),
    (OSError(errno.ENOSPC, "No space", "/secret/x"), "disk_full: no space is left"),
    (MemoryError(), "out_of_memory: "),
]


def test_an_expected_failure_is_one_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    for error, says in EXPECTED:
        log = log_of(error, capsys)
        assert says in log
        assert log.count("\n") == 1
        for inside in ("Traceback", __file__, "/secret"):
            assert inside not in log


def test_another_failure_leaves_its_traceback_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for error in (KeyError("x"), OSError(errno.EIO, "broken"), SystemExit(3)):
        log = log_of(error, capsys)
        assert log.startswith("Traceback")
        assert __file__ in log
