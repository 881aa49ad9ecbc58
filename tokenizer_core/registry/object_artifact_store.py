"""ObjectArtifactStore: versions of tokenizers in a storage that several hosts share.

    tokenizers/<name>/<version>/{vocab.pkl, merges.pkl, manifest.json}
    active.json                                the pointer, moved by compare-and-set

The manifest is created last and removed first: a version is there when its manifest is. Versions
are read through a folder on the disk, laid out as a store of its own, so that they are opened by
the one code that verifies them, and also while the storage is away. Files of a publisher that died
belong to no manifest; they are removed after a day. One that was only slow looks for its files
after it wrote the manifest, and who removes them looks for the manifest after each: whoever is
second sees the other.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tokenizer_core.blobs import open_storage
from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactInUseError,
    ArtifactNotFoundError,
    ArtifactStorageError,
    StorageError,
    StorageMissingError,
    StorageTooLargeError,
)
from tokenizer_core.formats.manifest_fields import MANIFEST_NAME, MAX_MANIFEST_BYTES
from tokenizer_core.formats.pickle_files import MAX_PICKLE_BYTES
from tokenizer_core.registry import folders
from tokenizer_core.registry.active_pointer import MAX_POINTER_BYTES, POINTER_NAME, PointerState
from tokenizer_core.registry.artifact_folder import reading, writing
from tokenizer_core.registry.artifact_ref import (
    ACTIVE,
    NAME,
    VERSION,
    ArtifactRef,
    checked_name,
    checked_version,
    next_version,
)
from tokenizer_core.registry.artifacts import Artifacts, Names, check_version_folder, render_version
from tokenizer_core.registry.manifest import FILE_NAMES, Manifest
from tokenizer_core.registry.version_cache import VersionCache

if TYPE_CHECKING:
    from tokenizer_core.blobs import Storage
    from tokenizer_core.spec import TokenizerSpec

AWAY_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 3.0
_LISTING_SECONDS: Final = 1.0
_LEFT_OVER_AFTER: Final = timedelta(days=1)
_PLACE: Final = re.compile(r"tokenizers/([^/]+)/([^/]+)/([^/]+)")
_STORED: Final = (*FILE_NAMES, MANIFEST_NAME)

Answer = TypeVar("Answer")


class ObjectArtifactStore(Artifacts):
    """The versions at `address`; `cache` is a folder of this host, which it may fill.

    The storage is opened when it is first asked. A read that fails is not tried again for two
    seconds, one for a request that has no answer in three not before it has one: what is in the
    cache is answered meanwhile, and for the rest there is an error.
    """

    poll_seconds = 1.0

    def __init__(self, address: str, cache: Path) -> None:
        self._address, self._cache = address, VersionCache(cache)
        self._storage: Storage | None = None
        self._opening = threading.Lock()
        self._away_until = 0.0
        self._overdue: Future[ArtifactRef] | None = None
        self._listed: tuple[float, dict[str, Names]] | None = None

    def names(self) -> Names:
        """See `Artifacts`; an error where the storage is away and was never listed."""
        return sorted(self._list())

    def resolve_near(self, wanted: str) -> ArtifactRef:
        """See `Artifacts`: from the cache, or after three seconds from what is known here."""
        found = self._find_cached(wanted) if "@" in wanted else None
        if found is not None:
            return found
        if not self._is_away():
            answer: Future[ArtifactRef] = Future()
            threading.Thread(target=self._answer, args=(wanted, answer), daemon=True).start()
            with contextlib.suppress(TimeoutError):
                return answer.result(PATIENCE_SECONDS)
            self._overdue = answer
        return self.resolve(wanted)

    def publish(
        self,
        spec: TokenizerSpec,
        *,
        name: str,
        training: Mapping[str, Any] | None = None,
        provenance: Sequence[Mapping[str, Any]] | None = None,
        command: str | None = None,
    ) -> ArtifactRef:
        """See `Artifacts`. Of two that publish the same at once both are given one version, or
        each its own."""
        checked_name(name)
        self._listed = None
        existing = self._find(name, spec.fingerprint)
        if existing is not None:
            return existing
        taken = self._folders(name)
        while True:
            version = next_version(taken, spec.fingerprint)
            ref = ArtifactRef(name, version, spec.fingerprint)
            files = render_version(
                spec, ref, training=training, provenance=provenance, command=command
            )
            with writing("publish"), self._cache.staged(files) as staged:
                with folders.open_folder(staged) as folder:
                    check_version_folder(folder, ref)
                written = self._ask(functools.partial(_write, ref=ref, files=files))
            self._listed = None
            if written:
                self._clean()
                return ref
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                if self._ref(name, version).digest == spec.fingerprint:
                    return self._ref(name, version)
            taken = [*taken, version]

    def remove(self, name: str, version: str) -> None:
        """See `Artifacts`."""
        place = _place(checked_name(name), checked_version(version))
        wanted = f"{name}@{version}"
        manifest = self._ask(
            lambda storage: storage.read_versioned(
                f"{place}/{MANIFEST_NAME}", max_bytes=MAX_MANIFEST_BYTES
            )
        )
        if manifest is None:
            raise ArtifactNotFoundError(f"there is no version {version} of {name!r}")
        self._refuse_active(wanted)
        self._remove(f"{place}/{MANIFEST_NAME}")
        try:
            # Who promotes it now sees that it is gone, or is seen here.
            self._refuse_active(wanted)
        except ArtifactInUseError:
            self._ask(lambda storage: storage.create(f"{place}/{MANIFEST_NAME}", manifest.data))
            raise
        for file in FILE_NAMES:
            self._remove(f"{place}/{file}")
        self._listed = None
        self._cache.drop(name, version)
        self._clean()

    def pointer_mark(self) -> object:
        """See `Artifacts`."""
        return self.pointer_state().version

    def pointer_state(self) -> PointerState:
        """See `Artifacts`."""
        return self._ask(_read_pointer)

    def open(self, ref: ArtifactRef) -> TokenizerSpec:
        """See `Artifacts`; what is damaged in the cache is fetched again."""
        try:
            return super().open(ref)
        except ArtifactCorruptError:
            self._cache.drop(ref.name, ref.version)
            return super().open(ref)

    def read_file(self, ref: ArtifactRef, filename: str) -> bytes:
        """See `Artifacts`; what is damaged in the cache is fetched again."""
        try:
            return super().read_file(ref, filename)
        except ArtifactCorruptError:
            self._cache.drop(ref.name, ref.version)
            return super().read_file(ref, filename)

    # Inside

    def _ask(self, do: Callable[[Storage], Answer]) -> Answer:
        try:
            with self._opening:
                if self._storage is None:
                    self._storage = open_storage(self._address)
            answer = do(self._storage)
        except (StorageMissingError, StorageTooLargeError) as error:
            self._away_until, self._overdue = 0.0, None
            if isinstance(error, StorageMissingError):
                raise ArtifactNotFoundError(str(error)) from None
            raise ArtifactCorruptError(str(error)) from None
        except StorageError as error:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise ArtifactStorageError(errno.EIO, str(error)) from None
        self._away_until, self._overdue = 0.0, None
        return answer

    def _remove(self, name: str) -> None:
        self._ask(lambda storage: storage.remove(name))

    def _copy(self, name: str, path: Path) -> None:
        self._ask(lambda storage: storage.fetch(name, path))

    def _is_away(self) -> bool:
        overdue = self._overdue
        return time.monotonic() < self._away_until or not (overdue is None or overdue.done())

    def _must_not_be_away(self) -> None:
        if self._is_away():
            raise ArtifactStorageError(errno.EIO, f"{self._address} was away a moment ago")

    def _answer(self, wanted: str, answer: Future[ArtifactRef]) -> None:
        try:
            name, at, _ = wanted.partition("@")
            versions = [] if at or name == ACTIVE else self._folders(checked_name(name))
            found = self._find_cached(f"{name}@{versions[-1]}") if versions else None
            answer.set_result(found or self.resolve(wanted))
        except Exception as error:
            answer.set_exception(error)

    def _find_cached(self, wanted: str) -> ArtifactRef | None:
        """A version, `name@version`, that is in the cache."""
        name, _, version = wanted.partition("@")
        if self._cache.has(name, version):
            # It is fetched again, or has just been let go of.
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                digest = super()._read_manifest(name, version).fingerprint
                return ArtifactRef(name, version, digest)
        return None

    def _list(self) -> dict[str, Names]:
        """The versions of each name, as they were within the last second; while the storage is
        away, as they were when it was last asked."""
        listed = self._listed
        if listed is not None and time.monotonic() < listed[0]:
            return listed[1]
        try:
            self._must_not_be_away()
            found = self._ask(lambda storage: storage.names("tokenizers/"))
        except ArtifactStorageError:
            if listed is None:
                raise
            return listed[1]
        versions: dict[str, Names] = {}
        for name, version, file in _parse(found):
            if file == MANIFEST_NAME:
                versions.setdefault(name, []).append(version)
        self._listed = (time.monotonic() + _LISTING_SECONDS, versions)
        return versions

    def _folders(self, name: str) -> Names:
        try:
            return list(self._list().get(name, ()))
        except ArtifactStorageError:
            found = self._cache.versions(name)
            if not found:
                raise
            return found

    def _read_manifest(self, name: str, version: str) -> Manifest:
        """From the storage, so that what was removed is gone; from the cache while it is away."""
        if not self._is_away():
            with contextlib.suppress(ArtifactStorageError), reading(f"{name}@{version}"):
                place = _place(checked_name(name), checked_version(version))
                found = self._ask(
                    lambda storage: storage.read_versioned(
                        f"{place}/{MANIFEST_NAME}", max_bytes=MAX_MANIFEST_BYTES
                    )
                )
                if found is None:
                    raise ArtifactNotFoundError(
                        f"there is no version {version} of {name!r}; list the versions there are"
                    )
                manifest = Manifest.from_json(found.data)
                if (manifest.name, manifest.version) != (name, version):
                    raise ArtifactCorruptError("the manifest is that of another version")
                return manifest
        return super()._read_manifest(name, version)

    @contextlib.contextmanager
    def _version_folder(self, name: str, version: str) -> Iterator[int]:
        with reading(f"{name}@{version}"):
            if not self._cache.has(name, version):
                self._must_not_be_away()
                with self._fetched(name, version) as staged:
                    self._cache.put(staged, name, version)
                self._cache.trim(self._served)
            with self._cache.opened(name, version) as folder:
                yield folder

    @contextlib.contextmanager
    def _fetched(self, name: str, version: str) -> Iterator[Path]:
        """A folder with a version as it is in the storage, verified."""
        place = _place(name, version)
        with self._cache.staged({}) as staged:
            for file in reversed(_STORED):
                self._copy(f"{place}/{file}", staged / file)
            with folders.open_folder(staged) as folder:
                digest = Manifest.from_json((staged / MANIFEST_NAME).read_bytes()).fingerprint
                check_version_folder(folder, ArtifactRef(name, version, digest))
            yield staged

    def _find(self, name: str, digest: str) -> ArtifactRef | None:
        """See `Artifacts`; what the storage has counts, not what is in the cache."""
        for ref in self.versions(name):
            if ref.digest == digest:
                with (
                    contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError),
                    reading(str(ref)),
                    self._fetched(ref.name, ref.version),
                ):
                    return ref
        return None

    def _served(self) -> str | None:
        pointer = self.pointer_state().pointer()
        return None if pointer is None else pointer.active

    def _refuse_active(self, wanted: str) -> None:
        with contextlib.suppress(ArtifactCorruptError):
            pointer = self.pointer_state().pointer()
            if pointer is not None and pointer.active == wanted:
                raise ArtifactInUseError(
                    f"{wanted} is active; promote another version before removing it"
                )

    def _move_pointer(self, data: bytes, state: PointerState, ref: ArtifactRef | None) -> bool:
        if ref is not None:
            self._must_be_there(ref)
        moved = self._ask(lambda storage: storage.swap(POINTER_NAME, data, expected=state.version))
        if moved and ref is not None:
            try:
                self._must_be_there(ref)  # or somebody removed it between
            except ArtifactNotFoundError:
                now = self.pointer_state()
                if now.data == data:
                    back = state.fenced(after=now)
                    self._ask(lambda s: s.swap(POINTER_NAME, back, expected=now.version))
                raise
        return moved

    def _must_be_there(self, ref: ArtifactRef) -> None:
        name = f"{_place(ref.name, ref.version)}/{MANIFEST_NAME}"
        if self._ask(lambda storage: storage.size(name)) is None:
            raise ArtifactNotFoundError(f"{ref} was removed")

    def _clean(self) -> None:
        """Remove what publishers that died left a day ago and more."""
        limit = datetime.now(UTC) - _LEFT_OVER_AFTER
        with contextlib.suppress(ArtifactError):
            entries = list(_parse(self._ask(lambda storage: storage.names("tokenizers/"))))
            whole = {entry[:2] for entry in entries if entry[2] == MANIFEST_NAME}
            for name, version, file in entries:
                made = datetime.strptime(version[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
                if (name, version) not in whole and made < limit and file in FILE_NAMES:
                    place = _place(name, version)
                    self._ask(functools.partial(_remove_left_over, place=place, file=file))


def _place(name: str, version: str) -> str:
    return f"tokenizers/{name}/{version}"


def _parse(found: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for entry in found:
        match = _PLACE.fullmatch(entry)
        if match and NAME.fullmatch(match[1]) and VERSION.fullmatch(match[2]):
            yield match[1], match[2], match[3]


def _write(storage: Storage, ref: ArtifactRef, files: Mapping[str, bytes]) -> bool:
    """Whether this version was written; False where another publisher has its name."""
    place = _place(ref.name, ref.version)
    for name, data in files.items():
        if not storage.create(f"{place}/{name}", data):
            if name == MANIFEST_NAME:
                return False
            there = storage.read(f"{place}/{name}", max_bytes=max(len(data), 1))
            if hashlib.sha256(there).digest() != hashlib.sha256(data).digest():
                return False
    if any(storage.size(f"{place}/{name}") is None for name in FILE_NAMES):
        # It took a day, and what it wrote was taken for that of a dead one.
        storage.remove(f"{place}/{MANIFEST_NAME}")
        return False
    return True


def _remove_left_over(storage: Storage, place: str, file: str) -> None:
    """Remove a file of no manifest; put it back where there is one after that."""
    data = storage.read(f"{place}/{file}", max_bytes=MAX_PICKLE_BYTES)
    storage.remove(f"{place}/{file}")
    if storage.size(f"{place}/{MANIFEST_NAME}") is not None:
        storage.create(f"{place}/{file}", data)


def _read_pointer(storage: Storage) -> PointerState:
    try:
        found = storage.read_versioned(POINTER_NAME, max_bytes=MAX_POINTER_BYTES)
    except StorageTooLargeError as error:
        return PointerState(error.version, damage=str(error))
    return PointerState(None) if found is None else PointerState(found.version, found.data)
