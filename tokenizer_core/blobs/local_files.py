"""Calls on local files that differ between POSIX and Windows.

Windows has no `pread`, opens no folder, and translates line ends unless a flag says otherwise. The
library asks for these differences here, and for those of locks in `locks`.
"""

from __future__ import annotations

import importlib
import os
import threading
from pathlib import Path
from typing import Any, Final

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

HAS_OPEN_FOLDERS: Final = os.open in os.supports_dir_fd
"""Whether the system opens folders, and files relative to an open folder."""

HAS_SEALED_MEMORY: Final = hasattr(os, "memfd_create")
"""Whether the system has memory that nobody can change (Linux)."""

BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""The flag for `os.open` without which Windows changes line ends."""

NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""The flag for `os.open` that refuses a symbolic link; 0 on Windows."""

# Without O_NONBLOCK, opening a FIFO would wait for a writer.
READ: Final[int] = os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0)
FOLDER: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)

Folder = int | Path
"""An open folder: its descriptor, on Windows its path."""

_position_lock = threading.Lock()


def user_cache_folder() -> Path:
    """The folder of this program in the user's cache, by the XDG rules: a relative path in
    XDG_CACHE_HOME counts as none.

    Raises:
        RuntimeError: the user has no home folder.
    """
    above = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not above.is_absolute():
        above = Path.home() / ".cache"
        if os.environ.get("HOME") == "":  # `Path.home` would be the root of the file system
            raise RuntimeError("HOME is empty")
    return above / "tokenizer-service"


def open_to_read(path: str | os.PathLike[str]) -> int:
    """A descriptor of the file at `path`. Opening a FIFO or a device does not wait.

    Raises:
        OSError: the file cannot be opened.
    """
    return os.open(path, READ)


def read_at(descriptor: int, n_bytes: int, position: int) -> bytes:
    """At most `n_bytes` bytes of an open file from `position` on, as `os.pread`.

    On Windows this moves the position of the open file: only this function may read the file, in
    any number of threads.
    """
    if hasattr(os, "pread"):
        return os.pread(descriptor, n_bytes, position)
    with _position_lock:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, n_bytes)


def sealed_copy(content: int | bytes) -> int:
    """A descriptor of memory with `content`, bytes or those of an open file, which nobody can
    change, not even this process. Requires HAS_SEALED_MEMORY.

    Raises:
        OSError: the file cannot be read, or the memory is full.
    """
    copy = os.memfd_create("tokenizer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        if isinstance(content, bytes):
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(copy, rest) :]
        else:
            position, size = 0, os.fstat(content).st_size
            while n_sent := os.sendfile(copy, content, position, size - position):
                position += n_sent
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _seals())
    except BaseException:
        os.close(copy)
        raise
    return copy


def is_sealed(descriptor: int) -> bool:
    """Whether nobody can change the open file."""
    try:
        seals: int = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # no memory
        return False
    return seals & _seals() == _seals()


def _seals() -> int:
    return int(fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def system_file(descriptor: int) -> int:
    """What compiled code calls the open file: its descriptor, on Windows its handle."""
    try:
        windows: Any = importlib.import_module("msvcrt")
    except ImportError:
        return descriptor
    return int(windows.get_osfhandle(descriptor))
