"""FolderStorage: a storage in a folder, on a local disk or on a file system that hosts share.

A writer stages a file under `.staging`, syncs it, and links or renames it to its name, so that a
reader sees a name with all of its bytes or not at all. `swap` compares and renames under a lock.
A process that dies leaves at most a staged file, which no reader sees.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tokenizer_core.blobs.atomic_files import make_folder, remove_synced, sync_folder, write_synced
from tokenizer_core.blobs.locks import hold_lock
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
_COPY_BYTES: Final = 1 << 20


class FolderStorage:
    """A `Storage` in the folder `root`, which the first write makes."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.shown = str(self._root)

    def read(self, name: str, *, max_bytes: int) -> bytes:
        with self._translating_errors(name), self._path(name).open("rb") as file:
            data = file.read(max_bytes + 1)
            if len(data) > max_bytes:
                file.seek(0)
                version = hashlib.file_digest(file, "sha256").hexdigest()
                raise too_large(self.shown, name, max_bytes, version)
        return data

    def read_versioned(self, name: str, *, max_bytes: int) -> Versioned | None:
        try:
            data = self.read(name, max_bytes=max_bytes)
        except StorageMissingError:
            return None
        return Versioned(data, _version(data))

    def fetch(self, name: str, path: Path) -> None:
        with self._translating_errors(name):
            shutil.copyfile(self._path(name), path)

    def size(self, name: str) -> int | None:
        try:
            with self._translating_errors(name):
                return self._path(name).stat().st_size
        except StorageMissingError:
            return None

    def names(self, prefix: str = "") -> list[str]:
        folder = self._root / checked_storage_prefix(prefix).rpartition("/")[0]
        found = []
        with self._translating_errors(prefix or "the list of names"):
            for parent, folders, files in os.walk(folder, onerror=_raise_unless_missing):
                folders[:] = [inner for inner in folders if not inner.startswith(".")]
                found += [os.path.relpath(Path(parent, file), self._root) for file in files]
        return sorted(name for name in found if name.startswith(prefix) and is_storage_name(name))

    def put(self, name: str, source: bytes | Path) -> None:
        path = self._path(name)
        with self._translating_errors(name), self._staged(path, source) as staged:
            staged.replace(path)
            sync_folder(path.parent)

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with self._translating_errors(name), self._staged(path, data) as staged:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(staged)
            # A network file system repeats a request after a lost response, and finds its own link.
            won = staged.stat().st_nlink > 1
            sync_folder(path.parent)
            return won

    def swap(self, name: str, data: bytes, *, expected: str | None) -> bool:
        path = self._path(name)
        with self._translating_errors(name), self._staged(path, data) as staged, self._locked():
            try:
                present = _version(path.read_bytes())
            except FileNotFoundError:
                present = None
            if present != expected:
                return False
            staged.replace(path)
            sync_folder(path.parent)
            return True

    def remove(self, name: str) -> None:
        with self._translating_errors(name):
            remove_synced(self._path(name))

    def _path(self, name: str) -> Path:
        return self._root / checked_storage_name(name)

    @contextlib.contextmanager
    def _staged(self, path: Path, source: bytes | Path) -> Iterator[Path]:
        """A synced file with these bytes; removed at the end unless it was renamed."""
        folder = self._root / _STAGING
        for needed in (folder, path.parent):
            make_folder(needed)
        staged = folder / secrets.token_hex(16)
        try:
            data = source if isinstance(source, bytes) else _blocks_of(source)
            write_synced(staged, data, mode=0o666)
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        # A holder that keeps the lock this long was stopped, or its host is unreachable.
        refusal = StorageError(
            f"another process has been writing to {self.shown} for "
            f"{_LOCK_TIMEOUT_SECONDS:g} seconds; try again"
        )
        path = self._root / _STAGING / "lock"
        return hold_lock(path, timeout_seconds=_LOCK_TIMEOUT_SECONDS, refusal=refusal)

    @contextlib.contextmanager
    def _translating_errors(self, name: str) -> Iterator[None]:
        """Translate the errors of the disk into storage errors."""
        try:
            yield
        except StorageError:
            raise
        except FileNotFoundError:
            raise StorageMissingError(f"there is no {name} in {self.shown}") from None
        except OSError as error:
            raise StorageError(
                f"{name} in {self.shown} cannot be read or written: {error.strerror}; check the "
                f"disk and its permissions"
            ) from error


def _version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_COPY_BYTES):
            yield block


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
