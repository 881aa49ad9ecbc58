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

May import `tokenizer` and everything below it; knows nothing of the service.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactInUseError,
    ArtifactNotFoundError,
    FormatError,
)
from tokenizer_core.formats.manifest_fields import MANIFEST_NAME
from tokenizer_core.formats.pickle_files import render_pickle
from tokenizer_core.store import folders
from tokenizer_core.store.active_pointer import MAX_POINTER_BYTES, POINTER_NAME, ActivePointer
from tokenizer_core.store.artifact_folder import (
    open_artifact,
    read_artifact_file,
    read_manifest,
    reading,
    storage_error,
    writing,
)
from tokenizer_core.store.artifact_ref import (
    ACTIVE,
    NAME,
    VERSION,
    ArtifactRef,
    checked_name,
    checked_version,
    next_version,
)
from tokenizer_core.store.golden_text import check_golden_text
from tokenizer_core.store.manifest import (
    FILE_NAMES,
    MERGES_NAME,
    VOCAB_NAME,
    FileRecord,
    Manifest,
    describe,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping, Sequence

    from tokenizer_core.spec import TokenizerSpec

LOCK_TIMEOUT_SECONDS: Final = 60.0

Names = list[str]  # the class has a method named list
Refs = list[ArtifactRef]


class ArtifactStore:
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

    # Reading

    def list(self) -> Refs:
        """All versions whose manifest is sound, by name, oldest first.

        A damaged one is left out here and told of by `damaged`; opening it says why.
        """
        return [ref for name in self.names() for ref in self.versions(name)]

    def names(self) -> Names:
        """The names of the tokenizers that have at least one version, sorted."""
        return [name for name in self._entries(self._tokenizers, NAME) if self._folders(name)]

    def versions(self, name: str) -> Refs:
        """The versions of one tokenizer whose manifest is sound, oldest first."""
        found = []
        for version in self._folders(checked_name(name)):
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                found.append(self._ref(name, version))
        return found

    def damaged(self) -> dict[str, str]:
        """`name@version` -> reason, for the versions `list` leaves out."""
        reasons: dict[str, str] = {}
        for name in self.names():
            for version in self._folders(name):
                try:
                    self._ref(name, version)
                except ArtifactCorruptError as error:
                    reasons[f"{name}@{version}"] = str(error)
                except ArtifactNotFoundError:
                    pass  # removed since it was listed
        return reasons

    def resolve(self, wanted: str) -> ArtifactRef:
        """The version meant by `name@version`, by `name` (its newest) or by `active`.

        Where the newest version is damaged that is the error, not silently an older one.

        Raises:
            ArtifactNotFoundError: there is none.
            ArtifactCorruptError: its manifest, or the active pointer, is damaged.
        """
        if wanted == ACTIVE:
            active = self.active()
            if active is None:
                raise ArtifactNotFoundError("no tokenizer is active; promote one")
            return active
        name, at, version = wanted.partition("@")
        checked_name(name)
        if at:
            return self._ref(name, version)
        versions = self._folders(name)
        if not versions:
            known = ", ".join(self.names()) or "none"
            raise ArtifactNotFoundError(f"there is no tokenizer {name!r}; there are: {known}")
        return self._ref(name, versions[-1])

    def read_manifest(self, ref: ArtifactRef) -> Manifest:
        """The manifest of a version, its seal checked.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: as `open`.
        """
        manifest = self._read_manifest(ref.name, ref.version)
        if manifest.fingerprint != ref.digest:
            raise ArtifactCorruptError(f"{ref} is not the tokenizer of digest {ref.digest:.12}")
        return manifest

    def open(self, ref: ArtifactRef) -> TokenizerSpec:
        """The spec of a version: sizes, hashes, schema and fingerprint verified.

        Raises:
            ArtifactNotFoundError: there is no such version.
            ArtifactCorruptError: what is damaged, and how. It is not loaded.
        """
        with self._version_folder(ref.name, ref.version) as folder:
            spec = open_artifact(folder, ref.name, ref.version)
        if spec.fingerprint != ref.digest:
            raise ArtifactCorruptError(f"{ref} is not the tokenizer of digest {ref.digest:.12}")
        return spec

    def verify(self, ref: ArtifactRef) -> None:
        """Open a version and take it through the golden text; raises as `open`."""
        with reading(str(ref)):
            check_golden_text(self.open(ref))

    def read_file(self, ref: ArtifactRef, filename: str) -> bytes:
        """The bytes of one of the files of a version, for handing it out as it is.

        Raises:
            ArtifactNotFoundError: no such version, or no such file in one.
            ArtifactCorruptError: the file is not what the manifest says.
        """
        if filename not in (*FILE_NAMES, MANIFEST_NAME):
            raise ArtifactNotFoundError(
                f"an artifact has no file {filename!r:.60}; it has {MANIFEST_NAME}, "
                f"{', '.join(FILE_NAMES)}"
            )
        with self._version_folder(ref.name, ref.version) as folder:
            data, fingerprint = read_artifact_file(folder, ref.name, ref.version, filename)
        if fingerprint != ref.digest:
            raise ArtifactCorruptError(f"{ref} is not the tokenizer of digest {ref.digest:.12}")
        return data

    # Writing

    def publish(
        self,
        spec: TokenizerSpec,
        *,
        name: str,
        training: Mapping[str, Any] | None = None,
        provenance: Sequence[Mapping[str, Any]] | None = None,
        command: str | None = None,
    ) -> ArtifactRef:
        """Write `spec` as the newest version of `name`; whole, verified and synced, or not at all.

        Where a sound version of `name` has the same digest already, that one is returned and
        nothing is written: the same corpus trained again is the same tokenizer. Versions are UTC
        times, and never earlier than the newest there is, whatever the clock says.

        Raises:
            ArtifactError: a report that is no JSON, a spec that fails its own verification, or
                another process that has been writing for a minute.
            ArtifactStorageError: the disk is full, failing or read-only; nothing is visible of it.
        """
        checked_name(name)
        files = {
            VOCAB_NAME: render_pickle(spec.vocab),
            MERGES_NAME: render_pickle(spec.merges),
        }
        with writing("publish"):
            folders.make_folder(self._staging)
            with folders.locked(self.root / ".publish.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS):
                self._clean_staging()
                existing = self._find(name, spec.fingerprint)
                if existing is not None:
                    return existing
                version = next_version(self._folders(name), spec.fingerprint)
                ref = ArtifactRef(name, version, spec.fingerprint)
                records = {
                    file: FileRecord(hashlib.sha256(data).hexdigest(), len(data))
                    for file, data in files.items()
                }
                manifest = describe(
                    spec,
                    name=name,
                    version=version,
                    files=records,
                    training=training,
                    provenance=provenance,
                    command=command,
                )
                self._write_version(ref, {**files, MANIFEST_NAME: _to_json(manifest)})
                return ref

    def promote(self, ref: ArtifactRef) -> ArtifactRef | None:
        """Point `active.json` at `ref`, which must open; what was active before, if anything.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: as `open`; the pointer is unchanged.
            ArtifactStorageError: the pointer could not be written; it is unchanged.
        """
        self.open(ref)
        with (
            writing("promote"),
            folders.locked(self.root / ".active.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS),
        ):
            previous: ArtifactRef | None = None
            # A damaged pointer must not keep anyone from setting a good one.
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                previous = self.active()
            if previous == ref:
                return previous
            self._ref(ref.name, ref.version)  # nobody removed it since it was opened
            pointer = ActivePointer(
                str(ref),
                ref.digest,
                None if previous is None else str(previous),
                datetime.now(UTC).isoformat(timespec="seconds"),
            )
            folders.replace_synced(self._pointer, pointer.to_json())
            return previous

    def remove(self, name: str, version: str) -> None:
        """Remove a version, sound or damaged: gone as a whole, wherever the process may die.

        It is renamed into `.staging`, and deleted there, now or by the next who writes.

        Raises:
            ArtifactNotFoundError: there is no such version.
            ArtifactInUseError: it is active.
        """
        target = self._tokenizers / checked_name(name) / checked_version(version)
        with (
            writing("remove"),
            folders.locked(self.root / ".publish.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS),
            folders.locked(self.root / ".active.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS),
        ):
            if not target.is_dir():
                raise ArtifactNotFoundError(f"there is no version {version} of {name!r}")
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                pointer = self._read_pointer()
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

    def active(self) -> ArtifactRef | None:
        """The version the pointer names; None where nothing was ever promoted.

        Raises:
            ArtifactCorruptError: the pointer is empty or garbage, or names another digest.
            ArtifactNotFoundError: the version it names is not there.
        """
        pointer = self._read_pointer()
        if pointer is None:
            return None
        ref = self.resolve(pointer.active)
        if ref.digest != pointer.digest:
            raise ArtifactCorruptError(
                f"active.json says another digest than the manifest of {ref}; promote it again"
            )
        return ref

    def previously_active(self) -> ArtifactRef | None:
        """The version that was active before this one, for rolling back; raises as `active`."""
        pointer = self._read_pointer()
        if pointer is None or pointer.previous is None:
            return None
        return self.resolve(pointer.previous)

    # Inside

    def _read_pointer(self) -> ActivePointer | None:
        with reading(POINTER_NAME):
            if not os.path.lexists(self._pointer):
                return None
            with folders.open_folder(self.root) as folder:
                data = folders.read_file(folder, POINTER_NAME, max_bytes=MAX_POINTER_BYTES)
            return ActivePointer.from_json(data)

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

    def _ref(self, name: str, version: str) -> ArtifactRef:
        return ArtifactRef(name, version, self._read_manifest(name, version).fingerprint)

    def _read_manifest(self, name: str, version: str) -> Manifest:
        with self._version_folder(name, version) as folder:
            return read_manifest(folder, name, version)

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

    def _find(self, name: str, digest: str) -> ArtifactRef | None:
        for ref in self.versions(name):
            if ref.digest == digest:
                with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                    self.open(ref)
                    return ref
        return None

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
                spec = open_artifact(folder, ref.name, ref.version)
            if spec.fingerprint != ref.digest:
                raise ArtifactCorruptError("what was read back has another fingerprint")
            check_golden_text(spec)
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


def _to_json(manifest: Manifest) -> bytes:
    try:
        return manifest.to_json()
    except FormatError as error:
        raise ArtifactError(str(error)) from None
