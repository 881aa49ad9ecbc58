"""Artifacts: what every store of artifacts can do, wherever its versions lie.

Reading a version is one code: it is in a folder when it is opened, on the disk of the store or in
the cache of one that is elsewhere. So is the pointer: it is moved from a state that was read, and
not at all where somebody else moved it meanwhile. A kind of store adds what stands at the end of
the class.
"""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactNotFoundError,
    FormatError,
    PointerMovedError,
)
from tokenizer_core.formats.manifest_fields import MANIFEST_NAME
from tokenizer_core.formats.pickle_files import render_pickle
from tokenizer_core.registry.artifact_folder import (
    open_artifact,
    read_artifact_file,
    read_manifest,
    reading,
)
from tokenizer_core.registry.artifact_ref import ACTIVE, ArtifactRef, checked_name
from tokenizer_core.registry.golden_text import check_golden_text
from tokenizer_core.registry.manifest import (
    FILE_NAMES,
    MERGES_NAME,
    VOCAB_NAME,
    FileRecord,
    Manifest,
    describe,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from tokenizer_core.registry.active_pointer import PointerState
    from tokenizer_core.spec import TokenizerSpec

_MOST_MOVES: Final = 8

Names = list[str]  # the class has a method named list
Refs = list[ArtifactRef]


class Artifacts(ABC):
    """Versions of tokenizers, and the pointer to the one that is served; `ArtifactStore` in a
    folder, `ObjectArtifactStore` in a bucket.

    Raises (from every method):
        ArtifactNameError: a name or version that is malformed.
        ArtifactStorageError: the disk or the storage fails, is full or read-only; what was there
            still is.
    """

    # Reading

    def list(self) -> Refs:
        """All versions whose manifest is sound, by name, oldest first.

        A damaged one is left out here and told of by `damaged`; opening it says why.
        """
        return [ref for name in self.names() for ref in self.versions(name)]

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

    def resolve_near(self, wanted: str) -> ArtifactRef:
        """As `resolve`, for who must not wait: a version that this host has is not asked for, even
        if it was removed elsewhere, and where a storage is silent its last answer counts."""
        return self.resolve(wanted)

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

    @abstractmethod
    def publish(
        self,
        spec: TokenizerSpec,
        *,
        name: str,
        training: Mapping[str, Any] | None = None,
        provenance: Sequence[Mapping[str, Any]] | None = None,
        command: str | None = None,
    ) -> ArtifactRef:
        """Write `spec` as the newest version of `name`; whole and verified, or not at all.

        Where a sound version of `name` has the same digest already, that one is returned and
        nothing is written: the same corpus trained again is the same tokenizer. Versions are UTC
        times, and never earlier than the newest there is, whatever the clock says.

        Raises:
            ArtifactError: a report that is no JSON, a spec that fails its own verification, or
                another process that has been writing for a minute.
            ArtifactStorageError: the disk is full, failing or read-only; nothing is visible of it.
        """

    @abstractmethod
    def remove(self, name: str, version: str) -> None:
        """Remove a version, sound or damaged: gone as a whole, wherever the process may die.

        Raises:
            ArtifactNotFoundError: there is no such version.
            ArtifactInUseError: it is active.
        """

    # The pointer

    def promote(
        self, ref: ArtifactRef, *, expected: PointerState | None = None
    ) -> ArtifactRef | None:
        """Point `active.json` at `ref`, which must open; what was active before, if anything.

        With `expected`, what `pointer_state` returned, only where the pointer is still there: who
        reads it, looks whether it may promote, and promotes, has been overtaken by nobody.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: as `open`; the pointer is unchanged.
            ArtifactStorageError: the pointer could not be written; it is unchanged.
            PointerMovedError: it was moved, or fenced, since `expected` was read; without that,
                others moved it again and again.
        """
        self.open(ref)
        for _ in range(_MOST_MOVES if expected is None else 1):
            state = expected or self.pointer_state()
            previous: ArtifactRef | None = None
            # A damaged pointer must not keep anyone from setting a good one.
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                previous = self.named_by(state)
            if previous == ref:
                if expected is None or self.pointer_state().version == expected.version:
                    return previous
            elif self._move_pointer(state.moved_to(ref, previous), state, ref):
                return previous
        raise PointerMovedError(
            f"{ref} is not promoted: somebody else moved the pointer meanwhile; see what is active "
            f"now, and promote again"
        )

    def fence(self) -> None:
        """Give the pointer its next generation, with what it names: a promotion that read it
        before is refused from now on.

        Raises:
            ArtifactStorageError: it could not be written.
        """
        state = self.pointer_state()
        # Where it was moved since it was read, that does the same.
        self._move_pointer(state.fenced(), state, None)

    poll_seconds: float
    """How often the pointer may be looked at."""

    @abstractmethod
    def pointer_mark(self) -> object:
        """What is another one whenever the pointer was moved, cheap to ask for; None where there is
        no pointer."""

    @abstractmethod
    def pointer_state(self) -> PointerState:
        """What the pointer holds now, sound or not; it never raises for what is in it."""

    def named_by(self, state: PointerState) -> ArtifactRef | None:
        """The version that the pointer named in that state; raises as `active`."""
        pointer = state.pointer()
        if pointer is None or pointer.active is None:
            return None
        ref = self.resolve(pointer.active)
        if ref.digest != pointer.digest:
            raise ArtifactCorruptError(
                f"active.json says another digest than the manifest of {ref}; promote it again"
            )
        return ref

    def active(self) -> ArtifactRef | None:
        """The version the pointer names; None where nothing was ever promoted.

        Raises:
            ArtifactCorruptError: the pointer is empty or garbage, or names another digest.
            ArtifactNotFoundError: the version it names is not there.
        """
        return self.named_by(self.pointer_state())

    def previously_active(self) -> ArtifactRef | None:
        """The version that was active before this one, for rolling back; raises as `active`."""
        pointer = self.pointer_state().pointer()
        if pointer is None or pointer.previous is None:
            return None
        return self.resolve(pointer.previous)

    # Inside

    def _ref(self, name: str, version: str) -> ArtifactRef:
        return ArtifactRef(name, version, self._read_manifest(name, version).fingerprint)

    def _read_manifest(self, name: str, version: str) -> Manifest:
        with self._version_folder(name, version) as folder:
            return read_manifest(folder, name, version)

    def _find(self, name: str, digest: str) -> ArtifactRef | None:
        for ref in self.versions(name):
            if ref.digest == digest:
                with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                    self.open(ref)
                    return ref
        return None

    # What a kind of store adds

    @abstractmethod
    def names(self) -> Names:
        """The names of the tokenizers that have at least one version, sorted."""

    @abstractmethod
    def _folders(self, name: str) -> Names:
        """The versions of a name, sound or damaged, oldest first."""

    @abstractmethod
    def _version_folder(self, name: str, version: str) -> AbstractContextManager[int]:
        """A descriptor of the folder of one version.

        Raises:
            ArtifactNotFoundError: there is no such version.
        """

    @abstractmethod
    def _move_pointer(self, data: bytes, state: PointerState, ref: ArtifactRef | None) -> bool:
        """Write the pointer, if it is still in `state`; whether it was. `ref`: what it is to name,
        which must be there when this returns.

        Raises:
            ArtifactNotFoundError: `ref` was removed since it was opened; the pointer is unchanged.
        """


def render_version(
    spec: TokenizerSpec,
    ref: ArtifactRef,
    *,
    training: Mapping[str, Any] | None,
    provenance: Sequence[Mapping[str, Any]] | None,
    command: str | None,
) -> dict[str, bytes]:
    """The files of a version, the manifest last.

    Raises:
        ArtifactError: a report that is no JSON.
    """
    files = {VOCAB_NAME: render_pickle(spec.vocab), MERGES_NAME: render_pickle(spec.merges)}
    records = {
        file: FileRecord(hashlib.sha256(data).hexdigest(), len(data))
        for file, data in files.items()
    }
    manifest = describe(
        spec,
        name=ref.name,
        version=ref.version,
        files=records,
        training=training,
        provenance=provenance,
        command=command,
    )
    try:
        return {**files, MANIFEST_NAME: manifest.to_json()}
    except FormatError as error:
        raise ArtifactError(str(error)) from None


def check_version_folder(folder: int, ref: ArtifactRef) -> None:
    """Open what was staged as a reader would, and take it through the golden text.

    Raises:
        ArtifactCorruptError, FormatError, InvalidSpecError: what is wrong with it.
    """
    spec = open_artifact(folder, ref.name, ref.version)
    if spec.fingerprint != ref.digest:
        raise ArtifactCorruptError("what was read back has another fingerprint")
    check_golden_text(spec)
