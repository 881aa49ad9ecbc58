"""Storage: what every kind of it can do, and what a name in it may be.

Two operations decide between several writers: `create`, of which one wins, and `swap`, which goes
through only where nobody else came between. All else may be repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tokenizer_core.errors import StorageTooLargeError

if TYPE_CHECKING:
    from pathlib import Path

_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@=-]*")


@dataclass(frozen=True, slots=True)
class Versioned:
    """What stands under a name, and the storage's own word for this state of it.

    The same bytes may have the same word again: what is swapped holds something that only grows.
    """

    data: bytes
    version: str


class Storage(Protocol):
    """Bytes under names like `map/00012.json`, in a folder or a bucket.

    A name has all of its bytes or is not there, whenever and by whomever it is read; what a call
    wrote is durable when it returns. Safe to use from several threads, processes and hosts.

    Raises (from every method):
        StorageError: it cannot be reached, is full, or refuses; what stood there still does,
            unless a lost answer leaves open whether a write was done.
        ValueError: a name that is none.
    """

    shown: str
    """Where it is, without secrets."""

    def read(self, name: str, *, max_bytes: int) -> bytes:
        """All bytes of a name.

        Raises:
            StorageMissingError: nothing has that name.
            StorageTooLargeError: it has more than `max_bytes`.
        """
        ...

    def read_versioned(self, name: str, *, max_bytes: int) -> Versioned | None:
        """All bytes of a name, and what `swap` needs; None where nothing has that name.

        Raises:
            StorageTooLargeError: it has more than `max_bytes`.
        """
        ...

    def fetch(self, name: str, path: Path) -> None:
        """Copy the bytes of a name into a file on the disk, which is made or written over.

        Raises:
            StorageMissingError: nothing has that name.
        """
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a name; None where nothing has it."""
        ...

    def names(self, prefix: str = "") -> list[str]:
        """The names that begin so, sorted. Not for a choice between writers: a list may be old."""
        ...

    def put(self, name: str, source: bytes | Path) -> None:
        """Give a name these bytes, or those of a file, whatever it had."""
        ...

    def create(self, name: str, source: bytes | Path) -> bool:
        """As `put`, where nothing has the name; False, changing nothing, where something has it."""
        ...

    def swap(self, name: str, data: bytes, *, expected: str | None) -> bool:
        """As `put`, where the name still has the version `expected`, or, for None, nothing has it;
        False where somebody else came between."""
        ...

    def remove(self, name: str) -> None:
        """Nothing has that name any more; no error where nothing had it."""
        ...


def checked_storage_name(name: str) -> str:
    """`name`, if it is one: parts of letters, digits and `._@=-`, none beginning with a dot.

    Raises:
        ValueError: it is none.

    Example:
        >>> checked_storage_name("map/00012.json")
        'map/00012.json'
    """
    if not is_storage_name(name):
        raise ValueError(f"{name!r:.80} is no name in a storage")
    return name


def is_storage_name(name: str) -> bool:
    """Whether `checked_storage_name` takes it."""
    return all(_PART.fullmatch(part) for part in name.split("/"))


def checked_storage_prefix(prefix: str) -> str:
    """`prefix`, if a name can begin so: nothing, a name, or a name and a slash.

    Raises:
        ValueError: none can.
    """
    if prefix and not is_storage_name(prefix.removesuffix("/")):
        raise ValueError(f"{prefix!r:.80} begins no name in a storage")
    return prefix


def too_large(shown: str, name: str, max_bytes: int, version: str) -> StorageTooLargeError:
    """The error for what is larger than whoever reads it takes."""
    return StorageTooLargeError(
        f"{name} in {shown} is larger than {max_bytes} bytes; it is no such file", version
    )
