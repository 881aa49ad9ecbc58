"""What encoding a shard of a corpus gives: its ids, and where its documents are, in two files.

`ids` has the ids of all documents, two or four bytes each as the plan says, and `documents` two u64
for each document: how many ids it has, and how many bytes its text. Numbers are little-endian. Into
which split a document goes is not said, as that rests on its number in the corpus, which who
encodes a shard does not know.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from tokenizer_core.corpus.batch_encoding import DocumentIds
from tokenizer_core.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import IO

    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_plan import TokenFilesPlan

IDS_NAME: Final = "ids"
DOCUMENTS_NAME: Final = "documents"

BATCH_TOKENS: Final = 1 << 19
_BATCH_DOCUMENTS: Final = 1 << 14
_ROW: Final = np.dtype(("<u8", 2))


class EncodedShardWriter:
    """Writes the two files into a folder; `n_documents`, `n_tokens` and `n_bytes` of text so far.

    Example:
        >>> import tempfile; from pathlib import Path
        >>> folder = Path(tempfile.mkdtemp())
        >>> with EncodedShardWriter(folder, np.dtype("<u2")) as writer:
        ...     ids, n_bytes = np.array([7, 8, 9], np.uint16), np.array([2, 3], np.uint64)
        ...     writer.append(DocumentIds(ids, np.array([0, 1, 3]), n_bytes), is_open=False)
        >>> for batch in read_encoded_shard(folder, np.dtype("<u2"), ShardPlace()):
        ...     print(batch.documents.ids, batch.documents.offsets, batch.place)
        [7 8 9] [0 1 3] ShardPlace(n_documents=2, n_open_tokens=0)
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        """Raises OSError where the disk refuses, as every method does."""
        self.n_documents = self.n_tokens = self.n_bytes = 0
        self._dtype = dtype
        self._open: NDArray[np.uint64] | None = None
        with ExitStack() as files:
            self._ids: IO[bytes] = files.enter_context((folder / IDS_NAME).open("xb"))
            self._rows: IO[bytes] = files.enter_context((folder / DOCUMENTS_NAME).open("xb"))
            self._files = files.pop_all()

    def append(self, documents: DocumentIds, *, is_open: bool) -> None:
        """Append documents; with `is_open` the last is not whole, and the first of those appended
        next goes on with it."""
        if not len(documents.n_bytes):
            return
        rows = np.column_stack((np.diff(documents.offsets), documents.n_bytes)).astype("<u8")
        if self._open is not None:
            rows[0] += self._open
        self._open = rows[-1].copy() if is_open else None
        whole = rows[:-1] if is_open else rows
        self._ids.write(np.ascontiguousarray(documents.ids, self._dtype).data.cast("B"))
        self._rows.write(whole.tobytes())
        self.n_documents += len(whole)
        self.n_tokens += len(documents.ids)
        self.n_bytes += int(documents.n_bytes.sum())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.close()


def ids_dtype(plan: TokenFilesPlan) -> np.dtype[Any]:
    """How an id stands in the files of a shard."""
    return np.dtype("<u2" if plan.dtype == "uint16" else "<u4")


class ShardPlace(NamedTuple):
    """How far the documents of a shard were read: so many, and so many ids of the next one."""

    n_documents: int = 0
    n_open_tokens: int = 0


class ShardBatch(NamedTuple):
    """Documents of a shard, the last of which is not whole with `is_open`; `first_document` is the
    number of the first in the shard, `place` is behind them."""

    first_document: int
    documents: DocumentIds
    is_open: bool
    place: ShardPlace


def read_encoded_shard(
    folder: Path, dtype: np.dtype[Any], start: ShardPlace
) -> Iterator[ShardBatch]:
    """The documents behind `start` in batches of about `BATCH_TOKENS` ids; a longer one comes in
    parts, its bytes with the first.

    Raises:
        RunError: the two files do not belong together.
        OSError: the disk would not read.
    """
    with (folder / IDS_NAME).open("rb") as ids, (folder / DOCUMENTS_NAME).open("rb") as rows:
        shard = _ShardFiles(ids, rows, dtype)
        shard.skip(start)
        yield from shard.batches(start)


class _ShardFiles:
    """The open files of a shard, read one after the other."""

    def __init__(self, ids: IO[bytes], rows: IO[bytes], dtype: np.dtype[Any]) -> None:
        self._ids, self._rows, self._dtype = ids, rows, dtype

    def skip(self, place: ShardPlace) -> None:
        """Go on behind a place."""
        n_tokens, left = place.n_open_tokens, place.n_documents
        while left:
            rows = self._read_rows(min(left, _BATCH_DOCUMENTS))
            if not len(rows):
                raise _unfit()
            n_tokens, left = n_tokens + int(rows[:, 0].sum()), left - len(rows)
        self._ids.seek(n_tokens * self._dtype.itemsize)

    def batches(self, start: ShardPlace) -> Iterator[ShardBatch]:
        """The batches from the place skipped to."""
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
                    yield ShardBatch(done, documents, False, ShardPlace(done + n_whole))
                else:
                    n_whole = 1
                    yield from self._parts(done, n_open, *rows[0].tolist())
                done, n_open, rows = done + n_whole, 0, rows[n_whole:]
        if self._ids.read(1):
            raise _unfit()

    def _parts(
        self, number: int, n_given: int, n_tokens: int, n_bytes: int
    ) -> Iterator[ShardBatch]:
        """What is left of a document, behind the ids that were given."""
        size = np.array([0 if n_given else n_bytes], np.uint64)
        while True:
            ids = self._read_ids(min(n_tokens - n_given, BATCH_TOKENS))
            n_given += len(ids)
            is_open = n_given < n_tokens
            place = ShardPlace(number, n_given) if is_open else ShardPlace(number + 1)
            yield ShardBatch(
                number, DocumentIds(ids, np.array([0, len(ids)]), size), is_open, place
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
