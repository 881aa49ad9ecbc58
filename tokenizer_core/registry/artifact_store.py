"""ArtifactStore: versions of tokenizers on disk, each whole or absent, never changed.

    root/tokenizers/<name>/<version>/{vocab.pkl, merges.pkl, manifest.json}
    root/tokenizers/.staging/         what is being written; renamed into place when it is whole
    root/active.json                  the pointer to the version that is served
    root/.publish.lock, .active.lock  held while writing, let go by the kernel when a process dies

A version is written into `.staging`, put on the disk (each file, then the folder), opened and
verified as a reader would, renamed, and the rename put on the disk. Whoever lists at any moment,
or after any crash, sees a version whole or not at all. A process holds the lock while it stages,
so what lies there when the lock is free belongs to the dead.

What this cannot prove: that a disk keeps what it said it had synced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactInUseError,
    ArtifactNotFoundError,
)
from tokenizer_core.registry import folders
from tokenizer_core.registry.active_pointer import MAX_POINTER_BYTES, POINTER_NAME, PointerState
from tokenizer_core.registry.artifact_folder import reading, storage_error, writing
from tokenizer_core.registry.artifact_ref import (
    ACTIVE,
    NAME,
    VERSION,
    ArtifactRef,
    checked_name,
    checked_version,
    next_version,
)
from tokenizer_core.registry.artifacts import (
    Artifacts,
    Names,
    check_version_folder,
    render_version,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping, Sequence

    from tokenizer_core.spec import TokenizerSpec

LOCK_TIMEOUT_SECONDS: Final = 60.0


class ArtifactStore(Artifacts):
    """The versions under `root`; safe to use from several processes at once.

    Reading needs no lock and no write permission. Writing needs a file system with `flock` and
    atomic `rename`, with the whole of `root` on it.

    Raises (from every method):
        ArtifactNameError: a name or version that is malformed.
        ArtifactStorageError: the disk is full, failing or read-only; what was there still is.

    Example:
        >>> import tempfile; from tokenizer_core.spec import TokenizerSpec
        >>> folder = tempfile.TemporaryDirectory()
        >>> store = ArtifactStore(Path(folder.name))
        >>> spec = TokenizerSpec.from_merges({i: bytes([i]) for i in range(256)}, [])
        >>> ref = store.publish(spec, name="bytes")
        >>> store.promote(ref) is None, store.active() == ref
        (True, True)
        >>> store.open(store.resolve("bytes")).fingerprint == ref.digest
        True
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._tokenizers = self.root / "tokenizers"
        self._staging = self._tokenizers / ".staging"
        self._pointer = self.root / POINTER_NAME

    def names(self) -> Names:
        """See `Artifacts`."""
        return [name for name in self._entries(self._tokenizers, NAME) if self._folders(name)]

    def publish(
        self,
        spec: TokenizerSpec,
        *,
        name: str,
        training: Mapping[str, Any] | None = None,
        provenance: Sequence[Mapping[str, Any]] | None = None,
        command: str | None = None,
    ) -> ArtifactRef:
        """See `Artifacts`; what it wrote is on the disk when it returns."""
        checked_name(name)
        with writing("publish"):
            folders.make_folder(self._staging)
            with folders.locked(self.root / ".publish.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS):
                self._clean_staging()
                existing = self._find(name, spec.fingerprint)
                if existing is not None:
                    return existing
                version = next_version(self._folders(name), spec.fingerprint)
                ref = ArtifactRef(name, version, spec.fingerprint)
                files = render_version(
                    spec, ref, training=training, provenance=provenance, command=command
                )
                self._write_version(ref, files)
                return ref

    def remove(self, name: str, version: str) -> None:
        """See `Artifacts`. It is renamed into `.staging`, and deleted there, now or by the next who
        writes."""
        target = self._tokenizers / checked_name(name) / checked_version(version)
        with (
            writing("remove"),
            folders.locked(self.root / ".publish.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS),
            folders.locked(self.root / ".active.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS),
        ):
            if not target.is_dir():
                raise ArtifactNotFoundError(f"there is no version {version} of {name!r}")
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                pointer = self.pointer_state().pointer()
                if pointer is not None and pointer.active == f"{name}@{version}":
                    raise ArtifactInUseError(
                        f"{name}@{version} is active; promote another version before removing it"
                    )
            folders.make_folder(self._staging)
            target.rename(self._staging / f"{version}-{secrets.token_hex(4)}")
            folders.sync_folder(target.parent)
            with contextlib.suppress(OSError):
                target.parent.rmdir()  # only where it is empty: that was the last version
            self._clean_staging()

    poll_seconds = 0.2

    def pointer_mark(self) -> object:
        """See `Artifacts`."""
        try:
            status = self._pointer.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(f"read {POINTER_NAME}", error) from error
        return status.st_ino, status.st_mtime_ns, status.st_size

    def pointer_state(self) -> PointerState:
        """See `Artifacts`."""
        with reading(POINTER_NAME):
            if not os.path.lexists(self._pointer):
                return PointerState(None)
            try:
                with folders.open_folder(self.root) as folder:
                    data = folders.read_file(folder, POINTER_NAME, max_bytes=MAX_POINTER_BYTES)
            except ArtifactCorruptError as error:  # no file, or too large for one
                return PointerState("unreadable", damage=str(error))
            return PointerState(hashlib.sha256(data).hexdigest(), data)

    # Inside

    def _move_pointer(self, data: bytes, state: PointerState, ref: ArtifactRef | None) -> bool:
        with (
            writing("promote"),
            folders.locked(self.root / ".active.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS),
        ):
            if self.pointer_state().version != state.version:
                return False
            if ref is not None:
                self._ref(ref.name, ref.version)  # nobody removed it since it was opened
            folders.replace_synced(self._pointer, data)
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
            return []
        except OSError as error:
            raise storage_error("list", error) from error

    def _folders(self, name: str) -> Names:
        return self._entries(self._tokenizers / name, VERSION)

    @contextlib.contextmanager
    def _version_folder(self, name: str, version: str) -> Iterator[int]:
        checked_name(name)
        checked_version(version)
        with reading(f"{name}@{version}"):
            try:
                with folders.open_folder(self.root, "tokenizers", name, version) as folder:
                    yield folder
            except FileNotFoundError:
                raise ArtifactNotFoundError(
                    f"there is no version {version} of {name!r}; list the versions there are"
                ) from None

    def _write_version(self, ref: ArtifactRef, files: Mapping[str, bytes]) -> None:
        """Stage, sync, verify, rename, sync. The caller holds the lock."""
        staged = self._staging / f"{ref.version}-{secrets.token_hex(4)}"
        parent = self._tokenizers / ref.name
        target = parent / ref.version
        current = staged
        try:
            staged.mkdir()
            for name, data in files.items():
                folders.write_synced(staged / name, data)
            folders.sync_folder(staged)
            with folders.open_folder(staged) as folder:
                check_version_folder(folder, ref)
            folders.make_folder(parent)
            staged.rename(target)
            current = target
            folders.sync_folder(parent)
            folders.sync_folder(self._staging)
        except BaseException:
            # A rename that could not be put on the disk is taken back: absent, not perhaps.
            if current is target:
                with contextlib.suppress(OSError):
                    target.rename(staged)
            folders.remove_folder(staged)
            with contextlib.suppress(OSError):
                parent.rmdir()  # only where it is empty: this was to be the first version
            raise

    def _clean_staging(self) -> None:
        """Remove what publishers that died have left; the lock shows that none is alive."""
        for leftover in self._staging.iterdir():
            folders.remove_folder(leftover)
