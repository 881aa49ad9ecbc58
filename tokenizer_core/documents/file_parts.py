"""Start reading in the middle of a plain file, so that independent parts have each document once.

A part has the documents that begin in it, with the whole of the last one. A document ends with the
separator of plain text, or with a line. These endings match leftmost and do not overlap. So a
document certainly begins after an ending that no earlier occurrence overlaps: a reader from the
beginning of the file finds the same ending.
"""

from __future__ import annotations

from tokenizer_core.documents import corpus_files
from tokenizer_core.documents.corpus_files import CorpusFileBytes


def enter_part(source: CorpusFileBytes, ending: bytes, start: int, stop: int) -> None:
    """Make `source` yield only the documents that begin in the bytes `start` to `stop` (excluded).
    `ending` is the bytes after each document of the file.

    Raises:
        CorpusError: the file cannot be read.
    """
    begin = find_document(source, ending, start, stop)
    if begin is None:
        source.enter(start, start)
    else:
        end = find_document(source, ending, stop, source.size_bytes)
        source.enter(begin, source.size_bytes if end is None else end)


def find_document(source: CorpusFileBytes, ending: bytes, start: int, stop: int) -> int | None:
    """The first byte from `start` to `stop` (excluded) at which a document certainly begins; None
    if no such byte exists. It does not read beyond it.

    Example:
        >>> import tempfile; from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "some.txt"
        >>> _ = path.write_bytes(b"one|two|three")
        >>> with corpus_files.open_corpus_file(path).file as file:
        ...     source = CorpusFileBytes("some.txt", file, hash_source=False)
        ...     [find_document(source, b"|", start, 13) for start in (0, 1, 4, 5, 9)]
        [0, 4, 4, 8, None]
    """
    if start <= 0:
        return 0 if stop > 0 else None
    size = len(ending)
    # An occurrence before this offset cannot overlap the first ending that matters.
    offset = max(0, start - 2 * size + 1)
    window, taken_up_to = b"", 0
    while block := source.read_at(offset + len(window), corpus_files.BLOCK_BYTES):
        window += block
        found = window.find(ending)
        while found >= 0:
            begin = offset + found + size
            if begin >= stop:
                return None
            if begin >= start and offset + found >= taken_up_to:
                return begin
            taken_up_to = begin
            found = window.find(ending, found + 1)
        n_kept = min(size - 1, len(window))
        offset += len(window) - n_kept
        window = window[len(window) - n_kept :]
        if offset >= stop:
            return None
    return None
