"""Reading a file whole under a size cap, and writing one whole or not at all.

Every format needs both, and both are easy to get wrong: a FIFO or a device blocks or never ends, a
file may grow while it is read, a crash halfway leaves half a file.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from tokenizer_core.errors import FormatError


def read_whole_file(path: str | os.PathLike[str], *, max_bytes: int) -> bytes:
    """All bytes of a regular file of at most `max_bytes` bytes.

    Raises:
        FormatError: not a regular file, or larger than `max_bytes`.
        OSError: it cannot be opened or read.

    Example:
        >>> import tempfile; folder = tempfile.TemporaryDirectory()
        >>> file = Path(folder.name) / "small"; _ = file.write_bytes(b"abc")
        >>> read_whole_file(file, max_bytes=3)
        b'abc'
    """
    # O_NONBLOCK: opening a FIFO nobody writes to must not wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{_shown(path)} is not a regular file; give the path of a file")
        if status.st_size <= max_bytes:
            data = file.read(status.st_size + 1)
            if len(data) != status.st_size:
                raise FormatError(f"{_shown(path)} changed while it was read; try again")
            return data
    raise FormatError(
        f"{_shown(path)} is larger than {max_bytes} bytes, the most a file of this kind may have"
    )


def write_whole_file(path: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Write `data`, or its parts in order, to `path`.

    A crash leaves the old file or the new one, never a part.

    Raises:
        OSError: the folder is missing or not writable, the disk is full; `path` is untouched.
    """
    target = Path(path)
    # Named before it is there, so that Ctrl-C in the very moment it is made finds it, too.
    staged = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        staged.replace(target)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's umask. Reading it means setting it; 0o077 is the safe value meanwhile."""
    current = os.umask(0o077)
    os.umask(current)
    return current


def _shown(path: str | os.PathLike[str]) -> str:
    return repr(os.fspath(path))
