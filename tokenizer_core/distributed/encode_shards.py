"""Encoding in shards: how a corpus is cut, the work on one shard, and the two files of its result.

A shard is the documents that begin in a range of bytes of a file. The worker finds them, so cutting
a corpus reads no file. If a reader cannot start in the middle of a file (packed, Parquet, plain
text without a separator), the file is one shard.

The file `ids` has the ids of all documents, with their mask if the plan has one, two or four bytes
each as the plan says; `documents` has two u64 for each document: its number of ids, and the size of
its text in bytes. Numbers are little-endian. The split of a document depends on its number in the
whole corpus, which a worker does not know, so it is not stored.
"""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from tokenizer_core.corpus.batch_encoding import BatchEncoder
from tokenizer_core.corpus.document_batches import iterate_open_file
from tokenizer_core.corpus.split_writer import LEFT_OUT, DocumentIds
from tokenizer_core.distributed.corpus_sources import Part, check_tables, place_in_file
from tokenizer_core.documents import (
    DEFAULT_PIECE_CHARS,
    BadDocument,
    BadDocuments,
    CorpusFormat,
    open_utf8_documents,
    raise_not_utf8,
)
from tokenizer_core.documents.remote_files import StoreReadError
from tokenizer_core.errors import (
    CorpusError,
    DocumentRefusedError,
    RunError,
    SpecialTokenForbiddenError,
)
from tokenizer_core.parallel import map_ahead, run_ahead
from tokenizer_core.splitting.patterns import UNICODE_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import IO

    from numpy.typing import NDArray

    from tokenizer_core.corpus.document_batches import DocumentBatch
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.distributed.committed_shards import Attempt
    from tokenizer_core.distributed.corpus_sources import SourceFile

BATCH_BYTES: Final = 1 << 19
IDS_NAME: Final = "ids"
DOCUMENTS_NAME: Final = "documents"

BATCH_TOKENS: Final = 1 << 19
_BATCH_DOCUMENTS: Final = 1 << 14
_ROW: Final = np.dtype(("<u8", 2))


def cut_corpus(
    sources: Sequence[SourceFile], corpus_format: CorpusFormat, shard_bytes: int
) -> Iterator[Part]:
    """The shards of the files, in order, of `shard_bytes` each if a file can be entered."""
    for source in sources:
        size_bytes = source.size_bytes
        step = shard_bytes if corpus_format.can_be_entered(source.path) else max(1, size_bytes)
        for start in range(0, max(1, size_bytes), step):
            yield Part(source, start, min(start + step, size_bytes))


@dataclass(frozen=True, slots=True)
class ShardEncoding:
    """Sent to every worker. Ray sends it again with each task, but each process unpickles it only
    once: building a tokenizer takes a second, and its caches stay warm."""

    encoder: BatchEncoder
    plan: TokenFilesPlan
    corpus_format: CorpusFormat
    unicode_tables: str = UNICODE_TABLES

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.encoder, self.plan, self.corpus_format, self.unicode_tables)
        return _unpack_encoding, (pickle.dumps(fields, pickle.HIGHEST_PROTOCOL),)


@lru_cache(maxsize=1)
def _unpack_encoding(data: bytes) -> ShardEncoding:
    return ShardEncoding(*pickle.loads(data))  # noqa: S301 - part of our own pickle


def encode_shard(encoding: ShardEncoding, shard: Part, attempt: Attempt) -> dict[str, Any]:
    """Encode the documents of a shard; return the numbers of documents, ids and bytes, the bad
    documents that were left out, what the document encoder counted, and the sha256 of the file if
    the shard is the whole file.

    Raises:
        CorpusError: the file cannot be read, has changed, or holds text that cannot be encoded.
        RunError: a store does not respond, or this worker has other Unicode tables.
    """
    check_tables(encoding.unicode_tables)
    source, corpus_format = shard.source, encoding.corpus_format
    piece_bytes = min(BATCH_BYTES, DEFAULT_PIECE_CHARS)
    skipped: list[BadDocument] | None = [] if encoding.encoder.skip_bad else None
    found = BadDocuments()
    try:
        source.check()
        with (
            open_utf8_documents(
                source.path,
                corpus_format,
                max_piece_bytes=piece_bytes,
                within=shard.within,
                bad=skipped,
            ) as reader,
            EncodedShardWriter(attempt.scratch, ids_dtype(encoding.plan)) as writer,
        ):
            counts = Counter[str]()
            cuts = encoding.encoder.find_cuts()
            batches = iterate_open_file(reader, cuts, BATCH_BYTES)
            with (
                closing(run_ahead(batches, n_ahead=2)) as ahead,
                closing(
                    map_ahead(partial(_encode, encoding.encoder), ahead, num_threads=1)
                ) as encoded,
            ):
                for documents, counted, is_open, bad in encoded:
                    writer.append(documents, is_open=is_open)
                    counts.update(counted)
                    found = found.plus(bad)
        found = place_in_file(found, shard.source, reader.first_byte)
        source.check()
    except UnicodeDecodeError:
        source.check()  # a change may be the reason
        raise_not_utf8([source.path], corpus_format, shard.within)
    except DocumentRefusedError as error:
        again = open_utf8_documents(
            source.path, corpus_format, within=shard.within, bad=None if skipped is None else []
        )
        with again:
            place, _ = again.find_place(error.number)
        source.check()
        where = f"the corpus file {source.shown!r}, {place}"
        if error.forbidden is not None:
            raise CorpusError(str(SpecialTokenForbiddenError(error.forbidden, where))) from None
        raise error.kind(f"{where}: {error.reason}") from None
    except StoreReadError as error:  # a retry may succeed
        raise RunError(str(error)) from None
    for name in (IDS_NAME, DOCUMENTS_NAME):
        attempt.put(name, attempt.scratch / name)
    return {
        "n_documents": writer.n_documents,
        "n_tokens": writer.n_tokens,
        "n_bytes": writer.n_bytes,
        "bad": found.to_fields(),
        "sha256": reader.sha256 if shard.within is None else None,
        "counts": dict(counts),
    }


def _encode(
    encoder: BatchEncoder, batch: DocumentBatch
) -> tuple[DocumentIds, Counter[str], bool, BadDocuments]:
    counts = Counter[str]()
    documents, bad = encoder.encode_documents(batch, counts)
    left_out = BadDocuments.of(bad[index] for index in sorted(bad))
    return documents, counts, batch.is_open, left_out


class EncodedShardWriter:
    """Writes the two files; `n_documents`, `n_tokens` and `n_bytes` of text so far."""

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        """Raise OSError if the disk refuses, as every method does."""
        self.n_documents = self.n_tokens = self.n_bytes = 0
        self._dtype = dtype
        self._open: NDArray[np.uint64] | None = None
        with ExitStack() as files:
            self._ids: IO[bytes] = files.enter_context((folder / IDS_NAME).open("xb"))
            self._rows: IO[bytes] = files.enter_context((folder / DOCUMENTS_NAME).open("xb"))
            self._files = files.pop_all()

    def append(self, documents: DocumentIds, *, is_open: bool) -> None:
        """Append documents. With `is_open` the last one is not complete: the first document of the
        next call continues it."""
        if not len(documents.n_bytes):
            return
        lengths = np.diff(documents.offsets).astype("<u8")  # with int64, the rows would be floats
        rows = np.column_stack((lengths, documents.n_bytes)).astype("<u8")
        if self._open is not None:
            rows[0] += self._open
        self._open = rows[-1].copy() if is_open else None
        whole = rows[:-1] if is_open else rows
        self._ids.write(np.ascontiguousarray(documents.ids, self._dtype).data.cast("B"))
        self._rows.write(whole.tobytes())
        self.n_documents += len(whole)
        self.n_tokens += len(documents.ids)
        self.n_bytes += int(documents.n_bytes[documents.n_bytes != LEFT_OUT].sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()


def ids_dtype(plan: TokenFilesPlan) -> np.dtype[Any]:
    """The dtype of an id in the files of a shard; with a mask they are from `mark_ids`."""
    return np.dtype("<u2" if plan.dtype == "uint16" and not plan.loss_mask else "<u4")


class ShardPosition(NamedTuple):
    """How far a shard was read: whole documents, and ids of the next one."""

    n_documents: int = 0
    n_open_tokens: int = 0


class ShardBatch(NamedTuple):
    """Documents of a shard; with `is_open` the last one is not complete. `first_document` is the
    index of the first one in the shard, `position` the position after them."""

    first_document: int
    documents: DocumentIds
    is_open: bool
    position: ShardPosition


def read_encoded_shard(
    folder: Path, dtype: np.dtype[Any], start: ShardPosition
) -> Iterator[ShardBatch]:
    """The documents after `start` in batches of about `BATCH_TOKENS` ids. A longer document comes
    in parts; the first part has its size in bytes.

    Raises:
        RunError: the two files do not match.
        OSError: the disk cannot be read.
    """
    with (folder / IDS_NAME).open("rb") as ids, (folder / DOCUMENTS_NAME).open("rb") as rows:
        yield from _ShardFiles(ids, rows, dtype).batches(start)


class _ShardFiles:
    """The two open files of a shard."""

    def __init__(self, ids: IO[bytes], rows: IO[bytes], dtype: np.dtype[Any]) -> None:
        self._ids, self._rows, self._dtype = ids, rows, dtype

    def batches(self, start: ShardPosition) -> Iterator[ShardBatch]:
        """The batches after a position."""
        n_tokens, left = start.n_open_tokens, start.n_documents
        while left:
            rows = self._read_rows(min(left, _BATCH_DOCUMENTS))
            if not len(rows):
                raise _unfit()
            n_tokens, left = n_tokens + int(rows[:, 0].sum()), left - len(rows)
        self._ids.seek(n_tokens * self._dtype.itemsize)
        done, n_open = start
        while len(rows := self._read_rows(_BATCH_DOCUMENTS)):
            while len(rows):
                ends = np.cumsum(rows[:, 0].astype(np.int64))
                n_whole = int(np.searchsorted(ends, BATCH_TOKENS, side="right"))
                if n_whole and not n_open:
                    offsets = np.concatenate(([0], ends[:n_whole]))
                    documents = DocumentIds(
                        self._read_ids(int(offsets[-1])), offsets, rows[:n_whole, 1]
                    )
                    yield ShardBatch(done, documents, False, ShardPosition(done + n_whole))
                else:
                    n_whole = 1
                    yield from self._parts(done, n_open, *rows[0].tolist())
                done, n_open, rows = done + n_whole, 0, rows[n_whole:]
        if self._ids.read(1):
            raise _unfit()

    def _parts(
        self, number: int, n_given: int, n_tokens: int, n_bytes: int
    ) -> Iterator[ShardBatch]:
        """The rest of a document, after its first `n_given` ids."""
        size = np.array([0 if n_given else n_bytes], np.uint64)
        while True:
            ids = self._read_ids(min(n_tokens - n_given, BATCH_TOKENS))
            n_given += len(ids)
            is_open = n_given < n_tokens
            position = ShardPosition(number, n_given) if is_open else ShardPosition(number + 1)
            yield ShardBatch(
                number, DocumentIds(ids, np.array([0, len(ids)]), size), is_open, position
            )
            if not is_open:
                return
            size = np.zeros(1, np.uint64)

    def _read_rows(self, most: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._rows.read(most * _ROW.itemsize), "<u8").reshape(-1, 2)

    def _read_ids(self, count: int) -> NDArray[Any]:
        data = self._ids.read(count * self._dtype.itemsize)
        if len(data) != count * self._dtype.itemsize:
            raise _unfit()
        return np.frombuffer(data, self._dtype)


def _unfit() -> RunError:
    return RunError(
        "a shard's ids and documents do not belong together; remove the run's storage and run it "
        "again"
    )
