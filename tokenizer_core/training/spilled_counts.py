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
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

Entry = tuple[bytes, int]

MAX_RUNS: Final = 64
"""So many runs are made one, which bounds the open files."""

_ENTRY_BYTES: Final = 160
"""What an entry of a dict takes beside its key: its slot while the dict grows, and its number."""

_BUFFER_BYTES: Final = 1 << 16
_RECORD: Final = struct.Struct("<IQ")


class StoredCounts(Mapping[str, int]):
    """Pre-token -> occurrences in a scratch file, sorted. Equal to a dict of the same entries.

    Going through it reads the file from its beginning. Asked for a single entry it makes its dict.
    Pickled, it is a dict.
    """

    def __init__(self, run: IO[bytes], n_entries: int, text_bytes: int) -> None:
        self._run = run
        self._n_entries = n_entries
        self.text_bytes = text_bytes
        """UTF-8 bytes of the pre-tokens, each once."""
        self._entries: dict[str, int] | None = None

    def items(self) -> ItemsView[str, int]:
        """The entries in the order of the pre-tokens."""
        return _Items(self)

    def values(self) -> ValuesView[int]:
        """The occurrences in the order of the pre-tokens."""
        return _Values(self)

    def entries(self) -> Iterator[tuple[str, int]]:
        """The entries, read from the file."""
        for pre_token, count in _read_run(self._run):
            yield pre_token.decode(), count

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
        n_entries = text_bytes = 0

        def counted() -> Iterator[Entry]:
            nonlocal n_entries, text_bytes
            for pre_token, count in _merge(self._runs):
                n_entries += 1
                text_bytes += len(pre_token)
                yield pre_token, count

        run = self._write(counted())
        return StoredCounts(run, n_entries, text_bytes)

    def _spill(self) -> None:
        counts, self._counts, self._bytes = self._counts, {}, 0
        self.n_spills += 1
        # The order of the characters is that of their bytes in UTF-8.
        self._runs.append(self._write((t.encode(), counts[t]) for t in sorted(counts)))
        if len(self._runs) >= MAX_RUNS:
            self._runs = [self._write(_merge(self._runs))]

    def _write(self, entries: Iterable[Entry]) -> IO[bytes]:
        # It lives as long as what is in it is needed.
        run = tempfile.TemporaryFile(buffering=_BUFFER_BYTES, dir=self._folder)  # noqa: SIM115
        for pre_token, count in entries:
            run.write(_RECORD.pack(len(pre_token), count))
            run.write(pre_token)
        run.flush()
        return run


def _merge(runs: Iterable[IO[bytes]]) -> Iterator[Entry]:
    """The entries of all runs in order, each pre-token once."""
    entries = heapq.merge(*map(_read_run, runs))
    for pre_token, same in groupby(entries, key=itemgetter(0)):
        yield pre_token, sum(count for _, count in same)


def _read_run(run: IO[bytes]) -> Iterator[Entry]:
    file = io.BufferedReader(_FromBeginning(run), _BUFFER_BYTES)
    while record := file.read(_RECORD.size):
        length, count = _RECORD.unpack(record)
        yield file.read(length), count


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
