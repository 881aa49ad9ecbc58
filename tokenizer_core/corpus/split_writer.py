"""The splits of a corpus. SplitDraw draws the split of each document. SplitWriter checks the ids of
one split, and appends them to its shards, document ends and counts."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tokenizer_core.corpus.document_index import iterate_lengths, render_megatron_index
from tokenizer_core.corpus.marked_ids import unmark_ids
from tokenizer_core.corpus.parquet_shards import write_parquet
from tokenizer_core.corpus.staging import StagedFile
from tokenizer_core.corpus.token_counts import TokenCounts, special_tokens_found
from tokenizer_core.corpus.token_manifest import (
    ShardRecord,
    SplitRecord,
    TokenFile,
    check_size,
    ends_name,
    use_name,
)
from tokenizer_core.strict_json import parse_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_plan import Split, TokenFilesPlan

    Ids = NDArray[np.uint16] | NDArray[np.uint32]

LEFT_OUT: Final = np.uint64(2**64 - 1)
"""The number of bytes of a bad document that was left out: it has no ids, but keeps its number."""

_NUMBERS: Final = (
    *("n_documents", "n_tokens", "n_bytes"),
    *("shard_tokens", "shard_first_document", "shard_first_token", "open_tokens"),
)
_CAST_TOKENS: Final = 1 << 18
"""Ids are cast in pieces, to avoid a second copy of a large batch."""
_PIECE_BYTES: Final = 1 << 20


class SplitPart(NamedTuple):
    """The documents of a batch for one split, as `DocumentIds`; with `is_open` the last one is
    incomplete."""

    split: Split
    ids: Ids
    offsets: NDArray[np.int64]
    n_bytes: NDArray[np.uint64]
    is_open: bool


class DocumentIds(NamedTuple):
    """Consecutive documents of a corpus, each between the plan's tokens: document `i` is
    `ids[offsets[i]:offsets[i + 1]]`, of a text of `n_bytes[i]` bytes of UTF-8. The first may
    continue the document before, and the last may be incomplete. If the plan has a mask, the ids
    are from `mark_ids`. A bad document has no ids, and `LEFT_OUT` bytes."""

    ids: Ids
    offsets: NDArray[np.int64]
    n_bytes: NDArray[np.uint64]


class SplitDraw:
    """Draws the documents of the validation split, by their numbers in the corpus.

    The draw of a document depends neither on the batches nor on the share.
    """

    def __init__(self, plan: TokenFilesPlan, validation_share: float) -> None:
        self._share, self._seed = validation_share, plan.seed or 0

    def parts(
        self, first_document: int, documents: DocumentIds, *, is_open: bool
    ) -> list[SplitPart]:
        """The documents of the corpus from `first_document` on that are not left out, by split;
        with `is_open` the last one is incomplete."""
        n_documents = len(documents.offsets) - 1
        is_present = documents.n_bytes != LEFT_OUT
        if not is_present.any():
            return []
        if not self._share:
            return [SplitPart("train", *choose_documents(documents, is_present), is_open)]
        bits = np.random.PCG64(self._seed)
        bits.advance(first_document)
        is_held_out = np.random.Generator(bits).random(n_documents) < self._share
        chosen: dict[Split, NDArray[np.bool_]] = {
            "train": ~is_held_out & is_present,
            "validation": is_held_out & is_present,
        }
        return [
            SplitPart(split, *choose_documents(documents, those), is_open and bool(those[-1]))
            for split, those in chosen.items()
            if those.any()
        ]


def choose_documents(documents: DocumentIds, chosen: NDArray[np.bool_]) -> DocumentIds:
    """The documents where `chosen`, shape (n_documents,), is true."""
    if chosen.all():
        return documents
    ids, offsets, n_bytes = documents
    lengths = np.diff(offsets)
    ends = np.cumsum(lengths[chosen])
    return DocumentIds(
        ids[np.repeat(chosen, lengths)], np.concatenate(([0], ends)), n_bytes[chosen]
    )


class SplitWriter:
    """Appends checked documents to the files of one split in a folder without readers."""

    def __init__(self, folder: Path, plan: TokenFilesPlan, split: Split) -> None:
        self._set_up(folder, plan, split)
        self._ends = StagedFile(folder / ends_name(split), hash_on_the_way=True)

    def _set_up(self, folder: Path, plan: TokenFilesPlan, split: Split) -> None:
        self._folder, self._plan, self._split = folder, plan, split
        self._layout, self._dtype = plan.layout, plan.disk_dtype
        self._n_documents = self._n_tokens = self._n_bytes = self._n_loss_tokens = 0
        self._counts = TokenCounts(plan.tokenizer.largest_id)
        self._open_tokens: int | None = None
        self._set_aside: UnfinishedDocument | None = None
        self._shards: list[ShardRecord] = []
        self._shard: StagedFile | None = None
        self._mask: StagedFile | None = None  # of the open shard
        self._header = b""  # as written: of a full shard, if the plan has a size
        self._shard_tokens = 0
        # The start of this shard's documents; used only if no document spans two shards.
        self._shard_first_document = self._shard_first_token = 0

    @classmethod
    def restore(
        cls, folder: Path, plan: TokenFilesPlan, split: Split, state: Mapping[str, Any]
    ) -> SplitWriter:
        """The writer with the `state` that `state` returned; later data is cut off.

        Raises:
            TokenFilesCorruptError: a file is missing or too short.
        """
        writer = cls.__new__(cls)
        writer._set_up(folder, plan, split)
        for name in _NUMBERS:
            setattr(writer, f"_{name}", state[name])
        writer._n_loss_tokens = state["n_loss_tokens"]
        writer._shards = list(parse_record(tuple[ShardRecord, ...], state["shards"]))
        for shard in writer._shards:
            for file in shard.files:
                check_size(folder / file.file, file.size_bytes)
            writer._count_again(shard.files[0].file, shard.n_tokens)
        try:
            if state["has_open_shard"]:
                header_bytes, item_bytes = plan.layout.header_bytes, plan.disk_dtype.itemsize
                keep_bytes = header_bytes + item_bytes * writer._shard_tokens
                ids_name, *other_names = plan.file_names(split, len(writer._shards))
                writer._shard = StagedFile(folder / ids_name, keep_bytes=keep_bytes)
                if plan.loss_mask:
                    mask = folder / other_names[-1]
                    writer._mask = StagedFile(mask, keep_bytes=writer._shard_tokens)
                writer._count_again(ids_name, writer._shard_tokens)
            ends = folder / ends_name(split)
            writer._ends = StagedFile(ends, keep_bytes=8 * writer._n_documents)
        except BaseException:
            for opened in (writer._shard, writer._mask):
                if opened:
                    opened.discard()
            raise
        return writer

    def _count_again(self, name: str, n_tokens: int) -> None:
        """Count the ids of a shard again, so that checkpoints need not hold the counts."""
        header_bytes = self._layout.header_bytes
        self._counts.add_file(self._folder / name, self._dtype, n_tokens, header_bytes)

    @property
    def open_tokens(self) -> int | None:
        """The number of ids of the open document; None if no document is open."""
        return self._open_tokens

    @property
    def can_sync(self) -> bool:
        """Whether all appended ids are in the files: not while a document is set aside."""
        return self._set_aside is None

    def sync(self) -> None:
        """Sync everything to the disk."""
        for file in self._open_files():
            file.sync()

    def state(self) -> dict[str, object]:
        """The state for `restore`, as JSON, which is valid once this or more is synced."""
        return {
            **{name: getattr(self, f"_{name}") for name in _NUMBERS},
            "n_loss_tokens": self._n_loss_tokens,
            "has_open_shard": self._shard is not None,
            "shards": list(map(asdict, self._shards)),
        }

    def file_names(self) -> set[str]:
        """The names of all files written so far."""
        closed = {each.file for shard in self._shards for each in shard.files}
        return closed | {file.path.name for file in self._open_files()}

    def _open_files(self) -> list[StagedFile]:
        return [file for file in (self._ends, self._shard, self._mask) if file]

    def append(
        self, ids: NDArray[np.integer[Any]], ends: NDArray[np.int64], n_bytes: int, *, is_open: bool
    ) -> None:
        """Append the documents of a batch, which end at `ends` within `ids`. With `is_open` the ids
        after the last end belong to a document that is not complete. The first document continues
        one that was open before. If the plan has a mask, `ids` are from `mark_ids`."""
        n_open = len(ids) - int(ends[-1]) if len(ends) else len(ids) + (self._open_tokens or 0)
        self._open_tokens = n_open if is_open else None
        if self._layout.spans_shards or self._plan.tokens_per_shard is None:
            if self._shard is None and not self._layout.spans_shards:
                self._open_shard()  # also for an empty first document
            ends = self._n_tokens + ends
            self._append_stream(ids)
            self._append_ends(ends)
        else:
            self._append_whole_documents(ids, ends, is_open=is_open)
        self._n_bytes += n_bytes

    def close(self) -> SplitRecord:
        """Finish and sync all files; return their record."""
        self._close_shard()
        counts = self._counts.counts
        counts_file = StagedFile(self._folder / use_name(self._split), hash_on_the_way=True)
        try:
            counts_file.write(counts.tobytes())
            token_use = counts_file.close()
        finally:
            counts_file.discard()
        return SplitRecord(
            name=self._split,
            n_documents=self._n_documents,
            n_tokens=self._n_tokens,
            n_bytes=self._n_bytes,
            document_ends=self._ends.close(),
            token_use=token_use,
            special_tokens_found=special_tokens_found(counts, self._plan, self._n_documents),
            n_loss_tokens=self._n_loss_tokens if self._plan.loss_mask else None,
            lost=None,
            shards=tuple(self._shards),
        )

    def discard(self) -> None:
        """Close the open files without syncing them."""
        for file in self._open_files():
            file.discard()
        if self._set_aside:
            self._set_aside.close()

    def _append_stream(self, ids: NDArray[np.integer[Any]]) -> None:
        start = 0
        while start < len(ids):
            if self._shard_tokens == self._plan.tokens_per_shard:
                self._close_shard()
            part = ids[start : start + self._room(len(ids))]
            self._write(part)
            start += len(part)

    def _append_whole_documents(
        self, ids: NDArray[np.integer[Any]], ends: NDArray[np.int64], *, is_open: bool
    ) -> None:
        """As `append`, for shards of complete documents: an open document is set aside until its
        length is known."""
        if self._set_aside is not None:
            stop = int(ends[0]) if len(ends) else len(ids)
            self._set_aside.append(ids[:stop])
            if not len(ends):
                return
            self._append_set_aside(self._set_aside)
            self._set_aside = None
            ids, ends = ids[stop:], ends[1:] - stop
        self._append_documents(ids, ends)
        if is_open:
            self._set_aside = UnfinishedDocument(self._folder)
            self._set_aside.append(ids[int(ends[-1]) if len(ends) else 0 :])

    def _append_set_aside(self, document: UnfinishedDocument) -> None:
        if document.n_tokens > self._room(document.n_tokens) and self._shard_tokens:
            self._close_shard()
        for piece in document.pieces():
            self._write(piece)
        self._append_ends(np.array([self._n_tokens], dtype=np.int64))
        document.close()

    def _append_documents(self, ids: NDArray[np.integer[Any]], ends: NDArray[np.int64]) -> None:
        done = start = 0
        while done < len(ends):
            # As many complete documents as fit; a document larger than a shard gets its own shard.
            stop = int(np.searchsorted(ends, start + self._room(len(ids)), side="right"))
            if stop == done and self._shard_tokens:
                self._close_shard()
                continue
            stop = max(stop, done + 1)
            first = self._n_tokens - start
            self._write(ids[start : ends[stop - 1]])
            self._append_ends(first + ends[done:stop])
            done, start = stop, int(ends[stop - 1])

    def _room(self, n_waiting: int) -> int:
        limit = self._plan.tokens_per_shard
        # Never negative: an empty document joins the shard of a document that was too large.
        return n_waiting if limit is None else max(0, limit - self._shard_tokens)

    def _append_ends(self, ends: NDArray[np.int64]) -> None:
        """Record documents that end at `ends`, counted from the first id of the split."""
        self._ends.write(ends.astype("<u8").tobytes())
        self._n_documents += len(ends)

    def _write(self, ids: NDArray[np.integer[Any]]) -> None:
        shard = self._shard or self._open_shard()
        for start in range(0, len(ids), _CAST_TOKENS):
            given = ids[start : start + _CAST_TOKENS]
            if self._mask:
                given, mask = unmark_ids(given.astype(np.uint32, copy=False))
                self._mask.write(mask.data)
                self._n_loss_tokens += int(mask.sum())
            part = np.ascontiguousarray(given, self._dtype)
            shard.write(part.data.cast("B"))
            self._counts.add(part)
        self._shard_tokens += len(ids)
        self._n_tokens += len(ids)

    def _open_shard(self) -> StagedFile:
        name, *other_names = self._plan.file_names(self._split, len(self._shards))
        tokens = self._plan.tokens_per_shard
        is_known = not self._layout.header_bytes or tokens is not None  # that of a full shard
        self._header = self._layout.render_header(tokens or 0, self._dtype)
        self._shard = StagedFile(self._folder / name, hash_on_the_way=is_known)
        if self._plan.loss_mask:
            self._mask = StagedFile(self._folder / other_names[-1], hash_on_the_way=True)
        self._shard.write(self._header)
        self._shard_first_document = self._n_documents
        self._shard_first_token = self._n_tokens
        return self._shard

    def _close_shard(self) -> None:
        if self._shard is None:
            return
        header = self._layout.render_header(self._shard_tokens, self._dtype)
        names = self._plan.file_names(self._split, len(self._shards))
        files = [self._shard.close(b"" if header == self._header else header)]
        if self._mask:
            files.append(self._mask.close())
        if self._layout.index_suffix:
            files.insert(1, self._write_index(names))
        self._shards.append(ShardRecord(self._shard_tokens, tuple(files)))
        self._shard, self._mask, self._shard_tokens = None, None, 0

    def _write_index(self, names: list[str]) -> TokenFile:
        """Write the `.idx` or `.parquet` of the shard that was closed just now, from the recorded
        ends."""
        self._ends.flush()
        first, stop = self._shard_first_document, self._n_documents
        lengths = partial(
            iterate_lengths, self._ends.path, first, stop, begin=self._shard_first_token
        )
        index = StagedFile(self._folder / names[1], hash_on_the_way=True)
        try:
            if self._layout.name == "parquet":
                if self._shard_tokens:  # numpy maps no empty file, and `finish` refuses the split
                    paths = [self._folder / name for name in names]
                    write_parquet(index, self._plan, paths, lengths())
            else:
                for piece in render_megatron_index(stop - first, lengths, self._dtype):
                    index.write(piece)
            return index.close()
        finally:
            index.discard()


class UnfinishedDocument:
    """The ids of an open document in a temporary file, to be read back once.

    A shard that must hold the complete document needs its length first. The file has no name, so
    it disappears when the process ends.
    """

    def __init__(self, folder: Path) -> None:
        """Raise OSError if the disk refuses, as every method does."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - open until close()
        self.n_tokens = 0

    def append(self, ids: NDArray[np.integer[Any]]) -> None:
        """Append ids."""
        self._file.write(ids.astype("<u4").tobytes())
        self.n_tokens += len(ids)

    def pieces(self) -> Iterator[NDArray[np.uint32]]:
        """All ids in order."""
        self._file.seek(0)
        while data := self._file.read(_PIECE_BYTES):
            yield np.frombuffer(data, dtype="<u4")

    def close(self) -> None:
        """Delete the file; a second call does nothing."""
        self._file.close()
