"""Counts of pre-tokens: the same operations on all, and counts larger than memory.

Learning, saving, pruning and distributing need the same few operations on counts. `view` provides
them for any mapping:

    DictCounts     a dict in memory
    NativeCounts   packed by the compiled module (`engines.native_training`)
    FileCounts     three columns on the disk: scratch files, or the body of a saved file

The columns are the body of a file of counts, little-endian, sorted by pre-token:

    lengths   u32 per pre-token, its length in characters
    counts    u64 per pre-token
    text      all pre-tokens joined, UTF-8

`CountTable` adds up counts under a memory ceiling. When its dict reaches the ceiling, the table
writes it to disk as a sorted run and empties it. At the end it merges all runs into one
`FileCounts`, reading each run from front to back. Scratch files have no name, so the system removes
them when a process ends.
"""

from __future__ import annotations

import codecs
import heapq
import struct
import sys
import tempfile
from array import array
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from tokenizer_core.blobs.local_files import read_at
from tokenizer_core.engines.native_training import NativeCounts

Entry: TypeAlias = tuple[bytes, int]
"""A pre-token in UTF-8 and its occurrences."""

Columns: TypeAlias = tuple[Iterator[bytes], Iterator[bytes], Iterator[bytes]]
"""Lengths, counts and text, each in blocks of any size."""

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""`read_at(start, n_bytes)` returns these bytes of a file, or fewer at its end."""

MAX_RUNS: Final = 64
"""This many runs are merged into a single run, which bounds the number of open files."""

_LENGTH_BYTES: Final = 4
_COUNT_BYTES: Final = 8
_ENTRY_BYTES: Final = 160
"""Memory of a dict entry besides its key: its slot while the dict grows, and its number."""

_BATCH: Final = 1 << 16
_WRITE_BATCH: Final = 1 << 14
_TEXT_BYTES: Final = 1 << 20
_BUFFER_BYTES: Final = 1 << 16
_RECORD: Final = struct.Struct("<IQ")


def view(counts: Mapping[str, int]) -> DictCounts | FileCounts | NativeCounts:
    """The operations of all counts, without a copy; `DictCounts` says what they are.

    Example:
        >>> list(view({"low": 2, "é": 1}).columns()[2]), view({"low": 2, "é": 1}).n_bytes
        ([b'low\\xc3\\xa9'], 8)
    """
    return counts if isinstance(counts, NativeCounts | FileCounts) else DictCounts(counts)


class DictCounts:
    """A mapping in memory.

    - `n_pre_tokens`, `n_bytes`: pre-tokens and their UTF-8 bytes, repetitions included;
      `text_bytes`: the bytes of each once.
    - `entries()`: the entries in any order, without making a dict; `sorted()`: the same counts with
      entries sorted by pre-token; `columns()`: the columns of these, see the module docstring.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    @property
    def n_pre_tokens(self) -> int:
        return sum(self._counts.values())

    @property
    def n_bytes(self) -> int:
        return sum_bytes(self._counts.items())

    @property
    def text_bytes(self) -> int:
        return sum_bytes((pre_token, 1) for pre_token in self._counts)

    def entries(self) -> Iterator[tuple[str, int]]:
        return iter(self._counts.items())

    def sorted(self) -> DictCounts:
        return DictCounts(dict(sorted(self._counts.items())))

    def columns(self) -> Columns:
        pre_tokens = sorted(self._counts)
        return (
            _render_numbers("I", map(len, pre_tokens)),
            _render_numbers("Q", map(self._counts.__getitem__, pre_tokens)),
            _render_text(pre_tokens),
        )


def read_from(file: IO[bytes]) -> ReadAt:
    """Return a function that reads `file` at any position and keeps the file open."""
    return lambda start, n_bytes: read_at(file.fileno(), n_bytes, start)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `n_bytes` bytes of `read_at`'s file, starting at `start`."""

    read_at: ReadAt
    start: int
    n_bytes: int

    def read(self, start: int, n_bytes: int) -> bytes:
        """Read at most `n_bytes` bytes of the column, starting at `start`."""
        return self.read_at(self.start + start, min(n_bytes, self.n_bytes - start))

    def blocks(self) -> Iterator[bytes]:
        """Yield the column in blocks."""
        for start in range(0, self.n_bytes, _BUFFER_BYTES):
            yield self.read(start, _BUFFER_BYTES)


class FileCounts(Mapping[str, int]):
    """Sorted counts in columns on the disk. Equal to a dict of the same entries.

    Each iteration reads the columns from their start, and several iterations may run at once. A
    lookup of a single entry makes a dict of all entries. Pickling also makes a dict.

    Raises:
        ValueError: during an iteration: the columns do not match each other, the pre-tokens are
            not in ascending order, or a count is 0.
    """

    def __init__(self, lengths: Column, counts: Column, text: Column) -> None:
        self._lengths, self._counts, self._text = lengths, counts, text

    @classmethod
    def write(cls, entries: Iterable[Entry], folder: Path | None) -> FileCounts:
        """Write sorted entries to scratch files without names in `folder`.

        Raises:
            OSError: the folder is full or unusable.
        """
        # The files stay open, and therefore on disk, as long as a column refers to them.
        lengths, counts, text = (
            tempfile.TemporaryFile(buffering=_BUFFER_BYTES, dir=folder)  # noqa: SIM115
            for _ in range(3)
        )
        rest = iter(entries)
        while batch := list(islice(rest, _WRITE_BATCH)):
            pre_tokens = [pre_token for pre_token, _ in batch]
            joined = b"".join(pre_tokens)
            plain = pre_tokens if joined.isascii() else map(bytes.decode, pre_tokens)
            lengths.write(_little_endian(array("I", map(len, plain))).tobytes())
            counts.write(_little_endian(array("Q", [count for _, count in batch])).tobytes())
            text.write(joined)
        for file in (lengths, counts, text):
            file.flush()
        columns = [Column(read_from(file), 0, file.tell()) for file in (lengths, counts, text)]
        return cls(*columns)

    @classmethod
    def in_body(cls, read_at: ReadAt, start: int, n_entries: int, text_bytes: int) -> FileCounts:
        """The counts whose columns follow each other from byte `start`."""
        counts_start = start + _LENGTH_BYTES * n_entries
        text_start = counts_start + _COUNT_BYTES * n_entries
        return cls(
            Column(read_at, start, _LENGTH_BYTES * n_entries),
            Column(read_at, counts_start, _COUNT_BYTES * n_entries),
            Column(read_at, text_start, text_bytes),
        )

    @property
    def n_column_bytes(self) -> int:
        """The number of bytes in all three columns."""
        return self._lengths.n_bytes + self._counts.n_bytes + self._text.n_bytes

    @property
    def n_pre_tokens(self) -> int:
        numbers = (self._numbers("Q", self._counts, n) for n in range(0, len(self), _BATCH))
        return sum(map(sum, numbers))

    @property
    def n_bytes(self) -> int:
        return sum_bytes(self.entries())

    @property
    def text_bytes(self) -> int:
        return self._text.n_bytes

    def entries(self) -> Iterator[tuple[str, int]]:
        """As `DictCounts`, sorted by pre-token."""
        text = _TextReader(self._text)
        previous = ""
        for first in range(0, len(self), _BATCH):
            lengths = self._numbers("I", self._lengths, first)
            counts = self._numbers("Q", self._counts, first)
            joined, start = text.read(sum(lengths)), 0
            for length, count in zip(lengths, counts, strict=True):
                pre_token = joined[start : start + length]
                if pre_token <= previous or not count:
                    raise ValueError("a pre-token is empty, repeated, out of order or not counted")
                yield pre_token, count
                previous, start = pre_token, start + length
        text.finish()

    def sorted(self) -> FileCounts:
        return self

    def columns(self) -> Columns:
        return self._lengths.blocks(), self._counts.blocks(), self._text.blocks()

    def items(self) -> ItemsView[str, int]:
        """The entries, sorted by pre-token."""
        return _Items(self)

    def values(self) -> ValuesView[int]:
        """The occurrences, sorted by pre-token."""
        return _Values(self)

    def __iter__(self) -> Iterator[str]:
        return (pre_token for pre_token, _ in self.entries())

    def __len__(self) -> int:
        return self._lengths.n_bytes // _LENGTH_BYTES

    def __getitem__(self, pre_token: str) -> int:
        return self._dict[pre_token]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self.entries()),)

    @cached_property
    def _dict(self) -> dict[str, int]:
        return dict(self.entries())

    def _numbers(self, typecode: str, column: Column, first: int) -> array[int]:
        """Read a batch of numbers of a column, starting at number `first`."""
        values = array(typecode)
        n_values = min(_BATCH, len(self) - first)
        values.frombytes(column.read(first * values.itemsize, n_values * values.itemsize))
        if len(values) != n_values:
            raise ValueError("the file has become shorter")
        return _little_endian(values)


class _Items(ItemsView[str, int]):
    _mapping: FileCounts

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return self._mapping.entries()


class _Values(ValuesView[int]):
    _mapping: FileCounts

    def __iter__(self) -> Iterator[int]:
        return (count for _, count in self._mapping.entries())


class _TextReader:
    """Reads a column of UTF-8 by character counts."""

    def __init__(self, column: Column) -> None:
        self._column, self._position = column, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._ahead = ""

    def read(self, n_chars: int) -> str:
        """Read the next characters; ValueError when the column has fewer."""
        parts, n_read = [self._ahead], len(self._ahead)
        while n_read < n_chars:
            data = self._column.read(self._position, _TEXT_BYTES)
            if not data:
                raise ValueError("the pre-tokens do not add up to the text")
            self._position += len(data)
            is_last = self._position == self._column.n_bytes
            parts.append(self._decoder.decode(data, final=is_last))
            n_read += len(parts[-1])
        joined = "".join(parts)
        self._ahead = joined[n_chars:]
        return joined[:n_chars]

    def finish(self) -> None:
        """Raise ValueError unless the column was read to its end."""
        if self._ahead or self._position != self._column.n_bytes:
            raise ValueError("the pre-tokens do not add up to the text")


class CountTable:
    """Adds up counts in a dict of at most about `max_bytes`, and beyond that on disk."""

    def __init__(self, max_bytes: int | None = None, folder: Path | None = None) -> None:
        self._max_bytes = sys.maxsize if max_bytes is None else max_bytes
        self._folder = folder
        self._counts: dict[str, int] = {}
        self._bytes = 0
        self._runs: list[IO[bytes]] = []
        self.n_spills = 0
        """The number of times the dict was written to disk."""

    def add(self, counts: Mapping[str, int]) -> None:
        """Add these counts.

        Raises:
            OSError: the scratch folder is full or unusable.
        """
        table = self._counts
        for pre_token, count in counts.items():
            known = table.get(pre_token)
            if known is not None:
                table[pre_token] = known + count
                continue
            table[pre_token] = count
            self._bytes += sys.getsizeof(pre_token) + _ENTRY_BYTES
            if self._bytes > self._max_bytes:
                self._spill()
                table = self._counts

    def finish(self) -> Mapping[str, int]:
        """The sum of all counts added; a dict if the table never reached the ceiling.

        Raises:
            OSError: the scratch folder is full or unusable.
        """
        if not self._runs:
            return self._counts
        self._spill()
        return FileCounts.write(merge_runs(self._runs), self._folder)

    def _spill(self) -> None:
        counts, self._counts, self._bytes = self._counts, {}, 0
        self.n_spills += 1
        # Sorting by code point is the same as sorting by UTF-8 bytes.
        self._runs.append(self._write((t.encode(), counts[t]) for t in sorted(counts)))
        if len(self._runs) >= MAX_RUNS:
            self._runs = [self._write(merge_runs(self._runs))]

    def _write(self, entries: Iterable[Entry]) -> IO[bytes]:
        # The file stays open, and therefore on disk, as long as the run is needed.
        run = tempfile.TemporaryFile(buffering=_BUFFER_BYTES, dir=self._folder)  # noqa: SIM115
        for entry in entries:
            write_entry(run, entry)
        run.flush()
        return run


def write_entry(run: IO[bytes], entry: Entry) -> None:
    """Append an entry to a run: u32 byte length, u64 count (little-endian), the pre-token."""
    pre_token, count = entry
    run.write(_RECORD.pack(len(pre_token), count))
    run.write(pre_token)


def merge_runs(runs: Iterable[IO[bytes]]) -> Iterator[Entry]:
    """Yield the entries of all runs in order, each pre-token once. Reads all runs at once."""
    for pre_token, entries in groupby(heapq.merge(*map(_read_run, runs)), itemgetter(0)):
        yield pre_token, sum(count for _, count in entries)


def _read_run(run: IO[bytes]) -> Iterator[Entry]:
    run.seek(0)
    while record := run.read(_RECORD.size):
        length, count = _RECORD.unpack(record)
        yield run.read(length), count


def sum_bytes(entries: Iterable[tuple[str, int]]) -> int:
    """The number of UTF-8 bytes of these pre-tokens, repetitions included."""
    return sum(
        count * (len(pre_token) if pre_token.isascii() else len(pre_token.encode()))
        for pre_token, count in entries
    )


def _render_numbers(typecode: str, numbers: Iterable[int]) -> Iterator[bytes]:
    """Yield a column of numbers, in blocks."""
    rest = iter(numbers)
    while values := array(typecode, islice(rest, _BATCH)):
        yield _little_endian(values).tobytes()


def _render_text(pre_tokens: Sequence[str]) -> Iterator[bytes]:
    for first in range(0, len(pre_tokens), _BATCH):
        yield "".join(pre_tokens[first : first + _BATCH]).encode()


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
