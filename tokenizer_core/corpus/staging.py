"""StagedFolder, `.NAME.partial`, and StagedFile: where token files grow until they are complete.

The folder has a folder with the files, which is renamed at the end, a checkpoint for resuming, and
a path for temporary files of the writer's user (`scratch`, not made here). One process at a time
holds it, by a lock on the folder itself.

The crash tests replace the functions of `os` that this module calls, one by one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.atomic_files import (
    make_folder,
    remove_folder,
    remove_synced,
    replace_synced,
    sync_file,
    sync_folder,
)
from tokenizer_core.blobs.local_files import BINARY, NO_LINK
from tokenizer_core.blobs.locks import FolderLock, try_lock
from tokenizer_core.corpus.token_manifest import START_ANEW, TokenFile, partial_folder
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHECKPOINT_NAME: Final = "checkpoint.json"
_BLOCK_BYTES: Final = 1 << 20


def checkpoint_path(folder: Path) -> Path:
    """The path of the checkpoint for the token files of `folder`."""
    return partial_folder(folder) / _CHECKPOINT_NAME


class StagedFolder:
    """The folder in which the token files of `folder` grow, locked by this process.

    Raises:
        TokenFilesError: `folder` exists already, or another process is writing it.
        OSError: the disk refuses.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = partial_folder(folder)
        self.files = self._path / "files"
        self.scratch = self._path / "scratch"
        if folder.exists() and not self._path.exists():
            raise self._exists()
        make_folder(self._path)
        try:
            self._lock = FolderLock(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._path.rmdir()  # fails unless it is new and empty
            raise
        try:
            self._take_lock()
        except BaseException:
            self.release()
            raise
        if folder.exists():  # a writer died after it published, before it cleaned up
            self.drop()
            raise self._exists()

    def read_checkpoint(self) -> bytes | None:
        """The checkpoint; None without one."""
        with contextlib.suppress(FileNotFoundError):
            return (self._path / _CHECKPOINT_NAME).read_bytes()
        return None

    def write_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint by a synced file, after syncing the folder of the files: a crash
        leaves the old checkpoint or the new one."""
        sync_folder(self.files)
        replace_synced(self._path / _CHECKPOINT_NAME, data)

    def clear(self) -> None:
        """Remove everything and make the folder of the files."""
        self._remove_checkpoint()
        remove_folder(self.scratch)
        remove_folder(self.files)
        make_folder(self.files)

    def publish(self) -> None:
        """Rename the folder of the files to its final name, and remove everything else.

        Raises:
            TokenFilesError: the folder has appeared meanwhile.
        """
        sync_folder(self.files)
        if self.folder.exists():
            raise self._exists()
        self.files.rename(self.folder)
        try:
            sync_folder(self.folder.parent)
        finally:
            self.drop()

    def drop(self) -> None:
        """Remove everything that is not published, and release the lock."""
        self._remove_checkpoint()
        remove_folder(self._path)
        self._lock.close(and_remove=True)

    def _remove_checkpoint(self) -> None:
        # Before the files: after a power cut, no checkpoint describes files that are gone.
        checkpoint = self._path / _CHECKPOINT_NAME
        if checkpoint.exists():
            remove_synced(checkpoint)

    def release(self) -> None:
        """Release the lock and keep the files; a second call does nothing."""
        self._lock.close()

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock."""
        return self._lock.fileno() >= 0

    def _take_lock(self) -> None:
        # The process that held the folder may have removed it since we opened it.
        if not (try_lock(self._lock) and self._lock.is_of_path()):
            raise TokenFilesError(
                f"another process is writing {self.folder.name!r:.80}, or another writer of this "
                f"one; wait for it, delete that writer, or name another folder"
            )

    def _exists(self) -> TokenFilesError:
        name = self.folder.name or str(self.folder)
        return TokenFilesError(
            f"{name!r:.80} is there already, and token files are never changed; remove it, or name "
            f"another folder"
        )


class StagedFile:
    """A new file, written from its beginning in bounded memory and synced when it is closed.

    With `keep_bytes` an existing file is truncated to this size and continued. With
    `hash_on_the_way` a new file is hashed while it is written, which saves reading it again at the
    end; `close` must not change its beginning then.

    Raises:
        TokenFilesCorruptError: the existing file has fewer bytes.
        OSError: from every method, if the disk refuses.
    """

    def __init__(
        self, path: Path, *, keep_bytes: int | None = None, hash_on_the_way: bool = False
    ) -> None:
        self.path = path
        self._digest = hashlib.sha256() if hash_on_the_way else None
        self._waiting = bytearray()
        flags = os.O_RDWR | NO_LINK | BINARY
        if keep_bytes is None:
            self._descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        else:
            try:
                self._descriptor = os.open(path, flags)
            except FileNotFoundError:
                raise self._too_short() from None
            if os.fstat(self._descriptor).st_size < keep_bytes:
                self.discard()
                raise self._too_short()
            os.ftruncate(self._descriptor, keep_bytes)
            os.lseek(self._descriptor, keep_bytes, os.SEEK_SET)

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`, which is copied."""
        if self._digest is not None:
            self._digest.update(data)
        self._waiting += data
        if len(self._waiting) >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write everything to the system, so that readers of the path see it."""
        view, self._waiting = memoryview(self._waiting), bytearray()
        with self._naming():
            while view:
                view = view[os.write(self._descriptor, view) :]

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the file in an error of the system, which knows only its descriptor."""
        try:
            yield
        except OSError as error:
            error.filename = os.fspath(self.path)
            raise

    def sync(self) -> None:
        """Sync everything written so far to the disk."""
        self.flush()
        with self._naming():
            sync_file(self._descriptor)

    def close(self, beginning: bytes = b"") -> TokenFile:
        """Overwrite the first bytes with `beginning`, sync the file, and return its size and hash.

        Unless it was hashed on the way, the file is read again for the hash: its beginning, which
        has the number of ids, is known only now.
        """
        self.flush()
        digest = None if beginning else self._digest
        if beginning:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self._waiting += beginning
        self.sync()
        size_bytes = os.fstat(self._descriptor).st_size
        self.discard()
        if digest is not None:
            return TokenFile(self.path.name, size_bytes, digest.hexdigest())
        with self.path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        return TokenFile(self.path.name, size_bytes, found)

    def discard(self) -> None:
        """Close the file without syncing it; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _too_short(self) -> TokenFilesCorruptError:
        return TokenFilesCorruptError(
            f"{self.path.name} is missing or shorter than its checkpoint says; {START_ANEW}"
        )
