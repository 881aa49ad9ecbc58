"""Corpus files as all workers see them: on a shared disk, or in a store.

Size and version identify a file; if a worker finds others, it has a wrong file. `Part.to_chunk`
copies a part to the worker's disk if necessary, so that the same code counts it as any local file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tokenizer_core.documents import (
    CONTENT_BYTES,
    BadDocuments,
    CorpusFormat,
    check_text_content,
    corpus_file_names,
    open_documents,
    write_separated,
)
from tokenizer_core.documents.corpus_addresses import is_address, parse_address
from tokenizer_core.documents.corpus_files import changed_error, open_corpus_file
from tokenizer_core.documents.document_reader import SkippedDocuments, open_good_documents
from tokenizer_core.documents.remote_files import RemoteFile, StoreReadError, open_remote_file
from tokenizer_core.errors import CorpusError, RunError
from tokenizer_core.splitting.patterns import UNICODE_TABLES, SplitPattern
from tokenizer_core.training.corpus_chunks import Chunk, ReadBytes, open_chunks, read_chunk

_REQUEST_BYTES: Final = 1 << 23


def check_sum(
    pattern: SplitPattern, what: str, n_bytes: int, n_counted: int, n_special: int
) -> None:
    """Raise RunError unless the pre-tokens and the special tokens are all bytes of the text; a
    pattern that drops text may leave bytes out."""
    n_missing = n_bytes - n_counted - n_special
    if n_missing < 0 or (n_missing and not pattern.drops):
        raise RunError(
            f"the pre-tokens of {what} of {n_bytes} bytes have {n_counted} and its special tokens "
            f"{n_special}, which is a defect; please report it"
        )


def check_tables(unicode_tables: str) -> None:
    """Raise RunError if this worker's Unicode tables differ: it might split text differently."""
    if unicode_tables != UNICODE_TABLES:
        raise RunError(
            f"a worker has the Unicode tables of {UNICODE_TABLES}, not {unicode_tables}, "
            f"and may split text elsewhere; install the same version everywhere"
        )


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the corpus: how to open it, its path for people, its size and version, and its
    name in manifests."""

    path: str
    shown: str
    size_bytes: int
    version: str
    name: str = ""

    @classmethod
    def examine(cls, path: str | os.PathLike[str]) -> SourceFile:
        """The file at a path or an address, with its current size and version.

        Raises:
            CorpusError: it does not exist, cannot be read, or is not a regular file.
        """
        text = os.fspath(path)
        if is_address(text):
            address = parse_address(text)
            size_bytes, version = open_remote_file(address, redirects=True).identity()
            return cls(address.text, address.shown, size_bytes, version)
        return cls(str(Path(text).absolute()), text, *_local_identity(text))

    def check_content(self, corpus_format: CorpusFormat) -> None:
        """Check that a file that counts as plain text by its name is none of another format, and
        that an empty file has a format that may be empty: no shard may have it.

        Raises:
            CorpusError: it begins like another format; it is empty, but of a packed format or
                Parquet; or as `reading`.
        """
        if not self.size_bytes and not corpus_format.is_plain_text(self.path):
            try:
                with open_documents(self.path, corpus_format) as reader:
                    deque(reader, maxlen=0)
            except CorpusError as error:
                error.args = (str(error).replace(self.path, self.shown),)
                raise
        if corpus_format.format is None and corpus_format.is_plain_text(self.path):
            with self.reading() as read:
                check_text_content(self.shown, read(0, min(self.size_bytes, CONTENT_BYTES)))

    @property
    def identity(self) -> dict[str, Any]:
        """Its entry in the identity of a run."""
        return {"path": self.shown, "size_bytes": self.size_bytes, "version": self.version}

    @contextlib.contextmanager
    def reading(self) -> Iterator[ReadBytes]:
        """A function that reads from `start` to `end`.

        Raises:
            CorpusError: the file changed, before or while it was read.
            RunError: the store does not respond; a retry may succeed.
        """
        self.check()
        if is_address(self.path):
            remote = open_remote_file(parse_address(self.path), redirects=True)
            yield partial(self._read_remote, remote)
        else:
            with open_chunks(self.path) as descriptor:
                yield partial(read_chunk, self.path, descriptor)
        self.check()

    def check(self) -> None:
        """Check that the file did not change; each worker must find it at the same path.

        Raises:
            CorpusError, RunError: as `reading`.
        """
        if not is_address(self.path):
            identity = _local_identity(self.path)
        else:
            remote = open_remote_file(parse_address(self.path), redirects=True)
            try:
                identity = remote.identity()
            except CorpusError as error:
                raise RunError(str(error)) from None
        if identity != (self.size_bytes, self.version):
            raise changed_error(self.shown)

    def sha256(self) -> str:
        """The sha256 of the file, in hex.

        Raises:
            CorpusError, RunError: as `reading`.
        """
        digest = hashlib.sha256()
        with self.reading() as read:
            for start in range(0, self.size_bytes, _REQUEST_BYTES):
                digest.update(read(start, min(start + _REQUEST_BYTES, self.size_bytes)))
        return digest.hexdigest()

    def _read_remote(self, remote: RemoteFile, start: int, end: int) -> bytes:
        try:
            data = remote.read_range(start, end)
        except CorpusError as error:
            raise RunError(str(error)) from None
        if len(data) != end - start:
            raise changed_error(self.shown)
        return data


def examine_files(files: Iterable[str | os.PathLike[str]]) -> list[SourceFile]:
    """The files of a corpus with their names; raise as `SourceFile.examine`."""
    found = list(map(SourceFile.examine, files))
    names = corpus_file_names([source.shown for source in found])
    return [replace(source, name=name) for source, name in zip(found, names, strict=True)]


def hash_sources(state: None, sources: Sequence[SourceFile], attempt: object) -> dict[str, Any]:
    """The sha256 of each file, as the work of a shard."""
    return {"sha256": [source.sha256() for source in sources]}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a corpus file: the bytes from `start` to `end`, or the documents that begin there;
    of a part to count, with a `documents` format."""

    source: SourceFile
    start: int
    end: int
    documents: CorpusFormat | None = None

    @property
    def within(self) -> tuple[int, int] | None:
        """The range of bytes; None if it is the whole file."""
        is_whole = self.start == 0 and self.end >= self.source.size_bytes
        return None if is_whole else (self.start, self.end)

    def to_chunk(
        self, path: Path, separator: str, skipped: SkippedDocuments, endings: Sequence[str]
    ) -> tuple[Chunk, int]:
        """The part as a chunk of a local file, and its bytes of text. A part of a file in a store,
        and documents with `separator` after each, are copied to `path`; `skipped` and `endings` are
        for these, as in `open_good_documents`.

        Raises:
            CorpusError: as `SourceFile.reading`, or as `open_documents`.
            RunError: as `SourceFile.reading`.
        """
        if self.documents is not None:
            n_bytes = self._write_documents(self.documents, path, separator, skipped, endings)
            return Chunk(str(path), 0, path.stat().st_size), n_bytes
        n_bytes = self.end - self.start
        if not is_address(self.source.path):
            self.source.check()
            return Chunk(self.source.path, self.start, self.end), n_bytes
        with self.source.reading() as read, path.open("xb") as file:
            for start in range(self.start, self.end, _REQUEST_BYTES):
                # Write at the offset of the whole file; the hole before it takes no disk space.
                file.seek(start)
                file.write(read(start, min(start + _REQUEST_BYTES, self.end)))
        return Chunk(str(path), self.start, self.end), n_bytes

    def _write_documents(
        self,
        how: CorpusFormat,
        path: Path,
        separator: str,
        skipped: SkippedDocuments,
        endings: Sequence[str],
    ) -> int:
        source = self.source
        source.check()
        try:
            with open_good_documents(
                source.path,
                how,
                found := SkippedDocuments(skipped.max_bad),
                endings=endings,
                within=self.within,
                hash_source=False,
            ) as (reader, pieces):
                n_bytes = write_separated(path, pieces, separator)
            skipped.n_documents += found.n_documents
            skipped.bad = skipped.bad.plus(place_in_file(found.bad, source, reader.first_byte))
        except StoreReadError as error:  # a retry may succeed
            raise RunError(str(error)) from None
        finally:
            source.check()  # a change may be the reason of an error
        return n_bytes


def place_in_file(bad: BadDocuments, source: SourceFile, first_byte: int) -> BadDocuments:
    """The bad documents of a part that begins at `first_byte`, with the name of its file, and the
    lines of the whole file."""
    n_before = 0
    if bad.first and first_byte:
        opened = open_corpus_file(source.path)
        with opened.file:
            n_before = opened.count_lines(first_byte + 1) - 1  # the part may begin within a line
    placed = (replace(one, file=source.name, number=one.number + n_before) for one in bad.first)
    return replace(bad, first=tuple(placed))


def _local_identity(path: str) -> tuple[int, str]:
    """The size and the version of a local file that can be read: without its device number, which
    differs between hosts."""
    with open_corpus_file(path).file as file:
        status = os.fstat(file.fileno())
    return status.st_size, f"{status.st_mtime_ns}-{status.st_ino}"
