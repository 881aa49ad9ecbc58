"""The child process of a job: `python -m app.jobs.worker JOB_FOLDER`.

It reads the request in its folder, does what that kind of job does (`train_child`, `encode_child`),
asks its server for leave, publishes, and says how it went. It stands alone as a process so that a
job can take all memory, crash or be killed without a request noticing. Standard output carries one
JSON object a line:

    {"event": "progress", "phase", "done", "total", "counters"}
    {"event": "ready"}                      done; waits for `publish` on standard input
    {"event": "published", "result"}
    {"event": "error", "code", "detail"}

Standard error is the log. When standard input ends, the server is gone and so is this process,
with its workers, at once. It knows neither the database nor the settings.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from app.jobs.corpus_paths import CorpusChangedError
from app.jobs.folder import JobFolder
from app.jobs.lock import TrainerLock
from app.jobs.process import PUBLISH
from app.jobs.work import TRAINING, WORK_OF_KIND, JobWork
from app.jobs.worker.context import ChildJob, EventPipe
from tokenizer_core.errors import TokenizerCoreError

NICENESS: Final = 19
"""Serving goes first: where both want the same processor, the child gets what is left."""

_LOCK_WAIT_SECONDS: Final = 30.0
_MAX_DETAIL_CHARS: Final = 2000
_OPEN_FILES: Final = 16_384
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def give_way() -> None:
    """Let everything that serves run first."""
    os.nice(NICENESS)
    # Linux may share processors out among sessions (autogroups), and the nice value of a process
    # then says nothing outside of its own, which is this child's: it took half of the server's
    # processor.
    for _ in range(10):
        with contextlib.suppress(OSError):
            try:
                Path("/proc/self/autogroup").write_text(str(NICENESS))
            except BlockingIOError:  # one change in a tenth of a second, of the whole system
                time.sleep(0.1)
                continue
        return


def main(arguments: Sequence[str]) -> int:
    """Run the job in the folder given; 0 when it has published."""
    events = EventPipe()
    allowed = _watch_standard_input()
    give_way()
    _raise_open_files_limit()
    work, names = TRAINING, dict[str, str]()
    try:
        folder = JobFolder(Path(arguments[0]))
        request = folder.read_request()
        kind = request.get("kind", "train")
        work = WORK_OF_KIND[kind]
        job = ChildJob(folder, request, events, allowed, names)
        lock = TrainerLock(job.artifacts_dir, request["lock_host"])
        if not lock.acquire(timeout_seconds=_LOCK_WAIT_SECONDS):
            raise _LockedError
        _find_task(kind)(job)
    except BaseException as error:
        code, detail = describe_failure(error, work)
        # The library names a file as it was given it; the caller knows it by another name.
        for given, name in names.items():
            detail = detail.replace(given, name)
        events.send("error", code=code, detail=detail[:_MAX_DETAIL_CHARS])
        with contextlib.suppress(OSError):  # the log may be what is full
            traceback.print_exception(error)
        return 1
    return 0


def _find_task(kind: str) -> Callable[[ChildJob], None]:
    """What a job of that kind does; only its own imports are paid for."""
    if kind == "train":
        from app.jobs.worker.train import train_and_publish

        return train_and_publish
    from app.jobs.worker.encode import encode_and_publish

    return encode_and_publish


def describe_failure(error: BaseException, work: JobWork = TRAINING) -> tuple[str, str]:
    """The stable code and the sentence for whatever ended the run.

    Example:
        >>> describe_failure(OSError(errno.ENOSPC, "full"))[0]
        'disk_full'
    """
    if isinstance(error, OSError) and error.errno in _FULL:
        return (
            "disk_full",
            "no space is left where the artifacts are kept; nothing was published. Free some "
            "space and post the request again",
        )
    if isinstance(error, TokenizerCoreError):
        return error.code, str(error)
    if isinstance(error, CorpusChangedError):
        return "corpus_changed", str(error)
    if isinstance(error, MemoryError):
        return (
            "out_of_memory",
            f"the {work.process} process ran out of memory; {work.less_memory}, or give the "
            f"machine more memory",
        )
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        return "storage_error", f"the disk could not be used ({reason}); see the end of the log"
    return f"{work.process}_failed", f"{type(error).__name__}; the end of the log says where"


class _LockedError(TokenizerCoreError):
    code = "trainer_busy"

    def __str__(self) -> str:
        return (
            "another job's process on these artifacts did not end in time; "
            "post the request again once it has"
        )


def _watch_standard_input() -> threading.Event:
    """An event set when the server says `publish`; its going away ends this whole group."""
    allowed = threading.Event()

    def watch() -> None:
        received = b""
        # Not `sys.stdin`: a thread that holds its lock when the interpreter ends aborts it.
        while block := os.read(0, 4096):
            received += block
            if PUBLISH in received:
                allowed.set()
        # End of file: the server is gone, and nobody is left to hear how this went.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)  # started by hand: the group is somebody's shell

    threading.Thread(target=watch, name="server-watch", daemon=True).start()
    return allowed


def _raise_open_files_limit() -> None:
    """All inputs are held open at once; the usual soft limit of 1024 would be too near."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
