r"""Samples of text files for measuring tokenizers: pieces of a file, or parallel lines.

`TextFiles` takes pieces spread evenly over the files of a corpus. Each piece begins and ends where
a cut changes no pre-token, so the tokens of the sample are tokens of the file. Such positions are
the cuts of `find_safe_cut`, document separators, and beginnings of lines (`\n` between two
characters that are neither white space nor `/` ends a pre-token in every named pattern). A custom
pattern has no such position; with one, only the tokens next to a cut can differ. Separators are not
part of the text.
Only one piece is in memory at a time. Of files that are not plain text, whole documents are drawn.

`parallel_files` selects the same lines of files that are translations of each other, for parity
across languages.
"""

from __future__ import annotations

import codecs
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Final

import regex

from tokenizer_core.documents import ENDS_OF_TEXT, CorpusFormat, DocumentSample, open_documents
from tokenizer_core.errors import CorpusError
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.splitting.pretokenize import find_safe_cut

PIECE_BYTES: Final = 1 << 18
"""Approximate size of a piece: long enough to time; the default sample has sixteen."""

_WINDOW_BYTES: Final = 1 << 16
_MOST_WINDOWS: Final = 16
_LINE_START: Final = regex.compile(r"(?<=\S\n)(?=[^\s/])")
_ANY_NAMED: Final = PATTERNS["gpt2"]  # a safe cut is safe for every named pattern


@dataclass(frozen=True, slots=True)
class SamplePiece:
    """A part of a file, as the non-empty texts between its separators; `start` and `end` are bytes
    of the corpus, its files in order. `is_safe` is False if a cut may change a pre-token."""

    texts: tuple[str, ...]
    start: int
    end: int
    is_safe: bool


@dataclass(frozen=True, slots=True)
class TextFiles:
    """The file or files of a corpus to sample: about `sample_bytes` of all (None or 0: everything),
    the `seed` that selects the pieces, and how the files hold documents."""

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    sample_bytes: int | None = None
    seed: int = 0
    corpus_format: CorpusFormat = ENDS_OF_TEXT
    piece_bytes: int = PIECE_BYTES

    @property
    def _files(self) -> list[str | os.PathLike[str]]:
        return [self.paths] if isinstance(self.paths, str | os.PathLike) else list(self.paths)

    def _sizes(self) -> list[int]:
        for path in self._files:
            if not Path(path).is_file():
                raise CorpusError(
                    f"the corpus {path} is no regular file of this machine; check the path, or "
                    f"copy an object here first"
                )
        return [Path(path).stat().st_size for path in self._files]

    def size_bytes(self) -> int:
        """The size of the files. Raises CorpusError: all are empty, or one is no regular file."""
        size = sum(self._sizes())
        if not size:
            raise CorpusError(f"the corpus {self._shown} is empty; nothing can be measured on it")
        return size

    def read_bytes(self) -> int:
        """How many bytes of the files `pieces` reads, about."""
        size = self.size_bytes()
        return min(self.sample_bytes or size, size) if self._is_plain_text else size

    @property
    def _shown(self) -> str:
        return ", ".join(map(str, self._files))

    @property
    def _is_plain_text(self) -> bool:
        return all(map(self.corpus_format.is_plain_text, self._files))

    @property
    def _separator(self) -> str:
        return self.corpus_format.separator or ""

    def pieces(self) -> Iterator[SamplePiece]:
        """The pieces in order, without overlap, read lazily. Raises CorpusError: a file is
        missing or not UTF-8 (names the byte), all are empty; or as `open_documents`."""
        total = self.size_bytes()
        if not self._is_plain_text:
            yield from self._drawn_documents(total)
            return
        for (path, base, size), spans in groupby(self._spans_in_files(total), itemgetter(0)):
            open_documents(path, self.corpus_format).close()  # checks that it is text
            known = {0: (0, True), size: (size, True)}  # a piece usually begins where one ended
            with Path(path).open("rb") as file:
                for _, nominal, nominal_end in spans:
                    start, starts_safe = known.get(nominal) or self._cut(file, nominal, size)
                    end, ends_safe = known.get(nominal_end) or self._cut(file, nominal_end, size)
                    known[nominal_end] = end, ends_safe
                    known.pop(nominal, None)
                    if end > start:
                        text = _decode(path, _read(file, start, end), start, is_end=True)
                        parts = text.split(self._separator) if self._separator else [text]
                        is_safe = starts_safe and ends_safe
                        texts = tuple(filter(None, parts))
                        yield SamplePiece(texts, base + start, base + end, is_safe)

    def _spans_in_files(
        self, total: int
    ) -> Iterator[tuple[tuple[str | os.PathLike[str], int, int], int, int]]:
        """The spans, each cut where a file ends, with their starts and ends in the file."""
        files = zip(self._files, self._sizes(), strict=True)
        path: str | os.PathLike[str] = ""
        base = size = 0
        for start, end in self._spans(total):
            while start < end:
                while start >= base + size:
                    base += size
                    path, size = next(files)
                stop = min(end, base + size)
                yield (path, base, size), start - base, stop - base
                start = stop

    def _drawn_documents(self, size: int) -> Iterator[SamplePiece]:
        position = 0

        def note(n_read: int) -> None:
            nonlocal position
            position = n_read

        share = min(1.0, (self.sample_bytes or size) / size)
        drawn = DocumentSample(self._files, share, self.seed, self.corpus_format, note)
        texts: list[str] = []
        n_chars = start = 0
        is_safe = is_ended = True
        for text, is_last in drawn:
            is_safe, is_ended = is_safe and is_ended and is_last, is_last
            texts += [text] if text else []
            n_chars += len(text)
            if n_chars >= self.piece_bytes:
                yield SamplePiece(tuple(texts), start, position, is_safe)
                texts, n_chars, start, is_safe = [], 0, position, True
        if texts:
            yield SamplePiece(tuple(texts), start, size, is_safe)
        elif start == 0:
            # Of a few documents none may be drawn.
            for path in self._files:
                with open_documents(path, self.corpus_format) as reader:
                    first = next((piece for piece in reader if piece.text), None)
                if first is not None:
                    yield SamplePiece((first.text,), 0, size, first.is_last)
                    return
            raise CorpusError(f"{self._shown} has no text; nothing can be measured on it")

    def _spans(self, size: int) -> Iterator[tuple[int, int]]:
        """The intended starts and ends of pieces, before the search for cuts."""
        wanted = self.sample_bytes or size
        if wanted >= size:
            for start in range(0, size, self.piece_bytes):
                yield start, min(start + self.piece_bytes, size)
            return
        length = min(self.piece_bytes, wanted)
        n_pieces = max(wanted // length, 1)
        chooser = random.Random(self.seed)
        for index in range(n_pieces):
            free = size / n_pieces - length
            start = int(index * size / n_pieces + chooser.random() * free)
            yield start, start + length

    def _cut(self, file: BinaryIO, position: int, size: int) -> tuple[int, bool]:
        """The first cut at or after `position`, inside the file, and whether it is safe."""
        margin = 4 * max(len(self._separator), 1) + 4
        first = None
        for window in range(_MOST_WINDOWS):
            start = max(position + window * _WINDOW_BYTES - margin, 0)
            end = min(start + _WINDOW_BYTES + 2 * margin, size)
            data = _read(file, start, end)
            skipped = _boundary(data, 0) if start else 0
            text = _decode(file.name, data[skipped:], start + skipped, is_end=end == size)
            # In the first window the text before `position` only provides context for the cut.
            aim = _boundary(data, position - start) if window == 0 else skipped
            first = start + aim if first is None else first
            begin = len(data[skipped:aim].decode())
            found = self._cut_in(text, max(begin, 1 if start else 0))
            if found is not None:
                return start + skipped + len(text[:found].encode()), True
            if end == size:
                return size, True
        return first or position, False

    def _cut_in(self, text: str, begin: int) -> int | None:
        """The first safe cut of `text` at or after the character `begin`."""
        while True:
            positions = [find_safe_cut(text, begin, _ANY_NAMED)]
            # Search for lines and separators only before that cut.
            end = len(text) if positions[0] is None else positions[0] + 1
            line = _LINE_START.search(text, begin, end)
            positions.append(line.start() if line else None)
            if self._separator:
                found = text.find(self._separator, begin, end + len(self._separator))
                positions.append(found if found >= 0 else None)
            known = [position for position in positions if position is not None]
            if not known:
                return None
            position = min(known)
            within = self._separator_over(text, position)
            if within is None:
                return position
            begin = within

    def _separator_over(self, text: str, position: int) -> int | None:
        """The end of the separator that spans `position`, or None."""
        length = len(self._separator)
        found = text.find(self._separator, max(position - length + 1, 0), position + length - 1)
        return found + length if length and 0 <= found < position else None


def _decode(path: str | os.PathLike[str], data: bytes, start: int, *, is_end: bool = True) -> str:
    """The text of `data`, which begins at the byte `start` of the file."""
    try:
        return codecs.utf_8_decode(data, "strict", is_end)[0]
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path} is not UTF-8 at byte {start + error.start}; convert it first, for instance "
            f"with iconv"
        ) from None


def _boundary(data: bytes, position: int) -> int:
    """The first character boundary at or after `position`, or the end."""
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return position


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


@dataclass(frozen=True, slots=True)
class ParallelFile:
    """One of several parallel files, reduced to the lines whose number, from 0, has the remainder
    `offset` modulo `stride`. Line ends and empty lines are excluded. Lines that are the separator
    of `corpus_format` have no number."""

    path: str | os.PathLike[str]
    stride: int
    offset: int
    corpus_format: CorpusFormat

    def size_bytes(self) -> int:
        """The size of the file."""
        return TextFiles(self.path).size_bytes()

    def read_bytes(self) -> int:
        """How many bytes of the file `pieces` reads."""
        return self.size_bytes()

    def pieces(self) -> Iterator[SamplePiece]:
        """The selected lines in order, grouped into pieces. Raises CorpusError: the file is not
        UTF-8 (names the byte)."""
        texts: list[str] = []
        start = held = number = 0
        for text, position in _lines(self.path, self.corpus_format):
            if text == self.corpus_format.separator:
                continue
            if number % self.stride == self.offset:
                texts += [text] if text else []
                held += len(text)
            number += 1
            if held >= PIECE_BYTES:
                yield SamplePiece(tuple(texts), start, position, is_safe=True)
                texts, start, held = [], position, 0
        if texts:
            yield SamplePiece(tuple(texts), start, self.size_bytes(), is_safe=True)


def parallel_files(
    paths: Sequence[str | os.PathLike[str]],
    sample_bytes: int | None = None,
    seed: int = 0,
    corpus_format: CorpusFormat = ENDS_OF_TEXT,
) -> list[ParallelFile]:
    """Select the same lines of each file: enough for about `sample_bytes` of the largest file
    (None: all). `seed` selects the lines. In a file that is not plain text, documents count as
    lines. Lines that are the separator are left out. Raises CorpusError: the numbers of lines
    differ, a line is the separator in only some files, or a file is missing or has no text; or as
    `open_documents`."""
    sizes = [TextFiles(path).size_bytes() for path in paths]
    n_lines = _count_parallel_lines(paths, corpus_format)
    stride = 1 if sample_bytes is None else max(1, -(-max(sizes) // max(sample_bytes, 1)))
    stride = min(stride, n_lines)
    offset = random.Random(seed).randrange(stride)
    return [ParallelFile(path, stride, offset, corpus_format) for path in paths]


def _count_parallel_lines(
    paths: Sequence[str | os.PathLike[str]], corpus_format: CorpusFormat
) -> int:
    """The number of lines in each of the files, without separators."""
    lines, n_separators, separator = [0] * len(paths), 0, corpus_format.separator
    rows = zip_longest(*(_lines(path, corpus_format) for path in paths))
    for number, row in enumerate(rows, 1):
        lines = [n + (found is not None) for n, found in zip(lines, row, strict=True)]
        is_separator = [found is not None and found[0] == separator for found in row]
        n_separators += any(is_separator)
        if any(is_separator) and not all(is_separator) and None not in row:
            with_it, without = paths[is_separator.index(True)], paths[is_separator.index(False)]
            raise CorpusError(
                f"line {number} is the separator {separator} in {with_it}, and not in {without}; "
                f"parallel files have it at the same lines. Correct the files, or give an empty "
                f"separator to measure it as text"
            )
    if len(set(lines)) > 1:
        counted = ", ".join(f"{path}: {n}" for path, n in zip(paths, lines, strict=True))
        raise CorpusError(
            f"parallel files have the same number of lines, and these do not: {counted}"
        )
    if lines[0] == n_separators:
        raise CorpusError(f"{paths[0]} has no text; nothing can be measured on it")
    return lines[0] - n_separators


def _lines(path: str | os.PathLike[str], corpus_format: CorpusFormat) -> Iterator[tuple[str, int]]:
    """The lines of a plain text file, or the documents of another one, without line ends; and how
    much is read."""
    with open_documents(path, replace(corpus_format, separator=None)) as reader:
        if corpus_format.is_plain_text(path):
            yield from _lines_of_text(path)
            return
        parts: list[str] = []
        for text, is_last in reader:
            parts.append(text)
            if is_last:
                yield "".join(parts).rstrip("\r\n"), reader.position_bytes
                parts.clear()


def _lines_of_text(path: str | os.PathLike[str]) -> Iterator[tuple[str, int]]:
    position = 0
    with Path(path).open("rb") as file:
        for line in file:
            text = _decode(path, line, position)
            position += len(line)
            yield text.rstrip("\r\n"), position
