"""BucketArtifactStore: versions of tokenizers in a storage that several hosts share.

    tokenizers/<name>/<version>/{vocab.pkl, merges.pkl, chat_templates.json, manifest.json}
    active.json                                the pointer, moved by compare-and-set
    aliases.json                               further names of tokenizers, changed in the same way

A publisher creates the manifest last, and `remove` removes it first: a version exists while its
manifest does. This host copies a version into a cache folder, laid out like that of
`ArtifactStore`, and opens it from there: the same code verifies it, and it opens while the storage
is unreachable.

Files without a manifest were left by a publisher that died, and are removed after a day. A slow
publisher checks its files after it wrote the manifest, and the remover checks for a manifest after
each removal: the second of the two sees the change of the first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.blobs.atomic_files import open_folder, remove_folder, replacing
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
from tokenizer_core.registry.aliases import ALIASES_NAME, MAX_ALIASES_BYTES, parse_aliases
from tokenizer_core.registry.manifest import FILE_NAMES, Manifest
from tokenizer_core.registry.pointer import MAX_POINTER_BYTES, POINTER_NAME, StoredState
from tokenizer_core.registry.store import Artifacts, Names
from tokenizer_core.registry.version_folder import (
    COMPILED_NAME,
    check_version_folder,
    parse_manifest,
    reading,
    reading_file,
)
from tokenizer_core.registry.versions import (
    ACTIVE,
    NAME,
    VERSION,
    ArtifactRef,
    checked_name,
    checked_version,
    time_of,
)
from tokenizer_core.spec.chat_templates import CHAT_FILE

if TYPE_CHECKING:
    from tokenizer_core.blobs.local_files import Folder
    from tokenizer_core.blobs.protocol import Storage
    from tokenizer_core.spec import TokenizerSpec
    from tokenizer_core.tokenizer import Tokenizer

UNREACHABLE_SECONDS: Final = 2.0
"""Pause after a failed request to the storage; reads use the cache meanwhile."""
PATIENCE_SECONDS: Final = 3.0
CACHED_VERSIONS: Final = 32
_LISTING_SECONDS: Final = 1.0
_LEFT_OVER_AFTER: Final = timedelta(days=1)
_FILE_OF_VERSION: Final = re.compile(r"tokenizers/([^/]+)/([^/]+)/([^/]+)")
_BESIDE_MANIFEST: Final = (*FILE_NAMES, CHAT_FILE)

Result = TypeVar("Result")


class BucketArtifactStore(Artifacts):
    """The versions at `address`, cached in a folder of this host.

    The first request opens the storage. Reads use only the cache for two seconds after a failed
    request, and while a request of `resolve_near` takes longer than three seconds. A version that
    is not cached is then an error.
    """

    poll_seconds = 1.0

    def __init__(self, address: str, cache: Path) -> None:
        self._address, self._cache = address, VersionCache(cache)
        self._storage: Storage | None = None
        self._opening = threading.Lock()
        self._unreachable_until = 0.0
        self._overdue: Future[ArtifactRef] | None = None
        self._listed: tuple[float, dict[str, Names]] | None = None
        self._aliases: tuple[float, dict[str, str]] | None = None

    def names(self) -> Names:
        """See `Artifacts`; an error if the storage is unreachable and was never listed."""
        return sorted(self._list())

    def resolve_near(self, wanted: str) -> ArtifactRef:
        """See `Artifacts`. If the storage takes over three seconds, use what this host knows."""
        found = self._find_cached(wanted) if "@" in wanted else None
        if found is not None:
            return found
        if not self._is_unreachable():
            future: Future[ArtifactRef] = Future()
            threading.Thread(target=self._resolve_into, args=(wanted, future), daemon=True).start()
            with contextlib.suppress(TimeoutError):
                return future.result(PATIENCE_SECONDS)
            self._overdue = future
        return self.resolve(wanted)

    def remove(self, name: str, version: str) -> None:
        data = self._manifest_in_storage(name, version)
        prefix = _prefix(name, version)
        self._refuse_active(name, version)
        self._remove(f"{prefix}/{MANIFEST_NAME}")
        try:
            # Either a concurrent promotion sees no manifest, or this check sees the promotion.
            self._refuse_active(name, version)
        except (ArtifactInUseError, ArtifactStorageError):
            self._request(lambda storage: storage.create(f"{prefix}/{MANIFEST_NAME}", data))
            raise
        for file in _BESIDE_MANIFEST:
            self._remove(f"{prefix}/{file}")
        self._listed = None
        self._cache.drop(name, version)
        self._clean()

    def pointer_mark(self) -> object:
        return self.pointer_state().tag

    def pointer_state(self) -> StoredState:
        return self._request(partial(_read_state, POINTER_NAME, MAX_POINTER_BYTES))

    def aliases(self) -> dict[str, str]:
        """See `Artifacts`. They are at most a second old, or, while the storage is unreachable,
        those that a process of this host read last."""
        read = self._aliases
        if read is None or time.monotonic() >= read[0]:
            try:
                self._require_reachable()
                state = self._aliases_state()
            except ArtifactStorageError:
                kept = self._cache.aliases_state()
                if kept is None:
                    raise
                state = kept
            read = self._aliases = time.monotonic() + _LISTING_SECONDS, parse_aliases(state)
            self._cache.keep_aliases(state)
        return dict(read[1])

    def checked_ref(self, state: StoredState) -> ArtifactRef | None:
        """See `Artifacts`. If the storage has lost the version, this host's sound copy serves."""
        try:
            return super().checked_ref(state)
        except (ArtifactCorruptError, ArtifactNotFoundError):
            named = state.ref()
            if named is None or self._find_cached(str(named)) != named:
                raise
            return named

    def open(self, ref: ArtifactRef) -> TokenizerSpec:
        return self._read_sound(ref, super().open)

    def load(
        self, ref: ArtifactRef, *, engine: str = "auto", shared: Path | None = None
    ) -> Tokenizer:
        return self._read_sound(ref, partial(super().load, engine=engine, shared=shared))

    def read_file(self, ref: ArtifactRef, filename: str) -> bytes:
        return self._read_sound(ref, partial(super().read_file, filename=filename))

    # Internals

    def _read_sound(self, ref: ArtifactRef, read: Callable[[ArtifactRef], Result]) -> Result:
        """What `read` gives; a damaged version in the cache is fetched again."""
        try:
            return read(ref)
        except ArtifactCorruptError:
            self._cache.drop(ref.name, ref.version)
            return read(ref)

    def _aliases_state(self) -> StoredState:
        return self._request(partial(_read_state, ALIASES_NAME, MAX_ALIASES_BYTES))

    def _write_aliases(self, data: bytes, state: StoredState) -> bool:
        self._aliases = None
        return self._request(lambda storage: storage.swap(ALIASES_NAME, data, expected=state.tag))

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        """See `Artifacts`. Two hosts that publish the same spec at once may get one version or
        two. A name published while another host makes it an alias wins over the alias."""
        self._listed = self._aliases = None
        yield

    def _write_version(self, ref: ArtifactRef, files: Mapping[str, bytes]) -> bool:
        with self._cache.staged(files) as staged:
            check_version_folder(staged, ref)
            written = self._request(partial(_write, ref=ref, files=files))
        self._listed = None
        if written:
            self._clean()
        return written

    def _request(self, do: Callable[[Storage], Result]) -> Result:
        """Run `do` with the storage, note whether it is reachable, and translate its errors."""
        try:
            with self._opening:
                if self._storage is None:
                    self._storage = open_storage(self._address)
            result = do(self._storage)
        except (StorageMissingError, StorageTooLargeError) as error:
            self._unreachable_until, self._overdue = 0.0, None
            if isinstance(error, StorageMissingError):
                raise ArtifactNotFoundError(str(error)) from None
            raise ArtifactCorruptError(str(error)) from None
        except StorageError as error:
            if error.needs_package:
                raise
            self._unreachable_until = time.monotonic() + UNREACHABLE_SECONDS
            raise ArtifactStorageError(errno.EIO, str(error)) from None
        self._unreachable_until, self._overdue = 0.0, None
        return result

    def _remove(self, name: str) -> None:
        self._request(lambda storage: storage.remove(name))

    def _copy(self, name: str, path: Path) -> None:
        self._request(lambda storage: storage.fetch(name, path))

    def _is_unreachable(self) -> bool:
        overdue = self._overdue
        return time.monotonic() < self._unreachable_until or not (overdue is None or overdue.done())

    def _require_reachable(self) -> None:
        if self._is_unreachable():
            raise ArtifactStorageError(errno.EIO, f"{self._address} was unreachable a moment ago")

    def _resolve_into(self, wanted: str, future: Future[ArtifactRef]) -> None:
        try:
            name, at, _ = wanted.partition("@")
            versions = [] if at or name == ACTIVE else self._version_names(checked_name(name))
            found = self._find_cached(f"{name}@{versions[-1]}") if versions else None
            future.set_result(found or self.resolve(wanted))
        except Exception as error:
            future.set_exception(error)

    def _find_cached(self, wanted: str) -> ArtifactRef | None:
        """The version `name@version`, if it is in the cache."""
        name, _, version = wanted.partition("@")
        if self._cache.has(name, version):
            # Another process dropped it, or it is damaged and will be fetched again.
            with contextlib.suppress(ArtifactCorruptError, ArtifactNotFoundError):
                digest = super()._read_manifest(name, version).fingerprint
                return ArtifactRef(name, version, digest)
        return None

    def _list(self) -> dict[str, Names]:
        """The versions of each name, at most a second old; while the storage is unreachable, those
        of the last listing."""
        listed = self._listed
        if listed is not None and time.monotonic() < listed[0]:
            return listed[1]
        try:
            self._require_reachable()
            found = self._request(lambda storage: storage.names("tokenizers/"))
        except ArtifactStorageError:
            if listed is None:
                raise
            return listed[1]
        versions: dict[str, Names] = {}
        for name, version, file in _version_files(found):
            if file == MANIFEST_NAME:
                versions.setdefault(name, []).append(version)
        self._listed = (time.monotonic() + _LISTING_SECONDS, versions)
        return versions

    def _version_names(self, name: str) -> Names:
        try:
            return list(self._list().get(name, ()))
        except ArtifactStorageError:
            found = self._cache.versions(name)
            if not found:
                raise
            return found

    def _read_manifest(self, name: str, version: str) -> Manifest:
        """Read it from the storage, where removals are visible; if unreachable, from the cache."""
        if not self._is_unreachable():
            with contextlib.suppress(ArtifactStorageError), reading(f"{name}@{version}"):
                return parse_manifest(self._manifest_in_storage(name, version), name, version)
        return super()._read_manifest(name, version)

    def _manifest_in_storage(self, name: str, version: str) -> bytes:
        path = f"{_prefix(checked_name(name), checked_version(version))}/{MANIFEST_NAME}"
        found = self._request(
            lambda storage: storage.read_versioned(path, max_bytes=MAX_MANIFEST_BYTES)
        )
        if found is None:
            raise ArtifactNotFoundError(
                f"there is no version {version} of {name!r}; list the versions there are"
            )
        return found.data

    @contextlib.contextmanager
    def _version_folder(self, name: str, version: str) -> Iterator[Folder]:
        with reading(f"{name}@{version}"):
            if not self._cache.has(name, version):
                self._require_reachable()
                with self._fetched(name, version) as staged:
                    self._cache.put(staged, name, version)
                self._cache.trim(self._served)
            with self._cache.opened(name, version) as folder:
                yield folder

    def _compiled_path(self, ref: ArtifactRef) -> Path:
        return self._cache.path(ref.name, ref.version) / COMPILED_NAME

    @contextlib.contextmanager
    def _fetched(self, name: str, version: str) -> Iterator[Path]:
        """A folder with a verified copy of a version in the storage."""
        prefix = _prefix(name, version)
        with self._cache.staged({}) as staged:
            self._copy(f"{prefix}/{MANIFEST_NAME}", staged / MANIFEST_NAME)
            manifest = Manifest.from_json((staged / MANIFEST_NAME).read_bytes())
            for file in _BESIDE_MANIFEST:
                if manifest.record_of(file) is not None:
                    with reading_file(file):
                        self._copy(f"{prefix}/{file}", staged / file)
            check_version_folder(staged, ArtifactRef(name, version, manifest.fingerprint))
            yield staged

    def _check_sound(self, ref: ArtifactRef) -> None:
        """See `Artifacts`; looks in the storage, not in the cache."""
        with reading(str(ref)), self._fetched(ref.name, ref.version):
            pass

    def _served(self) -> str | None:
        pointer = self.pointer_state().pointer()
        return None if pointer is None else pointer.active

    def _move_pointer(self, data: bytes, state: StoredState, ref: ArtifactRef | None) -> bool:
        if ref is not None:
            self._require_version(ref)
        moved = self._request(lambda storage: storage.swap(POINTER_NAME, data, expected=state.tag))
        if moved and ref is not None:
            try:
                self._require_version(ref)  # removed between the check and the swap?
            except ArtifactNotFoundError:
                now = self.pointer_state()
                if now.data == data:
                    back = state.fenced(after=now)
                    self._request(lambda s: s.swap(POINTER_NAME, back, expected=now.tag))
                raise
        return moved

    def _require_version(self, ref: ArtifactRef) -> None:
        name = f"{_prefix(ref.name, ref.version)}/{MANIFEST_NAME}"
        if self._request(lambda storage: storage.size(name)) is None:
            raise ArtifactNotFoundError(f"{ref} was removed")

    def _clean(self) -> None:
        """Remove files that dead publishers left at least a day ago."""
        limit = datetime.now(UTC) - _LEFT_OVER_AFTER
        with contextlib.suppress(ArtifactError):
            entries = list(
                _version_files(self._request(lambda storage: storage.names("tokenizers/")))
            )
            whole = {entry[:2] for entry in entries if entry[2] == MANIFEST_NAME}
            for name, version, file in entries:
                is_left = (name, version) not in whole and time_of(version) < limit
                if is_left and file in _BESIDE_MANIFEST:
                    prefix = _prefix(name, version)
                    self._request(partial(_remove_left_over, prefix=prefix, file=file))


class VersionCache:
    """This host's copies of the versions of a bucket: the `CACHED_VERSIONS` that were opened last.

    A version is verified before it is put here and whenever it is opened. Several processes may use
    the folder at once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokenizers = folder / "tokenizers"
        self._staging = self._tokenizers / ".staging"

    def has(self, name: str, version: str) -> bool:
        """Whether a version is cached, sound or damaged; raise ArtifactNameError for a bad name."""
        return self.path(name, version).is_dir()

    def versions(self, name: str) -> list[str]:
        """The cached versions of a tokenizer, oldest first."""
        cached = self._tokenizers / checked_name(name)
        return sorted(path.name for path in cached.glob("*") if VERSION.fullmatch(path.name))

    def keep_aliases(self, state: StoredState) -> None:
        """Keep the file of aliases, for when the storage is unreachable."""
        kept, data = self.aliases_state(), state.data if state.tag else b"{}"
        if state.damage is None and (kept is None or kept.data != data):
            with contextlib.suppress(OSError):  # a full disk ends no request
                self._folder.mkdir(parents=True, exist_ok=True)
                with replacing(self._folder / ALIASES_NAME) as new:
                    new.write_bytes(data)

    def aliases_state(self) -> StoredState | None:
        """The file of aliases as it was kept last, or None."""
        with contextlib.suppress(OSError):
            return StoredState("kept", (self._folder / ALIASES_NAME).read_bytes())
        return None

    @contextlib.contextmanager
    def opened(self, name: str, version: str) -> Iterator[Folder]:
        """A descriptor of the folder of a cached version, which now counts as used."""
        os.utime(self.path(name, version))
        with open_folder(self._folder, "tokenizers", name, version) as folder:
            yield folder

    @contextlib.contextmanager
    def staged(self, files: Mapping[str, bytes]) -> Iterator[Path]:
        """A temporary folder with `files`, in which the caller assembles a version."""
        path = self._staging / secrets.token_hex(8)
        path.mkdir(parents=True)
        try:
            for name, data in files.items():
                (path / name).write_bytes(data)
            yield path
        finally:
            remove_folder(path)

    def put(self, staged: Path, name: str, version: str) -> None:
        """Add a staged and verified version, unless another process was first."""
        path = self.path(name, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            staged.rename(path)

    def drop(self, name: str, version: str) -> None:
        """Remove a version."""
        remove_folder(self.path(name, version))

    def trim(self, served: Callable[[], str | None]) -> None:
        """Remove the least recently used versions, except the active one, which `served` names.
        Also remove files that killed processes left a day ago."""
        with contextlib.suppress(OSError):
            limit = time.time() - _LEFT_OVER_AFTER.total_seconds()
            for path in self._staging.glob("*"):
                if path.stat().st_mtime < limit:
                    remove_folder(path)
            cached = [p for p in self._tokenizers.glob("*/*") if VERSION.fullmatch(p.name)]
            cached.sort(key=lambda path: path.stat().st_mtime, reverse=True)
            kept = served() if cached[CACHED_VERSIONS:] else None
            for path in cached[CACHED_VERSIONS:]:
                if f"{path.parent.name}@{path.name}" != kept:
                    remove_folder(path)

    def path(self, name: str, version: str) -> Path:
        """Where the folder of a cached version is."""
        return self._tokenizers / checked_name(name) / checked_version(version)


def _prefix(name: str, version: str) -> str:
    return f"tokenizers/{name}/{version}"


def _version_files(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for name in names:
        match = _FILE_OF_VERSION.fullmatch(name)
        if match and NAME.fullmatch(match[1]) and VERSION.fullmatch(match[2]):
            yield match[1], match[2], match[3]


def _write(storage: Storage, ref: ArtifactRef, files: Mapping[str, bytes]) -> bool:
    """Create the files of a version; False if another publisher has already written it."""
    prefix = _prefix(ref.name, ref.version)
    for name, data in files.items():
        if not storage.create(f"{prefix}/{name}", data):
            if name == MANIFEST_NAME:
                return False
            if storage.read(f"{prefix}/{name}", max_bytes=max(len(data), 1)) != data:
                return False
    beside = [name for name in files if name != MANIFEST_NAME]
    if any(storage.size(f"{prefix}/{name}") is None for name in beside):
        # This publisher took over a day, so another one removed its files.
        storage.remove(f"{prefix}/{MANIFEST_NAME}")
        return False
    return True


def _remove_left_over(storage: Storage, prefix: str, file: str) -> None:
    """Remove a file without a manifest; put it back if the manifest exists afterwards."""
    data = storage.read(f"{prefix}/{file}", max_bytes=MAX_PICKLE_BYTES)
    storage.remove(f"{prefix}/{file}")
    if storage.size(f"{prefix}/{MANIFEST_NAME}") is not None:
        storage.create(f"{prefix}/{file}", data)


def _read_state(name: str, max_bytes: int, storage: Storage) -> StoredState:
    try:
        found = storage.read_versioned(name, max_bytes=max_bytes)
    except StorageTooLargeError as error:
        return StoredState(error.version, damage=str(error))
    return StoredState(None) if found is None else StoredState(found.version, found.data)
