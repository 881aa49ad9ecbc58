"""Sources: what a long body is made of (a file, bytes, an iterable), read piece by piece.

Never in memory whole. Counts what was taken, for progress and because a stream may be sent again
only where that gives the same bytes. Imports nothing of the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

PIECE_BYTES: Final = 1 << 18

Item = TypeVar("Item")


class ReadableFile(Protocol):
    """A file that was opened for reading bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, none at the end."""
        ...


Given: TypeAlias = os.PathLike[str] | ReadableFile | bytes | Iterable[Item] | AsyncIterable[Item]
"""What a body may be made of. Items of an async iterable are sent as they come, others are joined
into pieces; async iterables are for the async client."""


class Source:
    """The bytes of something given, in pieces.

    `render` makes the bytes of an item of an iterable; `on_progress` is told, after each piece, how
    many bytes were taken and how many there are (None where nobody knows).

    Raises:
        TypeError: a str, which could be a path as well as a text.
        OSError: there is no such file.
    """

    def __init__(
        self,
        given: Given[Any],
        render: Callable[[Any], bytes],
        *,
        on_progress: Callable[[int, int | None], object] | None = None,
    ) -> None:
        if isinstance(given, str):
            raise TypeError("a str may be a path or a text: give Path(...), or text.encode()")
        self._given, self._render, self._on_progress = given, render, on_progress
        self.n_bytes = 0
        """Taken since the last beginning."""
        self.size_bytes = _size_of(given)
        """How much there is, where it is known before."""
        self._is_begun = False

    @property
    def is_repeatable(self) -> bool:
        """Whether it would give the same from the beginning."""
        return self.size_bytes is not None or not self._is_begun

    def pieces(self) -> Generator[bytes, None, None]:
        """The bytes, read as they are asked for.

        Raises:
            ValueError: a file has grown or shrunk since it was measured.
        """
        if isinstance(self._given, AsyncIterable):
            raise TypeError("an async iterable needs AsyncTokenizerClient")
        self._begin()
        with contextlib.closing(self._read()) as pieces:
            for piece in pieces:
                self._note(piece)
                yield piece
        self._end()

    async def pieces_async(self) -> AsyncGenerator[bytes, None]:
        """As `pieces`; files are read in a thread, and what an async iterable gives is not kept
        until there is more."""
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
            # Where a thread is still reading after a cancellation, the last reference closes it.
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
            yield from iter(lambda: given.read(PIECE_BYTES), b"")
        else:
            yield from _join(self._render(item) for item in given)


def _size_of(given: Any) -> int | None:
    if isinstance(given, os.PathLike):
        status = Path(given).stat()
        return status.st_size if stat.S_ISREG(status.st_mode) else None  # a pipe has no size
    return len(given) if isinstance(given, bytes) else None


def render_text(item: str | bytes) -> bytes:
    """A piece of text as UTF-8; bytes as they are, which may end inside a character."""
    return item.encode() if isinstance(item, str) else item


def _join(items: Iterator[bytes]) -> Iterator[bytes]:
    """Small items together: each piece costs a chunk on the wire and work on both sides."""
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
