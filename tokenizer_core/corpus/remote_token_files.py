"""Token files in a bucket: uploaded whole or not at all, and read through a cache on the disk.

An address has `manifest.json`, created last and never changed, and a folder with the other files,
named by the sha256 of that manifest. So another writer to the same address, or a late one, does
not change published files, and a new upload reuses the files of a killed one. The folder also has a
copy of the manifest, so any tool can copy it to the disk, and `TokenFiles` can open the copy. The
cache uses the same folder name.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.blobs.atomic_files import (
    make_folder,
    replace_synced,
    replacing,
    sync_file,
    sync_folder,
)
from tokenizer_core.blobs.local_files import user_cache_folder
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

    from tokenizer_core.blobs.protocol import Storage
    from tokenizer_core.corpus.token_manifest import TokenFile


def upload_token_files(
    folder: str | os.PathLike[str],
    address: str,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> TokenManifest:
    """Upload the token files of a folder to `s3://bucket/prefix`; return their manifest.

    Readers see them only when this call returns: an upload that failed or was killed is
    invisible. A repeated upload does not send existing files again. Each file is
    hashed before it is sent. `progress` gets bytes done and bytes in total.

    Raises:
        TokenFilesError: the address has other token files, or the folder has none.
        TokenFilesCorruptError: a file does not match the manifest.
        StorageError: the storage cannot be reached, or refuses.
        OSError: the disk refuses.
    """
    path = Path(folder)
    data = read_manifest(path)
    manifest = TokenManifest.from_json(data)
    storage = open_storage(address)
    folder_name = hashlib.sha256(data).hexdigest()
    if not _is_free(storage, data):
        return manifest
    records = manifest.files()
    for name, record in records.items():
        check_size(path / name, record.size_bytes)
    n_done, n_bytes = 0, sum(record.size_bytes for record in records.values())
    for name, record in records.items():
        _check_file(path / name, name, record)
        if storage.size(f"{folder_name}/{name}") != record.size_bytes:
            storage.put(f"{folder_name}/{name}", path / name)
        n_done += record.size_bytes
        if progress is not None:
            progress(n_done, n_bytes)
    storage.put(f"{folder_name}/{MANIFEST_NAME}", data)
    if not storage.create(MANIFEST_NAME, data):
        _is_free(storage, data)  # raises unless the other upload was the same
    return manifest


def require_free(address: str) -> None:
    """Check that an address has no token files yet, before long work that ends with an upload.

    Raises:
        TokenFilesError: it has token files.
        StorageError: as `upload_token_files`.
    """
    _is_free(open_storage(address, read_only=True), None)


def _is_free(storage: Storage, data: bytes | None) -> bool:
    """Whether the address is free; False if it has the token files of this manifest."""
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
    """Token files at `s3://bucket/prefix`, whose files are fetched into a cache when needed.

    All processes of a machine share the cache; each file is fetched once and checked. The files are
    in `folder`, which is named by the digest of the manifest, so none of them can be stale. A
    cached file of the right size is not hashed again; `verify_token_files` does that.

    Raises:
        TokenFilesError: the address has no token files.
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
        self._folder_name = hashlib.sha256(data).hexdigest()
        self.folder = Path(cache or default_cache_folder()) / self._folder_name
        make_folder(self.folder)
        if not (self.folder / MANIFEST_NAME).exists():
            with locked_folder(self.folder):
                replace_synced(self.folder / MANIFEST_NAME, data)

    def path(self, name: str) -> Path:
        """The path of a file in the cache, which is fetched first if necessary.

        Raises:
            TokenFilesCorruptError: the file in the storage is missing or damaged.
            StorageError: the storage cannot be reached, or the disk is full.
            OSError: the disk refuses.
        """
        path, record = self.folder / name, self._records[name]
        if not _has_size(path, record):
            with locked_folder(self.folder):
                if not _has_size(path, record):  # no other process was faster
                    self._fetch(name, path, record)
        return path

    def _fetch(self, name: str, path: Path, record: TokenFile) -> None:
        partial, storage = self.folder.with_name(f".{self._folder_name}.partial"), self._storage()
        try:
            with replacing(path, staged=partial):
                storage.fetch(f"{self._folder_name}/{name}", partial)
                _check_file(partial, f"{name} at {storage.shown}", record)
        except StorageMissingError:
            raise TokenFilesCorruptError(
                f"{name} is missing at {storage.shown}; upload the token files anew, to another "
                f"address"
            ) from None
        sync_folder(self.folder)

    def _storage(self) -> Storage:
        """The storage; opened again after a fork, as in the workers of a data loader."""
        pid, storage = self._opened
        if pid != os.getpid():
            storage = open_storage(self._address, read_only=True)
            self._opened = os.getpid(), storage
        return storage


def default_cache_folder() -> Path:
    """The default folder for cached token files: the user's, by the XDG rules."""
    return user_cache_folder() / "token-files"


def _has_size(path: Path, record: TokenFile) -> bool:
    try:
        return path.stat().st_size == record.size_bytes
    except FileNotFoundError:
        return False


def _check_file(path: Path, shown: str, record: TokenFile) -> None:
    """Check that a file matches the manifest, and sync it."""
    with path.open("r+b") as file:  # Windows syncs no file that is only read
        found = hashlib.file_digest(file, "sha256").hexdigest()
        sync_file(file.fileno())
    if found != record.sha256:
        raise TokenFilesCorruptError(
            f"{shown} was changed or damaged after it was written: its sha256 is {found[:12]}..., "
            f"the manifest says {record.sha256[:12]}...; write the token files anew"
        )
