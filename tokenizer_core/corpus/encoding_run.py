"""Encoded documents, from wherever they come, on their way into a folder of token files.

It stands apart from `corpus_encoding` because it asks nothing of who encodes: several threads here,
or many hosts. Its own are the checkpoints to go on from, the shuffle and the progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from tokenizer_core.corpus.document_shuffle import ShufflePlace, shuffle_documents
from tokenizer_core.corpus.token_files import TokenFiles
from tokenizer_core.corpus.token_writer import TokenFilesWriter, can_resume
from tokenizer_core.errors import TokenFilesPlanError

if TYPE_CHECKING:
    from tokenizer_core.corpus.batch_encoding import EncodedBatch, Place, SplitPart
    from tokenizer_core.corpus.token_manifest import TokenManifest
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.training.pretoken_counts import CorpusSource

CHECKPOINT_SECONDS: Final = 5.0
"""The least time between checkpoints; where they take long, fifty times what the last one took."""

_CHECKPOINT_SHARE: Final = 0.02


@dataclass(frozen=True, slots=True)
class EncodingProgress:
    """How far it is: bytes of the files as they lie on the disk, documents and ids written.

    With a shuffle there is a second phase, `shuffling`, in which everything is written again and
    counted again from 0; the bytes are those of the ids.
    """

    bytes_done: int
    bytes_total: int
    n_documents: int
    n_tokens: int
    phase: Literal["encoding", "shuffling"] = "encoding"


class EncodedCorpus(Protocol):
    """The documents of a corpus, encoded, from its beginning or from any place that was reached."""

    bytes_total: int
    """Of its files, as they lie on the disk."""

    settings: Mapping[str, Any]
    """What decides the documents and their splits (JSON): others are another corpus."""

    def batches(
        self, plan: TokenFilesPlan, place: Mapping[str, Any] | None
    ) -> Generator[EncodedBatch, None, None]:
        """The batches behind a place, which is what `Place.to_fields` gave; None: all of them.
        There is at least one, and with the last one all sources are known."""
        ...


def write_encoded(
    corpus: EncodedCorpus,
    folder: str | os.PathLike[str],
    plan: TokenFilesPlan,
    *,
    shuffle: bool,
    resume: bool,
    progress: Callable[[EncodingProgress], object] | None,
) -> TokenManifest:
    """The documents as the new folder of token files `folder`; as `encode_corpus` has it, which
    says what is raised."""
    run = _Run(corpus, progress, shuffle=shuffle)
    with TokenFilesWriter(folder, plan, resume=resume) as writer:
        return run.write_shuffled(writer) if shuffle else run.write(writer)


class _Run:
    """The documents of a corpus on their way into one writer."""

    def __init__(
        self,
        corpus: EncodedCorpus,
        progress: Callable[[EncodingProgress], object] | None,
        *,
        shuffle: bool,
    ) -> None:
        self._corpus, self._progress = corpus, progress
        self._settings = {**corpus.settings, "shuffle": shuffle}
        self._n_tokens = 0

    def write(self, writer: TokenFilesWriter) -> TokenManifest:
        """Append what is missing, in the order of the files, and finish."""
        place = None
        if writer.position is not None:
            self._check_settings(writer.position)
            place = writer.position["place"]
            self._n_tokens = writer.position["n_tokens"]
        checkpoints = _Checkpoints(writer)
        sources: tuple[CorpusSource, ...] = ()
        with closing(self._corpus.batches(writer.plan, place)) as batches:
            for batch in batches:
                for part in batch.parts:
                    self._append(writer, part)
                checkpoints.write_if_due(partial(self._position_at, batch.place))
                self._report_at(batch.place)
                sources = batch.place.sources
        return writer.finish(sources=sources)

    def write_shuffled(self, writer: TokenFilesWriter) -> TokenManifest:
        """As `write`, into scratch, and from there in a random order."""
        in_order = writer.scratch / "in-order"
        if writer.position is None:
            writer.checkpoint(self._position({"shuffled": ShufflePlace()}))
        position = dict(writer.position or {})
        self._check_settings(position)
        if not in_order.exists():
            plan = replace(writer.plan, layout_name="raw", tokens_per_shard=None)
            try:
                with TokenFilesWriter(in_order, plan, resume=True) as first:
                    self.write(first)
            except BaseException:
                if not can_resume(in_order):  # nothing is there to go on from
                    writer.abort()
                raise
        self._n_tokens = position["n_tokens"]
        return self._shuffle(TokenFiles.open(in_order), writer, ShufflePlace(*position["shuffled"]))

    def _shuffle(
        self, files: TokenFiles, writer: TokenFilesWriter, start: ShufflePlace
    ) -> TokenManifest:
        splits = files.manifest.splits
        item_bytes = files.manifest.plan.disk_dtype.itemsize
        n_total = sum(split.n_tokens for split in splits)
        checkpoints = _Checkpoints(writer)
        for part, place in shuffle_documents(files, writer.plan.seed or 0, start):
            self._append(writer, part)
            if not part.is_open:
                checkpoints.write_if_due(partial(self._position, {"shuffled": place}))
            n_documents = place.n_documents + sum(s.n_documents for s in splits[: place.split])
            done, total = self._n_tokens * item_bytes, n_total * item_bytes
            self._report(done, total, n_documents, "shuffling")
        return writer.finish(sources=files.manifest.sources)

    def _append(self, writer: TokenFilesWriter, part: SplitPart) -> None:
        writer.append_batch(
            part.ids, part.offsets, n_bytes=part.n_bytes, split=part.split, is_open=part.is_open
        )
        self._n_tokens += len(part.ids)

    def _report(
        self, done: int, total: int, n_documents: int, phase: Literal["encoding", "shuffling"]
    ) -> None:
        if self._progress is not None:
            self._progress(EncodingProgress(done, total, n_documents, self._n_tokens, phase))

    def _report_at(self, place: Place) -> None:
        self._report(place.bytes_done, self._corpus.bytes_total, place.n_documents, "encoding")

    def _position_at(self, place: Place) -> dict[str, Any]:
        return self._position({"place": place.to_fields()})

    def _position(self, place: dict[str, Any]) -> dict[str, Any]:
        """What a checkpoint says."""
        return {"settings": self._settings, "n_tokens": self._n_tokens, **place}

    def _check_settings(self, position: dict[str, Any]) -> None:
        settings = position.get("settings", {})  # none where the caller had a writer of its own
        for name in [*self._settings, *settings]:
            if settings.get(name) != self._settings.get(name):
                raise TokenFilesPlanError(
                    f"the token files were begun with another {name.replace('_', ' ')}; go on with "
                    f"the same, or start anew, without resume"
                )


class _Checkpoints:
    """When the next checkpoint is due: they take no more than a fiftieth of the time."""

    def __init__(self, writer: TokenFilesWriter) -> None:
        self._writer = writer
        self._due = time.monotonic() + CHECKPOINT_SECONDS

    def write_if_due(self, position: Callable[[], dict[str, Any]]) -> None:
        started = time.monotonic()
        if started < self._due or not self._writer.can_checkpoint:
            return
        self._writer.checkpoint(position())
        ended = time.monotonic()
        self._due = ended + max(CHECKPOINT_SECONDS, (ended - started) / _CHECKPOINT_SHARE)
