"""Token files in a bucket: put there whole or not at all, and read through a folder on the disk.

Under an address stand `manifest.json`, created last and never changed, and what it binds, in a
folder called by the sha256 of that manifest. So whoever writes other token files to the same
address, or writes late, touches nothing that was published, and what an upload that was killed has
put there already is gone on from. The folder has a copy of the manifest too, and by any tool copied
to the disk it is token files as the writer left them. In the cache it is found by the same digest.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizer_core.blobs import open_storage
from tokenizer_core.blobs.atomic_files import (
    make_folder,
    replace_synced,
    replacing,
    sync_folder,
)
from tokenizer_core.blobs.locks import locked_folder
from tokenizer_core.corpus.token_manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    TokenManifest,
    check_size,
    read_manifest,
)
from tokenizer_core.errors import StorageMissingError, TokenFilesCorruptError, TokenFilesError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokenizer_core.blobs import Storage
    from tokenizer_core.registry import FileRecord


def upload_token_files(
    folder: str | os.PathLike[str],
    address: str,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> TokenManifest:
    """Put the token files of a folder under `s3://bucket/prefix`; their manifest.

    They are there for readers when this returns, and not before. An upload that failed or was
    killed is invisible and can be repeated, and so can one that was done; files that are there
    already are not sent again. Each file is hashed before it is sent. `progress` gets bytes done
    and bytes in all.

    Raises:
        TokenFilesError: other token files are at that address; or the folder holds none.
        TokenFilesCorruptError: a file is not what the manifest says.
        StorageError: the storage cannot be reached, or refuses.
        OSError: the disk refuses.

    Example:
        >>> import tempfile
        >>> from tokenizer_core import Tokenizer
        >>> from tokenizer_core.corpus import TokenFilesWriter, plan_token_files
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> here = Path(tempfile.mkdtemp())
        >>> with TokenFilesWriter(here / "tokens", plan_token_files(tokenizer)) as writer:
        ...     writer.append(tokenizer.encode("first"))
        ...     _ = writer.finish()
        >>> _ = upload_token_files(here / "tokens", str(here / "shared"))  # s3://... likewise
        >>> stored = StoredTokenFiles(str(here / "shared"), cache=here / "cache")
        >>> stored.path("train.bin").read_bytes()
        b'f\\x00i\\x00r\\x00s\\x00t\\x00'
    """
    path = Path(folder)
    data = read_manifest(path)
    manifest = TokenManifest.from_json(data)
    storage = open_storage(address)
    place = hashlib.sha256(data).hexdigest()
    if not _is_free(storage, data):
        return manifest
    records = manifest.files()
    for name, record in records.items():
        check_size(path / name, record.size_bytes)
    n_done, n_bytes = 0, sum(record.size_bytes for record in records.values())
    for name, record in records.items():
        _check_file(path / name, name, record)
        if storage.size(f"{place}/{name}") != record.size_bytes:
            storage.put(f"{place}/{name}", path / name)
        n_done += record.size_bytes
        if progress is not None:
            progress(n_done, n_bytes)
    storage.put(f"{place}/{MANIFEST_NAME}", data)
    if not storage.create(MANIFEST_NAME, data):
        _is_free(storage, data)  # raises, unless the same upload won
    return manifest


def require_free(address: str) -> None:
    """See that no token files are at an address yet, before long work that will end there.

    Raises:
        TokenFilesError: there are.
        StorageError: as `upload_token_files`.
    """
    _is_free(open_storage(address, read_only=True), None)


def _is_free(storage: Storage, data: bytes | None) -> bool:
    """Whether nothing is there; False where the token files of this manifest are."""
    found = storage.read_versioned(MANIFEST_NAME, max_bytes=MAX_MANIFEST_BYTES)
    if found is None:
        return True
    if found.data == data:
        return False
    raise TokenFilesError(
        f"{storage.shown} has other token files already, and token files are never changed; remove "
        f"them, or name another address"
    )


class StoredTokenFiles:
    """Token files under `s3://bucket/prefix`, whose files come into a cache as they are asked for.

    Each is fetched once, whoever asks on this machine, and checked; what the manifest binds lies
    in the folder `folder`, called by the manifest's digest, so that nothing in it is ever old. What
    is there and has its size is not hashed again: `verify_token_files` does.

    Raises:
        TokenFilesError: no token files are there.
        TokenFilesCorruptError: the manifest is damaged.
        StorageError: the storage cannot be reached.
        OSError: the disk refuses.
    """

    def __init__(self, address: str, cache: str | os.PathLike[str] | None = None) -> None:
        self._address = address
        self._opened = os.getpid(), open_storage(address, read_only=True)
        storage = self._storage()
        try:
            data = storage.read(MANIFEST_NAME, max_bytes=MAX_MANIFEST_BYTES)
        except StorageMissingError:
            raise TokenFilesError(
                f"there are no token files at {storage.shown}: their {MANIFEST_NAME} is written "
                f"last, so they were never finished; name another address, or upload them"
            ) from None
        self.manifest = TokenManifest.from_json(data)
        self._records = self.manifest.files()
        self._place = hashlib.sha256(data).hexdigest()
        self.folder = Path(cache or default_cache_folder()) / self._place
        make_folder(self.folder)
        if not (self.folder / MANIFEST_NAME).exists():
            with locked_folder(self.folder):
                replace_synced(self.folder / MANIFEST_NAME, data)

    def path(self, name: str) -> Path:
        """The file of that name in the cache, fetched if it is not there.

        Raises:
            TokenFilesCorruptError: it is missing where it is stored, or damaged there.
            StorageError: the storage cannot be reached, or the disk is full.
            OSError: the disk refuses.
        """
        path, record = self.folder / name, self._records[name]
        if not _has_size(path, record):
            with locked_folder(self.folder):
                if not _has_size(path, record):  # nobody else was faster
                    self._fetch(name, path, record)
        return path

    def _fetch(self, name: str, path: Path, record: FileRecord) -> None:
        partial, storage = self.folder.with_name(f".{self._place}.partial"), self._storage()
        try:
            with replacing(path, staged=partial):
                storage.fetch(f"{self._place}/{name}", partial)
                _check_file(partial, f"{name} at {storage.shown}", record)
        except StorageMissingError:
            raise TokenFilesCorruptError(
                f"{name} is missing at {storage.shown}; upload the token files anew, to another "
                f"address"
            ) from None
        sync_folder(self.folder)

    def _storage(self) -> Storage:
        """The storage; another one in a process that was forked off since, as a loader's are."""
        pid, storage = self._opened
        if pid != os.getpid():
            storage = open_storage(self._address, read_only=True)
            self._opened = os.getpid(), storage
        return storage


def default_cache_folder() -> Path:
    """Where token files are cached unless another folder is named: the user's, as XDG says."""
    above = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(above) / "tokenizer-service" / "token-files"


def _has_size(path: Path, record: FileRecord) -> bool:
    try:
        return path.stat().st_size == record.size_bytes
    except FileNotFoundError:
        return False


def _check_file(path: Path, shown: str, record: FileRecord) -> None:
    """See that a file is the one of the manifest, and on the disk."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    if found != record.sha256:
        raise TokenFilesCorruptError(
            f"{shown} was changed or damaged after it was written: its sha256 is {found[:12]}..., "
            f"the manifest says {record.sha256[:12]}...; write the token files anew"
        )
