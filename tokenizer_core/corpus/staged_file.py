"""StagedFile: one file that grows in a folder nobody reads yet.

Everything ends in functions of `os`, which the crash tests replace one by one. May import
`errors` and `store.manifest`'s FileRecord.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import TokenFilesCorruptError
from tokenizer_core.store import FileRecord

if TYPE_CHECKING:
    from pathlib import Path

_LARGE_BYTES: Final = 1 << 18
"""What is smaller is gathered up to this size."""


class StagedFile:
    """A new file, written from its beginning in bounded memory, on the disk once it is closed.

    With `keep_bytes` one that is there goes on after so many bytes; what stands behind is cut off.
    A new one with `hash_on_the_way` is hashed while it is written, which saves reading it again at
    its end: of use where it has no beginning to be put there.

    Raises:
        TokenFilesCorruptError: it has fewer bytes than that.
        OSError: from every method, where the disk refuses.
    """

    def __init__(
        self, path: Path, *, keep_bytes: int | None = None, hash_on_the_way: bool = False
    ) -> None:
        self.path = path
        self._digest = hashlib.sha256() if hash_on_the_way else None
        self._n_bytes = keep_bytes or 0
        self._waiting = bytearray()
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        if keep_bytes is None:
            self._descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        else:
            try:
                self._descriptor = os.open(path, flags)
            except FileNotFoundError:
                raise self._too_short() from None
            self._keep(keep_bytes)

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`, which is not needed afterwards."""
        if len(data) >= _LARGE_BYTES:
            self.flush()
            self._hand_over(memoryview(data))
            return
        self._waiting += data
        if len(self._waiting) >= _LARGE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand what waits to the system, so that a reader of the path sees it."""
        waiting, self._waiting = self._waiting, bytearray()
        self._hand_over(memoryview(waiting))

    def _hand_over(self, view: memoryview) -> None:
        self._n_bytes += len(view)
        if self._digest is not None:
            self._digest.update(view)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """Put what was written so far on the disk."""
        self.flush()
        os.fsync(self._descriptor)

    def close(self, beginning: bytes = b"") -> FileRecord:
        """Put `beginning` over the first bytes, the file on the disk; what it must be from now on.

        Unless it was hashed on the way, the hash is taken of what the file holds, read again: its
        beginning, where the number of ids stands, is known only now.
        """
        self.flush()
        n_bytes, digest = self._n_bytes, self._digest
        if beginning:
            digest = None
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self.write(beginning)
        self.sync()
        self.discard()
        if digest is not None:
            return FileRecord(digest.hexdigest(), n_bytes)
        with self.path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            return FileRecord(found, file.seek(0, os.SEEK_END))

    def discard(self) -> None:
        """Close the descriptor without any promise; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _keep(self, n_bytes: int) -> None:
        if os.fstat(self._descriptor).st_size < n_bytes:
            self.discard()
            raise self._too_short()
        os.ftruncate(self._descriptor, n_bytes)
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def _too_short(self) -> TokenFilesCorruptError:
        return TokenFilesCorruptError(
            f"{self.path.name} is missing or shorter than its checkpoint says; start anew, without "
            f"resume"
        )
