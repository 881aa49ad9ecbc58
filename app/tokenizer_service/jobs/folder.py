"""The folder of a job: its inline documents, its request, its log.

<artifacts>/jobs/<id>/request.json    the request, for the child process
<artifacts>/jobs/<id>/documents/      inline documents, or downloads
<artifacts>/jobs/<id>/train.log       the standard error of the child process
<artifacts>/jobs/<id>/scratch/        its temporary files
<artifacts>/jobs/<id>/again-<n>/      the same after the n-th takeover by another host
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs.atomic_files import make_folder, replacing, sync_folder, write_synced
from tokenizer_service.jobs.input_files import InputFile, find_input_file

LOG_TAIL_LINES: Final = 20
_LOG_TAIL_BYTES: Final = 16 * 1024
_MAX_LOG_LINE_CHARS: Final = 500
_JOB_ID: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}")


def is_job_id(text: str) -> bool:
    """Whether `text` has the form of a job id; only then may it become part of a path.

    Example:
        >>> is_job_id("20261121T041500Z-0123456789ab"), is_job_id("../x")
        (True, False)
    """
    return _JOB_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of one job under the artifacts folder; the object holds only the path."""

    path: Path

    @classmethod
    def of(cls, artifacts_dir: Path, job_id: str) -> JobFolder:
        """The folder of a job, whether it exists or not; raises ValueError for no job id."""
        if not is_job_id(job_id):
            raise ValueError("not a job id")
        return cls(artifacts_dir.absolute() / "jobs" / job_id)

    @property
    def log_path(self) -> Path:
        """The log of the child process."""
        return self.path / "train.log"

    @property
    def scratch_path(self) -> Path:
        """Temporary files of the child process."""
        return self.path / "scratch"

    @property
    def documents_path(self) -> Path:
        """Inline documents of the request, or downloads."""
        return self.path / "documents"

    def again(self, takeovers: int) -> JobFolder:
        """The folder to work in after this many takeovers by another host. The earlier child may
        still write to the previous folder."""
        return self if takeovers == 0 else JobFolder(self.path / f"again-{takeovers}")

    def make(self) -> None:
        """Make the folder, readable by this user only: a corpus may be private."""
        make_folder(self.path, mode=0o700)

    def write_documents(self, documents: Sequence[str], separator: str | None) -> list[InputFile]:
        """Write inline documents as corpus files and sync them.

        Writes one file with `separator` between the documents, or without a separator one file per
        document. The separator is a special token: a hard boundary that training never counts.
        """
        folder = self.documents_path
        make_folder(folder, mode=0o700)
        if separator is not None:
            _write_private(folder / "documents.txt", separator.join(documents).encode())
            names = ["documents.txt"]
        else:
            names = [f"{index:05d}.txt" for index in range(len(documents))]
            for name, document in zip(names, documents, strict=True):
                _write_private(folder / name, document.encode())
        sync_folder(folder)
        return [replace(find_input_file([folder], name), format="txt") for name in names]

    def write_request(self, request: Mapping[str, Any]) -> None:
        """Write the request for the child process."""
        self.make()
        self.scratch_path.mkdir(exist_ok=True, mode=0o700)
        _write_private(self.path / "request.json", json.dumps(request).encode())

    def read_request(self) -> dict[str, Any]:
        """Read the request that `write_request` wrote."""
        value: dict[str, Any] = json.loads((self.path / "request.json").read_bytes())
        return value

    def remove_inputs(self) -> None:
        """Remove everything except the log."""
        earlier = self.path.glob("again-*")
        for folder in (self.documents_path, self.scratch_path, *earlier):
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def log_tail(self) -> list[str]:
        """The last lines of the log, bounded and with escaped control characters; [] if missing."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                size = file.tell()
                file.seek(max(0, size - _LOG_TAIL_BYTES))
                tail = file.read(_LOG_TAIL_BYTES)
        except OSError:
            return []
        lines = tail.decode(errors="replace").rstrip("\n").split("\n")
        if size > _LOG_TAIL_BYTES:
            del lines[0]  # its beginning was not read
        return [escape_control_characters(line)[:_MAX_LOG_LINE_CHARS] for line in lines if line][
            -LOG_TAIL_LINES:
        ]


def names_in(folder: Path) -> list[str]:
    """The names in `folder`; none if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(folder)  # noqa: PTH208
    return []


def bytes_below(folder: Path) -> int:
    """The bytes of all files below `folder`, also of those being written."""
    used = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                used += Path(parent, name).stat(follow_symlinks=False).st_size
    return used


def escape_control_characters(text: str) -> str:
    r"""`text` on one line, with escapes for characters that could forge a log line.

    Example:
        >>> print(escape_control_characters("a\r\nb\x1b[31m"))
        a\r\nb\x1b[31m
    """
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def _write_private(path: Path, data: bytes) -> None:
    with replacing(path) as staged:
        write_synced(staged, data, mode=0o600)
