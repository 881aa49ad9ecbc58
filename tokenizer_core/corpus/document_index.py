"""Where the documents of token files are: our file of document ends, and Megatron's `.idx`.

Each end is a u64: the number of ids in the split up to the end of the document. Finding one
document reads 16 bytes.

NVIDIA/Megatron-LM's `megatron/core/datasets/indexed_dataset.py` (`_IndexWriter`, `_IndexReader`)
defines the `.idx`: the magic `MMIDIDX\\0\\0`, u64 version 1, u8 dtype code (uint16 is 8, int32 is
4), u64 number of sequences, u64 number of document indices; then the int32 length of each sequence,
its int64 offset in bytes, and int64 document indices: 0, and for each document the sequence that it
ends before. We write one sequence for each document.

All numbers are little-endian. Both files are read and written in pieces, so that millions of
documents need little memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.errors import TokenFilesCorruptError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MAX_DOCUMENT_TOKENS: Final = (1 << 31) - 1
"""Lengths are int32."""

_HEADER: Final = struct.Struct("<9sQBQQ")
_MAGIC: Final = b"MMIDIDX\0\0"
_VERSION: Final = 1
_DTYPE_CODES: Final = {"uint16": 8, "int32": 4}
_PIECE: Final = 1 << 16
_END_BYTES: Final = 8

Lengths = Callable[[], "Iterator[NDArray[np.int64]]"]


def iterate_ends(path: Path, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
    """The ends of documents `start` to `stop` (excluded), in order and in pieces."""
    with path.open("rb") as file:
        file.seek(start * _END_BYTES)
        for first in range(start, stop, _PIECE):
            count = min(_PIECE, stop - first)
            data = file.read(count * _END_BYTES)
            if len(data) != count * _END_BYTES:
                raise TokenFilesCorruptError(
                    f"{path.name} ends before document {stop}; write the token files anew"
                )
            yield np.frombuffer(data, dtype="<u8").astype(np.int64)


def iterate_lengths(
    path: Path, start: int, stop: int, *, begin: int = 0
) -> Iterator[NDArray[np.int64]]:
    """The lengths, in ids, of documents `start` to `stop` (excluded), in pieces.

    `begin` is the position where document `start` begins.

    Raises:
        TokenFilesCorruptError: a document ends before it begins.
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
    """The begin and end of document `index`, in ids of its split; reads 16 bytes."""
    pieces = list(iterate_ends(path, max(0, index - 1), index + 1))
    ends = [int(end) for piece in pieces for end in piece]
    return (0 if index == 0 else ends[0]), ends[-1]


def render_megatron_index(
    n_documents: int, lengths: Lengths, dtype: np.dtype[Any]
) -> Iterator[bytes]:
    """The bytes of an `.idx`, in pieces.

    `lengths()` yields the number of tokens of each document, (n,) int64, in pieces of any size; it
    is called twice. `dtype` is the dtype of the ids in the `.bin`.
    """
    yield _HEADER.pack(_MAGIC, _VERSION, _DTYPE_CODES[dtype.name], n_documents, n_documents + 1)
    for piece in lengths():
        yield piece.astype("<i4").tobytes()
    begin = 0
    for piece in lengths():
        ends = begin + np.cumsum(piece, dtype=np.int64) * dtype.itemsize
        yield (ends - piece * dtype.itemsize).astype("<i8").tobytes()
        begin = int(ends[-1])
    for start in range(0, n_documents + 1, _PIECE):
        yield np.arange(start, min(start + _PIECE, n_documents + 1), dtype="<i8").tobytes()


def check_megatron_header(path: Path, dtype: np.dtype[Any]) -> int:
    """The number of documents of an `.idx`, after checking its header and size.

    Raises:
        TokenFilesCorruptError: magic, version, dtype code or size is wrong.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(_HEADER.size)
    if len(data) == _HEADER.size:
        magic, version, code, n_sequences, n_indices = _HEADER.unpack(data)
        found = (magic, version, code, n_indices)
        size_bytes = _HEADER.size + 12 * n_sequences + 8 * n_indices
        if found == (_MAGIC, _VERSION, _DTYPE_CODES[dtype.name], n_sequences + 1) and (
            path.stat().st_size == size_bytes
        ):
            return int(n_sequences)
    raise TokenFilesCorruptError(
        f"{path.name} is no Megatron index of {dtype.name} ids; write the token files anew"
    )
