"""The child process of a job, started by `__main__`.

It reads the request in its folder, does the job (`train`, `encode`), asks its server for permission
to publish, publishes, and reports the result. A job runs in its own process, so that it can use up
all memory, crash or be killed without any effect on requests. The child writes one JSON object per
line to standard output:

    {"event": "progress", "phase", "done", "total", "counters"}
    {"event": "ready"}                      done; waits for `publish` on standard input
    {"event": "published", "result"}
    {"event": "error", "code", "detail"}

Standard error is the log. When standard input closes, the server is gone, and this process ends
itself and its workers immediately. It uses neither the job database nor the settings.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tokenizer_core.errors import DISK_FULL, CorpusDocumentError, TokenizerCoreError
from tokenizer_service.jobs.errors import InvalidInputsError, JobsError
from tokenizer_service.jobs.folder import JobFolder, escape_control_characters
from tokenizer_service.jobs.kinds import IMPORTING, KINDS, TRAINING, JobKind
from tokenizer_service.jobs.process import PUBLISH, JobLock
from tokenizer_service.jobs.worker.context import EventPipe, WorkerJob, say

_LOCK_WAIT_SECONDS: Final = 30.0
_MAX_DETAIL_CHARS: Final = 2000
_OPEN_FILES: Final = 16_384


def main(arguments: Sequence[str]) -> int:
    """Run the job in the given folder; returns 0 when it has published."""
    events = EventPipe()
    allowed = _watch_standard_input()
    _raise_open_files_limit()
    kind: JobKind = TRAINING
    names: dict[str, str] = {}
    try:
        folder = JobFolder(Path(arguments[0]))
        request = folder.read_request()
        kind = {**KINDS, "import": IMPORTING}[request["kind"]]
        job = WorkerJob(folder, request, events, allowed, names)
        if kind is not IMPORTING:  # which is no job of the queue
            lock = JobLock(job.artifacts_dir, request["lock_host"])
            if not lock.acquire(timeout_seconds=_LOCK_WAIT_SECONDS):
                raise InvalidInputsError(
                    "trainer_busy",
                    "another job's process on these artifacts did not end in time; "
                    "post the request again once it has",
                )
        _task_of(kind)(job)
    except BaseException as error:
        code, detail = describe_failure(error, kind)
        # The library names a file by the path that it read; replace it by the caller's name.
        for given, name in names.items():
            detail = detail.replace(given, name)
        events.send("error", code=code, detail=detail[:_MAX_DETAIL_CHARS])
        with contextlib.suppress(OSError):  # the disk of the log may be full
            log_failure(error, code, detail)
        return 1
    return 0


def _task_of(kind: JobKind) -> Callable[[WorkerJob], None]:
    """The function that does the job; imports only the module of this kind."""
    if kind is TRAINING:
        from tokenizer_service.jobs.worker.train import train_and_publish

        return train_and_publish
    if kind is IMPORTING:
        from tokenizer_service.jobs.worker.vocabulary import import_and_publish

        return import_and_publish
    from tokenizer_service.jobs.worker.encode import encode_and_publish

    return encode_and_publish


def describe_failure(error: BaseException, kind: JobKind = TRAINING) -> tuple[str, str]:
    """The stable code and the message for the error that ended the job."""
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return (
            "disk_full",
            "no space is left where the artifacts are kept; nothing was published. Free some "
            "space and post the request again",
        )
    if isinstance(error, TokenizerCoreError | JobsError):
        remedy = "; or set skip_bad" if isinstance(error, CorpusDocumentError) else ""
        return error.code, f"{error}{remedy}"
    if isinstance(error, MemoryError):
        return (
            "out_of_memory",
            f"the {kind.process} process ran out of memory; {kind.less_memory}, or give the "
            f"machine more memory",
        )
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        return "storage_error", f"the disk could not be used ({reason}); see the end of the log"
    return f"{kind.process}_failed", f"{type(error).__name__}; the end of the log says where"


def log_failure(error: BaseException, code: str, detail: str) -> None:
    """Write the failure that `describe_failure` describes into the log, with the traceback if the
    description does not say all.

    Clients see the end of the log: for a mistake in their input, a traceback would say nothing more
    and show paths of the server.
    """
    is_described = isinstance(error, TokenizerCoreError | JobsError | MemoryError)
    if is_described or code == "disk_full":
        say(f"{code}: {escape_control_characters(detail)}")
    else:
        traceback.print_exception(error)


def _watch_standard_input() -> threading.Event:
    """Return an event that is set when the server allows publishing.

    A thread also ends this process group when the server is gone.
    """
    allowed = threading.Event()

    def watch() -> None:
        received = b""
        # Not `sys.stdin`: a thread that holds its lock would abort the interpreter's shutdown.
        while block := os.read(0, 4096):
            received += block
            if PUBLISH in received:
                allowed.set()
        # End of file: the server is gone.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)  # started by hand, in the group of a shell

    threading.Thread(target=watch, name="server-watch", daemon=True).start()
    return allowed


def _raise_open_files_limit() -> None:
    """Raise the soft limit, usually 1024: a job holds all its inputs open at the same time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
