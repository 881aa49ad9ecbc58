"""Plain text cut at its separators as the bytes it is, for an engine that takes UTF-8.

It stands apart from `document_pieces` because nothing is decoded and no piece is cut to a size:
reading costs little more than hashing what was read. Stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Utf8Piece(NamedTuple):
    """A piece of a document as bytes, none ending within a character; the last one of each
    document `is_last`, which may hold nothing."""

    text: bytes
    is_last: bool


def split_utf8_text(
    blocks: Iterable[bytes], separator: bytes | None, max_bytes: int
) -> Iterator[Utf8Piece]:
    """The documents of a text that comes in blocks, cut anywhere; as `split_plain_text` has them,
    but the pieces end where the blocks do, or after `max_bytes`, and some bytes later. What is not
    UTF-8 stays what it is.

    Example:
        >>> [tuple(piece) for piece in split_utf8_text([b"a<", b"|>b", b"c<|>"], b"<|>", 100)]
        [(b'a', False), (b'', True), (b'b', False), (b'c', True)]
    """
    carried = b""
    is_open = separator is None
    for block in _no_longer_than(max_bytes, blocks):
        text = carried + block if carried else block
        if separator is not None:
            parts = text.split(separator)
            text = parts.pop()
            for part in parts:
                yield Utf8Piece(part, True)
            is_open = is_open and not parts
        n_carried = max(_separator_begun(text, separator), _character_begun(text))
        carried = text[len(text) - n_carried :]
        if len(text) > n_carried:
            yield Utf8Piece(text[: len(text) - n_carried], False)
            is_open = True
    if is_open or carried:
        yield Utf8Piece(carried, True)


def _no_longer_than(max_bytes: int, blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        if len(block) <= max_bytes:
            yield block
        else:
            for start in range(0, len(block), max_bytes):
                yield block[start : start + max_bytes]


def _separator_begun(text: bytes, separator: bytes | None) -> int:
    """How many of the last bytes may be the beginning of a separator."""
    if separator is not None:
        for size in range(min(len(separator) - 1, len(text)), 0, -1):
            if text.endswith(separator[:size]):
                return size
    return 0


def _character_begun(text: bytes) -> int:
    """How many of the last bytes are the beginning of a character whose end is still to come."""
    for size in range(1, min(3, len(text)) + 1):
        byte = text[-size]
        if byte >= 0xC0:
            return size if size < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        if byte < 0x80:
            break
    return 0
