"""Pack the documents of token files into sequences of a fixed length, without copying an id.

A pack is a folder with a manifest, which names the token files by the sha256 of theirs, and for
each split two files of u64: `train.pieces.u64` has the start and the stop of each piece, in ids of
the split, and `train.sequences.u64` the number of pieces up to the end of each sequence. A piece is
a document, or a part of one if documents may be split. The same token files and length give the
same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import numpy as np

from tokenizer_core.blobs.atomic_files import write_synced
from tokenizer_core.corpus.best_fit import fewest_sequences, pack_lengths
from tokenizer_core.corpus.document_index import iterate_ends
from tokenizer_core.corpus.marked_ids import NO_LOSS
from tokenizer_core.corpus.staging import StagedFile, StagedFolder
from tokenizer_core.corpus.token_files import TokenFiles
from tokenizer_core.corpus.token_manifest import MANIFEST_NAME, PACK_FORMAT, Tally, read_manifest
from tokenizer_core.corpus.token_plan import split_stem
from tokenizer_core.corpus.token_samples import RankedSamples
from tokenizer_core.errors import (
    FormatError,
    TokenFilesCorruptError,
    TokenFilesError,
    TokenFilesPlanError,
    counted,
)
from tokenizer_core.registry import FileRecord
from tokenizer_core.strict_json import parse_record

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_manifest import SplitRecord

MAX_PACK_LENGTH: Final = 1 << 22

_REMEDY: Final = "pack the token files again"
_WRITE_ITEMS: Final = 1 << 20


@dataclass(frozen=True)
class PackedSplit:
    """The sequences of one split. No packing of its pieces has fewer than `lower_bound` sequences.
    Documents without ids are in none."""

    name: str
    n_sequences: int
    n_pieces: int
    n_tokens: int
    lower_bound: int
    sequences: FileRecord
    pieces: FileRecord


@dataclass(frozen=True)
class PackManifest:
    """The contents of the `manifest.json` of a pack; `token_files` is the sha256 of theirs."""

    token_files: str
    length: int
    split_documents: bool
    splits: tuple[PackedSplit, ...]

    def split(self, name: str) -> PackedSplit:
        """The split with this name; raise LookupError, which lists the splits."""
        found = {split.name: split for split in self.splits}
        if name in found:
            return found[name]
        raise LookupError(f"no split {name!r:.40}; this pack has {', '.join(found)}")

    def fill_rate(self, name: str) -> float:
        """The fraction of the places of all sequences that have an id."""
        split = self.split(name)
        return split.n_tokens / (split.n_sequences * self.length)

    def to_json(self) -> bytes:
        """The content of `manifest.json`, sealed."""
        return PACK_FORMAT.render(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> PackManifest:
        """The manifest in `data`.

        Raises:
            TokenFilesCorruptError: it is damaged, or has another format or version.
        """
        try:
            parsed: PackManifest = parse_record(cls, PACK_FORMAT.parse(data))
            return parsed
        except (FormatError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise TokenFilesCorruptError(
                f"no pack can be read: {error!s:.200}; {_REMEDY}"
            ) from None


def default_pack_folder(folder: Path, length: int) -> Path:
    """The default folder of a pack, in the folder that has the token files."""
    if folder.name in ("", ".."):  # `.` and `..` name a folder by its position
        folder = folder.resolve()
    return folder.parent / f"{folder.name}.packed-{length}"


def pack_token_files(
    files: TokenFiles | str | os.PathLike[str],
    length: int,
    folder: str | os.PathLike[str] | None = None,
    *,
    split_documents: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> PackManifest:
    """Pack the documents of `files` (or of a folder) into sequences of at most `length` ids; return
    the manifest.

    Best-fit decreasing, or first-fit decreasing where that needs fewer sequences. Each document is
    in one sequence, once. With `split_documents` a longer one is cut after every `length` ids. The
    new folder `folder` (by default `default_pack_folder`) appears once it is complete. `progress`
    gets the work done and the whole work. Memory: about 70 bytes per document.

    Raises:
        TokenFilesPlanError: a document is longer, `length` is not between 1 and 4,194,304, or
            `folder` is in that of the token files.
        TokenFilesError: the folder exists already.
        OSError: the disk refuses.
    """
    if not 1 <= length <= MAX_PACK_LENGTH:
        raise TokenFilesPlanError(
            f"the length of a sequence is {length}; it must be between 1 and {MAX_PACK_LENGTH}"
        )
    files = files if isinstance(files, TokenFiles) else TokenFiles.open(files)
    path = Path(folder) if folder is not None else default_pack_folder(files.folder, length)
    if path.resolve().is_relative_to(files.folder.resolve()):
        raise TokenFilesPlanError(
            f"{path} is in the folder of the token files, and these would not verify with more in "
            f"it; name a folder beside it"
        )
    # Documents count when they are read, and again when they are written.
    report = Tally(2 * sum(split.n_documents for split in files.manifest.splits), progress)
    # Read every length first: an error leaves nothing behind.
    read = [
        (split, _pieces(files, split, length, report, split_documents=split_documents))
        for split in files.manifest.splits
    ]
    staged = StagedFolder(path)
    try:
        staged.clear()
        splits = []
        for split, pieces in read:
            splits.append(_write_split(staged.files, split.name, pieces, length))
            report.add(split.n_documents)
        data = hashlib.sha256(read_manifest(files.folder)).hexdigest()
        manifest = PackManifest(data, length, split_documents, tuple(splits))
        write_synced(staged.files / MANIFEST_NAME, manifest.to_json())
        staged.publish()
    except BaseException:
        if staged.is_held:
            staged.drop()
        raise
    return manifest


def is_pack(folder: Path) -> bool:
    """Whether a folder has a pack whose manifest is sound."""
    try:
        PACK_FORMAT.parse(read_manifest(folder))
    except (TokenFilesError, FormatError):
        return False
    return True


def verify_pack(
    folder: str | os.PathLike[str], among: Iterable[TokenFiles] = ()
) -> tuple[PackManifest, bool]:
    """Check a pack: its manifest, the sha256 of its files, and that its sequences have the length
    and the ids that the manifest says. If its token files are `among` these: that each document is
    in one sequence. Return the manifest, and whether they are.

    Raises:
        TokenFilesError: the folder has no manifest.
        TokenFilesCorruptError: what is wrong, and in which file.
    """
    listed: list[Any] = list(among) if hasattr(among, "__iter__") else [among]
    if not all(isinstance(files, TokenFiles) for files in listed):
        raise TypeError(
            "verify_pack takes the folder of the pack, and a list of its token files: "
            "verify_pack(pack, [TokenFiles.open(folder)])"
        )
    path = Path(folder)
    manifest = PackManifest.from_json(read_manifest(path))
    files = next((one for one in listed if _digest_of(one) == manifest.token_files), None)
    for split in manifest.splits:
        _check_files(path, split)
        ends, pieces = (np.asarray(each, np.int64) for each in _map_split(path, split.name))
        lengths = pieces[:, 1] - pieces[:, 0]
        n_tokens = np.concatenate(([0], lengths.cumsum()))
        is_sound = (
            (np.diff(ends, prepend=0) > 0).all()
            and (ends[-1], n_tokens[-1]) == (split.n_pieces, split.n_tokens)
            and lengths.min() > 0
            and np.diff(n_tokens[ends], prepend=0).max() <= manifest.length
        )
        if is_sound and files is not None:
            how = {"split_documents": manifest.split_documents}
            record, report = files.manifest.split(split.name), Tally(0, None)
            expected = _pieces(files, record, manifest.length, report, **how)
            is_sound = np.array_equal(pieces[pieces[:, 0].argsort()], expected)
        if not is_sound:
            raise TokenFilesCorruptError(
                f"the sequences of {split.name} are not those of the documents; {_REMEDY}"
            )
    return manifest, files is not None


def _digest_of(files: TokenFiles) -> str:
    return hashlib.sha256(files.manifest.to_json()).hexdigest()


def _pieces(
    files: TokenFiles, split: SplitRecord, length: int, report: Tally, *, split_documents: bool
) -> NDArray[np.int64]:
    """Start and stop of each piece, shape (n_pieces, 2), in the order of the split."""
    ends = np.empty(split.n_documents, np.int64)
    n_read = 0
    for part in iterate_ends(files.path(split.ends_name), 0, split.n_documents):
        ends[n_read : n_read + len(part)] = part
        n_read += len(part)
        report.add(len(part))
    starts = np.concatenate(([0], ends[:-1]))
    lengths = ends - starts
    if lengths.min() < 0 or ends[-1] != split.n_tokens:
        raise TokenFilesCorruptError(
            f"{split.ends_name} contradicts the manifest; write the token files anew"
        )
    longest = int(lengths.argmax())
    if lengths[longest] > length and not split_documents:
        raise TokenFilesPlanError(
            f"{split.name} has documents of more than {length} ids "
            f"({int((lengths > length).sum())}, document {longest} the longest with "
            f"{lengths[longest]}); pack to a greater length, split them (--split-documents), or "
            f"encode with max_length {length} (--max-length {length})"
        )
    n_parts = -(-lengths // length)
    number = np.arange(int(n_parts.sum())) - np.repeat(n_parts.cumsum() - n_parts, n_parts)
    first = np.repeat(starts, n_parts) + number * length
    return np.column_stack((first, np.minimum(first + length, np.repeat(ends, n_parts))))


def _write_split(folder: Path, name: str, pieces: NDArray[np.int64], length: int) -> PackedSplit:
    lengths = pieces[:, 1] - pieces[:, 0]
    items, ends = pack_lengths(lengths, length)
    sequences_name, pieces_name = _names(name)
    return PackedSplit(
        name=name,
        n_sequences=len(ends),
        n_pieces=len(pieces),
        n_tokens=int(lengths.sum()),
        lower_bound=fewest_sequences(lengths, length),
        sequences=_write(
            folder / sequences_name,
            (ends[start : start + _WRITE_ITEMS] for start in range(0, len(ends), _WRITE_ITEMS)),
        ),
        pieces=_write(
            folder / pieces_name,
            (
                pieces[items[start : start + _WRITE_ITEMS]]
                for start in range(0, len(items), _WRITE_ITEMS)
            ),
        ),
    )


def _names(split: str) -> tuple[str, str]:
    stem = split_stem(split)
    return f"{stem}.sequences.u64", f"{stem}.pieces.u64"


def _check_files(folder: Path, split: PackedSplit) -> None:
    """Raise TokenFilesCorruptError unless both files are those of the manifest."""
    sizes = (8 * split.n_sequences, 16 * split.n_pieces)
    records = (split.sequences, split.pieces)
    for name, record, size_bytes in zip(_names(split.name), records, sizes, strict=True):
        try:
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            found = ""
        if found != record.sha256 or record.size_bytes != size_bytes:
            raise TokenFilesCorruptError(
                f"{name} is missing, or was changed after it was written; {_REMEDY}"
            )


def _map_split(folder: Path, split: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The ends of the sequences, shape (n_sequences,), and the start and stop of each piece, shape
    (n_pieces, 2), memory-mapped."""
    sequences, pieces = (folder / name for name in _names(split))
    ends = np.memmap(sequences, "<u8", mode="r")
    return ends, np.memmap(pieces, "<u8", mode="r").reshape(-1, 2)


def _write(path: Path, parts: Iterator[NDArray[np.int64]]) -> FileRecord:
    file = StagedFile(path, hash_on_the_way=True)
    try:
        for part in parts:
            file.write(part.astype("<u8").tobytes())
        written = file.close()
        return FileRecord(written.sha256, written.size_bytes)
    finally:
        file.discard()


class PackedSample(TypedDict):
    """A sequence of `n` ids from `k` pieces, as flash-attention's `varlen` functions take it.

    - `input_ids`, `position_ids`: shape (n,), int64; positions begin at 0 in each piece.
    - `labels`: shape (n,), int64, the ids, for a model that shifts them itself; -100 at the first
      id of each piece, which no earlier id predicts, and where the loss does not count.
    - `loss_mask`: shape (n,), uint8, that of the token files; 1 everywhere if they have none.
    - `cu_seqlens`: shape (k + 1,), int32: 0 and the end of each piece. `max_seqlen`: the longest.
    """

    input_ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    loss_mask: NDArray[np.uint8]
    position_ids: NDArray[np.int64]
    cu_seqlens: NDArray[np.int32]
    max_seqlen: int


class PackedSamples(RankedSamples[PackedSample]):
    """The sequences of a pack; `TokenDataset.packed` makes it. A `DataLoader` of PyTorch takes them
    with `batch_size=None`: a sequence is a batch of its pieces.

    Opening compares both files with their sha256.
    """

    def __init__(
        self,
        files: TokenFiles,
        split: str,
        folder: str | os.PathLike[str],
        *,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """`rank` and `world_size` are by default those of torchrun.

        Raises:
            TokenFilesError: the folder has no pack, or a pack of other token files, or too few
                sequences for the ranks.
            TokenFilesCorruptError: the pack is damaged.
            LookupError: no such split.
        """
        self._folder = Path(folder)
        try:
            data = read_manifest(self._folder)
        except TokenFilesError:
            raise TokenFilesError(
                f"{self._folder.name!r:.80} holds no pack; make one (tokenizer corpus pack), or "
                f"name another folder"
            ) from None
        self.manifest = PackManifest.from_json(data)
        if self.manifest.token_files != _digest_of(files):
            raise TokenFilesError(
                f"{self._folder.name!r:.80} is the pack of other token files; open those, or "
                f"{_REMEDY}"
            )
        self._files, self._split = files, self.manifest.split(split)
        self._digest = hashlib.sha256(data).hexdigest()
        _check_files(self._folder, self._split)
        super().__init__(self._split.n_sequences, seed=seed, rank=rank, world_size=world_size)
        if len(self) < self.world_size:
            raise TokenFilesError(
                f"{split} has {counted(len(self), 'sequence')} for {self.world_size} ranks; "
                f"use fewer ranks, or pack to a shorter length"
            )
        self._map()

    def __getstate__(self) -> dict[str, Any]:
        # Pickling a map would copy it; the copy maps the files again.
        return {key: value for key, value in vars(self).items() if key not in ("_ends", "_pieces")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._map()

    def _map(self) -> None:
        self._ends, self._pieces = _map_split(self._folder, self._split.name)

    def _read(self, number: int) -> PackedSample:
        first = int(self._ends[number - 1]) if number else 0
        pieces = self._pieces[first : int(self._ends[number])].astype(np.int64)
        lengths = pieces[:, 1] - pieces[:, 0]
        ends = np.concatenate(([0], lengths.cumsum()))
        ids, mask = np.empty(ends[-1], np.int64), np.ones(ends[-1], np.uint8)
        for start, begin, end in zip(
            pieces[:, 0].tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True
        ):
            self._files.copy_tokens(start, ids[begin:end], self._split.name)
            if self._files.has_mask:
                self._files.copy_mask(start, mask[begin:end], self._split.name)
        labels = np.where(mask == 1, ids, NO_LOSS)
        labels[ends[:-1]] = NO_LOSS
        return PackedSample(
            input_ids=ids,
            labels=labels,
            loss_mask=mask,
            position_ids=np.arange(len(ids)) - np.repeat(ends[:-1], lengths),
            cu_seqlens=ends.astype(np.int32),
            max_seqlen=int(lengths.max()),
        )

    def _identity(self) -> dict[str, Any]:
        return {"pack": self._digest, "split": self._split.name}
