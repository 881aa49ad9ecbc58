"""Artifacts: the registry of published tokenizers, in a folder or a bucket.

This class publishes, reads and names versions; its base promotes them. It opens every version from
a folder: that of the store itself, or the cache of a store in a bucket. A subclass writes, lists
and removes the files; its methods are at the end of the class.
"""

from __future__ import annotations

import contextlib
import json
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from tokenizer_core import compiled
from tokenizer_core.errors import (
    AliasTakenError,
    ArtifactCorruptError,
    ArtifactError,
    ArtifactNameError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    ModelNotFoundError,
    NameReservedError,
    PointerMovedError,
    did_you_mean,
)
from tokenizer_core.formats.manifest_fields import MANIFEST_NAME
from tokenizer_core.presets import PRESETS, STARTER, STARTER_FINGERPRINT
from tokenizer_core.registry.aliases import (
    MAX_ALIASES,
    checked_alias,
    parse_aliases,
    render_aliases,
)
from tokenizer_core.registry.golden_text import check_round_trip
from tokenizer_core.registry.manifest import FILE_NAMES, Manifest, render_version
from tokenizer_core.registry.promotion import MAX_MOVES, PointerMoves
from tokenizer_core.registry.version_folder import (
    build_spec_of,
    key_of_version,
    read_artifact_file,
    read_manifest,
    read_version,
    reading,
    writing,
)
from tokenizer_core.registry.versions import (
    ACTIVE,
    NAME,
    VERSION,
    ArtifactRef,
    checked_name,
    next_version,
    require_ref,
)
from tokenizer_core.spec.chat_templates import CHAT_FILE
from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tokenizer_core.blobs.local_files import Folder
    from tokenizer_core.registry.pointer import StoredState
    from tokenizer_core.spec import TokenizerSpec

Names = list[str]  # the class has a method named list
Refs = list[ArtifactRef]


class Artifacts(PointerMoves):
    """Versions of tokenizers, the pointer to the active one, and aliases: `ArtifactStore` keeps
    them in a folder, `BucketArtifactStore` in a bucket.

    Raises (from every method):
        ArtifactNameError: a name or version is malformed.
        ArtifactStorageError: the disk or the storage fails, is full or read-only; nothing changed.
    """

    # Reading

    def list(self) -> Refs:
        """All versions with a sound manifest, by name, oldest first.

        `damaged` lists the others; opening one raises the reason.
        """
        return [ref for name in self.names() for ref in self.versions(name)]

    def versions(self, name: str) -> Refs:
        """The versions of one tokenizer with a sound manifest, oldest first."""
        found = []
        for version in self._version_names(checked_name(name)):
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                found.append(self._ref(name, version))
        return found

    def damaged(self) -> dict[str, str]:
        """`name@version` -> reason, for the versions that `list` omits."""
        reasons: dict[str, str] = {}
        for name in self.names():
            for version in self._version_names(name):
                try:
                    self._ref(name, version)
                except ArtifactCorruptError as error:
                    reasons[f"{name}@{version}"] = str(error)
                except ArtifactNotFoundError:
                    pass  # removed since it was listed
        return reasons

    def resolve(self, wanted: str) -> ArtifactRef:
        """The version that `name@version`, `name` (its newest) or `active` refers to.

        A damaged newest version is an error; it never falls back to an older one.

        Raises:
            ArtifactNotFoundError: the version does not exist.
            ArtifactCorruptError: its manifest, or the active pointer, is damaged.
        """
        if wanted == ACTIVE:
            active = self.active()
            if active is None:
                raise ArtifactNotFoundError("no tokenizer is active; promote one")
            return active
        name, at, version = wanted.partition("@")
        checked_name(name)
        try:
            return self._ref(name, version if at else self._versions_of(name)[-1])
        except ArtifactNotFoundError as error:
            known = self._version_names(name)
            error.near = did_you_mean(version if known else name, known or self.names())
            raise

    def resolve_near(self, wanted: str) -> ArtifactRef:
        """As `resolve`, for callers that must not wait. It may return a version that another host
        has removed, and uses the last listing of a storage that does not respond."""
        return self.resolve(wanted)

    def resolve_named(self, wanted: str, *, near: bool = False) -> ArtifactRef:
        """As `resolve`, or with `near` as `resolve_near`; an alias is its tokenizer's name."""
        resolve = self.resolve_near if near else self.resolve
        try:
            return resolve(wanted)
        except (ArtifactNameError, ArtifactNotFoundError) as error:
            aliases = self.aliases()
            if wanted not in aliases:
                if isinstance(error, ArtifactNameError):  # an alias may have the form of no name
                    error = ArtifactNotFoundError(f"there is no tokenizer or alias {wanted!a:.220}")
                error.near = error.near or did_you_mean(wanted, aliases)
                raise error from None
        return resolve(aliases[wanted])

    def resolve_model(self, model: str) -> ArtifactRef:
        """The version that serves requests for `model`: `name@version`, or a name or an alias.

        Of a name it is the version that was active last, or the newest if the pointer names none.

        Raises:
            ModelNotFoundError: `model` is none of these.
            ArtifactCorruptError: the pointer, or the manifest of the version, is damaged.
        """
        name, _, version = model.partition("@")
        if not (NAME.fullmatch(name) and VERSION.fullmatch(version)):
            is_name = NAME.fullmatch(model) and self._version_names(model)
            name, version = model if is_name else self.aliases().get(model, ""), ""
        versions = self._version_names(name) if name else []
        if not versions or (version and version not in versions):
            error = ModelNotFoundError(
                f"no tokenizer has the name or alias {model!a:.220}; `tokenizer alias NAME ALIAS` "
                f"adds an alias"
            )
            error.name = model
            known = versions or [*self.names(), *self.aliases()]
            error.near = did_you_mean(version if versions else model, known)
            raise error
        return self._ref(
            name, version or _active_last(name, versions, self.pointer_state().recorded())
        )

    def in_use(self, default: str) -> dict[str, str]:
        """`name@version` of the versions that the store itself uses, and why: active now or before,
        the default, and those that aliases follow. A damaged one is left out.

        Raises:
            ArtifactStorageError: the store cannot be read.
        """
        found: dict[str, str] = {}
        for reason, look in (
            ("it is active; promote another one first", self.active),
            ("it is the default (TOKENIZER_DEFAULT)", lambda: self.resolve_default(default)),
            ("a rollback would serve it; promote another one first", self.previously_active),
        ):
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                ref = look()
                if ref is not None:
                    found.setdefault(str(ref), reason)
        with contextlib.suppress(ArtifactCorruptError):
            served, aliases = self.models(), self.aliases()
            for model in served.keys() & aliases:
                found.setdefault(served[model], "an alias follows it; remove the alias first")
        return found

    def models(self) -> dict[str, str]:
        """Each name and alias -> the `name@version` that `resolve_model` finds for it; sorted.

        Raises:
            ArtifactCorruptError: the pointer is damaged.
            ArtifactStorageError: the file of aliases is.
        """
        recorded = self.pointer_state().recorded()
        served = {}
        for name in self.names():
            if versions := self._version_names(name):
                served[name] = f"{name}@{_active_last(name, versions, recorded)}"
        named = {alias: served[name] for alias, name in self.aliases().items() if name in served}
        return dict(sorted((named | served).items()))

    def read_manifest(self, ref: ArtifactRef) -> Manifest:
        """The manifest of a version, its seal checked.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: as `open`.
        """
        require_ref(ref)
        manifest = self._read_manifest(ref.name, ref.version)
        _check_digest(ref, manifest.fingerprint)
        return manifest

    def open(self, ref: ArtifactRef) -> TokenizerSpec:
        """The spec of a version, after checking sizes, hashes, schema and fingerprint.

        Raises:
            ArtifactNotFoundError: the version does not exist.
            ArtifactCorruptError: it is damaged, and not loaded; the message says how.
        """
        require_ref(ref)
        with self._version_folder(ref.name, ref.version) as folder:
            spec = build_spec_of(*read_version(folder, ref.name, ref.version))
        _check_digest(ref, spec.fingerprint)
        return spec

    def load(
        self, ref: ArtifactRef, *, engine: str = "auto", shared: Path | None = None
    ) -> Tokenizer:
        """The tokenizer of a version, from its compiled file if there is one. Sizes and hashes are
        checked in either case. `shared`: a folder by which processes of this host share one copy
        in memory.

        Raises:
            ArtifactNotFoundError, ArtifactCorruptError: as `open`.
            Exception: as `Tokenizer.from_spec`.
        """
        require_ref(ref)
        with self._version_folder(ref.name, ref.version) as folder:
            manifest, files = read_version(folder, ref.name, ref.version)
            _check_digest(ref, manifest.fingerprint)
            spec, made = compiled.load(
                partial(key_of_version, manifest),
                partial(build_spec_of, manifest, files),
                engine,
                beside=self._compiled_path(ref),
                shared=shared,
            )
        return Tokenizer.from_spec(spec, engine=made)

    def verify(self, ref: ArtifactRef) -> None:
        """Open a version and check it with the golden text; raise as `open`."""
        with reading(str(ref)):
            check_round_trip(Tokenizer.from_spec(self.open(ref)))

    def read_file(self, ref: ArtifactRef, filename: str) -> bytes:
        """The unchanged bytes of one file of a version, for a download.

        Raises:
            ArtifactNotFoundError: the version does not exist, or has no such file.
            ArtifactCorruptError: the file does not match the manifest.
        """
        if filename not in (*FILE_NAMES, CHAT_FILE, MANIFEST_NAME):
            raise ArtifactNotFoundError(
                f"an artifact has no file {filename!r:.60}; it has {MANIFEST_NAME}, "
                f"{', '.join(FILE_NAMES)} and {CHAT_FILE}"
            )
        require_ref(ref)
        with self._version_folder(ref.name, ref.version) as folder:
            data, fingerprint = read_artifact_file(folder, ref.name, ref.version, filename)
        _check_digest(ref, fingerprint)
        return data

    @abstractmethod
    def _compiled_path(self, ref: ArtifactRef) -> Path:
        """Where the compiled file of a version may be."""

    # Writing

    def require_mounted(self) -> None:
        """Raise ArtifactStorageError if the store is a folder that had tokenizers, and now has no
        folder for them: the volume is not mounted, and what is written would lie below it."""

    def publish(
        self,
        spec: TokenizerSpec,
        *,
        name: str,
        training: Mapping[str, Any] | None = None,
        provenance: Sequence[Mapping[str, Any]] | None = None,
        command: str | None = None,
    ) -> ArtifactRef:
        """Write `spec` as the newest version of `name`: whole and verified, or not at all.

        If the newest version of `name` is sound and has the same digest, chat templates and
        provenance, return that one and write nothing: training again on the same corpus gives the
        same tokenizer. An older one is written anew, because `name` alone means the newest. A
        version is a UTC time, later than that of every existing version even if the clock was set
        back.

        Raises:
            AliasTakenError: `name` is an alias of another tokenizer.
            NameReservedError: `name` is that of a preset, and `spec` is another tokenizer.
            ArtifactError: a report is not JSON, the spec fails verification, or another process has
                held the lock for a minute.
            ArtifactStorageError: the disk is full, failing or read-only; nothing is visible.
        """
        checked_name(name)
        with writing("publish"), self._publishing():
            self._check_name(name, spec.fingerprint)
            taken = self._version_names(name)
            if taken:
                with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                    newest = self._ref(name, taken[-1])
                    if self._holds(newest, spec, provenance):
                        self._check_sound(newest)
                        return newest
            while True:
                version = next_version(taken, spec.fingerprint)
                ref = ArtifactRef(name, version, spec.fingerprint)
                files = render_version(
                    spec,
                    name=name,
                    version=version,
                    training=training,
                    provenance=provenance,
                    command=command,
                )
                if self._write_version(ref, files):
                    return ref
                # Another host has published under this name and version meanwhile.
                with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                    other = self._ref(name, version)
                    if self._holds(other, spec, provenance):
                        return other
                taken = [*taken, version]

    def copy(self, ref: ArtifactRef, source: Artifacts) -> None:
        """Write a version of the store `source` here, as the same version, if it is not here; raise
        as `open` and `publish`."""
        optional = [CHAT_FILE] if source.read_manifest(ref).record_of(CHAT_FILE) else []
        names = (*FILE_NAMES, *optional, MANIFEST_NAME)
        files = {name: source.read_file(ref, name) for name in names}
        with writing("publish"), self._publishing():
            if ref.version not in self._version_names(ref.name):
                self._write_version(ref, files)

    @abstractmethod
    def remove(self, name: str, version: str) -> None:
        """Remove a version, sound or damaged. It disappears as a whole, even if the process dies.

        Raises:
            ArtifactNotFoundError: the version does not exist.
            ArtifactInUseError: it is active.
        """

    # Aliases

    def aliases(self) -> dict[str, str]:
        """Alias -> the name of its tokenizer.

        Raises:
            ArtifactStorageError: the file of the aliases is damaged.
        """
        return parse_aliases(self._aliases_state())

    def check_may_publish(self, name: str, fingerprint: str = "") -> None:
        """Raise what `publish` does, and NameReservedError for another tokenizer named `starter`.

        Commands and the service ask this. A program may publish a `starter` of its own.
        """
        if name == STARTER and fingerprint != STARTER_FINGERPRINT:
            raise NameReservedError(
                f"{name} is the name of the package's tokenizer, whose ids are other ones; take "
                f"another name"
            )
        self._check_name(name, fingerprint)

    def add_alias(self, alias: str, name: str) -> None:
        """Let requests name the tokenizer `name` as `alias`; nothing happens if they can already.

        Raises:
            ArtifactNameError: the alias is malformed.
            ArtifactNotFoundError: there is no tokenizer `name`.
            AliasTakenError: the alias belongs to another tokenizer, or is a tokenizer's name.
            NameReservedError: the alias is the name of a preset or of the package's tokenizer, and
                `name` is another tokenizer.
            ArtifactError: there are `MAX_ALIASES` aliases.
        """
        checked_alias(alias)

        def add(aliases: dict[str, str]) -> None:
            newest = self._versions_of(checked_name(name))[-1]
            if alias not in aliases and alias in (*PRESETS, STARTER):
                self.check_may_publish(alias, self._ref(name, newest).digest)
            owner = aliases.setdefault(alias, name)
            if owner != name:
                raise AliasTakenError(f"it is an alias of {owner} already; remove it first")
            if NAME.fullmatch(alias) and self._version_names(alias):
                raise AliasTakenError(f"there is a tokenizer named {alias}")
            if len(aliases) > MAX_ALIASES:
                raise ArtifactError(f"there are {MAX_ALIASES} aliases; remove one first")

        self._change_aliases(add)

    def remove_alias(self, alias: str) -> None:
        """Remove an alias; raise ModelNotFoundError if there is none such."""

        def remove(aliases: dict[str, str]) -> None:
            if aliases.pop(alias, None) is None:
                raise ModelNotFoundError("there is no such alias; tokenizer alias lists them")

        self._change_aliases(remove)

    # Internals

    def _check_name(self, name: str, fingerprint: str) -> None:
        """Raise AliasTakenError if `name` is an alias, NameReservedError if it is that of a preset
        whose fingerprint this is not. A damaged file of aliases does not raise."""
        if name in PRESETS and fingerprint not in PRESETS[name].fingerprints:
            raise NameReservedError(
                f"{name} is the name of a preset, whose ids are other ones; take another name"
            )
        with contextlib.suppress(ArtifactStorageError):
            owner = self.aliases().get(name)
            if owner is not None:
                raise AliasTakenError(
                    f"{name} is an alias of {owner}; take another name, or remove the alias"
                )

    def _ref(self, name: str, version: str) -> ArtifactRef:
        return ArtifactRef(name, version, self._read_manifest(name, version).fingerprint)

    def _versions_of(self, name: str) -> Names:
        """The versions of a tokenizer, sound or damaged; raise ArtifactNotFoundError for none."""
        versions = self._version_names(name)
        if not versions:
            known = ", ".join(self.names()) or "none"
            error = ArtifactNotFoundError(f"there is no tokenizer {name!r}; there are: {known}")
            error.name = name
            raise error
        return versions

    def _change_aliases(self, change: Callable[[dict[str, str]], None]) -> None:
        """Change the aliases; nobody publishes or changes them meanwhile, or this tries again."""
        with writing("change the aliases"), self._publishing():
            for _ in range(MAX_MOVES):
                state = self._aliases_state()
                aliases = parse_aliases(state)
                before = dict(aliases)
                change(aliases)
                if aliases == before or self._write_aliases(render_aliases(aliases), state):
                    return
        raise PointerMovedError("others keep changing the aliases; try again")

    def _read_manifest(self, name: str, version: str) -> Manifest:
        with self._version_folder(name, version) as folder:
            return read_manifest(folder, name, version)

    def _holds(
        self,
        ref: ArtifactRef,
        spec: TokenizerSpec,
        provenance: Sequence[Mapping[str, Any]] | None,
    ) -> bool:
        """Whether this version has this spec, its chat templates and this provenance."""
        if ref.digest != spec.fingerprint:
            return False
        manifest = self.read_manifest(ref)
        is_same = (manifest.chat_record or {}) == spec.chat.record()
        given = json.loads(json.dumps(list(provenance or ()), default=repr))
        return is_same and list(manifest.provenance) == given

    def _check_sound(self, ref: ArtifactRef) -> None:
        """Raise ArtifactCorruptError or ArtifactNotFoundError unless the version is whole."""
        self.open(ref)

    # A subclass implements these, `remove` above, and what `PointerMoves` leaves to it

    @abstractmethod
    def _aliases_state(self) -> StoredState:
        """The current state of the file of aliases; damaged content does not raise."""

    @abstractmethod
    def _write_aliases(self, data: bytes, state: StoredState) -> bool:
        """Write the aliases if they are still in `state`, and return whether they were."""

    @abstractmethod
    def names(self) -> Names:
        """The names of the tokenizers with at least one version, sorted."""

    @abstractmethod
    def _version_names(self, name: str) -> Names:
        """The versions of a tokenizer, sound or damaged, oldest first."""

    @abstractmethod
    def _publishing(self) -> AbstractContextManager[None]:
        """A context in which a version is published: a lock, if the store has one."""

    @abstractmethod
    def _write_version(self, ref: ArtifactRef, files: Mapping[str, bytes]) -> bool:
        """Write and verify the files of a version, the manifest last; False if another host has
        already written this version."""

    @abstractmethod
    def _version_folder(self, name: str, version: str) -> AbstractContextManager[Folder]:
        """A descriptor of the folder that holds one version.

        Raises:
            ArtifactNotFoundError: the version does not exist.
        """


def _check_digest(ref: ArtifactRef, found: str) -> None:
    if found != ref.digest:
        raise ArtifactCorruptError(f"{ref} is not the tokenizer of digest {ref.digest:.12}")


def _active_last(name: str, versions: Names, recorded: tuple[str, ...]) -> str:
    """The version of `name` that was active last, or the newest if `recorded` names none.

    The first of `recorded` is active: if it is gone, that is an error, and no other one serves.
    """
    for index, (of, _, version) in enumerate(ref.partition("@") for ref in recorded):
        if of == name and (index == 0 or version in versions):
            return version
    return versions[-1]
