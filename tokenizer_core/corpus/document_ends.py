"""The document index: for each document of a split, the number of ids up to its end, as u64.

A plain file of numbers, read in pieces: finding one document reads 16 bytes, and checking all of
them needs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.errors import TokenFilesCorruptError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_PIECE: Final = 1 << 16
_BYTES: Final = 8


def iterate_ends(path: Path, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
    """The ends of documents `start` to `stop` (not included), in order and in pieces."""
    with path.open("rb") as file:
        file.seek(start * _BYTES)
        for first in range(start, stop, _PIECE):
            count = min(_PIECE, stop - first)
            data = file.read(count * _BYTES)
            if len(data) != count * _BYTES:
                raise TokenFilesCorruptError(
                    f"{path.name} ends before document {stop}; write the token files anew"
                )
            yield np.frombuffer(data, dtype="<u8").astype(np.int64)


def iterate_lengths(
    path: Path, start: int, stop: int, *, begin: int = 0
) -> Iterator[NDArray[np.int64]]:
    """The numbers of ids of documents `start` to `stop` (not included), in pieces.

    `begin` is where document `start` begins.

    Raises:
        TokenFilesCorruptError: a document would end before it begins.
    """
    for ends in iterate_ends(path, start, stop):
        lengths = np.diff(ends, prepend=begin)
        if lengths.min() < 0:
            raise TokenFilesCorruptError(
                f"{path.name} goes back: a document ends before it begins; write the token files "
                f"anew"
            )
        yield lengths
        begin = int(ends[-1])


def document_range(path: Path, index: int) -> tuple[int, int]:
    """Where document `index` begins and ends, in ids of its split; reads 16 bytes."""
    pieces = list(iterate_ends(path, max(0, index - 1), index + 1))
    ends = [int(end) for piece in pieces for end in piece]
    return (0 if index == 0 else ends[0]), ends[-1]
