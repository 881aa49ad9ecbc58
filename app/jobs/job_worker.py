"""The trainer's process: `python -m app.jobs.job_worker JOB_FOLDER`.

It reads the request in its folder, trains, asks its server for leave, publishes, and says how it
went. It stands alone as a process so that a training run can take all memory, crash or be killed
without a request noticing. Standard output carries one JSON object a line:

    {"event": "progress", "phase", "done", "total"}
    {"event": "ready"}                      trained; waits for `publish` on standard input
    {"event": "published", "name", "version", "digest"}
    {"event": "error", "code", "detail"}

Standard error is the log. When standard input ends, the server is gone and so is this process,
with its workers, at once. It knows neither the database nor the settings. May import the core,
`corpus_urls` and its neighbours in `app.jobs`, but no web framework.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from app.corpus_urls import CorpusUrl, CorpusUrlError, ListedHost
from app.jobs.corpus_paths import (
    CorpusChangedError,
    CorpusFile,
    readable_path,
    reopen_corpus_file,
)
from app.jobs.job_folder import JobFolder
from app.jobs.trainer_lock import TrainerLock
from app.jobs.trainer_process import PUBLISH
from tokenizer_core.engines import choose_engine
from tokenizer_core.errors import TokenizerCoreError
from tokenizer_core.store import ArtifactStore
from tokenizer_core.training.trainer import TrainingProgress, train

NICENESS: Final = 19
"""Serving goes first: where both want the same processor, the trainer gets what is left."""

_EVENT_INTERVAL_SECONDS: Final = 0.2
_LOCK_WAIT_SECONDS: Final = 30.0
_MAX_DETAIL_CHARS: Final = 2000
_OPEN_FILES: Final = 16_384
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class EventPipe:
    """The way to the server. Lines are written whole; nothing else reaches standard output."""

    def __init__(self) -> None:
        self._descriptor = os.dup(1)
        # What a library prints must not land between the events.
        os.dup2(2, 1)
        self._next_progress = 0.0
        self._phase = ""

    def send(self, event: str, **fields: Any) -> None:
        """Send one event. A server that is gone is the stdin watch's matter, not an error here."""
        line = json.dumps({"event": event, **fields}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._descriptor, line) :]

    def progress(self, progress: TrainingProgress) -> None:
        """Send where training is: at most five times a second, and the end of each phase."""
        self.report(progress.phase, progress.done, progress.total, progress.message)

    def report(self, phase: str, done: int, total: int, message: str = "") -> None:
        """As `progress`; `total` 0: nobody knows."""
        now = time.monotonic()
        is_end = 0 < total <= done
        if phase == self._phase and now < self._next_progress and not is_end:
            return
        if phase != self._phase:
            say(f"{phase}: {message}" if message else phase)
        self._phase, self._next_progress = phase, now + _EVENT_INTERVAL_SECONDS
        self.send("progress", phase=phase, done=done, total=total)


def say(line: str) -> None:
    """One line into the log."""
    stamp = time.strftime("%H:%M:%S", time.gmtime())
    print(f"{stamp} {line}", file=sys.stderr, flush=True)


def give_way() -> None:
    """Let everything that serves run first."""
    os.nice(NICENESS)
    # Linux may share processors out among sessions (autogroups), and the nice value of a process
    # then says nothing outside of its own, which is this trainer's: it took half of the server's
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
    """Run the job in the folder given; 0 when its version was published."""
    events = EventPipe()
    allowed = _watch_standard_input()
    give_way()
    _raise_open_files_limit()
    names: dict[str, str] = {}
    try:
        _run(JobFolder(Path(arguments[0])), events, allowed, names)
    except BaseException as error:
        code, detail = describe_failure(error)
        # The library names a file as it was given it; the caller knows it by another name.
        for given, name in names.items():
            detail = detail.replace(given, name)
        events.send("error", code=code, detail=detail[:_MAX_DETAIL_CHARS])
        with contextlib.suppress(OSError):  # the log may be what is full
            traceback.print_exception(error)
        return 1
    return 0


def describe_failure(error: BaseException) -> tuple[str, str]:
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
            "the training process ran out of memory; train on a part of the corpus, or give the "
            "machine more memory",
        )
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        return "storage_error", f"the disk could not be used ({reason}); see the end of the log"
    return "training_failed", f"{type(error).__name__}; the end of the log says where"


def _run(
    folder: JobFolder, events: EventPipe, allowed: threading.Event, names: dict[str, str]
) -> None:
    request = folder.read_request()
    artifacts_dir = Path(request["artifacts_dir"])
    if not TrainerLock(artifacts_dir).acquire(timeout_seconds=_LOCK_WAIT_SECONDS):
        raise _LockedError
    files = [CorpusFile.from_json(value) for value in request["inputs"]]
    if request.get("input_urls"):
        files = _download(folder, request, events)
    engine = choose_engine(request["engine"])
    with open_inputs(files) as descriptors:
        say(f"training {request['name']} on {len(files)} files")
        say(f"the {engine.name} engine trains: {engine.reason}")
        paths = [readable_path(descriptor) for descriptor in descriptors]
        names.update((str(path), file.name) for path, file in zip(paths, files, strict=True))
        result = train(
            paths,
            vocab_size=request["vocab_size"],
            special_tokens=request["special_tokens"],
            pattern=request["pattern"],
            engine=engine.name,
            num_workers=request["num_workers"],
            progress=events.progress,
        )
        provenance = [
            {
                "name": names.get(source.path, source.path),
                "size_bytes": source.size_bytes,
                "sha256": source.sha256,
            }
            for source in result.counts.sources
        ]
    events.send("ready")
    allowed.wait()
    ref = ArtifactStore(artifacts_dir).publish(
        result.spec,
        name=request["name"],
        training=result.report.to_dict(),
        provenance=provenance,
        command=f"POST /train, job {request['job_id']}",
    )
    say(f"published {ref}")
    events.send("published", name=ref.name, version=ref.version, digest=ref.digest)


def _download(folder: JobFolder, request: Mapping[str, Any], events: EventPipe) -> list[CorpusFile]:
    # Only here: httpx takes a tenth of a second to import, and most jobs fetch nothing.
    from app.jobs.corpus_download import download_corpora

    hosts = [ListedHost.parse(entry) for entry in request["corpus_url_hosts"]]
    try:
        urls = [CorpusUrl.parse(url, hosts) for url in request["input_urls"]]
    except CorpusUrlError as error:
        raise _NotListedError(f"a URL is not taken any more: {error}") from None
    download = download_corpora(
        urls,
        folder.documents_path,
        max_bytes=request["max_download_bytes"],
        report=partial(events.report, "download"),
    )
    return asyncio.run(download)


class _NotListedError(TokenizerCoreError):
    code = "download_refused"


class _LockedError(TokenizerCoreError):
    code = "trainer_busy"

    def __str__(self) -> str:
        return (
            "another training process of these artifacts did not end in time; "
            "post the request again once it has"
        )


@contextlib.contextmanager
def open_inputs(files: Sequence[CorpusFile]) -> Iterator[list[int]]:
    """Descriptors of all input files, held open together.

    Raises:
        CorpusChangedError: one is not what it was when the job was made.
    """
    with contextlib.ExitStack() as stack:
        descriptors = []
        for file in files:
            descriptor = reopen_corpus_file(file)
            stack.callback(os.close, descriptor)
            descriptors.append(descriptor)
        yield descriptors


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
