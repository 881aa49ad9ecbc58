"""DocumentSample: a random but reproducible sample of the documents of files.

A hash of the seed, the document's number in its file and its beginning decides whether it is drawn.
So the order, names, folders, formats and packing of the files do not change the sample, if each
file keeps its documents in order. Copies of one document are drawn independently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from typing import Final

from tokenizer_core.documents.document_pieces import DocumentPiece
from tokenizer_core.documents.document_reader import open_documents

_BEGINNING_CHARS: Final = 1024
_DRAW_BYTES: Final = 8


@dataclass(slots=True)
class DocumentSample:
    """The pieces of the drawn documents of `files`, each drawn with the probability `share`.

    `format`, `field` and `separator` are those of `open_documents`. After each document, `progress`
    gets the number of bytes read. Iterating reads the files and counts `n_documents` and `n_drawn`.
    Memory holds one piece.

    Raises:
        ValueError: the share is not above 0 and at most 1.
        CorpusError: while reading, as `open_documents`.

    Example:
        >>> import tempfile, os.path
        >>> path = os.path.join(tempfile.mkdtemp(), "numbers.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("|".join(map(str, range(1000))))
        >>> sample = DocumentSample([path], share=0.005, seed=7, separator="|")
        >>> [piece.text for piece in sample], sample.n_drawn, sample.n_documents
        (['84', '198', '219', '876'], 4, 1000)
    """

    files: Sequence[str | PathLike[str]]
    share: float
    seed: int = 0
    format: str | None = None
    field: str = "text"
    separator: str | None = None
    progress: Callable[[int], object] | None = None
    n_documents: int = 0
    n_drawn: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(
                f"the share must be above 0 and at most 1, 0.01 for a hundredth, not {self.share}"
            )

    def __iter__(self) -> Iterator[DocumentPiece]:
        bytes_before = 0
        for file in self.files:
            n_in_file, is_first, is_drawn = 0, True, False
            with open_documents(
                file, format=self.format, field=self.field, separator=self.separator
            ) as reader:
                for piece in reader:
                    if is_first:
                        is_drawn = self._draws(n_in_file, piece.text)
                        self.n_drawn += is_drawn
                    if is_drawn:
                        yield piece
                    is_first = piece.is_last
                    if piece.is_last:
                        n_in_file += 1
                        self.n_documents += 1
                        if self.progress is not None:
                            self.progress(bytes_before + reader.position_bytes)
                bytes_before += reader.size_bytes

    def _draws(self, number: int, text: str) -> bool:
        what = f"{self.seed} {number} {text[:_BEGINNING_CHARS]}"
        drawn = int.from_bytes(blake2b(what.encode(), digest_size=_DRAW_BYTES).digest(), "big")
        return drawn < math.ldexp(self.share, 8 * _DRAW_BYTES)
