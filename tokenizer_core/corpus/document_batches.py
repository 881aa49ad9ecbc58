"""DocumentBatch: the documents of many files in batches, from any position.

Texts are bytes of UTF-8, as in the files and for the native engine. A document longer than a batch
comes in parts, which are encoded one by one. `CorpusPosition` is the position that a checkpoint
stores. A reader cannot start in the middle of a packed file, and hashes every file from its
beginning. So after a resume it reads the current file again up to the position, without encoding.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.corpus.token_manifest import START_ANEW
from tokenizer_core.documents import (
    DEFAULT_PIECE_CHARS,
    BadDocument,
    CorpusSource,
    corpus_file_names,
    open_utf8_documents,
)
from tokenizer_core.errors import DocumentRefusedError, PreTokenTooLongError, TokenFilesPlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokenizer_core.corpus.document_cuts import DocumentCuts
    from tokenizer_core.documents import CorpusFormat, DocumentReader, Utf8Piece

_BATCH_DOCUMENTS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class CorpusPosition:
    """How far the documents of the files are read.

    - `n_documents`: complete documents, of the files `sources` and of the current one after them;
      `n_in_file`: those of the current file; `n_bytes`: bytes read of the text of the next one.
    - `sources`: the files that were read to their end. `identities`: `DocumentReader.identity` of
      these and, once it is open, of the current file.
    - `bytes_done`: bytes of the stored files.
    """

    n_documents: int = 0
    n_in_file: int = 0
    n_bytes: int = 0
    bytes_done: int = 0
    sources: tuple[CorpusSource, ...] = ()
    identities: tuple[tuple[int, str], ...] = ()

    def to_fields(self) -> dict[str, Any]:
        """The position as JSON."""
        # `asdict` would copy every source, and a run calls this after each file.
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        sources = [(each.path, each.size_bytes, each.sha256) for each in self.sources]
        return {**fields, "sources": sources}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> CorpusPosition:
        """The position that `to_fields` rendered."""
        sources = tuple(CorpusSource(*source) for source in fields["sources"])
        identities = tuple((size, version) for size, version in fields["identities"])
        return cls(**{**fields, "sources": sources, "identities": identities})

    @property
    def is_between_files(self) -> bool:
        """Whether every file that was begun is read to its end."""
        return not self.n_in_file and not self.n_bytes


@dataclass(slots=True)
class DocumentBatch:
    """Texts to encode, each a document. With `is_continued` the first continues the last document
    of the batch before; with `is_open` the next batch continues the last. `position` is after
    them. `bad`: the texts, empty here, of which the reader made nothing. `records`: for the texts
    from an index on, the file, and the bad document that the first of them would be."""

    first_document: int
    is_continued: bool
    texts: list[bytes] = field(default_factory=list)
    is_open: bool = False
    position: CorpusPosition = CorpusPosition()
    bad: dict[int, BadDocument] = field(default_factory=dict)
    records: list[tuple[int, BadDocument]] = field(default_factory=list)

    def as_bad(self, index: int, reason: str) -> BadDocument:
        """The text `index`, a line or a row that was read, as a bad document."""
        first, record = next(each for each in reversed(self.records) if each[0] <= index)
        return replace(record, number=record.number + index - first, reason=reason)


def iterate_batches(
    files: Sequence[str],
    corpus_format: CorpusFormat,
    cuts: DocumentCuts,
    start: CorpusPosition,
    batch_bytes: int,
    *,
    skip_bad: bool = False,
) -> Iterator[DocumentBatch]:
    """All documents from `start` on, in batches of about `batch_bytes` bytes, at most twice as
    many. A batch ends with each file that has begun another batch. The position of the last batch,
    which may be empty, is the end of all files. With `skip_bad` a bad document is an empty one.

    Raises:
        CorpusError: a file cannot be read.
        UnicodeDecodeError: a long document is not UTF-8.
        TokenFilesPlanError: a file that was begun before `start` has changed since.
        DocumentRefusedError: a long document cannot be cut.
    """
    batches = _Batches(cuts, start, batch_bytes)
    piece_bytes = min(batch_bytes, DEFAULT_PIECE_CHARS)
    for index, (path, name) in enumerate(zip(files, corpus_file_names(files), strict=True)):
        bad: list[BadDocument] | None = [] if skip_bad else None
        with open_utf8_documents(
            path, corpus_format, max_piece_bytes=piece_bytes, bad=bad
        ) as reader:
            if index < len(start.identities) and reader.identity != start.identities[index]:
                raise changed_since(name)
            if index < len(start.sources):
                continue
            yield from batches.read(reader, name)
    yield batches.take(batches.position)


def iterate_open_file(
    reader: DocumentReader[Utf8Piece], cuts: DocumentCuts, batch_bytes: int
) -> Iterator[DocumentBatch]:
    """As `iterate_batches`, for one open file or a part of it; raise the same."""
    batches = _Batches(cuts, CorpusPosition(), batch_bytes)
    yield from batches.read(reader, reader.path)
    yield batches.take(batches.position)


class _Batches:
    """The batch that is being filled, and the pending beginning of a document."""

    def __init__(self, cuts: DocumentCuts, start: CorpusPosition, batch_bytes: int) -> None:
        self._cuts, self._start, self._batch_bytes = cuts, start, batch_bytes
        self.position = start
        self._batch = DocumentBatch(start.n_documents, is_continued=start.n_bytes > 0)
        self._batch_size = 0
        self._held: list[bytes] = []
        self._held_bytes = self._look_at = 0

    def read(self, reader: DocumentReader[Utf8Piece], name: str) -> Iterator[DocumentBatch]:
        """The batches that become full within a file, with its name for manifests."""
        done = sum(source.size_bytes for source in self.position.sources)
        begun = self.position.identities[: len(self.position.sources)]
        self.position = replace(self.position, identities=(*begun, reader.identity))
        pieces: Iterator[tuple[bytes, bool]] = reader
        bad = [] if reader.bad is None else reader.bad
        if self.position.n_in_file or self.position.n_bytes:
            pieces = self._skip(reader, name)
            bad.clear()
        record = BadDocument(name, "row" if reader.format == "parquet" else "line", 1, "")
        n_in_file, n_bytes, texts = (
            self.position.n_in_file,
            self.position.n_bytes,
            self._batch.texts,
        )
        n_blank = 0
        self._batch.records.append((len(texts), replace(record, number=1 + n_in_file)))
        ends_batch = False
        for text, is_last in pieces:
            if reader.n_blank_lines != n_blank:
                n_blank = reader.n_blank_lines
                number = 1 + n_in_file + n_blank
                self._batch.records.append((len(texts), replace(record, number=number)))
            if is_last and not self._held:
                if bad:
                    self._batch.bad[len(texts)] = replace(bad.pop(), file=name)
                texts.append(text)
                self._batch_size += len(text)
            else:
                try:
                    if not self._add_piece(text, is_last=is_last):
                        continue
                except PreTokenTooLongError as error:
                    number = self.position.n_documents + n_in_file - self.position.n_in_file
                    raise DocumentRefusedError(number, str(error)) from None
            if is_last:
                n_in_file, n_bytes = n_in_file + 1, 0
            else:
                n_bytes += len(texts[-1])
                self._batch.is_open = True
            if (
                self._batch_size >= self._batch_bytes
                or len(texts) >= _BATCH_DOCUMENTS
                or self._batch.is_open
            ):
                yield self.take(
                    replace(
                        self.position,
                        n_documents=self.position.n_documents + n_in_file - self.position.n_in_file,
                        n_in_file=n_in_file,
                        n_bytes=n_bytes,
                        bytes_done=done + reader.position_bytes,
                    )
                )
                texts = self._batch.texts
                number = 1 + n_in_file + n_blank
                self._batch.records.append((0, replace(record, number=number)))
                ends_batch = True
        self._end_file(reader, name, n_in_file, done)
        if ends_batch:
            yield self.take(self.position)

    def take(self, position: CorpusPosition) -> DocumentBatch:
        """The batch up to `position`; start another one."""
        taken, self.position = self._batch, position
        taken.position = position
        self._batch = DocumentBatch(position.n_documents, is_continued=taken.is_open)
        self._batch_size = 0
        return taken

    def _add_piece(self, text: bytes, *, is_last: bool) -> bool:
        """Hold a piece of a longer document; return whether a part of it was added to the batch."""
        self._held.append(text)
        self._held_bytes += len(text)
        if not is_last and self._held_bytes < max(self._batch_bytes, self._look_at):
            return False
        text = b"".join(self._held)
        cut = len(text) if is_last else self._cuts.find_last_in_utf8(text)
        if cut is None:  # search again at twice the size, so that the work stays linear
            self._held, self._look_at = [text], 2 * len(text)
            return False
        self._batch.texts.append(text[:cut])
        self._batch_size += cut
        rest = text[cut:]
        self._held = [] if is_last else [rest]
        self._held_bytes, self._look_at = len(rest), 0
        return True

    def _end_file(
        self, reader: DocumentReader[Utf8Piece], name: str, n_in_file: int, done: int
    ) -> None:
        if reader.sha256 is None:
            raise RuntimeError("a file counts as read before its end")
        source = CorpusSource(name, reader.position_bytes, reader.sha256)
        self.position = replace(
            self.position,
            n_documents=self.position.n_documents + n_in_file - self.position.n_in_file,
            n_in_file=0,
            n_bytes=0,
            bytes_done=done + reader.position_bytes,
            sources=(*self.position.sources, source),
        )

    def _skip(self, reader: DocumentReader[Utf8Piece], name: str) -> Iterator[tuple[bytes, bool]]:
        """The pieces after the position; first read the file again up to it."""
        n_documents, n_bytes = self.position.n_in_file, self.position.n_bytes
        text, is_last = b"", True
        while n_documents or n_bytes > 0:
            if (piece := next(reader, None)) is None:
                raise changed_since(name)
            text, is_last = piece
            if n_documents:
                n_documents -= is_last
                continue
            n_bytes -= len(text)
            if is_last and n_bytes >= 0:
                raise changed_since(name)
        return chain([(text[n_bytes:], is_last)], reader) if n_bytes else reader


def changed_since(name: str) -> TokenFilesPlanError:
    """The error for a corpus file that has changed between a checkpoint and `resume`."""
    return TokenFilesPlanError(
        f"{name!r:.80} has changed since encoding was interrupted; {START_ANEW}"
    )
