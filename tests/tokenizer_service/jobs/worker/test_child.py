"""What the child of a job imports first, and what it writes into the log when the job fails."""

import errno
import subprocess
import sys

from tokenizer_core.errors import CorpusError, StorageError
from tokenizer_service.jobs.errors import InvalidInputsError
from tokenizer_service.jobs.input_files import InputChangedError
from tokenizer_service.jobs.worker.child import describe_failure, log_failure

_PACKAGES = ("tokenizer_service", "tokenizer_core", "tokenizer_client", "numpy", "pydantic")


def test_a_child_gives_way_before_it_imports_what_a_job_needs():
    code = "import sys, tokenizer_service.jobs.worker.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name for name in done.stdout.split() if name.split(".")[0] in _PACKAGES}
    assert imported == {
        "tokenizer_service",
        "tokenizer_service.jobs",
        "tokenizer_service.jobs.worker",
        "tokenizer_service.jobs.worker.__main__",
    }


def test_only_an_unexpected_failure_leaves_its_traceback_in_the_log(capsys):
    for error, says in (
        (CorpusError("a.txt, line 1: no JSON;\nuse text"), "invalid_corpus: a.txt, line 1: "),
        (InvalidInputsError("download_failed", "a is away"), "download_failed: a is away"),
        (InputChangedError("notes.txt was replaced"), "corpus_changed: notes.txt was replaced"),
        (StorageError(errno.EIO, "the bucket is away"), "the bucket is away"),
        (OSError(errno.ENOSPC, "No space", "/secret/x"), "disk_full: no space is left"),
        (MemoryError(), "out_of_memory: "),
        (KeyError("x"), __file__),
        (OSError(errno.EIO, "broken"), __file__),
        (SystemExit(3), __file__),
    ):
        try:
            raise error
        except BaseException as raised:
            log_failure(raised, *describe_failure(raised))
        log = capsys.readouterr().err
        assert says in log
        if says == __file__:
            assert log.startswith("Traceback")
        else:
            assert log.count("\n") == 1
            for inside in ("Traceback", __file__, "/secret"):
                assert inside not in log
