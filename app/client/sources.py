"""Sources: what a long body is made of (a file, bytes, an iterable), read piece by piece.

Never in memory whole. Counts what was taken, for progress and because a stream may be sent again
only where that gives the same bytes. Imports nothing of the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
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
        self._is_begun = False

    @property
    def is_repeatable(self) -> bool:
        """Whether it would give the same from the beginning."""
        return isinstance(self._given, bytes | os.PathLike) or not self._is_begun

    @property
    def size_bytes(self) -> int | None:
        """How much there is, where it is known before."""
        if isinstance(self._given, bytes):
            return len(self._given)
        if isinstance(self._given, os.PathLike):
            return Path(self._given).stat().st_size
        return None

    def pieces(self) -> Iterator[bytes]:
        """The bytes, read as they are asked for."""
        if isinstance(self._given, AsyncIterable):
            raise TypeError("an async iterable needs AsyncTokenizerClient")
        size_bytes = self._begin()
        for piece in self._read():
            self._note(piece, size_bytes)
            yield piece

    async def pieces_async(self) -> AsyncIterator[bytes]:
        """As `pieces`; files are read in a thread, and what an async iterable gives is not kept
        until there is more."""
        size_bytes = self._begin()
        if isinstance(self._given, AsyncIterable):
            async for item in self._given:
                if piece := self._render(item):
                    self._note(piece, size_bytes)
                    yield piece
            return
        with contextlib.closing(self._read()) as pieces:
            while piece := await self._next(pieces):
                self._note(piece, size_bytes)
                yield piece

    async def _next(self, pieces: Generator[bytes, None, None]) -> bytes:
        if isinstance(self._given, os.PathLike) or hasattr(self._given, "read"):
            return await asyncio.to_thread(next, pieces, b"")
        return next(pieces, b"")

    def _begin(self) -> int | None:
        self._is_begun = True
        self.n_bytes = 0
        return self.size_bytes

    def _note(self, piece: bytes, size_bytes: int | None) -> None:
        self.n_bytes += len(piece)
        if self._on_progress is not None:
            self._on_progress(self.n_bytes, size_bytes)

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
