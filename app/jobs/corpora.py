"""Uploaded corpora: UTF-8 text by id, whole or absent, all together within a quota.

    <artifacts>/corpora/<id>.json          which file, its size and sha256
    <artifacts>/corpora/files/<name>.txt   the text; never written to once a record names it

It stands alone because several processes write here at once. A text is written and synced under a
name of its own; putting the record in its place is the moment from which it is there. Whoever
writes a file holds a lock on it, which the system drops at its death: that tells what is left over
from what is under way. It stands below the artifacts folder because that is the volume that is
kept. Every call blocks: use a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from app.jobs.errors import (
    CompressedCorpusError,
    CorporaQuotaError,
    CorpusExistsError,
    CorpusNotFoundError,
)
from app.jobs.input_files import InputFile, find_input_file
from tokenizer_core.blobs.atomic_files import make_folder, replace_synced, sync_folder
from tokenizer_core.documents.utf8_decoder import Utf8Decoder
from tokenizer_core.registry.versions import NAME

log = logging.getLogger("app.jobs")

_LOOK_BYTES: Final = 64 * 1024 * 1024
"""After so many bytes an upload looks again at what the others hold of the quota."""

_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ")
"""How gzip, zstd and xz begin; no UTF-8 does."""

_FILE: Final = re.compile(r"[0-9a-f]{32}\.txt")


@dataclass(frozen=True, slots=True)
class StoredCorpus:
    """One corpus as its record has it."""

    id: str
    bytes: int
    sha256: str
    uploaded_at: str
    file: str


class CorpusStore:
    """The corpora in `folder`, which is made with the first upload. `max_bytes`: on the disk,
    with what is being uploaded or replaced."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder, self._files = folder, folder / "files"
        self.max_bytes = max_bytes

    def all(self) -> list[StoredCorpus]:
        """All corpora, by id."""
        with contextlib.suppress(FileNotFoundError):
            ids = sorted(name.removesuffix(".json") for name in os.listdir(self._folder))  # noqa: PTH208
            found = (self.find(corpus_id) for corpus_id in ids if NAME.fullmatch(corpus_id))
            return [corpus for corpus in found if corpus is not None]
        return []

    def find(self, corpus_id: str) -> StoredCorpus | None:
        """The corpus, or None."""
        try:
            record: dict[str, Any] = json.loads(self._record(corpus_id).read_bytes())
            corpus = StoredCorpus(**record)
            if _FILE.fullmatch(corpus.file):
                return corpus
            raise ValueError
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            log.warning("the record of the corpus %s is damaged; upload it again", corpus_id)
            return None

    def get(self, corpus_id: str) -> StoredCorpus:
        """The corpus.

        Raises:
            CorpusNotFoundError: no corpus has this id.
        """
        corpus = self.find(corpus_id)
        if corpus is None:
            raise CorpusNotFoundError
        return corpus

    def find_file(self, corpus_id: str) -> InputFile | None:
        """Its text as an input of a training job, or None.

        Raises:
            InputPathError: its file is gone or is no regular file.
        """
        corpus = self.find(corpus_id)
        if corpus is None:
            return None
        return replace(find_input_file([self._files], corpus.file), label=corpus.id)

    def begin(
        self, corpus_id: str, *, n_declared: int = 0, may_replace: bool = True
    ) -> CorpusUpload:
        """Begin an upload; the result must be closed.

        Raises:
            CorpusExistsError: a corpus has this id and may not be replaced.
            CorporaQuotaError: `n_declared` bytes are too many.
            OSError: the disk refuses.
        """
        if not may_replace and self.find(corpus_id) is not None:
            raise CorpusExistsError
        self.require_room(self.used_bytes() + n_declared)
        make_folder(self._files)
        return CorpusUpload(self, self._files, corpus_id, may_replace=may_replace)

    def publish(self, corpus: StoredCorpus, *, may_replace: bool) -> bool:
        """Make a synced file the corpus of that id; whether there was one before.

        Raises:
            CorpusExistsError: another one came first and may not be replaced.
            OSError: the disk refuses; what was there stays.
        """
        with self._locked():
            previous = self.find(corpus.id)
            if previous is not None and not may_replace:
                raise CorpusExistsError
            replace_synced(self._record(corpus.id), json.dumps(asdict(corpus)).encode())
        if previous is not None:
            self._drop(previous)
        return previous is not None

    def remove(self, corpus_id: str) -> None:
        """Remove a corpus for good.

        Raises:
            CorpusNotFoundError: no corpus has this id.
            OSError: the disk refuses.
        """
        with self._locked():
            corpus = self.get(corpus_id)
            self._record(corpus_id).unlink()
            sync_folder(self._folder)
        self._drop(corpus)

    def sweep(self) -> None:
        """Remove the files that no record names and nobody writes any more."""
        try:
            names = os.listdir(self._files)  # noqa: PTH208
        except FileNotFoundError:
            return
        known = {corpus.file for corpus in self.all()}
        for name in names:
            if name not in known and _FILE.fullmatch(name):
                self._sweep_file(name)

    def used_bytes(self) -> int:
        """What the texts take, with those under way."""
        used = 0
        with contextlib.suppress(FileNotFoundError), os.scandir(self._files) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # one that goes meanwhile
                    used += entry.stat(follow_symlinks=False).st_size
        return used

    def require_room(self, n_bytes: int) -> None:
        """Raise CorporaQuotaError where `n_bytes` in all would be over the quota."""
        if n_bytes > self.max_bytes:
            raise CorporaQuotaError(self.max_bytes, n_bytes)

    def _sweep_file(self, name: str) -> None:
        path = self._files / name
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # somebody writes it
            # Looked at again: it may have been published between the look and the lock.
            if name not in {corpus.file for corpus in self.all()}:
                path.unlink()
                log.info("removed a corpus file that was left over, of %d bytes", file.seek(0, 2))

    def _drop(self, corpus: StoredCorpus) -> None:
        """Remove the text of a corpus that is no more; a training run that reads it goes on."""
        with contextlib.suppress(FileNotFoundError):
            (self._files / corpus.file).unlink()

    def _record(self, corpus_id: str) -> Path:
        return self._folder / f"{corpus_id}.json"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock on the records; it is held for some milliseconds only."""
        make_folder(self._folder)
        with (self._folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class CorpusUpload:
    """A corpus on its way to the disk; `close` it whatever happened. One thread at a time gets in:
    a request that is cancelled leaves its thread writing."""

    def __init__(
        self, store: CorpusStore, files: Path, corpus_id: str, *, may_replace: bool
    ) -> None:
        self._store, self._id, self._may_replace = store, corpus_id, may_replace
        self._path, self._file = _open_locked(files)
        self._lock = threading.Lock()
        self._text, self._digest = Utf8Decoder(), hashlib.sha256()
        self._n_others, self._look_at = 0, 0

    def write(self, data: bytes) -> None:
        """Write the next piece.

        Raises:
            InvalidUtf8Error, CorporaQuotaError, CompressedCorpusError: it is not taken.
            OSError: the disk refuses.
        """
        with self._lock:
            if self._text.n_bytes == 0 and data.startswith(_COMPRESSED):
                raise CompressedCorpusError
            self._text.decode(data)
            n_bytes = self._text.n_bytes
            if n_bytes >= self._look_at:
                self._n_others = self._store.used_bytes() - os.fstat(self._file.fileno()).st_size
                self._look_at = n_bytes + _LOOK_BYTES
            self._store.require_room(self._n_others + n_bytes)
            self._digest.update(data)
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]

    def publish(self) -> tuple[StoredCorpus, bool]:
        """Sync it and make it the corpus of its id; whether it took the place of another.

        Raises:
            InvalidUtf8Error: it ends inside a character.
            CorpusExistsError: another one came first and may not be replaced.
            OSError: the disk refuses; what was there stays.
        """
        with self._lock:
            self._text.decode(b"", final=True)
            os.fsync(self._file.fileno())
            sync_folder(self._path.parent)
            corpus = StoredCorpus(
                id=self._id,
                bytes=self._text.n_bytes,
                sha256=self._digest.hexdigest(),
                uploaded_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                file=self._path.name,
            )
            return corpus, self._store.publish(corpus, may_replace=self._may_replace)

    def close(self) -> None:
        """Let go of it; what was not published is removed."""
        with self._lock:
            try:
                # The record is asked: a disk that fails may have taken it and said no.
                corpus = self._store.find(self._id)
                if corpus is None or corpus.file != self._path.name:
                    self._path.unlink(missing_ok=True)
            finally:
                self._file.close()


def _open_locked(folder: Path) -> tuple[Path, io.FileIO]:
    """A new file that is locked, and was not swept before it was."""
    while True:
        path = folder / f"{secrets.token_hex(16)}.txt"
        file = io.FileIO(path, "x")
        fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            os.fchmod(file.fileno(), 0o600)
            return path, file
        file.close()
