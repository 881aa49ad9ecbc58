"""open_documents: the documents of a corpus file of any format, in bounded memory.

`corpus_formats` chooses the format; each format has a module. `plain_text_copies` writes the
documents of files as plain text, for work that needs to cut a file anywhere.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TypeVar

from tokenizer_core.documents.archives import DEFAULT_MAX_EXPANSION, unpack_gzip, unpack_zstd
from tokenizer_core.documents.bad_documents import (
    NO_BAD_DOCUMENTS,
    BadDocument,
    BadDocuments,
    check_running_share,
    empty_invalid_utf8,
)
from tokenizer_core.documents.corpus_addresses import is_address
from tokenizer_core.documents.corpus_files import (
    CorpusFileBytes,
    corpus_file_names,
    enter_part,
    open_corpus_file,
)
from tokenizer_core.documents.corpus_formats import (
    BY_NAME,
    CONTENT_BYTES,
    CorpusFormat,
    check_not_packed,
    check_text_content,
)
from tokenizer_core.documents.document_pieces import (
    DEFAULT_PIECE_CHARS,
    MAX_PIECE_CHARS,
    DocumentPiece,
    Utf8Piece,
    decode_blocks,
    end_documents_at,
    split_plain_text,
    split_utf8_text,
)
from tokenizer_core.documents.json_lines import DEFAULT_LINE_BYTES, read_json_lines
from tokenizer_core.documents.parquet_rows import read_parquet_rows
from tokenizer_core.errors import CorpusChangedError, CorpusError

Piece = TypeVar("Piece", DocumentPiece, Utf8Piece)
ChangePieces = Callable[[Iterable[tuple[bytes, bool]]], Iterator[tuple[bytes, bool]]]


@dataclass(frozen=True, slots=True)
class _Options:
    corpus_format: CorpusFormat
    field: str | list[str] | None
    max_piece_chars: int
    max_line_bytes: int
    max_expansion: float
    within: tuple[int, int] | None
    bad: list[BadDocument] | None = None
    endings: Sequence[str] = ()


class DocumentReader(Iterator[Piece]):
    """The documents of one file, as pieces in order, from `open_documents` (str) or
    `open_utf8_documents` (bytes).

    `path` (of an address, without secrets), `format` and `size_bytes` describe the file.
    `position_bytes` is how much of it is read, for progress: bytes of an archive; for Parquet, the
    fraction of rows. `bad` is the list that `open_utf8_documents` was given. A context manager:
    leaving it closes the file.
    """

    def __init__(
        self,
        source: CorpusFileBytes,
        format: str,  # noqa: A002
        pieces: Generator[Piece, None, None],
        bad: list[BadDocument] | None = None,
    ) -> None:
        self.path, self.format, self.size_bytes = source.name, format, source.size_bytes
        self._source, self.bad = source, bad
        self._pieces: Generator[Piece, None, None] = pieces

    @property
    def position_bytes(self) -> int:
        """How many of the `size_bytes` are read."""
        return self._source.position_bytes

    @property
    def first_byte(self) -> int:
        """Where the first document begins, once it is read: not at 0 only with `within`."""
        return self._source.first_byte

    @property
    def identity(self) -> tuple[int, str]:
        """Size and version (for a local file, the time of the last change) of the file when it was
        opened: they differ for another file or after a change."""
        return self._source.identity

    @property
    def sha256(self) -> str | None:
        """The hash of the stored file in hex; None until all documents are read, or if not
        requested."""
        return self._source.sha256

    @property
    def n_blank_lines(self) -> int:
        """How many lines of JSON lines had no document so far."""
        return self._source.n_blank_lines

    def find_place(self, number: int) -> tuple[str | None, int]:
        """Read on to document `number` (from 0): the line, the row, or the number of the document
        in text, each from 1; None if there are fewer. Also how many were read before it. Raises
        CorpusError: the file cannot be read."""
        n_read = 0
        for _, is_last in self:
            if is_last and n_read == number:
                if self.format == "parquet":
                    return f"row {number + 1} (from 1)", n_read
                if self.format.startswith("txt"):
                    start = f" from byte {self.first_byte} on" if self.first_byte else ""
                    return f"document {number + 1} (from 1){start}", n_read
                n_lines = number + self.n_blank_lines + self._source.count_lines()
                return f"line {n_lines + 1}", n_read
            n_read += is_last
        return None, n_read

    def __iter__(self) -> Iterator[Piece]:
        return self._pieces  # avoids a call of __next__ for each piece

    def __next__(self) -> Piece:
        return next(self._pieces)

    def close(self) -> None:
        """Close the file; no more pieces follow."""
        self._pieces.close()
        self._source.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_documents(
    path: str | os.PathLike[str],
    corpus_format: CorpusFormat = BY_NAME,
    *,
    max_piece_chars: int = DEFAULT_PIECE_CHARS,
    max_line_bytes: int = DEFAULT_LINE_BYTES,
    max_expansion: float = DEFAULT_MAX_EXPANSION,
    hash_source: bool = False,
    allowed_roots: Iterable[str | os.PathLike[str]] | None = None,
    within: tuple[int, int] | None = None,
) -> DocumentReader[DocumentPiece]:
    r"""The documents of a file, each as pieces of at most `max_piece_chars` characters.

    The file is a path, or an address that fsspec knows (`s3://bucket/some.txt`; needs the extra
    `remote`).

    - `txt`: a document ends at `separator` (often a special token) or with the file; an empty rest
      after the last separator is not a document. Without a separator the file is one document.
      Nothing is stripped: line ends, spaces and a byte order mark are text.
    - `jsonl`: one JSON object per line of at most `max_line_bytes` bytes; the document is the
      string in `field`; of a list, in the one field of them that the record has.
    - `parquet`: the column `field`, or the only one of them, one document per row. Needs the extra
      `parquet`.
    - `txt.gz`, `txt.zst`, `jsonl.gz`, `jsonl.zst`: packed, with one or more members or frames. zst
      needs the extra `zstd`.

    Empty documents are kept. `separator` applies to plain text only, `field` to the other formats.
    With `field=None` a document is a whole record as a JSON object (of Parquet, the columns of a
    conversation, see `conversations`), and a file whose name says no format is JSON lines.
    A document that cannot be read completely is an error.

    Memory is bounded by `max_piece_chars`, nine times `max_line_bytes`, the window of zst (at most
    128 MiB), and a few values and pages of Parquet, whose size its writer chose. The text may have
    at most `max_expansion` times the size of a packed file or Parquet file, beyond the first 64
    MiB.

    Args:
        hash_source: also compute the sha256 of the file (a second pass over it for Parquet).
        allowed_roots: folders and addresses; any other file is refused.
        within: only the documents that begin in a range of bytes (end excluded), of a file that
            can be entered (`CorpusFormat.can_be_entered`); adjacent ranges have every document
            once. The hash then covers only the bytes that were read; messages about text count
            bytes from their start.

    Raises:
        CorpusError: on the call, if the file cannot be opened or is not allowed, or its content and
            its name do not agree. While reading, if it is damaged, ends early, is not UTF-8, has a
            line or row without text, expands too much or changes, or a required library is not
            installed.
        ValueError: an argument is out of range.
    """
    limits = (max_piece_chars, max_line_bytes, max_expansion)
    options = _Options(corpus_format, corpus_format.field_of(path), *limits, within)
    source, chosen = _open(path, options, hash_source, allowed_roots)
    return DocumentReader(source, chosen, _read(source, chosen, options))


def open_utf8_documents(
    path: str | os.PathLike[str],
    corpus_format: CorpusFormat = BY_NAME,
    *,
    max_piece_bytes: int = DEFAULT_PIECE_CHARS,
    within: tuple[int, int] | None = None,
    bad: list[BadDocument] | None = None,
    endings: Sequence[str] = (),
) -> DocumentReader[Utf8Piece]:
    """As `open_documents` with `hash_source`, but with the bytes of each document, for an engine
    that takes UTF-8: half the work. The bytes of a text file are not checked; use `open_documents`
    to find the position of bytes that are not UTF-8. A piece has at most about `max_piece_bytes`
    bytes.

    With a list `bad`, a document that cannot be read, or is not UTF-8, is an empty document of one
    piece, and appended to the list before it is yielded; lines count from the first one that is
    read, after `within` begins. Of plain text, `endings` end a document then too, and stay in it.
    """
    limits = (max_piece_bytes, DEFAULT_LINE_BYTES, DEFAULT_MAX_EXPANSION)
    options = _Options(corpus_format, corpus_format.field_of(path), *limits, within, bad, endings)
    source, chosen = _open(path, options, hash_source=True)
    return DocumentReader(source, chosen, _read_utf8(source, chosen, options), bad)


def _open(
    path: str | os.PathLike[str],
    options: _Options,
    hash_source: bool,
    allowed_roots: Iterable[str | os.PathLike[str]] | None = None,
) -> tuple[CorpusFileBytes, str]:
    """The open file and its format, after all checks."""
    _check_options(options)
    name, within = os.fspath(path), options.within
    chosen, is_told = options.corpus_format.choose(name)
    if within is not None and options.corpus_format.ending(chosen) is None:
        raise ValueError(
            f"a file of the format {chosen} cannot be entered in its middle; read it whole"
        )
    source = open_corpus_file(name, hash_source=hash_source, allowed_roots=allowed_roots)
    is_jsonl = chosen == "jsonl" and not is_address(name)
    if (is_jsonl or not is_told) and (within is None or within[0] == 0):
        try:
            if is_jsonl:
                check_not_packed(source.name, source.read_at(0, 4))
            else:
                check_text_content(source.name, source.read_at(0, CONTENT_BYTES))
        except CorpusError:
            source.file.close()
            raise
        source.enter(0, source.size_bytes)
    return source, chosen


def read_documents(
    path: str | os.PathLike[str], corpus_format: CorpusFormat = BY_NAME
) -> Iterator[str]:
    """The documents of a file, each complete: for documents that are known to be small; raise as
    `open_documents`."""
    pieces: list[str] = []
    with open_documents(path, corpus_format) as reader:
        for piece in reader:
            pieces.append(piece.text)
            if piece.is_last:
                yield "".join(pieces)
                pieces.clear()


def raise_not_utf8(
    files: Sequence[str], corpus_format: CorpusFormat, within: tuple[int, int] | None = None
) -> NoReturn:
    """Raise the error with the file and the position of bytes that are not UTF-8, by reading the
    files again: an encoder of bytes knows only the document."""
    for file in files:
        with open_documents(file, corpus_format, within=within) as reader:
            deque(reader, maxlen=0)
    raise CorpusChangedError(
        "a corpus file was not UTF-8 and has changed since; read a copy that nobody writes to"
    ) from None


def make_separator(special_tokens: Sequence[str]) -> str:
    """A random text to separate texts in which these special tokens are found: none of them can
    overlap it.

    Example:
        >>> make_separator(["<|endoftext|>"])[:2], make_separator([chr(0)])[:2]
        ('\\x00<', '\\x01<')
    """
    used = set("".join(special_tokens))
    first = next(character for character in map(chr, range(0xD800)) if character not in used)
    return f"{first}<{secrets.token_hex(16)}>"


@dataclass(frozen=True, slots=True)
class PlainTextCopy:
    """A plain text file with the documents of the corpus file `source`: that file itself, or a copy
    in which a separator ends each document.

    `size_bytes` is the size of the source, `n_bytes` that of its text, `sha256` the hash of the
    source; None: not a copy, and nothing was read.
    """

    path: str
    source: str
    size_bytes: int
    n_bytes: int
    sha256: str | None = None


@contextlib.contextmanager
def plain_text_copies(
    files: Sequence[str | os.PathLike[str]],
    corpus_format: CorpusFormat,
    *,
    keeps: Sequence[str] = (),
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] = lambda n_bytes: None,
    max_bad: float | None = None,
    change: ChangePieces | None = None,
) -> Iterator[tuple[list[PlainTextCopy], str, BadDocuments]]:
    """The files as plain text, the separator that ends each document of a copy (no file has it),
    and the bad documents that were left out.

    A plain text file is copied only if `corpus_format` has a separator that is not one of `keeps`,
    the special tokens that are cut out of the text later, or if there is a `change`: what makes the
    text of the copies of the pieces of documents.
    Copies are in `folder`, by default the system's, as long as the block runs; they take as much
    disk as the text. `progress` gets the bytes read of the files that are copied.

    With `max_bad`, bad documents are left out of the copies. Those of plain text end at a separator
    or at one of `keeps`, and a file that has a bad one is copied; to find it, the file is read once
    more.

    Raises:
        CorpusError: as `open_documents`.
        TooManyBadDocumentsError: more than the share `max_bad` is bad.
        OSError: the folder is full or unusable.
    """
    separator, skipped = make_separator(keeps), SkippedDocuments(max_bad)
    copies = []
    n_read = 0
    with tempfile.TemporaryDirectory(dir=folder, prefix="documents-") as scratch:
        for number, (file, name) in enumerate(zip(files, corpus_file_names(files), strict=True)):
            skipped.file = name
            is_plain = change is None and not corpus_format.needs_copy(file, keeps)
            if is_plain:
                with open_documents(file, corpus_format) as opened:
                    path, size = opened.path, opened.size_bytes
                n_bad = skipped.bad.count
                if max_bad is not None:
                    checked = open_good_documents(file, corpus_format, skipped, endings=keeps)
                    with checked as (_, pieces):
                        for _ in pieces:
                            progress(n_read)
                if skipped.bad.count == n_bad:
                    copies.append(PlainTextCopy(path, path, size, size))
                    continue
            noted = SkippedDocuments(1.0) if is_plain else skipped  # those of text are noted now
            with open_good_documents(file, corpus_format, noted, endings=keeps) as (reader, pieces):
                copied = Path(scratch, f"{number}.txt")
                reported = pieces if is_plain else _reported(reader, pieces, n_read, progress)
                changed = reported if change is None else change(reported)
                n_bytes = write_separated(copied, changed, separator)
                n_read += 0 if is_plain else reader.size_bytes
                copies.append(
                    PlainTextCopy(
                        str(copied), reader.path, reader.size_bytes, n_bytes, reader.sha256
                    )
                )
        skipped.check()
        yield copies, separator, skipped.bad


@dataclass(slots=True)
class SkippedDocuments:
    """The documents read so far, and the bad ones among them, at most the share `max_bad`; None:
    the first bad one is an error. `file` is the name of the file that is read."""

    max_bad: float | None
    file: str = ""
    n_documents: int = 0
    bad: BadDocuments = NO_BAD_DOCUMENTS

    def note(self, bad: list[BadDocument]) -> None:
        """Note one more document, bad if the list is not empty; empty the list."""
        if bad and self.max_bad is not None:
            found = BadDocuments.of(replace(one, file=self.file) for one in bad)
            self.bad = check_running_share(self.bad, found, [self.n_documents], self.max_bad)
            bad.clear()
        self.n_documents += 1

    def check(self) -> None:
        """Raise TooManyBadDocumentsError if too many of all documents are bad."""
        self.bad.check_share(self.n_documents, self.max_bad or 0.0)


@contextlib.contextmanager
def open_good_documents(
    path: str | os.PathLike[str],
    corpus_format: CorpusFormat,
    skipped: SkippedDocuments,
    *,
    endings: Sequence[str] = (),
    within: tuple[int, int] | None = None,
    hash_source: bool = True,
) -> Iterator[tuple[DocumentReader[Any], Iterator[Utf8Piece]]]:
    """The open reader, and the pieces of its documents in checked UTF-8; bad ones are empty, and
    noted in `skipped`. Of plain text, `endings` end a document too, if bad ones are left out. If
    they are, the file is hashed in any case.

    Raises:
        CorpusError: as `open_documents`.
        TooManyBadDocumentsError: while reading, as `SkippedDocuments`.
    """
    if skipped.max_bad is None:
        opened = open_documents(path, corpus_format, within=within, hash_source=hash_source)
        with opened as decoded:
            yield decoded, (Utf8Piece(text.encode(), is_last) for text, is_last in decoded)
        return
    bad: list[BadDocument] = []
    opened_utf8 = open_utf8_documents(path, corpus_format, within=within, bad=bad, endings=endings)
    with opened_utf8 as reader:
        yield reader, _noted(reader, bad, skipped)


def _noted(
    pieces: Iterator[Utf8Piece], bad: list[BadDocument], skipped: SkippedDocuments
) -> Iterator[Utf8Piece]:
    for piece in pieces:
        if piece.is_last:
            skipped.note(bad)
        yield piece


def _reported(
    reader: DocumentReader[Any],
    pieces: Iterator[Utf8Piece],
    n_before: int,
    progress: Callable[[int], object],
) -> Iterator[Utf8Piece]:
    for piece in pieces:
        yield piece
        progress(n_before + reader.position_bytes)


def write_separated(path: Path, pieces: Iterable[tuple[bytes, bool]], separator: str) -> int:
    """Write documents to `path`, `separator` after each, from their pieces: a text in UTF-8, and
    whether it is the last of its document. The number of bytes without separators. Raises OSError:
    the disk is full or unusable."""
    n_bytes, end = 0, separator.encode()
    with path.open("wb") as file:
        for text, is_last in pieces:
            n_bytes += file.write(text)
            if is_last:
                file.write(end)
    return n_bytes


def _read(
    source: CorpusFileBytes, format_name: str, options: _Options
) -> Generator[DocumentPiece, None, None]:
    field, separator = options.field, options.corpus_format.separator
    with source.reading():
        if format_name == "parquet":
            yield from read_parquet_rows(
                source, field, options.max_expansion, options.max_piece_chars, options.bad
            )
            source.hash_apart()
        else:
            kind, _, _ = format_name.partition(".")
            blocks = _open_blocks(source, format_name, options)
            if kind == "jsonl":
                yield from read_json_lines(
                    blocks,
                    source,
                    field,
                    options.max_line_bytes,
                    options.max_piece_chars,
                    options.bad,
                )
            else:
                texts = decode_blocks(blocks, source.part_name)
                yield from split_plain_text(texts, separator, options.max_piece_chars)


def _read_utf8(
    source: CorpusFileBytes, format_name: str, options: _Options
) -> Generator[Utf8Piece, None, None]:
    if not format_name.startswith("txt"):
        for text, is_last in _read(source, format_name, options):
            yield Utf8Piece(text.encode(), is_last)
        return
    separator = (options.corpus_format.separator or "").encode() or None
    with source.reading():
        blocks = _open_blocks(source, format_name, options)
        pieces = split_utf8_text(blocks, separator, options.max_piece_chars)
        if options.bad is not None:
            endings = [ending.encode() for ending in options.endings]
            ended = end_documents_at(pieces, separator or b"", endings)
            pieces = empty_invalid_utf8(ended, source.name, options.bad)
        yield from pieces


def _open_blocks(source: CorpusFileBytes, format_name: str, options: _Options) -> Iterator[bytes]:
    """The bytes of the requested documents, unpacked."""
    start, stop = options.within or (0, source.size_bytes)
    ending = options.corpus_format.ending(format_name)
    if ending is not None and (start > 0 or stop < source.size_bytes):
        enter_part(source, ending, start, stop)
    kind, _, packed = format_name.partition(".")
    blocks = _UNPACKED[packed](source.blocks(), source.name, options.max_expansion)
    is_checked = kind == "txt" and packed and options.corpus_format.format is None
    return _checked(blocks, source.name) if is_checked else blocks


def _checked(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks of a packed text, after a check of their beginning; `_open` checks other text."""
    first = b""
    while len(first) < CONTENT_BYTES and (block := next(blocks, b"")):
        first += block
    check_text_content(name, first)
    yield first
    yield from blocks


_UNPACKED: Final[dict[str, Callable[[Iterator[bytes], str, float], Iterator[bytes]]]] = {
    "": lambda blocks, name, max_expansion: blocks,
    "gz": unpack_gzip,
    "zst": unpack_zstd,
}


def _check_options(options: _Options) -> None:
    field, separator = options.field, options.corpus_format.separator
    if isinstance(field, list) and (not field or len(set(field)) < len(field)):
        raise ValueError("the list of fields is empty, or has one twice; name each once")
    if separator is not None:
        if not separator:
            raise ValueError("the separator is empty; give a string, or None for one document")
        try:
            separator.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("the separator holds a lone surrogate, which no text has") from None
    if not 1 <= options.max_piece_chars <= MAX_PIECE_CHARS:
        raise ValueError(f"max_piece_chars must be from 1 to {MAX_PIECE_CHARS}")
    if options.max_line_bytes < 1:
        raise ValueError("max_line_bytes must be at least 1")
    if not options.max_expansion >= 1:
        raise ValueError("max_expansion must be at least 1")
