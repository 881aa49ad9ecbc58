"""TokenFilesWriter: write documents of ids to a folder of token files, whole or not at all.

All files grow in a staged folder, which gets its final name when everything in it is synced. Memory
is bounded by the size of a batch.
"""

from __future__ import annotations

import operator
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.blobs.atomic_files import write_synced
from tokenizer_core.corpus.document_index import MAX_DOCUMENT_TOKENS
from tokenizer_core.corpus.marked_ids import mark_ids
from tokenizer_core.corpus.split_writer import SplitWriter
from tokenizer_core.corpus.staging import StagedFolder, checkpoint_path
from tokenizer_core.corpus.token_manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    START_ANEW,
    LostTokens,
    TokenManifest,
    may_continue,
    partial_folder,
    render_plan,
)
from tokenizer_core.corpus.token_plan import SPLITS, Split, TokenFilesPlan
from tokenizer_core.documents.bad_documents import NO_BAD_DOCUMENTS, BadDocuments
from tokenizer_core.errors import (
    FormatError,
    TokenFilesCorruptError,
    TokenFilesError,
    TokenFilesPlanError,
)
from tokenizer_core.formats.sealed_json import SealedFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from tokenizer_core.documents import CorpusSource

    Ids = Sequence[int] | NDArray[np.integer[Any]]
    Mask = Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]

_CHECKPOINT: Final = SealedFormat(
    "token-files-checkpoint", 3, "unfinished token files", MAX_MANIFEST_BYTES
)

_MOST_MARKS: Final = 8


class TokenFilesWriter:
    """Writes the documents of a corpus as token files into a new folder.

    Append documents in their final order. The folder appears, complete, when `finish` returns.
    Until then, or if the process dies, only the staged folder `.NAME.partial` exists. Leaving the
    `with` block without `finish` or a checkpoint removes it; so does the next writer. After a
    `checkpoint` the next writer needs `resume=True` and continues from there: `position` is its
    position, and the files become those of an uninterrupted writer. If `is_current` is false for
    that position, it continues from the newest mark of `mark_whole_files` for which it is true, or
    from the beginning. Not thread-safe.

    Raises:
        TokenFilesError: the folder exists already, another process is writing it, or there is a
            checkpoint and `resume` is false.
        TokenFilesPlanError: the checkpoint has another plan.
        TokenFilesCorruptError: the checkpoint, or a file that belongs to it, is damaged.
        OSError: the disk refuses.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        plan: TokenFilesPlan,
        *,
        resume: bool = False,
        is_current: Callable[[Mapping[str, Any]], bool] = lambda position: True,
    ) -> None:
        plan.check()
        self.folder, self.plan = Path(folder), plan
        self._is_current, self._marks = is_current, list[dict[str, Any]]()
        self._splits: dict[Split, SplitWriter] = {}
        self._position: dict[str, Any] | None = None
        self._staged = StagedFolder(self.folder)
        data: bytes | None = None
        try:
            data = self._staged.read_checkpoint()
            if data is not None and not resume:
                raise TokenFilesError(
                    f"{self.folder.name!r:.80} was begun and not finished; continue it (--resume, "
                    f"in Python resume=True), or remove {partial_folder(self.folder)} to start anew"
                )
            if data is None or not self._restore(data):
                self._staged.clear()
        except BaseException:
            if data is None:
                self._staged.drop()
            self._discard_splits()
            self._staged.release()
            raise

    @property
    def position(self) -> dict[str, Any] | None:
        """The position of the checkpoint that this writer continued from or wrote last; None
        without a checkpoint."""
        return self._position

    @property
    def scratch(self) -> Path:
        """A path for a folder of temporary files (not made here). It is kept with the checkpoint
        and removed with the staged files."""
        return self._staged.scratch

    def append(
        self, ids: Ids, *, mask: Mask | None = None, n_bytes: int = 0, split: Split = "train"
    ) -> None:
        """Append one document; `append_batch` is much faster for many short ones."""
        self.append_batch(ids, [0, len(ids)], mask=mask, n_bytes=n_bytes, split=split)

    def append_batch(
        self,
        ids: Ids,
        offsets: Ids,
        *,
        mask: Mask | None = None,
        n_bytes: int = 0,
        split: Split = "train",
        is_open: bool = False,
    ) -> None:
        """Append the documents `ids[offsets[i]:offsets[i + 1]]`, in order.

        `ids` has shape (n_tokens,) and `offsets` shape (n_documents + 1,), of any integer dtype, as
        `Tokenizer.encode_batch_to_numpy` returns them. They include the plan's begin and end ids of
        documents. `n_bytes` is the size of their text in UTF-8. `mask`, shape (n_tokens,), is 1
        where the loss counts and 0 elsewhere; a plan with `loss_mask` requires it. A refused batch
        does not change the writer.

        With `is_open` the last document is incomplete: the first one of the next batch for this
        split continues it. This writes a document of any size in bounded memory.

        Raises:
            TokenFilesPlanError: an id is outside the plan's tokenizer, the offsets or the mask do
                not fit, a document lacks the plan's begin or end id or is longer than its
                `max_length`, or the split is unknown.
            OSError: the disk refuses; the writer is unusable, its checkpoint is not affected.
        """
        if split not in SPLITS:
            raise TokenFilesPlanError(
                f"no split is named {split!r:.40}; take {' or '.join(SPLITS)}"
            )
        n_bytes = operator.index(n_bytes)  # of NumPy, too
        if n_bytes < 0:
            raise TokenFilesPlanError(f"n_bytes is a number of bytes, not {n_bytes}")
        self._require_open()
        checked = _checked_ids(ids, self.plan.tokenizer.largest_id)
        ends = _checked_ends(np.asarray(offsets), len(checked))
        flags = _checked_mask(mask, len(checked), self.plan)
        if not len(ends):
            return
        before = self._splits[split].open_tokens if split in self._splits else None
        self._check_documents(checked, ends, before, is_open=is_open)
        if flags is not None:
            checked = mark_ids(checked, flags)
        try:
            if split not in self._splits:
                self._splits[split] = SplitWriter(self._staged.files, self.plan, split)
            whole = ends[:-1] if is_open else ends
            self._splits[split].append(checked, whole, n_bytes, is_open=is_open)
        except BaseException:  # half a batch may be written, and no checkpoint may include it
            self._leave()
            raise

    def finish(
        self,
        *,
        sources: Iterable[CorpusSource] = (),
        lost: Mapping[Split, LostTokens] | None = None,
        document_encoder: Mapping[str, Any] | None = None,
        bad_documents: BadDocuments = NO_BAD_DOCUMENTS,
        counts: Mapping[str, int] | None = None,
        encoding: Mapping[str, Any] | None = None,
    ) -> TokenManifest:
        """Close all files, write the manifest, rename the folder, and return the manifest.

        `sources` are the files of the text, with size and sha256. `lost` is what the caller removed
        from each split, `document_encoder` what the manifest says of how ids and mask were made
        (JSON; for a plan with a `loss_mask`), `bad_documents` what it says of those left out,
        `counts` what that encoder counted, `encoding` the settings of `encode_corpus`.

        Raises:
            TokenFilesError: a split has no ids (trainers cannot open an empty file), or all its
                documents are in `lost`; a document is still open; or the folder has appeared
                meanwhile.
            OSError: the disk refuses; a checkpoint and its files stay, the rest is removed. If only
                the last fsync failed, the folder exists and is complete.
        """
        self._require_open()
        open_splits = [
            name for name, split in self._splits.items() if split.open_tokens is not None
        ]
        if open_splits:
            raise TokenFilesError(
                f"the last document of {open_splits[0]} is not whole; append the rest of it"
            )
        try:
            splits = tuple(self._splits[name].close() for name in SPLITS if name in self._splits)
            found = lost or {}
            for name in sorted(found.keys() - self._splits.keys()):
                self._require_nothing_lost(name, found[name])
            if self.plan.max_length is not None:
                splits = tuple(
                    replace(split, lost=found.get(split.name, LostTokens())) for split in splits
                )
            if not splits or any(split.n_tokens == 0 for split in splits):
                empty = [split.name for split in splits if split.n_tokens == 0] or list(SPLITS)
                left_out = f" ({bad_documents})" if bad_documents.count else ""
                raise TokenFilesError(
                    f"no ids were written for {' and '.join(empty)}{left_out}, and trainers cannot "
                    f"open empty files; give documents with text"
                )
            manifest = TokenManifest(
                self.plan,
                splits,
                tuple(sources),
                document_encoder,
                bad_documents,
                dict(counts or {}),
                encoding,
            )
            manifest.check()
            write_synced(self._staged.files / MANIFEST_NAME, manifest.to_json())
            self._staged.publish()
        except BaseException:
            self._leave()
            raise
        return manifest

    def _require_nothing_lost(self, split: Split, lost: LostTokens) -> None:
        """Raise if documents of a split that has none were left out: nothing would show it."""
        if n_lost := lost.n_dropped + lost.n_without_loss:
            within = "nothing to learn" if lost.n_without_loss else "no whole document"
            raise TokenFilesError(
                f"all documents of {split} ({n_lost:,}) were left out: there is {within} within "
                f"max_length; give a greater one"
                f"{', another seed, or no validation_share' if len(self._splits) > 1 else ''}"
            )

    @property
    def can_checkpoint(self) -> bool:
        """False while a document is open that must be in one shard (Megatron's, if the plan has
        shards): it is written when its length is known."""
        return all(split.can_sync for split in self._splits.values())

    def mark_whole_files(self, position: Mapping[str, Any]) -> None:
        """Mark what was appended so far, the documents of complete corpus files, so that a later
        writer can return to it from any checkpoint. Of many marks, every other one is dropped, but
        not the last. `position` is as for `checkpoint`."""
        if len(self._marks) == _MOST_MARKS:
            del self._marks[:-1:2]
        self._marks.append(self._state(position))

    def _state(self, position: Mapping[str, Any]) -> dict[str, Any]:
        splits = {name: split.state() for name, split in self._splits.items()}
        return {"splits": splits, "position": dict(position)}

    def checkpoint(self, position: Mapping[str, Any]) -> None:
        """Sync everything appended so far, so that `resume=True` continues from here.

        `position` is any JSON object that the resuming caller needs, such as the number of
        documents read. A checkpoint costs an fsync of each open file.

        Raises:
            OSError: the disk refuses; the writer is unusable, and the previous checkpoint is kept.
            FormatError: `position` is not JSON.
            TokenFilesError: `can_checkpoint` is false.
        """
        self._require_open()
        if not self.can_checkpoint:
            raise TokenFilesError("no checkpoint while this document is open; append its end first")
        try:
            for split in self._splits.values():
                split.sync()
            fields = {"plan": render_plan(self.plan), **self._state(position), "marks": self._marks}
            self._staged.write_checkpoint(_CHECKPOINT.render(fields))
        except OSError:  # after a failed fsync, a later one that succeeds proves nothing
            self._leave()
            raise
        self._position = dict(position)

    def abort(self) -> None:
        """Remove everything written so far, also checkpoints; does nothing after `finish`."""
        self._discard_splits()
        if self._staged.is_held:
            self._staged.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._splits and self._staged.is_held and self._position is None:
            warnings.warn(
                f"nothing of {self.folder.name!r:.80} was written: call finish() after the last "
                f"document",
                stacklevel=2,
            )
        self._leave()

    def _leave(self) -> None:
        """Stop before `finish`: a checkpoint and its files stay."""
        if self._position is None:
            self.abort()
        self._discard_splits()
        self._staged.release()

    def _discard_splits(self) -> None:
        for split in self._splits.values():
            split.discard()

    def _restore(self, data: bytes) -> bool:
        """Continue from a checkpoint; return whether a position of it is current."""
        try:
            fields = _CHECKPOINT.parse(data)
        except FormatError as error:
            raise TokenFilesCorruptError(
                f"the checkpoint of {self.folder.name!r:.80} cannot be gone on from ({error}); "
                f"{START_ANEW}"
            ) from None
        before, now = fields["plan"], render_plan(self.plan)
        if not may_continue(before, now):
            raise TokenFilesPlanError(
                f"{self.folder.name!r:.80} was begun with another plan"
                f"{name_differences(before, now)}; go on with that one, or {START_ANEW}"
            )
        self._marks, mark = fields["marks"], fields
        while not self._is_current(mark["position"]):
            if not self._marks:
                return False
            mark = self._marks.pop()
        if mark is not fields:
            self._marks.append(mark)
        fields = mark
        files = self._staged.files
        for name, state in fields["splits"].items():
            self._splits[name] = SplitWriter.restore(files, self.plan, name, state)
        known = {name for split in self._splits.values() for name in split.file_names()}
        for path in files.iterdir():
            if path.name not in known:  # newer than the checkpoint
                path.unlink()
        self._position = fields["position"]
        return True

    def _check_documents(
        self,
        ids: NDArray[np.integer[Any]],
        ends: NDArray[np.int64],
        n_before: int | None,
        *,
        is_open: bool,
    ) -> None:
        """`n_before`: the number of earlier ids of the first document; None for a new document."""
        starts = np.concatenate(([0], ends[:-1]))
        lengths = ends - starts
        lengths[0] += n_before or 0
        longest = int(lengths.max())
        if not self.plan.layout.spans_shards and longest > MAX_DOCUMENT_TOKENS:
            raise TokenFilesPlanError(
                f"a document has {longest} ids, and Megatron's lengths end at "
                f"{MAX_DOCUMENT_TOKENS}; split it, or take another layout"
            )
        if self.plan.max_length is not None and longest > self.plan.max_length:
            raise TokenFilesPlanError(
                f"a document has {longest} ids, and the plan's max_length is "
                f"{self.plan.max_length}; cut it or leave it out, as encode_corpus does"
            )
        begins, finishes = np.ones((2, len(ends)), dtype=np.bool_)
        begins[0], finishes[-1] = n_before is None, not is_open
        begin, end = self.plan.begin_of_document_id, self.plan.end_of_document_id
        for name, expected, indices, is_present in (
            ("begin", begin, starts, begins),
            ("end", end, ends - 1, finishes),
        ):
            if expected is None:
                continue
            wrong = starts == ends  # an empty document has no such id
            wrong[~wrong] = ids[indices[~wrong]] != expected
            wrong &= is_present
            if wrong.any():
                raise TokenFilesPlanError(
                    f"document {int(np.argmax(wrong))} of this batch does not {name} with id "
                    f"{expected}, as the plan says; add it, or plan without it"
                )

    def _require_open(self) -> None:
        if not self._staged.is_held:
            raise TokenFilesError("this writer has finished or failed; open another one")


def name_differences(before: object, now: object) -> str:
    """Which fields of two objects or names in two lists differ, in brackets."""
    if isinstance(before, list) and isinstance(now, list):
        sides = (("new", now, before), ("missing", before, now))
        words = [(word, [n for n in names if n not in others]) for word, names, others in sides]
        found = [f"{word}: {', '.join(map(repr, names))!s:.200}" for word, names in words if names]
        return f" ({'; '.join(found) or 'in another order'})"
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return ""
    names = sorted(n for n in before.keys() | now.keys() if before.get(n) != now.get(n))
    return f" ({', '.join(name.replace('_', ' ') for name in names)})"


def can_resume(folder: str | os.PathLike[str]) -> bool:
    """Whether a writer to this folder left a checkpoint, from which `resume` continues."""
    return checkpoint_path(Path(folder)).exists()


def _checked_ids(given: Ids, largest_id: int) -> NDArray[np.integer[Any]]:
    ids: NDArray[Any] = np.asarray(given) if len(given) else np.empty(0, np.uint32)
    if ids.ndim != 1 or ids.dtype.kind not in "ui":
        raise TokenFilesPlanError(
            f"ids must be a sequence of integers, not an array of {ids.dtype} of shape {ids.shape}"
        )
    if len(ids) and (ids.max() > largest_id or (ids.dtype.kind == "i" and ids.min() < 0)):
        index = int(np.argmax((ids > largest_id) | (ids < 0)))
        raise TokenFilesPlanError(
            f"ids[{index}] = {int(ids[index])} is not between 0 and {largest_id}, the largest id "
            f"of the tokenizer in the plan; encode with that tokenizer"
        )
    return ids


def _checked_mask(
    given: Mask | None, n_tokens: int, plan: TokenFilesPlan
) -> NDArray[np.uint8] | None:
    if given is None or not plan.loss_mask:
        if (given is None) == plan.loss_mask:
            raise TokenFilesPlanError(
                "these ids have no mask, and the plan has one; give a mask, or plan without one"
                if plan.loss_mask
                else "the plan has no mask; plan with loss_mask=True, or leave the mask out"
            )
        return None
    mask: NDArray[Any] = np.asarray(given) if len(given) else np.empty(0, np.uint8)
    if mask.shape != (n_tokens,) or mask.dtype.kind not in "uib":
        raise TokenFilesPlanError(
            f"the mask must have one integer per id ({n_tokens}), not shape {mask.shape} of "
            f"{mask.dtype}"
        )
    if ((mask != 0) & (mask != 1)).any():
        raise TokenFilesPlanError("a mask holds 1 where the loss counts, 0 elsewhere, nothing else")
    return mask.astype(np.uint8)


def _checked_ends(offsets: NDArray[Any], n_tokens: int) -> NDArray[np.int64]:
    """The ends of the documents within the batch."""
    fits = offsets.ndim == 1 and offsets.dtype.kind in "ui" and len(offsets) > 0
    if fits:
        signed = offsets.astype(np.int64)
        fits = signed[0] == 0 and signed[-1] == n_tokens and bool((np.diff(signed) >= 0).all())
    if not fits:
        raise TokenFilesPlanError(
            f"offsets must rise from 0 to the number of ids ({n_tokens}): one more than documents"
        )
    return signed[1:]
