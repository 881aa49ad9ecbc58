"""Locks between processes. The kernel frees each lock when its process ends, however that ends.

`try_lock` and `wait_for_lock` take an exclusive `flock`, which belongs to an open file: closing the
file frees it, and a child made by fork shares it. `try_record_lock` takes a record lock (`lockf`),
which belongs to a process: a child does not inherit it, and closing any descriptor of that file in
the process frees it.

On Windows every lock is one byte behind the end of a file, and the lock of a folder is that of a
file in it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.blobs.local_files import FOLDER, HAS_OPEN_FOLDERS, NO_LINK, fcntl

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_POLL_SECONDS: Final = 0.005
_LOCKED_BYTE: Final = (1 << 31) - 2
_FILE_IN_FOLDER: Final = ".lock"


def try_lock(file: FileDescriptorLike) -> bool:
    """Lock an open file or folder exclusively; False if another open file holds the lock.

    It does not block, so a coroutine can call it again after a pause.
    """
    if fcntl is None:
        return _try_to_lock_byte(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(file: FileDescriptorLike) -> None:
    """Lock an open file or folder exclusively; wait until the holder frees it."""
    if fcntl is None:
        while not _try_to_lock_byte(file):
            time.sleep(_POLL_SECONDS)
    else:
        fcntl.flock(file, fcntl.LOCK_EX)


def try_record_lock(file: FileDescriptorLike) -> bool:
    """Take the record lock of an open file; False if another process holds it."""
    if fcntl is None:
        return _try_to_lock_byte(file)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _try_to_lock_byte(file: FileDescriptorLike) -> bool:
    windows: Any = importlib.import_module("msvcrt")
    descriptor = file if isinstance(file, int) else file.fileno()
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EDEADLK):
            return False
        raise
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
    return True


@contextlib.contextmanager
def hold_lock(path: Path, *, timeout_seconds: float, refusal: Exception) -> Iterator[None]:
    """Hold the lock file `path`; create the file if it is missing.

    Raises:
        OSError: the file cannot be opened, or is a symbolic link.
        refusal: another process held the lock for `timeout_seconds`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
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
    lock = FolderLock(path, follow_link=True)
    try:
        if wait:
            wait_for_lock(lock)
        elif not try_lock(lock):
            raise BlockingIOError(f"another process holds the lock of {path}")
        yield
    finally:
        lock.close()


class FolderLock:
    """The lock of the folder `path` itself, opened and not yet taken: `try_lock` takes it.
    Deleting the object frees the lock: an interrupted notebook cell does not call `close`.

    Raises:
        OSError: the folder does not exist, or is a symbolic link unless `follow_link`.
    """

    def __init__(self, path: Path, *, follow_link: bool = False) -> None:
        self._path, self._descriptor = path, -1
        if HAS_OPEN_FOLDERS:
            self._descriptor = os.open(path, FOLDER if follow_link else FOLDER | NO_LINK)
        else:
            self._descriptor = os.open(path / _FILE_IN_FOLDER, os.O_RDWR | os.O_CREAT, 0o666)

    def fileno(self) -> int:
        """Its descriptor; -1 after `close`."""
        return self._descriptor

    def __del__(self) -> None:
        self.close()

    def is_of_path(self) -> bool:
        """Whether the folder that was opened is still the one at its path."""
        if not HAS_OPEN_FOLDERS:
            return True  # nobody can remove an open file there
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def close(self, *, and_remove: bool = False) -> None:
        """Free the lock; a second call does nothing. `and_remove`: the folder has been removed, or
        all but the file of the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        os.close(descriptor)
        if not HAS_OPEN_FOLDERS:
            with contextlib.suppress(OSError):  # somebody else has opened it
                (self._path / _FILE_IN_FOLDER).unlink()
                if and_remove:
                    self._path.rmdir()
