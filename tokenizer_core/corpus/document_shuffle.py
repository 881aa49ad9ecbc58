"""Shuffle the documents of token files: an exact permutation of all of them, drawn from a seed.

The ids are in a file, in the order they were read, and each document is read from its offset. Only
the permutation is in memory, eight bytes per document.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tokenizer_core.blobs.local_files import open_to_read, read_at
from tokenizer_core.corpus.marked_ids import mark_ids
from tokenizer_core.corpus.split_writer import SplitPart
from tokenizer_core.corpus.token_manifest import START_ANEW
from tokenizer_core.errors import TokenFilesCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenizer_core.corpus.split_writer import Ids
    from tokenizer_core.corpus.token_files import TokenFiles
    from tokenizer_core.corpus.token_manifest import SplitRecord

BATCH_TOKENS: Final = 1 << 19
_BATCH_DOCUMENTS: Final = 1 << 14
_NO_SIZE: Final = np.zeros(1, np.uint64)


class ShufflePosition(NamedTuple):
    """How far the shuffled documents are written: the index of a split, and its documents."""

    split: int = 0
    n_documents: int = 0


def shuffle_documents(
    files: TokenFiles, seed: int, start: ShufflePosition
) -> Iterator[tuple[SplitPart, ShufflePosition]]:
    """All documents from `start` on in batches, each split in its own order, with the position
    after each batch. One can resume at a position unless its batch is open.

    `files` have the layout `raw` and one shard per split.

    Raises:
        TokenFilesCorruptError: a file is shorter than its manifest says.
    """
    for index, split in enumerate(files.manifest.splits):
        if index < start.split:
            continue
        first = start.n_documents if index == start.split else 0
        order = np.random.Generator(np.random.PCG64([seed, 1 + index])).permutation(
            split.n_documents
        )
        with closing(_ShuffledSplit(files, split)) as documents:
            while first < len(order):
                n_taken, parts = documents.take(order[first : first + _BATCH_DOCUMENTS])
                # The files have no size of each text, so the first part has that of all.
                n_bytes = 0 if first else split.n_bytes
                first += n_taken
                for part in parts:
                    position = ShufflePosition(index, first)
                    yield part._replace(n_bytes=np.array([n_bytes], np.uint64)), position
                    n_bytes = 0


class _ShuffledSplit:
    """The documents of a split, read from their offsets."""

    def __init__(self, files: TokenFiles, split: SplitRecord) -> None:
        plan = files.manifest.plan
        self._split, self._dtype = split, plan.disk_dtype
        names = plan.file_names(split.name, 0)
        self._path: Path = files.folder / names[0]
        self._descriptor = open_to_read(self._path)
        self._mask = open_to_read(files.folder / names[-1]) if plan.loss_mask else -1
        self._ends = np.memmap(files.folder / split.ends_name, "<u8", mode="r")

    def close(self) -> None:
        os.close(self._descriptor)
        if self._mask >= 0:
            os.close(self._mask)

    def take(self, numbers: NDArray[np.int64]) -> tuple[int, Iterator[SplitPart]]:
        """The number of documents in the next batch, and the batch; a longer document comes in
        parts."""
        stops = self._ends[numbers].astype(np.int64)
        starts = np.where(numbers > 0, self._ends[numbers - 1].astype(np.int64), 0)
        offsets = np.concatenate(([0], np.cumsum(stops - starts)))
        n_fitting = int(np.searchsorted(offsets, BATCH_TOKENS, side="right")) - 1
        if n_fitting < 1:
            return 1, self._parts(int(starts[0]), int(stops[0]))
        pairs = zip(starts[:n_fitting].tolist(), stops[:n_fitting].tolist(), strict=True)
        ids = self._read_ids(list(pairs))
        part = SplitPart(self._split.name, ids, offsets[: n_fitting + 1], _NO_SIZE, is_open=False)
        return n_fitting, iter([part])

    def _parts(self, start: int, stop: int) -> Iterator[SplitPart]:
        for first in range(start, stop, BATCH_TOKENS):
            last = min(first + BATCH_TOKENS, stop)
            ids = self._read_ids([(first, last)])
            offsets = np.array([0, len(ids)])
            yield SplitPart(self._split.name, ids, offsets, _NO_SIZE, is_open=last < stop)

    def _read_ids(self, ranges: list[tuple[int, int]]) -> Ids:
        """The ids of ranges of the split; from `mark_ids` if the split has a mask."""
        item_bytes = self._dtype.itemsize
        parts = [self._read(self._descriptor, item_bytes, *range_) for range_ in ranges]
        ids: Ids = np.frombuffer(b"".join(parts), self._dtype)
        if self._mask < 0:
            return ids
        masks = [self._read(self._mask, 1, *range_) for range_ in ranges]
        return mark_ids(ids, np.frombuffer(b"".join(masks), np.uint8))

    def _read(self, descriptor: int, item_bytes: int, start: int, stop: int) -> bytes:
        size = (stop - start) * item_bytes
        data = read_at(descriptor, size, start * item_bytes)
        if len(data) != size:
            raise TokenFilesCorruptError(
                f"{self._path.name} ends before a document does; {START_ANEW}"
            )
        return data
