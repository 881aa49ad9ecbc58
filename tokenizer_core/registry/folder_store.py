"""ArtifactStore: versions of tokenizers in a folder, each whole or absent, never changed.

    root/tokenizers/<name>/<version>/{vocab.pkl, merges.pkl, chat_templates.json, manifest.json}
    root/tokenizers/.staging/         versions being written; renamed when they are whole
    root/active.json                  the pointer to the active version
    root/aliases.json                 further names of tokenizers
    root/.publish.lock, .active.lock  held while writing; the kernel frees them with the process

A publisher writes a version into `.staging`, syncs each file and then the folder, opens and
verifies it as a reader would, renames it, and syncs the rename. So a reader sees a version whole or
not at all, at any moment and after any crash. Publishers hold the lock while they stage, so if the
lock is free, the content of `.staging` is from a process that died.

This store does not use `blobs.FolderStorage`, which writes file by file: a version is a folder that
must appear in one rename.

The store relies on a disk that keeps the data it reported as synced.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs import atomic_files
from tokenizer_core.blobs.atomic_files import open_folder, read_file_in
from tokenizer_core.blobs.locks import hold_lock
from tokenizer_core.errors import (
    ArtifactError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    FormatError,
)
from tokenizer_core.registry.aliases import ALIASES_NAME, MAX_ALIASES_BYTES
from tokenizer_core.registry.pointer import MAX_POINTER_BYTES, POINTER_NAME, StoredState
from tokenizer_core.registry.store import Artifacts, Names
from tokenizer_core.registry.version_folder import (
    COMPILED_NAME,
    check_version_folder,
    reading,
    storage_error,
    writing,
)
from tokenizer_core.registry.versions import (
    ACTIVE,
    NAME,
    VERSION,
    ArtifactRef,
    checked_name,
    checked_version,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping

    from tokenizer_core.blobs.local_files import Folder

LOCK_TIMEOUT_SECONDS: Final = 60.0


class ArtifactStore(Artifacts):
    """The versions under `root`; safe to use from several processes at once.

    Reading needs no lock and no write permission. Writing needs all of `root` on one file system,
    with `flock` and atomic `rename`.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._tokenizers = self.root / "tokenizers"
        self._staging = self._tokenizers / ".staging"
        self._pointer = self.root / POINTER_NAME
        self._was_mounted = self._tokenizers.is_dir()

    def names(self) -> Names:
        return [name for name in self._entries(self._tokenizers, NAME) if self._version_names(name)]

    def remove(self, name: str, version: str) -> None:
        """See `Artifacts`. Rename the version into `.staging` and delete it there; if the process
        dies, the next writer deletes it."""
        target = self._tokenizers / checked_name(name) / checked_version(version)
        self.require_mounted()
        with writing("remove"), self._locked(".publish.lock"), self._locked(".active.lock"):
            if not target.is_dir():
                raise ArtifactNotFoundError(f"there is no version {version} of {name!r}")
            self._refuse_active(name, version)
            atomic_files.make_folder(self._staging)
            target.rename(self._staging / f"{version}-{os.urandom(4).hex()}")
            atomic_files.sync_folder(target.parent)
            with contextlib.suppress(OSError):
                target.parent.rmdir()  # fails unless empty: that was the last version
            self._clean_staging()

    def require_mounted(self) -> None:
        """See `Artifacts`. No writer removes the folder of all tokenizers."""
        if self._tokenizers.is_dir():
            self._was_mounted = True
        elif self._was_mounted:
            raise ArtifactStorageError(
                errno.ENOENT, "the folder of the tokenizers is gone; is its volume mounted?"
            )

    poll_seconds = 0.2

    def pointer_mark(self) -> object:
        try:
            status = self._pointer.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(f"read {POINTER_NAME}", error) from error
        return status.st_ino, status.st_mtime_ns, status.st_size

    def pointer_state(self) -> StoredState:
        return self._state_of(POINTER_NAME, MAX_POINTER_BYTES)

    # Internals

    def _state_of(self, name: str, max_bytes: int) -> StoredState:
        with reading(name):
            if not os.path.lexists(self.root / name):
                return StoredState(None)
            try:
                with open_folder(self.root) as folder:
                    data = read_file_in(folder, name, max_bytes=max_bytes)
            except FormatError as error:  # not a regular file, or too large
                return StoredState("unreadable", damage=str(error))
            return StoredState(hashlib.sha256(data).hexdigest(), data)

    def _aliases_state(self) -> StoredState:
        return self._state_of(ALIASES_NAME, MAX_ALIASES_BYTES)

    def _write_aliases(self, data: bytes, state: StoredState) -> bool:
        # The caller holds the lock of publishers, so the state is still the same.
        atomic_files.replace_synced(self.root / ALIASES_NAME, data)
        return True

    def _move_pointer(self, data: bytes, state: StoredState, ref: ArtifactRef | None) -> bool:
        self.require_mounted()
        with writing("promote"), self._locked(".active.lock"):
            if self.pointer_state().tag != state.tag:
                return False
            if ref is not None:
                self._ref(ref.name, ref.version)  # raises if it was removed since it was opened
            atomic_files.replace_synced(self._pointer, data)
            return True

    def _entries(self, folder: Path, pattern: re.Pattern[str]) -> Names:
        try:
            with os.scandir(folder) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if pattern.fullmatch(entry.name)
                    and entry.name != ACTIVE
                    and entry.is_dir(follow_symlinks=False)
                )
        except (FileNotFoundError, NotADirectoryError):
            self.require_mounted()
            return []
        except OSError as error:
            raise storage_error("list", error) from error

    def _version_names(self, name: str) -> Names:
        versions = self._tokenizers / name
        return [v for v in self._entries(versions, VERSION) if not _is_left_over(versions / v)]

    @contextlib.contextmanager
    def _version_folder(self, name: str, version: str) -> Iterator[Folder]:
        checked_name(name)
        checked_version(version)
        with reading(f"{name}@{version}"):
            try:
                with open_folder(self.root, "tokenizers", name, version) as folder:
                    yield folder
            except FileNotFoundError:
                self.require_mounted()
                raise ArtifactNotFoundError(
                    f"there is no version {version} of {name!r}; list the versions there are"
                ) from None

    def _compiled_path(self, ref: ArtifactRef) -> Path:
        return self._tokenizers / ref.name / ref.version / COMPILED_NAME

    def _locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        refusal = ArtifactError(
            f"another process has been writing to the store for {LOCK_TIMEOUT_SECONDS:g} "
            f"seconds; try again"
        )
        return hold_lock(self.root / name, timeout_seconds=LOCK_TIMEOUT_SECONDS, refusal=refusal)

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        self.require_mounted()
        atomic_files.make_folder(self._staging)
        with self._locked(".publish.lock"):
            self._clean_staging()
            yield

    def _write_version(self, ref: ArtifactRef, files: Mapping[str, bytes]) -> bool:
        """Stage, sync, verify, rename, sync. The caller holds the lock."""
        staged = self._staging / f"{ref.version}-{os.urandom(4).hex()}"
        parent = self._tokenizers / ref.name
        target = parent / ref.version
        current = staged
        try:
            staged.mkdir()
            for name, data in files.items():
                atomic_files.write_synced(staged / name, data)
            atomic_files.sync_folder(staged)
            check_version_folder(staged, ref)
            atomic_files.make_folder(parent)
            staged.rename(target)
            current = target
            atomic_files.sync_folder(parent)
            return True
        except BaseException:
            # Undo a rename that could not be synced, so that the version is certainly absent.
            if current is target:
                with contextlib.suppress(OSError):
                    target.rename(staged)
            atomic_files.remove_folder(staged)
            with contextlib.suppress(OSError):
                parent.rmdir()  # fails unless empty: this would have been the first version
            raise

    def _clean_staging(self) -> None:
        """Remove what dead publishers left. The caller holds the lock, so no publisher is alive."""
        for leftover in self._staging.iterdir():
            atomic_files.remove_folder(leftover)


def _is_left_over(version: Path) -> bool:
    """Whether a folder has only a compiled file: git leaves that when it removes a version."""
    with contextlib.suppress(OSError):
        return [entry.name for entry in version.iterdir()] == [COMPILED_NAME]
    return False
