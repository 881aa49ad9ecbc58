"""SavedCounts: the counts in a file of counts, read from the disk each time they are gone through.

What prunes or copies counts needs no more of them at a time; the file may be larger than memory.
Its format is `pretoken_counts`'; here are its three columns, which lie one after the other and are
read side by side.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import stat
import sys
from array import array
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import IO, Any, Final

from tokenizer_core.errors import FormatError

_BATCH: Final = 1 << 16
_TEXT_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 4
_COUNT_BYTES: Final = 8
_DIGEST_BYTES: Final = 32


class SavedCounts(Mapping[str, int]):
    """Pre-token -> occurrences, of `n_entries` entries whose columns begin at byte `start`.

    Sorted, and equal to a dict of the same entries. Asked for a single entry it makes that dict.

    Raises:
        ValueError: while it is gone through: the columns do not fit together, the pre-tokens do
            not rise, or one is never counted.
    """

    def __init__(self, file: IO[bytes], start: int, n_entries: int, text_bytes: int) -> None:
        self._file, self._start = file, start
        self._n_entries, self._text_bytes = n_entries, text_bytes
        self._dict: dict[str, int] | None = None

    def items(self) -> ItemsView[str, int]:
        """The entries in the order of the pre-tokens."""
        return _Items(self)

    def values(self) -> ValuesView[int]:
        """The occurrences in the order of the pre-tokens."""
        return _Values(self)

    def __iter__(self) -> Iterator[str]:
        return (pre_token for pre_token, _ in self.entries())

    def __len__(self) -> int:
        return self._n_entries

    def __getitem__(self, pre_token: str) -> int:
        if self._dict is None:
            self._dict = dict(self.entries())
        return self._dict[pre_token]

    def entries(self) -> Iterator[tuple[str, int]]:
        """The entries, read from the file."""
        counts_start = self._start + _LENGTH_BYTES * len(self)
        text = _Text(self._file, counts_start + _COUNT_BYTES * len(self), self._text_bytes)
        before = ""
        for first in range(0, len(self), _BATCH):
            n = min(_BATCH, len(self) - first)
            lengths = self._read("I", self._start + _LENGTH_BYTES * first, n)
            counts = self._read("Q", counts_start + _COUNT_BYTES * first, n)
            joined, place = text.read(sum(lengths)), 0
            for length, count in zip(lengths, counts, strict=True):
                pre_token = joined[place : place + length]
                if pre_token <= before or not count:
                    raise ValueError("a pre-token is empty, repeated, out of order or not counted")
                yield pre_token, count
                before, place = pre_token, place + length
        text.finish()

    def _read(self, typecode: str, place: int, n: int) -> array[int]:
        values = array(typecode)
        values.frombytes(os.pread(self._file.fileno(), n * values.itemsize, place))
        if len(values) != n:
            raise ValueError("the file has become shorter")
        if sys.byteorder == "big":
            values.byteswap()
        return values


class _Items(ItemsView[str, int]):
    _mapping: SavedCounts

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return self._mapping.entries()


class _Values(ValuesView[int]):
    _mapping: SavedCounts

    def __iter__(self) -> Iterator[int]:
        return (count for _, count in self._mapping.entries())


class _Text:
    """The last column: UTF-8, of which so many characters are read at a time."""

    def __init__(self, file: IO[bytes], place: int, n_bytes: int) -> None:
        self._file, self._place, self._end = file, place, place + n_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._ahead = ""

    def read(self, n_chars: int) -> str:
        """The next characters; ValueError where there are not so many."""
        parts, n_there = [self._ahead], len(self._ahead)
        while n_there < n_chars:
            size = min(_TEXT_BYTES, self._end - self._place)
            data = os.pread(self._file.fileno(), size, self._place)
            if not data:
                raise ValueError("the pre-tokens do not add up to the text")
            self._place += len(data)
            parts.append(self._decoder.decode(data, final=self._place == self._end))
            n_there += len(parts[-1])
        joined = "".join(parts)
        self._ahead = joined[n_chars:]
        return joined[:n_chars]

    def finish(self) -> None:
        """Raise ValueError unless all was read."""
        if self._ahead or self._place != self._end:
            raise ValueError("the pre-tokens do not add up to the text")


def open_regular(path: str) -> IO[bytes]:
    """An open file that can be read at any place.

    Raises:
        FormatError: it is no regular file.
        OSError: it cannot be opened.
    """
    # O_NONBLOCK: opening a FIFO nobody writes to must not wait for a writer.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FormatError(f"{path!r:.200} is not a regular file; give the path of a file")
    return file


def read_saved_counts(file: IO[bytes], magic: bytes) -> tuple[dict[str, Any], SavedCounts]:
    """The header and the counts of a file that begins with `magic`, hashed to its end before.

    Raises:
        ValueError: it is damaged or cut short.
    """
    size = os.fstat(file.fileno()).st_size
    header_start = len(magic) + 8
    head = os.pread(file.fileno(), header_start, 0)
    header_end = header_start + int.from_bytes(head[len(magic) :], "little")
    if header_end + _DIGEST_BYTES > size or not _is_sound(file, size - _DIGEST_BYTES):
        raise ValueError("the file does not have the hash it should have")
    header = json.loads(os.pread(file.fileno(), header_end - header_start, header_start))
    n_distinct, text_bytes = header["n_distinct"], header["text_bytes"]
    if not type(n_distinct) is type(text_bytes) is int or n_distinct < 0 or text_bytes < 0:
        raise ValueError("a size is no whole number, 0 or above")
    columns_bytes = (_LENGTH_BYTES + _COUNT_BYTES) * n_distinct + text_bytes
    if header_end + columns_bytes + _DIGEST_BYTES != size:
        raise ValueError("the lengths do not add up")
    return header, SavedCounts(file, header_end, n_distinct, text_bytes)


def _is_sound(file: IO[bytes], end: int) -> bool:
    digest = hashlib.sha256()
    for place in range(0, end, _TEXT_BYTES):
        digest.update(os.pread(file.fileno(), min(_TEXT_BYTES, end - place), place))
    return os.pread(file.fileno(), _DIGEST_BYTES, end) == digest.digest()
