"""Read a file whole under a size cap; write a file whole or not at all.

`read_whole_file` follows symbolic links, because a user's path may be one; `read_file_in` refuses
them.

Every writer that must not leave half a file uses this module. `write_whole_file` and
`replace_synced` write bytes; `replacing` is for callers that fill the file themselves. The crash
and fault tests replace the functions of `os` that this module calls, one by one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tokenizer_core.blobs.local_files import (
    BINARY,
    FOLDER,
    HAS_OPEN_FOLDERS,
    NO_LINK,
    READ,
    Folder,
    open_to_read,
)
from tokenizer_core.errors import FormatError

_BLOCK_BYTES: Final = 1 << 20


def read_whole_file(path: str | os.PathLike[str], *, max_bytes: int) -> bytes:
    """All bytes of a regular file of at most `max_bytes` bytes.

    It refuses FIFOs and devices, which may block or never end, and files that grow while it reads.

    Raises:
        FormatError: not a regular file, larger than `max_bytes`, or a pointer of Git LFS.
        OSError: it cannot be opened or read.
    """
    name = repr(os.fspath(path))
    data = _read_whole(open_to_read(path), name, max_bytes)
    if data.startswith(b"version https://git-lfs"):
        raise FormatError(f"{name} is a pointer of Git LFS; fetch its content with git lfs pull")
    return data


@contextlib.contextmanager
def open_folder(path: Path, *parts: str) -> Iterator[Folder]:
    """The open folder `path/parts...`; `path` may be a symbolic link, no part may.

    Raises:
        FileNotFoundError: the folder does not exist.
        FormatError: a part is a symbolic link or not a folder.
    """

    def refused(part: str) -> FormatError:
        return FormatError(f"{'/'.join(parts)}: {part} is a symbolic link or not a folder")

    if not HAS_OPEN_FOLDERS:
        for part in parts:
            path = path / part
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise refused(part)
        yield path
        return
    descriptor = os.open(path, FOLDER)
    try:
        for part in parts:
            try:
                inner = os.open(part, FOLDER | NO_LINK, dir_fd=descriptor)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise refused(part) from None
                raise
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def read_file_in(folder: Folder, name: str, *, max_bytes: int) -> bytes:
    """All bytes of the regular file `name` in an open folder.

    Raises:
        FormatError: missing, a symbolic link, not a regular file, or larger than `max_bytes`.
        OSError: reading failed.
    """
    try:
        if isinstance(folder, int):
            descriptor = os.open(name, READ | NO_LINK, dir_fd=folder)
        elif (folder / name).is_symlink():
            raise FormatError(f"{name} is a symbolic link")
        else:
            descriptor = open_to_read(folder / name)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise FormatError(f"{name} is missing") from None
        if error.errno == errno.ELOOP:
            raise FormatError(f"{name} is a symbolic link") from None
        raise
    return _read_whole(descriptor, name, max_bytes)


def require_regular(descriptor: int, shown: str) -> None:
    """Close `descriptor` and raise FormatError, which names `shown`, if it is no regular file."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise FormatError(f"{shown} is {kind}; give the path of a file")


def _read_whole(descriptor: int, shown: str, max_bytes: int) -> bytes:
    require_regular(descriptor, shown)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_size <= max_bytes:
            data = file.read(status.st_size + 1)
            if len(data) != status.st_size:
                raise FormatError(f"{shown} changed while it was read; try again")
            return data
    raise FormatError(
        f"{shown} is larger than {max_bytes} bytes, the most a file of this kind may have"
    )


@contextlib.contextmanager
def replacing(path: Path, *, staged: Path | None = None) -> Iterator[Path]:
    """A path in the same folder for the new file, which replaces `path` when the block ends.

    If the block fails, the new file is removed and `path` is untouched; an error of the system
    about the new file names `path`, which the user knows. The caller syncs what must
    survive a power cut. The new file has a random name, so that several processes may write at
    once. A caller that holds a lock may pass a fixed path on the same volume instead, so that
    crashes leave at most one file.
    """
    # Choose the name before the file exists, so that the clean-up after Ctrl-C knows it.
    staged = staged or path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        yield staged
        staged.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename == os.fspath(staged):
            error.filename = os.fspath(path)
            del error.filename2  # of a rename: `path`, too
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        raise


def write_whole_file(
    path: str | os.PathLike[str], data: bytes | Iterable[bytes], *, mode: int = 0o666
) -> None:
    """Write `data`, or its parts in order, to `path`.

    A crash leaves the old file or the new one, never a part. The umask applies to `mode`. A link
    stays, and the file that it names is replaced. Devices and named pipes are written directly.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full; `path` is untouched.
    """
    if is_stream(Path(path)):
        with Path(path).open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
        return
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():  # or the error would name the file with a random name
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(target.parent))
    with replacing(target) as staged:
        write_synced(staged, data, mode=mode)


def check_size(data: bytes, max_bytes: int, what: str) -> bytes:
    """`data`; raises FormatError for a file that `read_whole_file` with this limit would refuse."""
    if len(data) > max_bytes:
        raise FormatError(
            f"{what} would have {len(data)} bytes, more than the {max_bytes} that can be read again"
        )
    return data


def is_stream(path: Path) -> bool:
    """Whether there is a device or a pipe at `path`, which a file must not replace."""
    return path.exists() and not (path.is_file() or path.is_dir())


def replace_synced(path: Path, data: bytes) -> None:
    """Write `data` to `path`; both the file and its entry in the folder survive a power cut.

    A crash leaves the old content or the new one. The caller holds a lock: the staged name is
    always the same, and a leftover is removed first.

    Raises:
        OSError: the disk refuses; `path` is untouched unless only the last sync failed.
    """
    staged = path.with_name(f".{path.name}.new")
    with replacing(path, staged=staged):
        staged.unlink(missing_ok=True)
        write_synced(staged, data)
    sync_folder(path.parent)


def write_synced(path: Path, data: bytes | Iterable[bytes], *, mode: int = 0o644) -> None:
    """Create `path` with `data`, or its parts in order, synced to the disk.

    Raises:
        OSError: the file exists already, or could not be written whole.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
    try:
        for block in [data] if isinstance(data, bytes) else _blocks(data):
            view = memoryview(block)
            while view:
                view = view[os.write(descriptor, view) :]
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def sync_file(descriptor: int) -> None:
    """Sync an open file to the disk.

    A failed fsync is final: the kernel may have dropped the pages, so a second fsync that succeeds
    proves nothing.
    """
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Sync the folder's entries to the disk: without this a rename may not survive a power cut.

    Windows has no such call.
    """
    if not HAS_OPEN_FOLDERS:
        return
    descriptor = os.open(path, FOLDER)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def create_synced(path: Path, data: bytes) -> bool:
    """Create `path` with `data`; return False and change nothing if it exists.

    The file and its entry survive a power cut. Nobody sees the file without its data.

    Raises:
        OSError: the folder is missing or not writable, or the disk is full.
    """
    staged = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        write_synced(staged, data)
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(staged)
            return True
        return False
    finally:
        staged.unlink(missing_ok=True)
        sync_folder(path.parent)


def remove_synced(path: Path) -> None:
    """Remove a file if it exists; it does not come back after a power cut."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Make `path` and its missing parents, each entry synced to the disk.

    The umask applies to `mode`, the permissions of each new folder.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode)
        sync_folder(folder.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with its content as far as possible; the caller tries again later."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _blocks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks, so that many small parts need few system calls."""
    block = bytearray()
    for part in parts:
        block += part
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)
