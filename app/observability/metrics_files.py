"""Metrics files: what several processes add up their metrics in, safe on a disk that is full.

`prometheus_client` maps sparse files. Where the disk below has no block left, the first touch of
such a page ends the process with SIGBUS, and every process that is started again dies the same way.
Here the blocks are reserved before a file is mapped; where that fails the process goes on without
the file and keeps its numbers to itself.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
from pathlib import Path
from typing import Final

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

log = logging.getLogger("app.observability.metrics")

FIRST_BYTES: Final = 1 << 16
"""Size of a new file; it doubles when it is full."""

_FRAME_BYTES: Final = 64  # more than the library puts around a key


def install_reserved_files() -> None:
    """Have the library reserve its files; to be called before the first metric is made."""
    values.MmapedDict = ReservedFile  # type: ignore[attr-defined]


class ReservedFile(MmapedDict):
    """The library's file of values with every block reserved, else memory of this process."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        self._is_shared = True
        try:
            _make_reserved(Path(filename))
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        except FileNotFoundError:
            raise  # no folder: a wrong setting, not a disk that fails
        except OSError as error:
            self._fname, self._positions = filename, {}
            self._m, self._used = mmap.mmap(-1, FIRST_BYTES), 8
            self._capacity = FIRST_BYTES
            self._do_without(error)

    def _init_value(self, key: str) -> None:
        needed = self._used + len(key.encode()) + _FRAME_BYTES
        if needed > self._capacity:
            self._grow(2 * max(self._capacity, needed))
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, n_bytes: int) -> None:
        grown: mmap.mmap | None = None
        if self._is_shared:
            try:
                _reserve(self._f.fileno(), n_bytes)
                grown = mmap.mmap(self._f.fileno(), n_bytes)
            except OSError as error:
                self._f.close()
                self._do_without(error)
        if grown is None:
            grown = mmap.mmap(-1, n_bytes)
            grown[: self._used] = self._m[: self._used]
        self._m, self._capacity = grown, n_bytes

    def close(self) -> None:
        """Let go of the file, or of the memory."""
        if self._is_shared:
            super().close()  # type: ignore[no-untyped-call]
        else:
            self._m.close()

    def _do_without(self, error: OSError) -> None:
        self._is_shared = False
        with contextlib.suppress(OSError):
            Path(self._fname).unlink()  # half of it would be read as numbers that stand still
        log.warning(
            "%s cannot be written (%s): /metrics goes on without these numbers of this process. "
            "Make room, or set PROMETHEUS_MULTIPROC_DIR to a folder that has some, and restart.",
            self._fname,
            error.strerror,
        )


def _make_reserved(path: Path) -> None:
    """Have a file at `path` with every block reserved.

    Another process reads whatever has that name, at any moment: the file gets it when it is whole.
    """
    if path.exists():  # of a process before this one with the same pid; its numbers go on
        with path.open("ab") as file:
            _reserve(file.fileno(), max(FIRST_BYTES, os.fstat(file.fileno()).st_size))
        return
    unnamed = path.with_suffix(".new")
    try:
        with unnamed.open("wb") as file:
            _reserve(file.fileno(), FIRST_BYTES)
        unnamed.rename(path)
    finally:
        unnamed.unlink(missing_ok=True)


def _reserve(descriptor: int, n_bytes: int) -> None:
    if sys.platform == "darwin":  # it has no such call
        os.ftruncate(descriptor, n_bytes)
    else:
        os.posix_fallocate(descriptor, 0, n_bytes)
