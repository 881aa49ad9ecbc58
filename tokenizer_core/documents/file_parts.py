"""Where a plain file may be entered in its middle: its parts, read apart, have each document once.

A part has the documents that begin in it, and the rest of the last of them. A document surely
begins behind what ends one (the separator of plain text, the end of a line) where no other
occurrence of that reaches into it from before: those are found leftmost and do not overlap, and so
reading from the file's beginning comes to the same place.
"""

from __future__ import annotations

from tokenizer_core.documents import corpus_files
from tokenizer_core.documents.corpus_files import CorpusFileBytes


def enter_part(source: CorpusFileBytes, ending: bytes, start: int, stop: int) -> None:
    """Have `source` give the documents that begin from byte `start` to before `stop`, of a file in
    which `ending` stands behind each document.

    Raises:
        CorpusError: the disk would not read.
    """
    begin = find_document(source, ending, start, stop)
    if begin is None:
        source.enter(start, start)
    else:
        end = find_document(source, ending, stop, source.size_bytes)
        source.enter(begin, source.size_bytes if end is None else end)


def find_document(source: CorpusFileBytes, ending: bytes, start: int, stop: int) -> int | None:
    """The first byte from `start` to before `stop` at which a document surely begins; None where
    there is none. Reads no further than that.

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
    # From where an occurrence would overlap the first one that is of use.
    place = max(0, start - 2 * size + 1)
    window, taken_up_to = b"", 0
    while block := source.read_at(place + len(window), corpus_files.BLOCK_BYTES):
        window += block
        found = window.find(ending)
        while found >= 0:
            begin = place + found + size
            if begin >= stop:
                return None
            if begin >= start and place + found >= taken_up_to:
                return begin
            taken_up_to = begin
            found = window.find(ending, found + 1)
        n_kept = min(size - 1, len(window))
        place += len(window) - n_kept
        window = window[len(window) - n_kept :]
        if place >= stop:
            return None
    return None
