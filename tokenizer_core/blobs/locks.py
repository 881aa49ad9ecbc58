"""Locks between processes. The kernel frees each lock when its process ends, however that ends.

`try_lock` and `wait_for_lock` take an exclusive `flock`, which belongs to an open file: closing the
file frees it, and a child made by fork shares it. `try_record_lock` takes a record lock (`lockf`),
which belongs to a process: a child does not inherit it, and closing any descriptor of that file in
the process frees it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

_POLL_SECONDS: Final = 0.005


class HasFileno(Protocol):
    """An open file."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...


def try_lock(file: int | HasFileno) -> bool:
    """Lock an open file or folder exclusively; False if another open file holds the lock.

    It does not block, so a coroutine can call it again after a pause.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(file: int | HasFileno) -> None:
    """Lock an open file or folder exclusively; wait until the holder frees it."""
    fcntl.flock(file, fcntl.LOCK_EX)


def try_record_lock(file: int | HasFileno) -> bool:
    """Take the record lock of an open file; False if another process holds it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def hold_lock(path: Path, *, timeout_seconds: float, refusal: Exception) -> Iterator[None]:
    """Hold the lock file `path`; create the file if it is missing.

    Raises:
        OSError: the file cannot be opened, or is a symbolic link.
        refusal: another process held the lock for `timeout_seconds`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> busy = ValueError("busy")
        >>> with hold_lock(Path(folder.name, "lock"), timeout_seconds=1, refusal=busy):
        ...     "held"
        'held'
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        deadline = time.monotonic() + timeout_seconds
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise refusal
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_folder(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the folder `path` itself.

    Raises:
        OSError: the folder does not exist.
        BlockingIOError: `wait` is false and another process holds the lock.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if wait:
            wait_for_lock(descriptor)
        elif not try_lock(descriptor):
            raise BlockingIOError(f"another process holds the lock of {path}")
        yield
    finally:
        os.close(descriptor)
