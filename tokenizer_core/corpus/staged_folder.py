"""StagedFolder: `.NAME.partial`, where token files grow until they are complete.

It has a folder with the files, which is renamed at the end, a checkpoint for resuming, and a path
for temporary files of the writer's user (`scratch`, not made here). One process at a time holds it,
by a lock on the folder itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.atomic_files import (
    make_folder,
    remove_folder,
    remove_synced,
    replace_synced,
    sync_folder,
)
from tokenizer_core.blobs.locks import FolderLock, try_lock
from tokenizer_core.errors import TokenFilesError

if TYPE_CHECKING:
    from pathlib import Path

_CHECKPOINT_NAME: Final = "checkpoint.json"


def checkpoint_path(folder: Path) -> Path:
    """The path of the checkpoint for the token files of `folder`."""
    return _staged_path(folder) / _CHECKPOINT_NAME


def _staged_path(folder: Path) -> Path:
    # Not with_name, which raises ValueError for `.` and `/`: they are there already, which is said.
    return folder.parent / f".{folder.name}.partial"


class StagedFolder:
    """The folder in which the token files of `folder` grow, locked by this process.

    Raises:
        TokenFilesError: `folder` exists already, or another process is writing it.
        OSError: the disk refuses.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = _staged_path(folder)
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
        """Remove everything and make the folder of the files.

        After a power cut, no checkpoint remains without its files or beside newer ones.
        """
        checkpoint = self._path / _CHECKPOINT_NAME
        if checkpoint.exists():
            remove_synced(checkpoint)
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
        remove_folder(self._path)
        self._lock.close(and_remove=True)

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
