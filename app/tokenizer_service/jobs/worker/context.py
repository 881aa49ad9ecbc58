"""Code for every kind of job in its child process: request, events, input files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from tokenizer_core.documents import CorpusFormat, corpus_file_names, format_of_name
from tokenizer_service.jobs.folder import JobFolder
from tokenizer_service.jobs.input_files import (
    InputFile,
    check_unchanged,
    readable_path,
    reopen_input_file,
)

if TYPE_CHECKING:
    from tokenizer_core.training import VocabularyOptions

_EVENT_INTERVAL_SECONDS: Final = 0.2
_MAX_NAME_CHARS: Final = 60  # of the name of a link, in any script, with the ending of a format


class EventPipe:
    """Sends events to the server, one line each; nothing else is written to standard output."""

    def __init__(self) -> None:
        self._descriptor = os.dup(1)
        # Output of a library must not mix with the events.
        os.dup2(2, 1)
        self._next_progress = 0.0
        self._phase = ""

    def send(self, event: str, **fields: Any) -> None:
        """Send one event. Ignores a dead server, which the watch on standard input handles."""
        line = json.dumps({"event": event, **fields}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._descriptor, line) :]

    def report(
        self,
        phase: str,
        done: int,
        total: int,
        message: str = "",
        counters: Mapping[str, int] | None = None,
    ) -> None:
        """Send the progress, at most five times a second, and the end of each phase.

        `total` is 0 if it is unknown. Clients receive `counters` unchanged.
        """
        now = time.monotonic()
        is_end = 0 < total <= done
        if phase == self._phase and now < self._next_progress and not is_end:
            return
        if phase != self._phase:
            say(f"{phase}: {message}" if message else phase)
        self._phase, self._next_progress = phase, now + _EVENT_INTERVAL_SECONDS
        self.send("progress", phase=phase, done=done, total=total, counters=dict(counters or {}))


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """The job of this process. `names` maps paths read here to the caller's names for them."""

    folder: JobFolder
    request: Mapping[str, Any]
    events: EventPipe
    allowed: threading.Event
    names: dict[str, str] = field(default_factory=dict)

    @property
    def artifacts_dir(self) -> Path:
        """The folder in which the job publishes."""
        return Path(self.request["artifacts_dir"])

    def wait_for_permission(self, **counters: int) -> None:
        """Report that only the publication is left, with the last counters; return when the server
        allows it."""
        self.events.send("ready", counters=counters)
        self.allowed.wait()

    def report_published(self, **result: Any) -> None:
        """Report what was published."""
        self.events.send("published", result=result)


def say(line: str, file: TextIO | None = None) -> None:
    """Write one line into the log: `file`, or in the child its standard error."""
    stamp = time.strftime("%H:%M:%S", time.gmtime())
    print(f"{stamp} {line}", file=file or sys.stderr, flush=True)


@contextlib.contextmanager
def open_inputs(files: Sequence[InputFile]) -> Iterator[list[int]]:
    """Open descriptors of all input files.

    Raises:
        InputChangedError: a file changed after the job was made; also in place of an error in the
            content of a file that changed.
    """
    with contextlib.ExitStack() as stack:
        descriptors = []
        for file in files:
            descriptor = reopen_input_file(file)
            stack.callback(os.close, descriptor)
            descriptors.append(descriptor)
        try:
            yield descriptors
        except ValueError:  # CorpusError and UnicodeDecodeError are such
            check_inputs(files, descriptors)
            raise


def name_inputs(
    job: WorkerJob, files: Sequence[InputFile], descriptors: Sequence[int]
) -> list[Path]:
    """Links to the open files, under the caller's names, which manifests record. If the job has no
    format for all of them, each name ends in its own, by which the library reads the file."""
    by_name = job.request["corpus_format"]["format"] is None
    folder = job.folder.scratch_path / "inputs"
    shutil.rmtree(folder, ignore_errors=True)  # a killed attempt may have left it
    paths = []
    names = corpus_file_names([file.name for file in files])
    for index, (file, descriptor, name) in enumerate(zip(files, descriptors, names, strict=True)):
        # A URL may have `..` in it.
        parts = [part[-_MAX_NAME_CHARS:] for part in name.split("/") if part not in ("", ".", "..")]
        name = "/".join(parts) or "corpus"
        if by_name and file.format not in (None, format_of_name(name) or "txt"):
            name = f"{name}.{file.format}"
        path = folder / str(index) / name
        path.parent.mkdir(parents=True, mode=0o700)
        path.symlink_to(readable_path(descriptor))
        job.names[str(path)] = file.name
        paths.append(path)
    return paths


def corpus_format_of(job: WorkerJob, paths: Iterable[str | os.PathLike[str]]) -> CorpusFormat:
    """How the files of the job, which it reads at these paths, hold documents."""
    how: dict[str, Any] = dict(job.request["corpus_format"])
    if isinstance(field := how.get("field"), dict):
        how["field"] = {os.fspath(path): field[job.names[os.fspath(path)]] for path in paths}
    return CorpusFormat(**how)


def check_inputs(files: Sequence[InputFile], descriptors: Sequence[int]) -> None:
    """Raise InputChangedError for a file that was written to since the job was made, and for a path
    of the request that names another file now.

    A corpus that was replaced did not change: the job reads the text that it was made for.
    """
    for file, descriptor in zip(files, descriptors, strict=True):
        check_unchanged(file, descriptor)
        if not file.label:
            os.close(reopen_input_file(file))


def vocabulary_options(request: Mapping[str, Any]) -> VocabularyOptions:
    """The vocabulary options of a training request."""
    # Imported here because encoding jobs do not need the trainer.
    from tokenizer_core.training import VocabularyOptions

    return VocabularyOptions(
        min_frequency=request["min_frequency"],
        max_token_length=request["max_token_length"],
        seed_tokens=tuple(request["seed_tokens"]),
        n_reserved=request["reserved"],
        pad_to_multiple=request["pad_to_multiple"],
        superwords_from=request["superwords_from"],
    )
