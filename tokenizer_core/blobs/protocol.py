"""The Storage protocol, and the names that a storage accepts.

Two operations decide between concurrent writers: only one `create` of a name succeeds, and `swap`
succeeds only if nobody else wrote the name meanwhile. All other operations may be repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tokenizer_core.errors import StorageTooLargeError

if TYPE_CHECKING:
    from pathlib import Path

BUCKET: Final = "[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
"""The expression of a bucket's name."""

_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@=-]*")


@dataclass(frozen=True, slots=True)
class Versioned:
    """The bytes of a name, and the storage's identifier of this state of it.

    Equal bytes may have equal identifiers. So bytes written with `swap` must contain a counter that
    only grows.
    """

    data: bytes
    version: str


class Storage(Protocol):
    """Bytes under names like `map/00012.json`, in a folder or a bucket.

    A reader always sees a name with all of its bytes or not at all. A write is durable when its
    call returns. Safe to use from several threads, processes and hosts.

    Raises (from every method):
        StorageError: the storage cannot be reached, is full, or refuses. Nothing changed, unless
            the response to a write was lost: then the write may have been done.
        ValueError: the name is malformed.
    """

    shown: str
    """Its location, without secrets, for messages."""

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """All bytes of a name.

        Raises:
            StorageMissingError: the name does not exist.
            StorageTooLargeError: it holds more than `max_bytes`.
        """
        ...

    def read_versioned(self, name: str, *, max_bytes: int) -> Versioned | None:
        """All bytes of a name with the version that `swap` needs; None if the name does not exist.

        Raises:
            StorageTooLargeError: it holds more than `max_bytes`.
        """
        ...

    def fetch(self, name: str, path: Path) -> None:
        """Copy the bytes of a name into a local file; create or overwrite the file.

        Raises:
            StorageMissingError: the name does not exist.
        """
        ...

    def size(self, name: str) -> int | None:
        """Size of a name in bytes; None if it does not exist."""
        ...

    def names(self, prefix: str = "") -> list[str]:
        """The names with this prefix, sorted. The list may be stale: do not use it as a lock."""
        ...

    def put(self, name: str, source: bytes | Path) -> None:
        """Write bytes, or the content of a file, to a name, whether it exists or not."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """As `put` if the name does not exist; else change nothing and return False."""
        ...

    def swap(self, name: str, data: bytes, *, expected: str | None) -> bool:
        """As `put` if the name still has the version `expected` (None: does not exist); else change
        nothing and return False."""
        ...

    def remove(self, name: str) -> None:
        """Remove a name; no error if it does not exist."""
        ...


def checked_storage_name(name: str) -> str:
    """`name`, if it is well-formed: parts of letters, digits and `._@=-`, none starting with a dot.

    Raises:
        ValueError: it is malformed.

    Example:
        >>> checked_storage_name("map/00012.json")
        'map/00012.json'
    """
    if not is_storage_name(name):
        raise ValueError(f"{name!r:.80} is not a valid name in a storage")
    return name


def is_storage_name(name: str) -> bool:
    """Whether `checked_storage_name` accepts it."""
    return all(_PART.fullmatch(part) for part in name.split("/"))


def checked_storage_prefix(prefix: str) -> str:
    """`prefix`, if a name can start with it: nothing, a name, or a name and a slash.

    Raises:
        ValueError: no name can.
    """
    if prefix and not is_storage_name(prefix.removesuffix("/")):
        raise ValueError(f"{prefix!r:.80} is not a valid prefix of names in a storage")
    return prefix


def too_large(shown: str, name: str, max_bytes: int, version: str) -> StorageTooLargeError:
    """The error for a name that holds more bytes than its reader accepts."""
    return StorageTooLargeError(
        f"{name} in {shown} is larger than {max_bytes} bytes, so it is not the expected file",
        version,
    )
