"""PartialFile: a file that is there under its name when it is whole, and not before.

It grows as `NAME.partial` beside it. Whoever resumes finds what is there already; its sha256 goes
on from that. Blocks. Imports nothing of the client.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

_PIECE_BYTES: Final = 1 << 20


class PartialFile:
    """A file that is being written to `path`.

    With `resume` what an earlier attempt has left is kept; else it is begun anew.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._path = path
        self._partial = path.with_name(path.name + ".partial")
        self._file = self._partial.open("a+b" if resume else "w+b")
        self._sha256 = hashlib.sha256()
        self.n_bytes = 0
        self._file.seek(0)
        while piece := self._file.read(_PIECE_BYTES):
            self._note(piece)

    def write(self, data: bytes | bytearray) -> None:
        """Append `data`."""
        self._file.write(data)
        self._note(data)

    def restart(self) -> None:
        """Drop everything that was written."""
        self._file.seek(0)
        self._file.truncate()
        self._sha256, self.n_bytes = hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        """Of what was written, hex."""
        return self._sha256.hexdigest()

    def publish(self) -> None:
        """Put it on the disk and under its name, in the place of what was there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._partial.replace(self._path)

    def close(self) -> None:
        """Leave what was written to a later attempt."""
        self._file.close()

    def discard(self) -> None:
        """Remove what was written, where it was not published."""
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def _note(self, data: bytes | bytearray) -> None:
        self._sha256.update(data)
        self.n_bytes += len(data)


def sha256_of(path: Path) -> str:
    """The sha256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
