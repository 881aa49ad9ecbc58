"""open_storage: the storage at a path or an address."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokenizer_core.blobs.bucket import open_object_storage
from tokenizer_core.blobs.folder import FolderStorage
from tokenizer_core.blobs.protocol import checked_storage_name
from tokenizer_core.errors import StorageError

if TYPE_CHECKING:
    from tokenizer_core.blobs.protocol import Storage

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open_storage(place: str | os.PathLike[str], *, read_only: bool = False) -> Storage:
    """The storage in a folder, which is made when it is first written to, or at `s3://bucket/...`.

    A storage at an address is probed here: one that would let two writers create the same name is
    refused. With `read_only` it is not, as probing is writing: for those who only read. Credentials
    and the endpoint of `s3://` come from where its tools have them: the environment
    (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`), its files, or the machine's role.

    Raises:
        StorageError: it cannot be reached, or cannot create conditionally; a package it needs is
            not installed.

    Example:
        >>> import tempfile
        >>> storage = open_storage(tempfile.mkdtemp())
        >>> storage.create("runs/one.json", b"{}"), storage.create("runs/one.json", b"[]")
        (True, False)
        >>> storage.read("runs/one.json", max_bytes=10)
        b'{}'
    """
    text = os.fspath(place)
    if _ADDRESS.match(text):
        return open_object_storage(text, probe=not read_only)
    return FolderStorage(Path(text))


def open_stored(address: str, *, read_only: bool = False) -> tuple[Storage, str]:
    """The storage that holds what is at `s3://bucket/folder/name`, and its name there.

    Raises:
        StorageError: as `open_storage`; or it ends in no name.
    """
    place, _, name = address.rpartition("/")
    try:
        checked_storage_name(name)
    except ValueError:
        # Not repeated: it may be all of an address with a password.
        raise StorageError(
            "the address ends in no name of a file; write s3://bucket/folder/name, the name of "
            "letters, digits and ._@=-"
        ) from None
    return open_storage(place, read_only=read_only), name
