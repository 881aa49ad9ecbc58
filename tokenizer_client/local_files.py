"""Sources of request bodies, and the files that a download writes.

A source is a file, bytes or an iterable; it is read in pieces and never loaded as a whole. A
`PartialFile` appears under its name only once it is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Protocol, TypeAlias, TypeVar

try:
    import fcntl
except ImportError:  # Windows
    _HAS_FCNTL = False
else:
    _HAS_FCNTL = True

PIECE_BYTES: Final = 1 << 18
_HASHED_BYTES: Final = 1 << 20

Item = TypeVar("Item")


Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes done and the total bytes (None if unknown)."""


class ReadableFile(Protocol):
    """A file opened for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, b"" at the end."""
        ...


Given: TypeAlias = os.PathLike[str] | ReadableFile | bytes | Iterable[Item] | AsyncIterable[Item]
"""The possible sources of a body. The client sends each item of an async iterable immediately, and
joins the items of other iterables into pieces. Only `AsyncClient` accepts async iterables."""


class Source:
    """The bytes of a body, in pieces.

    `render` turns an item of an iterable into bytes. `on_progress` is called after each piece with
    the bytes read so far and the total bytes (None if unknown).

    Raises:
        TypeError: a str, which could be a path as well as a text, or no source at all.
        OSError: the file does not exist.
    """

    def __init__(
        self,
        given: Given[Any],
        render: Callable[[Any], bytes],
        *,
        on_progress: Progress | None = None,
    ) -> None:
        if isinstance(given, str):
            raise TypeError("a str may be a path or a text: give Path(...), or text.encode()")
        if isinstance(given, bytearray | memoryview):
            given = bytes(given)
        if not (
            isinstance(given, os.PathLike | Iterable | AsyncIterable) or hasattr(given, "read")
        ):
            kind = type(given).__name__
            raise TypeError(f"give a Path, an open file, bytes or an iterable, not {kind}")
        self._given, self._render, self._on_progress = given, render, on_progress
        self.n_bytes = 0
        """Bytes read since the last start from the beginning."""
        self.size_bytes = _size_of(given)
        """Total bytes, if known in advance."""
        self._is_begun = False

    @property
    def is_repeatable(self) -> bool:
        """Whether the source can be read again from the beginning."""
        return self.size_bytes is not None or not self._is_begun

    def pieces(self) -> Generator[bytes, None, None]:
        """Read the bytes; raises ValueError if the size of the file has changed."""
        if isinstance(self._given, AsyncIterable):
            raise TypeError("an async iterable needs AsyncClient")
        self._begin()
        with contextlib.closing(self._read()) as pieces:
            for piece in pieces:
                self._note(piece)
                yield piece
        self._end()

    async def pieces_async(self) -> AsyncGenerator[bytes, None]:
        """Read the bytes: files in a thread, each item of an async iterable as it arrives."""
        self._begin()
        if isinstance(self._given, AsyncIterable):
            async for item in self._given:
                if piece := self._render(item):
                    self._note(piece)
                    yield piece
            return
        pieces = self._read()
        try:
            while piece := await self._next(pieces):
                self._note(piece)
                yield piece
        finally:
            # After a cancellation a thread may still be reading; the last reference then closes it.
            with contextlib.suppress(ValueError):
                pieces.close()
        self._end()

    async def _next(self, pieces: Generator[bytes, None, None]) -> bytes:
        if isinstance(self._given, os.PathLike) or hasattr(self._given, "read"):
            return await asyncio.to_thread(next, pieces, b"")
        return next(pieces, b"")

    def _begin(self) -> None:
        self._is_begun = True
        self.n_bytes = 0

    def _note(self, piece: bytes) -> None:
        self.n_bytes += len(piece)
        if self.size_bytes is not None and self.n_bytes > self.size_bytes:
            self._end()
        if self._on_progress is not None:
            self._on_progress(self.n_bytes, self.size_bytes)

    def _end(self) -> None:
        if self.size_bytes not in (None, self.n_bytes):
            raise ValueError("the file was written to while it was sent; send a copy")

    def _read(self) -> Generator[bytes, None, None]:
        given: Any = self._given
        if isinstance(given, bytes):
            for start in range(0, len(given), PIECE_BYTES):
                yield given[start : start + PIECE_BYTES]
        elif isinstance(given, os.PathLike):
            with Path(given).open("rb") as file:
                yield from iter(lambda: file.read(PIECE_BYTES), b"")
        elif hasattr(given, "read"):
            while piece := given.read(PIECE_BYTES):
                yield _require_bytes(piece, "open the file with mode 'rb'")
        else:
            yield from _join(self._render(item) for item in given)


def _size_of(given: Any) -> int | None:
    if isinstance(given, os.PathLike):
        status = Path(given).stat()
        return status.st_size if stat.S_ISREG(status.st_mode) else None  # a pipe has no size
    return len(given) if isinstance(given, bytes) else None


def render_text(item: str | bytes) -> bytes:
    """Encode text as UTF-8; return bytes, which may end inside a character, unchanged."""
    return item.encode() if isinstance(item, str) else _require_bytes(item, "give str or bytes")


def _require_bytes(piece: bytes, remedy: str) -> bytes:
    if not isinstance(piece, bytes):
        raise TypeError(f"a piece of the source is {type(piece).__name__}; {remedy}")
    return piece


def _join(items: Iterator[bytes]) -> Iterator[bytes]:
    """Join small items, because each piece costs a chunk on the wire and work on both sides."""
    held: list[bytes] = []
    n_held = 0
    for item in items:
        held.append(item)
        n_held += len(item)
        if n_held >= PIECE_BYTES:
            yield b"".join(held)
            held.clear()
            n_held = 0
    if n_held:
        yield b"".join(held)


class PartialFile:
    """A file written as `NAME.partial` and renamed once it is complete.

    It continues the partial file of an earlier attempt, even of another process, and hashes its
    content first. While another call or process writes the partial file, it writes one of its own,
    `NAME.RANDOM.partial`. Calls block.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(path.name + ".partial")
        file = _open_alone(self._partial)
        self._is_resumable = file is not None
        if file is None:
            self._partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
            file = self._partial.open("x+b")
        self._file = file
        self._sha256 = hashlib.sha256()
        self.n_bytes = 0
        self._file.seek(0)
        while piece := self._file.read(_HASHED_BYTES):
            self._note(piece)

    def write(self, data: bytes | bytearray) -> None:
        """Append `data`."""
        self._file.write(data)
        self._note(data)

    def restart(self) -> None:
        """Drop everything written so far."""
        self._file.seek(0)
        self._file.truncate()
        self._sha256, self.n_bytes = hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        """The sha256 (hex) of everything written so far."""
        return self._sha256.hexdigest()

    def publish(self) -> None:
        """Flush the file to the disk and rename it over `path`."""
        self._file.flush()
        os.fsync(self._file.fileno())
        with self._closing():
            self._partial.replace(self._path)

    def close(self) -> None:
        """Keep the partial file for a later attempt, unless no attempt would find it."""
        if self._is_resumable:
            self._file.close()
        else:
            self.discard()

    def discard(self) -> None:
        """Remove the partial file, unless it was published."""
        if self._file.closed:  # `publish` did; a file of this name is another call's
            return
        with self._closing():
            self._partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        """Close the file after the block, so that nobody else takes it before; on Windows, where
        an open file keeps its name, before the block."""
        if not _HAS_FCNTL:
            self._file.close()
        try:
            yield
        finally:
            self._file.close()

    def _note(self, data: bytes | bytearray) -> None:
        self._sha256.update(data)
        self.n_bytes += len(data)


def _open_alone(path: Path) -> IO[bytes] | None:
    """Open the file for appending, or make it, and lock it; None if somebody else has it locked.
    Windows has no such lock here."""
    while True:
        file = path.open("a+b")
        if not _HAS_FCNTL:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            return file  # the file system has no locks
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # renamed or removed before it was locked


def is_whole(path: Path, n_bytes: int, sha256: str) -> bool:
    """Whether a file is there and has this size and this hash."""
    if not path.is_file() or path.stat().st_size != n_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
