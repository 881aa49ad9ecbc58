"""FolderStorage: a storage in a folder, on a disk or on a file system that several hosts share.

A file is staged beside the others, put on the disk, and linked or renamed into place: whoever looks
sees it whole or not at all. `swap` holds a lock (`flock`) that dies with its process. What is
staged and was left by a dead process lies under `.staging` and is nobody's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tokenizer_core.blobs.protocol import (
    Versioned,
    checked_storage_name,
    checked_storage_prefix,
    is_storage_name,
    too_large,
)
from tokenizer_core.errors import StorageError, StorageMissingError

_STAGING: Final = ".staging"
_LOCK_TIMEOUT_SECONDS: Final = 10.0
_LOCK_POLL_SECONDS: Final = 0.005


class FolderStorage:
    """A `Storage` in the folder `root`, which is made when it is first written to."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.shown = str(self._root)

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """See `Storage`."""
        with self._told(name), self._path(name).open("rb") as file:
            data = file.read(max_bytes + 1)
            if len(data) > max_bytes:
                file.seek(0)
                version = hashlib.file_digest(file, "sha256").hexdigest()
                raise too_large(self.shown, name, max_bytes, version)
        return data

    def read_versioned(self, name: str, *, max_bytes: int) -> Versioned | None:
        """See `Storage`."""
        try:
            data = self.read(name, max_bytes=max_bytes)
        except StorageMissingError:
            return None
        return Versioned(data, _version(data))

    def fetch(self, name: str, path: Path) -> None:
        """See `Storage`."""
        with self._told(name):
            shutil.copyfile(self._path(name), path)

    def size(self, name: str) -> int | None:
        """See `Storage`."""
        try:
            with self._told(name):
                return self._path(name).stat().st_size
        except StorageMissingError:
            return None

    def names(self, prefix: str = "") -> list[str]:
        """See `Storage`."""
        folder = self._root / checked_storage_prefix(prefix).rpartition("/")[0]
        found = []
        with self._told(prefix or "its list"):
            for above, folders, files in os.walk(folder, onerror=_raise_unless_gone):
                folders[:] = [inner for inner in folders if not inner.startswith(".")]
                found += [os.path.relpath(Path(above, file), self._root) for file in files]
        return sorted(name for name in found if name.startswith(prefix) and is_storage_name(name))

    def put(self, name: str, source: bytes | Path) -> None:
        """See `Storage`."""
        path = self._path(name)
        with self._told(name), self._staged(path, source) as staged:
            staged.rename(path)
            _sync_folder(path.parent)

    def create(self, name: str, source: bytes | Path) -> bool:
        """See `Storage`."""
        path = self._path(name)
        with self._told(name), self._staged(path, source) as staged:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(staged)
            # A server of files whose answer was lost is asked again and finds its own link.
            won = staged.stat().st_nlink > 1
            _sync_folder(path.parent)
            return won

    def swap(self, name: str, data: bytes, *, expected: str | None) -> bool:
        """See `Storage`."""
        path = self._path(name)
        with self._told(name), self._staged(path, data) as staged, self._locked():
            try:
                present = _version(path.read_bytes())
            except FileNotFoundError:
                present = None
            if present != expected:
                return False
            staged.rename(path)
            _sync_folder(path.parent)
            return True

    def remove(self, name: str) -> None:
        """See `Storage`."""
        with self._told(name):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._root / checked_storage_name(name)

    @contextlib.contextmanager
    def _staged(self, path: Path, source: bytes | Path) -> Iterator[Path]:
        folder = self._root / _STAGING
        for needed in (folder, path.parent):
            _make_folder(needed)
        staged = folder / secrets.token_hex(16)
        try:
            with staged.open("xb") as file:
                if isinstance(source, bytes):
                    file.write(source)
                else:
                    with source.open("rb") as given:
                        shutil.copyfileobj(given, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._root / _STAGING / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
            while not _took_lock(descriptor):
                if time.monotonic() > deadline:  # its holder was stopped, or its host is away
                    raise StorageError(
                        f"another process has been writing to {self.shown} for "
                        f"{_LOCK_TIMEOUT_SECONDS:g} seconds; try again"
                    )
                time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """What the disk raises, in the storage's words."""
        try:
            yield
        except StorageError:
            raise
        except FileNotFoundError:
            raise StorageMissingError(f"there is no {name} in {self.shown}") from None
        except OSError as error:
            raise StorageError(
                f"{name} in {self.shown} cannot be read or written: {error.strerror}; check the "
                f"disk, and who may write there"
            ) from error


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _took_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_folder(path: Path) -> None:
    """Make `path` and what is above it, each entry on the disk when this returns."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
