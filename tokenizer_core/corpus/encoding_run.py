"""Write encoded documents to a folder of token files, with checkpoints, shuffle and progress.

The documents may come from threads of this process or from many hosts.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy as np

from tokenizer_core.corpus.document_batches import changed_since
from tokenizer_core.corpus.document_shuffle import ShufflePosition, shuffle_documents
from tokenizer_core.corpus.marked_ids import unmark_ids
from tokenizer_core.corpus.split_writer import DocumentIds, SplitPart, choose_documents
from tokenizer_core.corpus.staging import StagedFolder
from tokenizer_core.corpus.token_files import TokenFiles
from tokenizer_core.corpus.token_manifest import START_ANEW, LostTokens, render_plan
from tokenizer_core.corpus.token_plan import SPLITS, Split
from tokenizer_core.corpus.token_writer import TokenFilesWriter, can_resume, name_differences
from tokenizer_core.documents.bad_documents import (
    NO_BAD_DOCUMENTS,
    BadDocuments,
    check_running_share,
)
from tokenizer_core.documents.corpus_files import are_sources
from tokenizer_core.errors import (
    CorpusError,
    SpecialTokenForbiddenError,
    TokenFilesError,
    TokenFilesPlanError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.corpus.batch_encoding import EncodedBatch, Position
    from tokenizer_core.corpus.token_manifest import TokenManifest
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.documents import CorpusSource

CHECKPOINT_SECONDS: Final = 5.0
"""The least time between checkpoints; after a slow one, at least fifty times its duration."""

_CHECKPOINT_SHARE: Final = 0.02


@dataclass(frozen=True, slots=True)
class EncodingProgress:
    """Bytes of the stored files that are done, and documents and ids written.

    A shuffle adds a second phase, `shuffling`, which writes everything again and counts from 0; its
    bytes are those of the ids.
    """

    bytes_done: int
    bytes_total: int
    n_documents: int
    n_tokens: int
    phase: Literal["encoding", "shuffling"] = "encoding"


class EncodedCorpus(Protocol):
    """The encoded documents of a corpus, from its beginning or from a position."""

    paths: list[str]
    """The files."""

    bytes_total: int
    """Size of the stored files."""

    settings: Mapping[str, Any]
    """Everything that decides the documents and their splits (JSON)."""

    def identities(self) -> list[Any]:
        """What tells later that one of the files has changed, in the order of `settings["files"]`
        (JSON)."""
        ...

    def is_current(self, position: Mapping[str, Any]) -> bool:
        """Whether no file changed that was begun before a position from `Position.to_fields`."""
        ...

    def batches(self, position: Mapping[str, Any] | None) -> Generator[EncodedBatch, None, None]:
        """The batches after a position from `Position.to_fields`; None returns all batches. At
        least one batch follows, and the position of the last one has all sources."""
        ...


def write_encoded(
    corpus: EncodedCorpus,
    folder: str | os.PathLike[str],
    plan: TokenFilesPlan,
    *,
    shuffle: bool,
    resume: bool,
    progress: Callable[[EncodingProgress], object] | None,
    max_bad: float | None,
) -> TokenManifest:
    """Write the documents to the new folder of token files `folder`; raise as `encode_corpus`."""
    settings = {**corpus.settings, "shuffle": shuffle}
    if resume and (found := find_complete(folder, plan, settings, corpus.paths, max_bad)):
        with suppress(TokenFilesError):  # it is there; a writer that died may have left more
            StagedFolder(Path(folder))
        return found
    run = _Run(corpus, settings, progress, max_bad)
    with TokenFilesWriter(folder, plan, resume=resume, is_current=run.is_current) as writer:
        return run.write_shuffled(writer) if shuffle else run.write(writer)


def find_complete(
    place: str | os.PathLike[str],
    plan: TokenFilesPlan,
    settings: Mapping[str, Any],
    paths: Sequence[str],
    max_bad: float | None,
) -> TokenManifest | None:
    """The manifest of the complete token files in a folder or at an address, which a call with this
    plan and these settings wrote from these files as they are now; None if there are none.

    Raises:
        TokenFilesError: there are others.
        CorpusError: a file cannot be read, or changed meanwhile.
        StorageError, OSError: the place cannot be read.
    """
    try:
        found = TokenFiles.open(place).manifest
    except TokenFilesError:
        return None
    compared = (
        ("another plan", render_plan(found.plan), render_plan(plan)),
        ("other settings", found.encoding, _encoding_of(settings)),
        ("another encoder", found.document_encoder, settings.get("encoder")),
    )
    others = [f"{what}{name_differences(a, b)}" for what, a, b in compared if a != b]
    if max_bad is None and found.bad_documents.count:
        others.append("a rule that left bad documents out")
    if others or not are_sources(paths, found.sources):
        raise TokenFilesError(
            f"{Path(place).name!r:.80} is there already, and complete, by "
            f"{' and '.join(others) or 'other files'}; remove it, or name another folder"
        )
    return found


def _encoding_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that manifests have nowhere else, and that do not depend on the workers."""
    elsewhere = ("files", "encoder", "run")
    return {name: value for name, value in settings.items() if name not in elsewhere}


class _Run:
    """Writes the documents of a corpus with one writer."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        settings: Mapping[str, Any],
        progress: Callable[[EncodingProgress], object] | None,
        max_bad: float | None,
    ) -> None:
        self._corpus, self._settings, self._progress = corpus, settings, progress
        self._max_bad = 0.0 if max_bad is None else max_bad
        self._n_tokens = 0
        self._counts = Counter[str]()

    def write(self, writer: TokenFilesWriter) -> TokenManifest:
        """Append the missing documents, in the order of the files, and finish."""
        position, bad = None, NO_BAD_DOCUMENTS
        if writer.position is not None:
            position = writer.position["place"]
            bad = BadDocuments.from_fields(writer.position["bad"])
            self._n_tokens = writer.position["n_tokens"]
            self._counts.update(writer.position["counts"])
        limit = LengthLimit(writer.plan, (writer.position or {}).get("lost", {}))
        checkpoints = _Checkpoints(writer)
        at: Callable[[], dict[str, Any]] | None = None  # the position, unless a document is held
        sources: tuple[CorpusSource, ...] = ()
        n_documents = 0
        try:
            with closing(self._corpus.batches(position)) as batches:
                for batch in batches:
                    bad = check_running_share(bad, batch.bad, batch.bad_numbers, self._max_bad)
                    self._counts.update(batch.counts)
                    at = None
                    for part in batch.parts:
                        self._append(writer, limit.apply(part))
                    if not limit.holds_document:
                        at = partial(self._position_at, batch.position, limit, bad)
                        if batch.position.is_between_files:
                            writer.mark_whole_files(at())
                        checkpoints.write_if_due(at)
                    done, total = batch.position.bytes_done, self._corpus.bytes_total
                    sources, n_documents = batch.position.sources, batch.position.n_documents
                    self._report(done, total, n_documents - bad.count, "encoding")
            bad.check_share(n_documents, self._max_bad)
        except (CorpusError, SpecialTokenForbiddenError):
            if at is not None:
                checkpoints.write_if_worthwhile(at)
            raise
        return writer.finish(
            sources=sources,
            lost=limit.lost,
            document_encoder=self._settings.get("encoder"),
            bad_documents=bad,
            counts=self._counts,
            encoding=_encoding_of(self._settings),
        )

    def write_shuffled(self, writer: TokenFilesWriter) -> TokenManifest:
        """Write to the scratch folder in order, and from there in a random order."""
        in_order = writer.scratch / "in-order"
        if writer.position is None:
            writer.checkpoint(self._position({"shuffled": ShufflePosition()}))
        position = dict(writer.position or {})
        if not in_order.exists():
            plan = replace(writer.plan, layout_name="raw", tokens_per_shard=None)
            try:
                with TokenFilesWriter(
                    in_order, plan, resume=True, is_current=self.is_current
                ) as first:
                    self.write(first)
            except BaseException:
                if not can_resume(in_order):  # no checkpoint to resume from
                    writer.abort()
                raise
            position["identities"] = self._corpus.identities()
            writer.checkpoint(position)
        else:
            self._check_identities(position.get("identities", []))
        self._n_tokens = position["n_tokens"]
        start = ShufflePosition(*position["shuffled"])
        return self._shuffle(
            TokenFiles.open(in_order), writer, start, position.get("identities", [])
        )

    def _check_identities(self, saved: list[Any]) -> None:
        """Raise if a file has changed since all were read; nothing reads them again."""
        if not saved:  # the run ended before it saved them, or checks its files itself
            return
        files, found = self._settings["files"], self._corpus.identities()
        for file, before, now in zip(files, saved, found, strict=True):
            if before != now:
                raise changed_since(file)

    def _shuffle(
        self,
        files: TokenFiles,
        writer: TokenFilesWriter,
        start: ShufflePosition,
        identities: list[Any],
    ) -> TokenManifest:
        splits = files.manifest.splits
        item_bytes = files.manifest.plan.disk_dtype.itemsize
        n_total = sum(split.n_tokens for split in splits)
        checkpoints = _Checkpoints(writer)
        for part, position in shuffle_documents(files, writer.plan.seed or 0, start):
            self._append(writer, part)
            if not part.is_open:
                fields = {"shuffled": position, "identities": identities}
                checkpoints.write_if_due(partial(self._position, fields))
            n_documents = position.n_documents + sum(
                s.n_documents for s in splits[: position.split]
            )
            done, total = self._n_tokens * item_bytes, n_total * item_bytes
            self._report(done, total, n_documents, "shuffling")
        lost = {split.name: split.lost for split in splits if split.lost is not None}
        return writer.finish(
            sources=files.manifest.sources,
            lost=lost,
            document_encoder=files.manifest.document_encoder,
            bad_documents=files.manifest.bad_documents,
            counts=files.manifest.counts,
            encoding=files.manifest.encoding,
        )

    def _append(self, writer: TokenFilesWriter, part: SplitPart) -> None:
        ids, mask = part.ids, None
        if writer.plan.loss_mask:
            ids, mask = unmark_ids(ids.astype(np.uint32, copy=False))
        writer.append_batch(
            ids,
            part.offsets,
            mask=mask,
            n_bytes=int(part.n_bytes.sum()),
            split=part.split,
            is_open=part.is_open,
        )
        self._n_tokens += len(part.ids)

    def _report(
        self, done: int, total: int, n_documents: int, phase: Literal["encoding", "shuffling"]
    ) -> None:
        if self._progress is not None:
            self._progress(EncodingProgress(done, total, n_documents, self._n_tokens, phase))

    def _position_at(
        self, position: Position, limit: LengthLimit, bad: BadDocuments
    ) -> dict[str, Any]:
        place, lost = position.to_fields(), limit.to_fields()
        return self._position({"place": place, "bad": bad.to_fields(), **lost})

    def _position(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The position field of a checkpoint."""
        counted = {"n_tokens": self._n_tokens, "counts": dict(self._counts)}
        return {"settings": self._settings, **counted, **fields}

    def is_current(self, position: Mapping[str, Any]) -> bool:
        """Whether this run can continue from the position of a checkpoint: no file that was begun
        has changed. Raise TokenFilesPlanError if the checkpoint has other settings."""
        self._check_settings(position)
        return "place" not in position or self._corpus.is_current(position["place"])

    def _check_settings(self, position: Mapping[str, Any]) -> None:
        settings = position.get("settings", {})  # empty if another caller wrote the checkpoint
        for name in [*self._settings, *settings]:
            before, now = settings.get(name), self._settings.get(name)
            if before != now:
                which = f"{name.replace('_', ' ')}{name_differences(before, now)}"
                raise TokenFilesPlanError(
                    f"the token files were begun with other settings: {which}; go on with the "
                    f"same, or {START_ANEW}"
                )


class LengthLimit:
    """Truncates or drops documents of more than the plan's `max_length` ids, and counts them. A
    truncated conversation whose loss counts nowhere any more is left out: the mean loss of such ids
    is not a number.

    A document that comes in parts is held until it is complete, but never more than `max_length`
    of its ids. A truncated document ends with the plan's end id, where the loss does not count.
    """

    def __init__(self, plan: TokenFilesPlan, lost: Mapping[str, Any]) -> None:
        """`lost` is that of `to_fields`."""
        self._plan = plan
        self.lost: dict[Split, LostTokens] = {
            name: LostTokens(**lost[name]) for name in SPLITS if name in lost
        }
        self._held: dict[Split, tuple[DocumentIds, int]] = {}  # with the number of all its ids

    def to_fields(self) -> dict[str, Any]:
        """The counts so far, for checkpoints; nothing if no document can be lost."""
        if self._plan.max_length is None:
            return {}
        return {"lost": {name: asdict(lost) for name, lost in self.lost.items()}}

    @property
    def holds_document(self) -> bool:
        """Whether a document is not complete yet; no checkpoint has it."""
        return bool(self._held)

    def apply(self, part: SplitPart) -> SplitPart:
        """The complete documents of `part`, in order, as long as the plan permits."""
        limit = self._plan.max_length
        if limit is None:
            return part
        documents, lengths = DocumentIds(*part[1:4]), np.diff(part.offsets)
        if part.split in self._held:
            held, n_held = self._held.pop(part.split)
            ids, offsets, n_bytes = documents
            n_bytes = n_bytes.copy()
            n_bytes[0] += held.n_bytes[0]
            offsets = np.concatenate(([0], offsets[1:] + len(held.ids)))
            joined: Any = np.concatenate((held.ids, ids))
            documents = DocumentIds(joined, offsets, n_bytes)
            lengths[0] += n_held
        if part.is_open:
            is_last = np.arange(len(lengths)) == len(lengths) - 1
            last = choose_documents(documents, is_last)
            kept = last.ids[:limit]
            self._held[part.split] = (
                DocumentIds(kept, np.array([0, len(kept)]), last.n_bytes),
                int(lengths[-1]),
            )
            documents, lengths = choose_documents(documents, ~is_last), lengths[:-1]
        if len(lengths) and lengths.max() > limit:
            documents = self._shorten(part.split, documents, lengths, limit)
        return SplitPart(part.split, *documents, is_open=False)

    def _shorten(
        self, split: Split, documents: DocumentIds, lengths: NDArray[np.int64], limit: int
    ) -> DocumentIds:
        """`lengths` has all ids of each document, also those that are left out already."""
        is_longer, lost = lengths > limit, self.lost.get(split, LostTokens())
        if self._plan.over_length == "drop":
            self.lost[split] = replace(
                lost,
                n_dropped=lost.n_dropped + int(is_longer.sum()),
                n_tokens=lost.n_tokens + int(lengths[is_longer].sum()),
            )
            return choose_documents(documents, ~is_longer)
        ids, offsets, n_bytes = documents
        present = np.diff(offsets)
        within = np.arange(len(ids)) - np.repeat(offsets[:-1], present)
        ids, offsets = (
            ids[within < limit],
            np.concatenate(([0], np.minimum(lengths, limit).cumsum())),
        )
        end = self._plan.end_of_document_id
        if end is not None:
            ids[offsets[1:][is_longer] - 1] = end
        documents = DocumentIds(ids, offsets, n_bytes)
        if self._plan.loss_mask:
            mask = unmark_ids(ids.astype(np.uint32, copy=False))[1]
            has_no_loss = is_longer & (np.add.reduceat(mask, offsets[:-1]) == 0)
            lost = replace(lost, n_without_loss=lost.n_without_loss + int(has_no_loss.sum()))
            documents = choose_documents(documents, ~has_no_loss)
            is_longer &= ~has_no_loss
        n_longer = int(is_longer.sum())
        self.lost[split] = replace(
            lost,
            n_cut=lost.n_cut + n_longer,
            n_tokens=lost.n_tokens + int(lengths[is_longer].sum()) - n_longer * limit,
        )
        return documents


class _Checkpoints:
    """Writes checkpoints when they are due, in at most a fiftieth of the time."""

    def __init__(self, writer: TokenFilesWriter) -> None:
        self._writer = writer
        self._first = self._due = time.monotonic() + CHECKPOINT_SECONDS

    def write_if_worthwhile(self, position: Callable[[], dict[str, Any]]) -> None:
        """Unless the run began just now: one that fails at once leaves nothing to remove."""
        if self._first <= time.monotonic() and self._writer.can_checkpoint:
            self._writer.checkpoint(position())

    def write_if_due(self, position: Callable[[], dict[str, Any]]) -> None:
        started = time.monotonic()
        if started < self._due or not self._writer.can_checkpoint:
            return
        self._writer.checkpoint(position())
        ended = time.monotonic()
        self._due = ended + max(CHECKPOINT_SECONDS, (ended - started) / _CHECKPOINT_SHARE)
