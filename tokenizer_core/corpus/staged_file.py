"""StagedFile: one file that grows in a folder nobody reads yet.

Bytes are gathered in one block of memory and go from there to the disk past the page cache
(`O_DIRECT`), where the file system can: token files are larger than what one would keep in memory,
and filling its pages took a third of the processor's time of the writing process. What is no whole
block goes through the page cache, and is written again with the block it becomes.

Everything ends in functions of `os`, which the crash tests replace one by one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import TokenFilesCorruptError
from tokenizer_core.registry import FileRecord

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK_BYTES: Final = 1 << 20
_ALIGNMENT: Final = mmap.PAGESIZE
_DIRECT: Final = getattr(os, "O_DIRECT", 0)


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
        # Mapped memory begins at a page, as direct writes must.
        self._block = mmap.mmap(-1, _BLOCK_BYTES)
        self._block_start = self._n_waiting = self._n_flushed = 0
        self._can_be_direct = bool(_DIRECT)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
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
        view = memoryview(data)
        if self._digest is not None:
            self._digest.update(view)
        while view:
            part = view[: _BLOCK_BYTES - self._n_waiting]
            self._block[self._n_waiting : self._n_waiting + len(part)] = part
            self._n_waiting += len(part)
            view = view[len(part) :]
            if self._n_waiting == _BLOCK_BYTES:
                self._write_block()

    def flush(self) -> None:
        """Hand what waits to the system, so that a reader of the path sees it."""
        if self._n_waiting > self._n_flushed:
            self._write_at(self._block_start, memoryview(self._block)[: self._n_waiting])
            self._n_flushed = self._n_waiting

    def _write_block(self) -> None:
        self._set_direct(True)
        try:
            self._write_at(self._block_start, memoryview(self._block))
        finally:
            self._set_direct(False)
        self._block_start += _BLOCK_BYTES
        self._n_waiting = self._n_flushed = 0

    def _write_at(self, place: int, view: memoryview) -> None:
        while view:
            try:
                n_written = os.pwrite(self._descriptor, view, place)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._can_be_direct:
                    raise
                # It takes no direct writes after all, or none of this alignment.
                self._set_direct(False)
                self._can_be_direct = False
                continue
            place, view = place + n_written, view[n_written:]

    def _set_direct(self, direct: bool) -> None:
        if not self._can_be_direct:
            return
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        try:
            fcntl.fcntl(
                self._descriptor, fcntl.F_SETFL, flags | _DIRECT if direct else flags & ~_DIRECT
            )
        except OSError:  # a file system in memory, for one
            self._can_be_direct = False

    def sync(self) -> None:
        """Put what was written so far on the disk."""
        self.flush()
        os.fsync(self._descriptor)

    def close(self, beginning: bytes = b"") -> FileRecord:
        """Put `beginning` over the first bytes, the file on the disk; what it must be from now on.

        Unless it was hashed on the way, the hash is taken of what the file holds, read again: its
        beginning, where the number of ids stands, is known only now.
        """
        n_bytes, digest = self._block_start + self._n_waiting, self._digest
        self.flush()
        if beginning:
            digest = None
            self._write_at(0, memoryview(beginning))
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
        self._n_waiting = self._n_flushed = n_bytes % _ALIGNMENT
        self._block_start = n_bytes - self._n_waiting
        kept = os.pread(self._descriptor, self._n_waiting, self._block_start)
        self._block[: len(kept)] = kept

    def _too_short(self) -> TokenFilesCorruptError:
        return TokenFilesCorruptError(
            f"{self.path.name} is missing or shorter than its checkpoint says; start anew, without "
            f"resume"
        )
