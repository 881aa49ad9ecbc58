"""DocumentSample: a random but reproducible sample of the documents of files.

A hash of the seed, the document and those before it in its file decides whether it is drawn. So the
order, names, folders, formats and packing of the files do not change the sample, if each file keeps
its documents in order. Of a document longer than a piece, only the first piece counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from typing import Final

from tokenizer_core.documents.corpus_formats import BY_NAME, CorpusFormat
from tokenizer_core.documents.document_pieces import DocumentPiece
from tokenizer_core.documents.document_reader import open_documents

_KEY_BYTES: Final = 8


@dataclass(slots=True)
class DocumentSample:
    """The pieces of the drawn documents of `files`, each drawn with the probability `share`.

    After each document, `progress` gets the number of bytes read. Iterating reads the files and
    counts `n_documents` and `n_drawn`. Memory holds one piece, and a hash for each file.

    Copies of a document are drawn independently, with two exceptions: of files that begin with the
    same documents, all or none of those from the second on are drawn; and of documents longer than
    a piece that begin with the same one, all or none.

    Raises:
        ValueError: the share is not above 0 and at most 1.
        CorpusError: while reading, as `open_documents`.

    Example:
        >>> import tempfile, os.path
        >>> path = os.path.join(tempfile.mkdtemp(), "numbers.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("|".join(map(str, range(1000))))
        >>> sample = DocumentSample([path], 0.005, 7, CorpusFormat(separator="|"))
        >>> [piece.text for piece in sample], sample.n_drawn, sample.n_documents
        (['171', '278', '334', '551', '829'], 5, 1000)
    """

    files: Sequence[str | PathLike[str]]
    share: float
    seed: int = 0
    corpus_format: CorpusFormat = BY_NAME
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
        # Only first documents are numbered: a number for every document would take memory for the
        # whole corpus, and the documents before a later one tell it from most of its copies. Of a
        # longer document than a piece the rest is not known yet: numbers of different documents
        # would depend on the order of the files.
        n_alike: Counter[bytes] = Counter()
        for file in self.files:
            key, is_first, is_drawn = b"", True, False
            with open_documents(file, self.corpus_format) as reader:
                for piece in reader:
                    if is_first:
                        begins_file = not key
                        key = _hash(key or str(self.seed).encode(), piece.text.encode())
                        drawn = int.from_bytes(_hash(str(n_alike[key]).encode(), key), "big")
                        is_drawn = drawn < math.ldexp(self.share, 8 * _KEY_BYTES)
                        self.n_drawn += is_drawn
                        if begins_file and piece.is_last:
                            n_alike[key] += 1
                    if is_drawn:
                        yield piece
                    is_first = piece.is_last
                    if piece.is_last:
                        self.n_documents += 1
                        if self.progress is not None:
                            self.progress(bytes_before + reader.position_bytes)
                bytes_before += reader.size_bytes


def _hash(before: bytes, data: bytes) -> bytes:
    return blake2b(before + b" " + data, digest_size=_KEY_BYTES).digest()
