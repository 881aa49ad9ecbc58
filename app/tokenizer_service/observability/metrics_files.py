"""Metrics files: store the metrics of each process, also on a full disk.

`prometheus_client` maps sparse files. On a disk without a free block, the first access to a page
ends the process with SIGBUS, and every restarted process dies the same way. This module reserves
the blocks before it maps a file. If that fails, the process continues without the file, and its
values are missing from `/metrics`.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
from pathlib import Path
from typing import Final

from prometheus_client.mmap_dict import MmapedDict

from tokenizer_core.blobs.atomic_files import replacing

log = logging.getLogger("tokenizer_service.observability.metrics")

FIRST_BYTES: Final = 1 << 16
"""Size of a new file; a full file doubles."""

_FRAME_BYTES: Final = 64  # more than the library adds to a key


class ReservedFile(MmapedDict):
    """The library's file of values with all blocks reserved, or memory if the disk is full. The
    library must know it before the first metric is made."""

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        self._is_shared = True
        try:
            _make_reserved(Path(filename))
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]
        except FileNotFoundError:
            raise  # the folder is missing: a wrong setting, not a failing disk
        except OSError as error:
            self._fname, self._positions = filename, {}
            self._m, self._used = mmap.mmap(-1, FIRST_BYTES), 8
            self._capacity = FIRST_BYTES
            self._use_memory(error)

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
                self._use_memory(error)
        if grown is None:
            grown = mmap.mmap(-1, n_bytes)
            grown[: self._used] = self._m[: self._used]
        self._m, self._capacity = grown, n_bytes

    def close(self) -> None:
        """Close the file, or free the memory."""
        if self._is_shared:
            super().close()  # type: ignore[no-untyped-call]
        else:
            self._m.close()

    def _use_memory(self, error: OSError) -> None:
        self._is_shared = False
        with contextlib.suppress(OSError):
            Path(self._fname).unlink()  # or other processes would read its last values for ever
        log.warning(
            "%s cannot be written (%s): /metrics goes on without these numbers of this process. "
            "Make room, or set PROMETHEUS_MULTIPROC_DIR to a folder that has some, and restart.",
            self._fname,
            error.strerror,
        )


def _make_reserved(path: Path) -> None:
    """Create a file at `path` with all blocks reserved.

    Other processes may read `path` at any moment, so only a complete file gets this name.
    """
    if path.exists():  # from an earlier process with this pid; its values continue
        with path.open("ab") as file:
            _reserve(file.fileno(), max(FIRST_BYTES, os.fstat(file.fileno()).st_size))
        return
    with replacing(path, staged=path.with_suffix(".new")) as unnamed, unnamed.open("wb") as file:
        _reserve(file.fileno(), FIRST_BYTES)


def _reserve(descriptor: int, n_bytes: int) -> None:
    if sys.platform == "darwin":  # macOS has no such call
        os.ftruncate(descriptor, n_bytes)
    else:
        os.posix_fallocate(descriptor, 0, n_bytes)
