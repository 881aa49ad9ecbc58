"""Uploaded corpora: complete files by id, all together within a quota.

    <artifacts>/corpora/<id>.json               which file, its format, its size and sha256
    <artifacts>/corpora/files/<name>.<format>   the file; never changed once a record names it

Several processes write here at once. An upload writes and syncs its text under a random name; the
corpus exists once its record is written. The writer of a file holds a lock on it, which the system
drops when the process dies. So an unlocked file without a record is a leftover of a dead process.
Every call blocks: use a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tokenizer_client.schemas.jobs import Corpus
from tokenizer_core.blobs.atomic_files import (
    make_folder,
    remove_synced,
    replace_synced,
    sync_file,
    sync_folder,
)
from tokenizer_core.blobs.locks import try_lock, wait_for_lock
from tokenizer_core.documents import (
    CONTENT_BYTES,
    CONTENT_NAMES,
    FORMATS,
    content_remedy,
    format_of_content,
    format_of_name,
)
from tokenizer_core.documents.document_pieces import Utf8Decoder
from tokenizer_core.errors import InvalidUtf8Error
from tokenizer_core.registry.versions import NAME
from tokenizer_service.jobs.errors import (
    CorporaQuotaError,
    CorpusExistsError,
    CorpusFormatError,
    CorpusNotFoundError,
)
from tokenizer_service.jobs.folder import bytes_below, names_in
from tokenizer_service.jobs.input_files import InputFile, find_input_file

log = logging.getLogger("tokenizer_service.jobs")

_LOOK_BYTES: Final = 64 * 1024 * 1024
"""An upload checks the quota again after this many bytes."""

_FILE: Final = re.compile(rf"[0-9a-f]{{32}}\.({'|'.join(map(re.escape, FORMATS))})")


class StoredCorpus(Corpus):
    """The record of a corpus; `is_told`: the request of the upload named the format."""

    file: str
    is_told: bool


class CorpusStore:
    """The corpora in `folder`, which the first upload creates.

    `max_bytes` limits the bytes on the disk, including texts that are being uploaded or replaced.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self._files = folder, folder / "files"
        self.max_bytes = max_bytes

    def all(self) -> list[StoredCorpus]:
        """All corpora, by id."""
        ids = sorted(name.removesuffix(".json") for name in names_in(self._folder))
        found = (self.find(corpus_id) for corpus_id in ids if NAME.fullmatch(corpus_id))
        return [corpus for corpus in found if corpus is not None]

    def find(self, corpus_id: str) -> StoredCorpus | None:
        """The corpus, or None."""
        try:
            corpus = StoredCorpus.model_validate_json(self._record(corpus_id).read_bytes())
            if _FILE.fullmatch(corpus.file):
                return corpus
            raise ValueError
        except FileNotFoundError:
            return None
        except ValueError:
            log.warning("the record of the corpus %s is damaged; upload it again", corpus_id)
            return None

    def get(self, corpus_id: str) -> StoredCorpus:
        """The corpus; raises CorpusNotFoundError."""
        corpus = self.find(corpus_id)
        if corpus is None:
            raise CorpusNotFoundError
        return corpus

    def find_file(self, corpus_id: str) -> InputFile:
        """The text of a corpus as the input of a job; raises as `get`, or InputPathError."""
        corpus = self.get(corpus_id)
        found = find_input_file([self._files], corpus.file)
        return replace(
            found,
            label=corpus.id,
            format=corpus.format,
            is_told=corpus.is_told,
            text_field=corpus.field,
            not_utf8_at=corpus.not_utf8_at,
        )

    def begin(
        self,
        corpus_id: str,
        *,
        n_declared: int = 0,
        may_replace: bool = True,
        format: str | None = None,  # noqa: A002
        field: str | None = None,
    ) -> CorpusUpload:
        """Begin an upload of a file of this format, by default the one that its id ends in; the
        caller must close it.
        """
        if not may_replace and self.find(corpus_id) is not None:
            raise CorpusExistsError
        self.require_room(self.used_bytes() + n_declared)
        make_folder(self._files)
        return CorpusUpload(
            self, self._files, corpus_id, may_replace=may_replace, format_name=format, field=field
        )

    def publish(self, corpus: StoredCorpus, *, may_replace: bool) -> bool:
        """Make a synced file the corpus of its id; returns whether it replaced another.

        If the disk refuses, the previous corpus stays.
        """
        with self._locked():
            previous = self.find(corpus.id)
            if previous is not None and not may_replace:
                raise CorpusExistsError
            replace_synced(self._record(corpus.id), corpus.model_dump_json().encode())
        if previous is not None:
            self._drop(previous)
        return previous is not None

    def remove(self, corpus_id: str) -> None:
        """Remove a corpus; raises CorpusNotFoundError."""
        with self._locked():
            corpus = self.get(corpus_id)
            remove_synced(self._record(corpus_id))
        self._drop(corpus)

    def sweep(self) -> None:
        """Remove the files that no record names and no process is writing."""
        names = names_in(self._files)  # before the records: a file may get one meanwhile
        known = {corpus.file for corpus in self.all()}
        for name in names:
            if name not in known and _FILE.fullmatch(name):
                self._sweep_file(name)

    def used_bytes(self) -> int:
        """Bytes of all texts, including those being uploaded."""
        return bytes_below(self._files)

    def require_room(self, n_bytes: int) -> None:
        """Raise CorporaQuotaError if a total of `n_bytes` exceeds the quota."""
        if n_bytes > self.max_bytes:
            raise CorporaQuotaError(self.max_bytes, n_bytes)

    def _sweep_file(self, name: str) -> None:
        path = self._files / name
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            if not try_lock(file):
                return  # a process is writing it
            # Check again: the writer may have published the file between the check and the lock.
            if name not in {corpus.file for corpus in self.all()}:
                path.unlink()
                log.info("removed a corpus file that was left over, of %d bytes", file.seek(0, 2))

    def _drop(self, corpus: StoredCorpus) -> None:
        """Remove the text of a removed corpus; a job that has it open can still read it."""
        with contextlib.suppress(FileNotFoundError):
            (self._files / corpus.file).unlink()

    def _record(self, corpus_id: str) -> Path:
        return self._folder / f"{corpus_id}.json"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock on the records; release it within milliseconds."""
        make_folder(self._folder)
        with (self._folder / ".lock").open("a") as lock:
            wait_for_lock(lock)
            yield


class CorpusUpload:
    """An upload; the caller must `close` it in every case.

    A lock serialises the calls: after a request is cancelled, its thread may still be writing.
    """

    def __init__(
        self,
        store: CorpusStore,
        files: Path,
        corpus_id: str,
        *,
        may_replace: bool,
        format_name: str | None,
        field: str | None,
    ) -> None:
        self._store, self._id, self._may_replace = store, corpus_id, may_replace
        self._is_told, self._field = format_name is not None, field
        self._format = format_name or format_of_name(corpus_id) or "txt"
        self._path, self._file = _open_locked(files, self._format)
        self._lock = threading.Lock()
        self._digest, self._n_bytes = hashlib.sha256(), 0
        # Only text can be checked while it arrives. A job that leaves out bad documents may read
        # what is not UTF-8.
        self._text = Utf8Decoder() if self._format in ("txt", "jsonl") else None
        self._not_utf8_at: int | None = None
        self._beginning = b""
        self._n_others, self._look_at = 0, 0

    def write(self, data: bytes) -> None:
        """Write the next piece."""
        with self._lock:
            if len(self._beginning) < CONTENT_BYTES:
                self._beginning += data[: CONTENT_BYTES - len(self._beginning)]
                if len(self._beginning) == CONTENT_BYTES:
                    self._check_content()
            self._check_utf8(data)
            self._n_bytes += len(data)
            n_bytes = self._n_bytes
            if n_bytes >= self._look_at:
                self._n_others = self._store.used_bytes() - os.fstat(self._file.fileno()).st_size
                self._look_at = n_bytes + _LOOK_BYTES
            self._store.require_room(self._n_others + n_bytes)
            self._digest.update(data)
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]

    def publish(self) -> tuple[StoredCorpus, bool]:
        """Sync the text and make it the corpus of its id; returns whether it replaced another."""
        with self._lock:
            if len(self._beginning) < CONTENT_BYTES:
                self._check_content()
            self._check_utf8(b"", final=True)
            sync_file(self._file.fileno())
            sync_folder(self._path.parent)
            corpus = StoredCorpus(
                id=self._id,
                bytes=self._n_bytes,
                sha256=self._digest.hexdigest(),
                uploaded_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                file=self._path.name,
                format=self._format,
                is_told=self._is_told,
                field=self._field,
                not_utf8_at=self._not_utf8_at,
            )
            return corpus, self._store.publish(corpus, may_replace=self._may_replace)

    def _check_utf8(self, data: bytes, *, final: bool = False) -> None:
        """Note where the text is not UTF-8; raises as `_check_content`, which may name a format."""
        if self._text is None:
            return
        try:
            self._text.decode(data, final=final)
        except InvalidUtf8Error as error:
            self._check_content()
            self._text, self._not_utf8_at = None, error.byte_offset

    def _check_content(self) -> None:
        """Raise CorpusFormatError if the beginning is that of another format."""
        found = format_of_content(self._beginning, self._id)
        kind, _, packed = self._format.partition(".")
        expected = packed or ("parquet" if kind == "parquet" else None)
        if self._beginning and expected is not None and found != expected:
            raise CorpusFormatError(
                f"not {CONTENT_NAMES[expected]}, but the id or the request says so"
            )
        is_text = found in ("jsonl", "json", "csv", "arrow", "tar", "warc", "utf-16")
        is_unasked = not is_text or (kind == "txt" and not self._is_told)
        if expected is None and found is not None and is_unasked:
            why = f"which is not read: {content_remedy(found)}"
            if found in ("gz", "zst", "parquet", "jsonl"):
                why = "and neither the id nor the request says so"
            raise CorpusFormatError(f"{CONTENT_NAMES[found]}, {why}")

    def close(self) -> None:
        """Release the file; removes it if it was not published."""
        with self._lock:
            try:
                # Trust only the record: a failing disk may write it and still report an error.
                corpus = self._store.find(self._id)
                if corpus is None or corpus.file != self._path.name:
                    self._path.unlink(missing_ok=True)
            finally:
                self._file.close()


def _open_locked(folder: Path, format_name: str) -> tuple[Path, io.FileIO]:
    """A new, locked file. Tries again if `sweep` removed it before the lock was taken."""
    while True:
        path = folder / f"{secrets.token_hex(16)}.{format_name}"
        file = io.FileIO(path, "x")
        wait_for_lock(file)
        if path.exists():
            os.fchmod(file.fileno(), 0o600)
            return path, file
        file.close()
