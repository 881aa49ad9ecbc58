"""Corpus files as all workers see them: on a disk they share, or in a store.

A file is known by its size and what tells whether it changed; a worker that finds another is at the
wrong file. What is cut out of it comes as a `Chunk` of a file on the worker's disk, so that it is
counted by what counts any file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tokenizer_core.documents.corpus_addresses import is_address, parse_address
from tokenizer_core.documents.remote_files import RemoteFile, open_remote_file
from tokenizer_core.errors import CorpusError, RunError
from tokenizer_core.patterns import UNICODE_TABLES
from tokenizer_core.training.corpus_chunks import Chunk, CorpusFile, ReadBytes

_REQUEST_BYTES: Final = 1 << 23


def check_tables(unicode_tables: str) -> None:
    """Raise RunError where this worker would split text otherwise than who asks, who has these."""
    if unicode_tables != UNICODE_TABLES:
        raise RunError(
            f"a worker has the Unicode tables of {UNICODE_TABLES}, not {unicode_tables}, "
            f"and may split text elsewhere; install the same version everywhere"
        )


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the corpus: how it is opened, what people call it, and how it is known again."""

    path: str
    shown: str
    size_bytes: int
    version: str

    @classmethod
    def examine(cls, path: str | os.PathLike[str], *, shown: str | None = None) -> SourceFile:
        """The file at a path or an address, asked for now.

        Raises:
            CorpusError: it does not exist, cannot be read, or is no regular file.
        """
        text = os.fspath(path)
        if is_address(text):
            address = parse_address(text)
            size_bytes, version = open_remote_file(address, redirects=True).identity()
            return cls(address.text, shown or address.shown, size_bytes, version)
        file = CorpusFile.examine(text)
        return cls(str(Path(text).absolute()), shown or text, file.size_bytes, _version_of(file))

    @staticmethod
    def version_of(modified_ns: int, inode: int) -> str:
        """By what a file on a disk is known again: not by the number of its device, which every
        host chooses for itself."""
        return f"{modified_ns}-{inode}"

    @property
    def identity(self) -> dict[str, Any]:
        """What it is in the identity of a run."""
        return {"path": self.shown, "size_bytes": self.size_bytes, "version": self.version}

    @contextlib.contextmanager
    def reading(self) -> Iterator[ReadBytes]:
        """A function that reads from `start` to `end`.

        Raises:
            CorpusError: the file is another than it was, at the beginning or at the end.
            RunError: the store does not answer; it may later.
        """
        if is_address(self.path):
            remote = open_remote_file(parse_address(self.path), redirects=True)
            self._check_same(remote)
            yield partial(self._read_remote, remote)
            self._check_same(remote)
            return
        file = self.on_disk()
        descriptor = file.open()
        try:
            yield partial(file.read, descriptor)
        finally:
            os.close(descriptor)
        file.check_unchanged()

    def on_disk(self) -> CorpusFile:
        """The file of a path, seen to be what it was.

        Raises:
            CorpusError: it is not, or not there; each worker must find it at the same path.
        """
        file = CorpusFile.examine(self.path)
        if (file.size_bytes, _version_of(file)) != (self.size_bytes, self.version):
            raise self.changed()
        return file

    def check(self) -> None:
        """See that the file is still the one it was.

        Raises:
            CorpusError, RunError: as `reading`.
        """
        if is_address(self.path):
            self._check_same(open_remote_file(parse_address(self.path), redirects=True))
        else:
            self.on_disk()

    def changed(self) -> CorpusError:
        """The error that says the file changed."""
        return CorpusError(
            f"the corpus file {self.shown} changed while it was read; take a copy that nobody "
            f"writes to"
        )

    def sha256(self) -> str:
        """Of all its bytes, in hex.

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
            raise self.changed()
        return data

    def _check_same(self, remote: RemoteFile) -> None:
        try:
            identity = remote.identity()
        except CorpusError as error:
            raise RunError(str(error)) from None
        if identity != (self.size_bytes, self.version):
            raise self.changed()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a corpus file that can be counted by itself: the bytes from `start` to `end`."""

    source: SourceFile
    start: int
    end: int

    @property
    def n_bytes(self) -> int:
        """How many."""
        return self.end - self.start

    def to_chunk(self, path: Path) -> Chunk:
        """The part as one of a file on the disk, which is fetched to `path` if it is elsewhere.

        Raises:
            CorpusError, RunError: as `SourceFile.reading`.
        """
        if not is_address(self.source.path):
            return Chunk(self.source.on_disk(), self.start, self.end)
        with self.source.reading() as read, path.open("xb") as file:
            for start in range(self.start, self.end, _REQUEST_BYTES):
                # Where it stands in the whole file: what is before it takes no room on the disk.
                file.seek(start)
                file.write(read(start, min(start + _REQUEST_BYTES, self.end)))
        return Chunk(CorpusFile.examine(path), self.start, self.end)


def _version_of(file: CorpusFile) -> str:
    return SourceFile.version_of(file.modified_ns, file.inode)
