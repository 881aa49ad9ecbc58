"""Reading and writing in a folder so that neither a link, a crash nor a full disk surprises.

Files are opened relative to an open folder and never through a symbolic link; what is written is
on the disk before the call returns. Everything ends in functions of `os`, which the crash
and fault tests replace one by one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tokenizer_core.errors import ArtifactCorruptError, ArtifactError

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
_LOCK_POLL_SECONDS: Final = 0.02


@contextlib.contextmanager
def open_folder(path: Path, *parts: str) -> Iterator[int]:
    """A descriptor of the folder `path/parts...`; no part may be a symbolic link (`path` may).

    Raises:
        FileNotFoundError: there is no such folder.
        ArtifactCorruptError: a part is a link or no folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts:
            try:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise ArtifactCorruptError(
                        f"{'/'.join(parts)}: {part} is a symbolic link or no folder"
                    ) from None
                raise
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(folder: int, name: str, *, max_bytes: int) -> bytes:
    """All bytes of the regular file `name` in an open folder.

    Raises:
        ArtifactCorruptError: missing, a link, no regular file, or over `max_bytes`.
        OSError: reading failed.
    """
    try:
        descriptor = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise ArtifactCorruptError(f"{name} is missing") from None
        if error.errno == errno.ELOOP:
            raise ArtifactCorruptError(f"{name} is a symbolic link") from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ArtifactCorruptError(f"{name} is no regular file")
        data = file.read(max_bytes + 1) if status.st_size <= max_bytes else b""
        if status.st_size > max_bytes or len(data) > max_bytes:
            raise ArtifactCorruptError(f"{name} is larger than {max_bytes} bytes")
        return data


def write_synced(path: Path, data: bytes) -> None:
    """Create `path` with `data`, on the disk when this returns.

    A failed fsync is final: the kernel may have dropped the pages, so trying again would lie.

    Raises:
        OSError: the file is there already, or could not be written whole.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Put the folder's entries on the disk: without it a rename may not outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_synced(path: Path, data: bytes) -> None:
    """Put `data` into `path`, so that a crash leaves the old content or the new one.

    The caller holds a lock: the staged name is always the same, and a leftover is overwritten.
    """
    staged = path.with_name(f".{path.name}.new")
    staged.unlink(missing_ok=True)
    try:
        write_synced(staged, data)
        staged.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make `path` and its parents, each entry on the disk when this returns."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        sync_folder(folder.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with all in it as far as possible; what is left is removed another time."""
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path, *, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock file `path`, which the kernel lets go when the process dies.

    Raises:
        ArtifactError: another process held it for `timeout_seconds`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ArtifactError(
                        f"another process has been writing to the store for {timeout_seconds:g} "
                        f"seconds; try again"
                    ) from None
                time.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
