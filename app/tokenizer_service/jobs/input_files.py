"""Input files of jobs: opens paths of a caller only if they are regular files under a root.

Only this module opens a path from the network. It walks the path one component at a time and opens
each folder relative to the previous one with `O_NOFOLLOW`. So it refuses a symbolic link at every
position and at every moment, and the file that was checked is the file that is open. A job then
reads through the open descriptor (`/proc/<pid>/fd/<n>`), never through the name again. Links within
the root are refused as well, because finding the target of a link means following it. The root
itself may be a link, because the operator chose it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tokenizer_core.documents.corpus_files import FileVersion
from tokenizer_service.jobs.errors import JobsError

MAX_PATH_BYTES: Final = 4096
_MAX_COMPONENT_BYTES: Final = 255
_PERCENT_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")


class InputPathError(ValueError):
    """The path is not a readable regular file under a corpus root; the message says why."""


class InputChangedError(JobsError):
    """An input file changed after the job was made."""

    code = "corpus_changed"


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file: its path, and its identity when the job was made."""

    root: str
    path: str
    version: FileVersion
    """Its version when the job was made."""

    label: str = field(default="", compare=False)
    """The caller's name for it if that is not its path: the id of a corpus, a URL."""

    format: str | None = field(default=None, compare=False)
    """How it holds documents; None: as its name says."""

    is_told: bool = field(default=False, compare=False)
    """Whether its uploader named the format: then nothing checks that its text is text."""

    text_field: str | None = field(default=None, compare=False)
    """The field or column of the documents that its uploader named."""

    not_utf8_at: int | None = field(default=None, compare=False)
    """The first byte that was not UTF-8 when it was uploaded."""

    @property
    def name(self) -> str:
        """The caller's name for it."""
        return self.label or self.path

    @property
    def size_bytes(self) -> int:
        """Its size when the job was made."""
        return self.version.size_bytes


def split_input_path(path: str) -> list[str]:
    """The components of a relative path, each a plain name.

    Raises:
        InputPathError: the path is absolute, empty or too long, or has `..`, a control character
            or a percent escape.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InputPathError("the path holds a lone surrogate") from None
    if not path:
        raise InputPathError("the path is empty; name a file under a corpus root")
    if size > MAX_PATH_BYTES:
        raise InputPathError(f"the path is longer than {MAX_PATH_BYTES} bytes")
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise InputPathError("the path holds a NUL or another control character")
    if _PERCENT_ESCAPE.search(path):
        raise InputPathError(
            "the path holds a percent escape; nothing is decoded here, write the name plainly"
        )
    if path.startswith(("/", "\\", "~")) or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        raise InputPathError(
            "the path must be relative to a corpus root, without a scheme or a leading slash"
        )
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise InputPathError("the path must be plain names joined by '/', without '.' or '..'")
    if any(len(part.encode()) > _MAX_COMPONENT_BYTES for part in parts):
        raise InputPathError(f"a name in the path is longer than {_MAX_COMPONENT_BYTES} bytes")
    return parts


def open_under_root(root: Path, parts: Sequence[str]) -> int:
    """A descriptor of the regular file at `parts` under `root`, opened without following links.

    Raises:
        InputPathError: a component is a link, is missing or is not a folder, or the file is not
            regular. Never blocks: refuses a FIFO or a device before opening it.
        FileNotFoundError: this root has no such file (another root may have it).
    """
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in parts[:-1]:
            _refuse_unless(name, os.stat(name, dir_fd=folder, follow_symlinks=False), folder=True)
            deeper = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
            )
            os.close(folder)
            folder = deeper
        name = parts[-1]
        _refuse_unless(name, os.stat(name, dir_fd=folder, follow_symlinks=False), folder=False)
        # O_NONBLOCK, because a FIFO may have replaced the file since the check.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=folder)
    except PermissionError:
        raise InputPathError("the server may not read it") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        # ELOOP or ENOTDIR: a link replaced the file between the check and the opening.
        raise InputPathError(f"it cannot be opened ({os.strerror(error.errno or 0)})") from None
    finally:
        os.close(folder)
    try:
        _refuse_unless(name, os.fstat(file), folder=False)
    except InputPathError:
        os.close(file)
        raise
    return file


def find_input_file(roots: Sequence[Path], path: str) -> InputFile:
    """The file `path` under the first root that has it; raises InputPathError."""
    parts = split_input_path(path)
    for root in roots:
        try:
            descriptor = open_under_root(root, parts)
        except (FileNotFoundError, NotADirectoryError):
            continue
        version = FileVersion.of(os.fstat(descriptor))
        os.close(descriptor)
        return InputFile(str(root.absolute()), path, version)
    raise InputPathError(
        "there is no such file under the corpus roots; TOKENIZER_CORPUS_ROOTS names them"
    )


def reopen_input_file(file: InputFile) -> int:
    """A descriptor of the same file, opened as safely; raises InputChangedError."""
    try:
        descriptor = open_under_root(Path(file.root), split_input_path(file.path))
    except FileNotFoundError:
        raise InputChangedError(
            f"{file.name} was replaced or removed after the request; post the request again"
        ) from None
    except (InputPathError, OSError) as error:
        raise InputChangedError(f"{file.name}: {error}") from None
    try:
        check_unchanged(file, descriptor)
    except InputChangedError:
        os.close(descriptor)
        raise
    return descriptor


def check_unchanged(file: InputFile, descriptor: int) -> None:
    """Raise InputChangedError unless the open file is unchanged since the job was made."""
    if not file.version.is_same(FileVersion.of(os.fstat(descriptor))):
        raise InputChangedError(
            f"{file.name} was replaced or written to after the request; "
            f"let the writer finish and post the request again"
        )


def readable_path(descriptor: int) -> Path:
    """A path through which this process and its children read the open file, without its name.

    On a system without `/proc` (macOS) the path is in `/dev/fd`, which only this process can use.
    """
    if Path("/proc/self/fd").is_dir():
        return Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    return Path(f"/dev/fd/{descriptor}")


def _refuse_unless(name: str, status: os.stat_result, *, folder: bool) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise InputPathError(f"{name!r} is a symbolic link; name the file itself")
    if folder and not stat.S_ISDIR(status.st_mode):
        raise InputPathError(f"{name!r} is not a folder")
    if not folder and stat.S_ISDIR(status.st_mode):
        raise InputPathError(f"{name!r} is a folder; name the files in it")
    if not folder and not stat.S_ISREG(status.st_mode):
        raise InputPathError(f"{name!r} is not a regular file")
