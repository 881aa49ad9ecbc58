"""Counts of the Python engine under a memory ceiling: sorted runs on the disk, added up as they are
read.

A table that comes to its share is written out in the order of its pre-tokens and emptied. At the
end the runs are merged into one, reading all of them at once and front to back; what comes of it is
a mapping that is read from the disk each time it is gone through. The compiled module has the same
of its own. Scratch files have no name, so whatever ends the process leaves none behind.

Apart from the counting because it knows nothing of corpora. Imports the standard library only.
"""

from __future__ import annotations

import heapq
import io
import os
import struct
import sys
import tempfile
from array import array
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

Entry = tuple[bytes, int]

MAX_RUNS: Final = 64
"""So many runs are made one, which bounds the open files."""

_ENTRY_BYTES: Final = 160
"""What an entry of a dict takes beside its key: its slot while the dict grows, and its number."""

_BUFFER_BYTES: Final = 1 << 16
_BATCH: Final = 1 << 14
_RECORD: Final = struct.Struct("<IQ")


class StoredCounts(Mapping[str, int]):
    """Pre-token -> occurrences in scratch files, sorted. Equal to a dict of the same entries.

    Going through it reads the files from their beginnings. Asked for a single entry it makes its
    dict. Pickled, it is a dict. The files are the columns of a file of counts: characters of each
    pre-token (u32, little-endian), the count of each (u64), and all of them joined, in UTF-8.
    """

    def __init__(self, entries: Iterable[Entry], folder: Path | None) -> None:
        """Write entries, which are in order, to files without names in a folder.

        Raises:
            OSError: the folder is full or cannot be used.
        """
        # They live as long as what is in them is needed.
        self._lengths, self._counts, self._text = (
            tempfile.TemporaryFile(buffering=_BUFFER_BYTES, dir=folder)  # noqa: SIM115
            for _ in range(3)
        )
        self._n_entries = self.n_pre_tokens = self.text_bytes = 0
        """Pre-tokens, repetitions included; UTF-8 bytes of them, each once."""
        self._entries: dict[str, int] | None = None
        rest = iter(entries)
        while batch := list(islice(rest, _BATCH)):
            self._write(batch)
        for file in (self._lengths, self._counts, self._text):
            file.flush()

    def _write(self, batch: Sequence[Entry]) -> None:
        pre_tokens = [pre_token for pre_token, _ in batch]
        numbers = [count for _, count in batch]
        text = b"".join(pre_tokens)
        plain = pre_tokens if text.isascii() else map(bytes.decode, pre_tokens)
        self._lengths.write(_little_endian(array("I", map(len, plain))).tobytes())
        self._counts.write(_little_endian(array("Q", numbers)).tobytes())
        self._text.write(text)
        self._n_entries += len(batch)
        self.n_pre_tokens += sum(numbers)
        self.text_bytes += len(text)

    def columns(self) -> tuple[Iterator[bytes], Iterator[bytes], Iterator[bytes]]:
        """The three columns, each in blocks."""
        return _blocks(self._lengths), _blocks(self._counts), _blocks(self._text)

    def items(self) -> ItemsView[str, int]:
        """The entries in the order of the pre-tokens."""
        return _Items(self)

    def values(self) -> ValuesView[int]:
        """The occurrences in the order of the pre-tokens."""
        return _Values(self)

    def entries(self) -> Iterator[tuple[str, int]]:
        """The entries, read from the files."""
        text = io.TextIOWrapper(_from_beginning(self._text), "utf-8", newline="")
        lengths, counts = _from_beginning(self._lengths), _from_beginning(self._counts)
        while block := lengths.read(4 * _BATCH):
            sizes = _little_endian(array("I", block))
            numbers = _little_endian(array("Q", counts.read(8 * len(sizes))))
            joined = text.read(sum(sizes))
            start = 0
            for size, number in zip(sizes, numbers, strict=True):
                yield joined[start : start + size], number
                start += size

    def __iter__(self) -> Iterator[str]:
        return (pre_token for pre_token, _ in self.entries())

    def __len__(self) -> int:
        return self._n_entries

    def __getitem__(self, pre_token: str) -> int:
        if self._entries is None:
            self._entries = dict(self.entries())
        return self._entries[pre_token]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self.entries()),)


class _Items(ItemsView[str, int]):
    _mapping: StoredCounts

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return self._mapping.entries()


class _Values(ValuesView[int]):
    _mapping: StoredCounts

    def __iter__(self) -> Iterator[int]:
        return (count for _, count in self._mapping.entries())


class CountTable:
    """Adds up counts in a dict of at most about `max_bytes`, and what is more on the disk."""

    def __init__(self, max_bytes: int | None = None, folder: Path | None = None) -> None:
        self._max_bytes = sys.maxsize if max_bytes is None else max_bytes
        self._folder = folder
        self._counts: dict[str, int] = {}
        self._bytes = 0
        self._runs: list[IO[bytes]] = []
        self.n_spills = 0
        """How often the dict was written to the disk."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Add these counts.

        Raises:
            OSError: the scratch folder is full or cannot be used.
        """
        table = self._counts
        for pre_token, count in counts.items():
            before = table.get(pre_token)
            if before is not None:
                table[pre_token] = before + count
                continue
            table[pre_token] = count
            self._bytes += sys.getsizeof(pre_token) + _ENTRY_BYTES
            if self._bytes > self._max_bytes:
                self._spill()
                table = self._counts

    def finish(self) -> Mapping[str, int]:
        """The sum of all that was added: the dict, where it never came to its share.

        Raises:
            OSError: the scratch folder is full or cannot be used.
        """
        if not self._runs:
            return self._counts
        self._spill()
        return StoredCounts(merge_runs(self._runs), self._folder)

    def _spill(self) -> None:
        counts, self._counts, self._bytes = self._counts, {}, 0
        self.n_spills += 1
        # The order of the characters is that of their bytes in UTF-8.
        self._runs.append(self._write((t.encode(), counts[t]) for t in sorted(counts)))
        if len(self._runs) >= MAX_RUNS:
            self._runs = [self._write(merge_runs(self._runs))]

    def _write(self, entries: Iterable[Entry]) -> IO[bytes]:
        # It lives as long as what is in it is needed.
        run = tempfile.TemporaryFile(buffering=_BUFFER_BYTES, dir=self._folder)  # noqa: SIM115
        for entry in entries:
            write_entry(run, entry)
        run.flush()
        return run


def write_entry(run: IO[bytes], entry: Entry) -> None:
    """Append an entry to a run: u32 length in bytes, u64 count, little-endian, the pre-token."""
    pre_token, count = entry
    run.write(_RECORD.pack(len(pre_token), count))
    run.write(pre_token)


def merge_runs(runs: Iterable[IO[bytes]]) -> Iterator[Entry]:
    """The entries of all runs in order, each pre-token once. Reads all of them at once."""
    entries = heapq.merge(*map(_read_run, runs))
    pre_token, count = next(entries, (b"", 0))
    for other, more in entries:
        if other == pre_token:
            count += more
        else:
            yield pre_token, count
            pre_token, count = other, more
    if pre_token:
        yield pre_token, count


def _read_run(run: IO[bytes]) -> Iterator[Entry]:
    file = _from_beginning(run)
    while record := file.read(_RECORD.size):
        length, count = _RECORD.unpack(record)
        yield file.read(length), count


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(partial(_from_beginning(file).read, _BUFFER_BYTES), b"")


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _from_beginning(file: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_FromBeginning(file), _BUFFER_BYTES)


class _FromBeginning(io.RawIOBase):
    """Reads a file from its beginning at a place of its own: several may read one at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file  # open as long as it is read
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_read = os.preadv(self._file.fileno(), [buffer], self._place)
        self._place += n_read
        return n_read
