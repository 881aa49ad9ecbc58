"""The same lines of files that are translations of each other, line by line: what parity across
languages is measured on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizer_core.errors import CorpusError
from tokenizer_core.evaluation.corpus_samples import PIECE_BYTES, SamplePiece, TextFile


@dataclass(frozen=True, slots=True)
class ParallelFile:
    """One of several parallel files: of its lines those whose number, from 0, leaves `offset` when
    divided by `stride`. Line ends are left out, and so are empty lines."""

    path: str | os.PathLike[str]
    stride: int
    offset: int
    piece_bytes: int = PIECE_BYTES

    def size_bytes(self) -> int:
        """The size of the file."""
        return TextFile(self.path).size_bytes()

    def pieces(self) -> Iterator[SamplePiece]:
        """The chosen lines in order, gathered to pieces.

        Raises:
            CorpusError: not UTF-8 (names the byte).
        """
        texts: list[str] = []
        start = place = held = 0
        with Path(self.path).open("rb") as file:
            for number, line in enumerate(file):
                if number % self.stride == self.offset:
                    text = self._decode(line, place).rstrip("\r\n")
                    texts += [text] if text else []
                    held += len(line)
                place += len(line)
                if held >= self.piece_bytes:
                    yield SamplePiece(tuple(texts), start, place, is_safe=True)
                    texts, start, held = [], place, 0
        if texts:
            yield SamplePiece(tuple(texts), start, place, is_safe=True)

    def _decode(self, line: bytes, place: int) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{self.path} is not UTF-8 at byte {place + error.start}; convert it first, for "
                f"instance with iconv"
            ) from None


def parallel_files(
    paths: Sequence[str | os.PathLike[str]], sample_bytes: int | None = None, seed: int = 0
) -> list[ParallelFile]:
    """The files at `paths`, of each the same lines, so many that the largest gives about
    `sample_bytes` (None: all); `seed` chooses which.

    Raises:
        CorpusError: they have not the same number of lines, or one is missing or empty.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     size = file.write(b"one" + bytes([10]) + b"two")
        ...     file.flush()
        ...     [piece.texts for piece in parallel_files([file.name])[0].pieces()]
        [('one', 'two')]
    """
    sizes = [TextFile(path).size_bytes() for path in paths]
    lines = [_count_lines(Path(path)) for path in paths]
    if len(set(lines)) > 1:
        counted = ", ".join(f"{path}: {n}" for path, n in zip(paths, lines, strict=True))
        raise CorpusError(
            f"parallel files have the same number of lines, and these do not: {counted}"
        )
    stride = 1 if sample_bytes is None else max(1, -(-max(sizes) // max(sample_bytes, 1)))
    stride = min(stride, lines[0])
    offset = random.Random(seed).randrange(stride)
    return [ParallelFile(path, stride, offset) for path in paths]


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)
