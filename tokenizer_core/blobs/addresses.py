"""Open the storage at a path or an address."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import StorageError

if TYPE_CHECKING:
    from tokenizer_core.blobs.protocol import Storage

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MISSPELT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # `C:/` is a drive


def open_storage(location: str | os.PathLike[str], *, read_only: bool = False) -> Storage:
    """The storage in a folder, which the first write makes, or at `s3://bucket/...`.

    A storage at an address is probed: one that lets two writers create the same name is refused.
    Probing writes, so `read_only` skips it. Credentials and the endpoint of `s3://` come from the
    usual sources of S3 tools: the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`), the AWS
    configuration files, or the role of the machine.

    Raises:
        StorageError: the storage cannot be reached or ignores conditional writes, or a package for
            it is not installed.
    """
    from tokenizer_core.blobs.bucket import open_object_storage
    from tokenizer_core.blobs.folder import FolderStorage

    text = os.fspath(location)
    if is_store_address(text):
        return open_object_storage(text, probe=not read_only)
    return FolderStorage(Path(text))


def is_store_address(location: str) -> bool:
    """Whether this names a storage by its address, and not by a folder.

    Raises:
        StorageError: it is an address with one slash, which would name a folder.
    """
    if _ADDRESS.match(location):
        return True
    if _MISSPELT.match(location):
        scheme = location.partition(":/")[0]
        raise StorageError(
            f"the address {scheme}:/... has one slash after the colon; write {scheme}://..., or "
            f"./{scheme}:/... for a folder"
        )
    return False


def open_stored(address: str, *, read_only: bool = False) -> tuple[Storage, str]:
    """The storage of the file at `s3://bucket/folder/name`, and the file's name in it.

    Raises:
        StorageError: as `open_storage`; or the address does not end in a name.
    """
    from tokenizer_core.blobs.protocol import checked_storage_name

    parent, _, name = address.rpartition("/")
    try:
        checked_storage_name(name)
    except ValueError:
        # Leave out the address: it may hold a password.
        raise StorageError(
            "the address ends in no name of a file; write s3://bucket/folder/name with a "
            "name of letters, digits and ._@=-"
        ) from None
    return open_storage(parent, read_only=read_only), name
