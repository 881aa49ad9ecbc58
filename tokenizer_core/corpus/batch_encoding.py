"""Encoding batches of documents by several workers, in order, each document between its tokens.

The compiled engine works in threads of this process, as it releases the interpreter's lock; the
Python engine in processes. Either way, reading goes on meanwhile and what is under way is bounded.
May import `document_batches`, `parallel` and the plan; the tokenizer is given from outside.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tokenizer_core.parallel import map_ahead, run_ahead, run_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.corpus.document_batches import CorpusPlace, DocumentBatch
    from tokenizer_core.corpus.token_plan import Split, TokenFilesPlan
    from tokenizer_core.tokenizer import Tokenizer

    Ids = NDArray[np.uint32]
    Offsets = NDArray[np.int64]

_BATCHES_AHEAD: Final = 2


class SplitPart(NamedTuple):
    """The documents of a batch that go to one split, as `TokenFilesWriter.append_batch` has it."""

    split: Split
    ids: Ids
    offsets: Offsets
    n_bytes: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The ids of a batch, with the plan's tokens around each document; `place` is behind it."""

    parts: list[SplitPart]
    place: CorpusPlace


class BatchEncoder:
    """Encodes batches as a plan says, and draws what is held out. Can be sent to a process."""

    def __init__(self, tokenizer: Tokenizer, plan: TokenFilesPlan, validation_share: float) -> None:
        self._tokenizer, self._share, self._seed = tokenizer, validation_share, plan.seed or 0
        self._policy: dict[str, Any] = {
            "allowed_special": plan.recognised_special,
            "disallowed_special": plan.forbidden_special,
        }
        self._begin, self._end = plan.begin_of_document_id, plan.end_of_document_id

    def encode(self, batch: DocumentBatch) -> EncodedBatch:
        """The ids of a batch.

        Raises:
            SpecialTokenForbiddenError: a text holds a token that the plan forbids.
        """
        texts = batch.texts
        if not texts:
            return EncodedBatch([], batch.place)
        found, places = self._tokenizer.encode_batch_to_numpy(texts, **self._policy)
        ids, offsets = self._surround(batch, found, places.astype(np.int64))
        if not self._share:
            whole = SplitPart("train", ids, offsets, _utf8_length(texts), batch.is_open)
            return EncodedBatch([whole], batch.place)
        is_held_out = self._draw(batch)
        parts = []
        split: Split
        for split, chosen in (("train", ~is_held_out), ("validation", is_held_out)):
            if chosen.any():
                n_bytes = _utf8_length(compress(texts, chosen))
                is_open = batch.is_open and bool(chosen[-1])
                parts.append(SplitPart(split, *_choose(ids, offsets, chosen), n_bytes, is_open))
        return EncodedBatch(parts, batch.place)

    def _draw(self, batch: DocumentBatch) -> NDArray[np.bool_]:
        """Whether each document is held out; one draw for each document of the corpus, so that
        neither batches nor another share move those of others."""
        bits = np.random.PCG64(self._seed)
        bits.advance(batch.first_document)
        return np.random.Generator(bits).random(len(batch.texts)) < self._share

    def _surround(self, batch: DocumentBatch, ids: Ids, offsets: Offsets) -> tuple[Ids, Offsets]:
        """The same documents with the begin and end ids around each: not before one that goes on,
        nor behind one that is open."""
        n_texts = len(offsets) - 1
        begins, ends = np.zeros((2, n_texts), dtype=np.int64)
        if self._begin is not None:
            begins[batch.is_continued :] = 1
        if self._end is not None:
            ends[: n_texts - batch.is_open] = 1
        moved = offsets + np.concatenate(([0], np.cumsum(begins + ends)))
        if moved[-1] == offsets[-1]:
            return ids, offsets
        surrounded = np.empty(moved[-1], dtype=np.uint32)
        is_text = np.ones(len(surrounded), dtype=np.bool_)
        for id_, places in (
            (self._begin, moved[:-1][begins == 1]),
            (self._end, moved[1:][ends == 1] - 1),
        ):
            surrounded[places] = id_ or 0
            is_text[places] = False
        surrounded[is_text] = ids
        return surrounded, moved


def encode_batches(
    encoder: BatchEncoder, batches: Iterator[DocumentBatch], *, workers: int, in_processes: bool
) -> Generator[EncodedBatch, None, None]:
    """The batches with their ids, in order, by so many workers.

    Raises:
        WorkerProcessError: a worker process died.
    """
    if in_processes:
        yield from _encode_in_processes(encoder, batches, workers)
        return
    with (
        closing(run_ahead(batches, n_ahead=_BATCHES_AHEAD)) as read,
        closing(map_ahead(encoder.encode, read, num_threads=workers)) as encoded,
    ):
        yield from encoded


def _encode_in_processes(
    encoder: BatchEncoder, batches: Iterator[DocumentBatch], workers: int
) -> Generator[EncodedBatch, None, None]:
    """Results come in the order they are done; those that came too early wait."""
    waiting: dict[int, EncodedBatch] = {}
    following = 0
    tasks = run_tasks(BatchEncoder.encode, batches, num_workers=workers, state=encoder)
    with closing(tasks):
        for index, encoded in tasks:
            waiting[index] = encoded
            while following in waiting:
                yield waiting.pop(following)
                following += 1


def _choose(ids: Ids, offsets: Offsets, chosen: NDArray[np.bool_]) -> tuple[Ids, Offsets]:
    """The chosen documents."""
    if chosen.all():
        return ids, offsets
    lengths = np.diff(offsets)
    kept = lengths[chosen]
    return ids[np.repeat(chosen, lengths)], np.concatenate(([0], np.cumsum(kept)))


def _utf8_length(texts: Iterable[str]) -> int:
    # The compiled engine has left its UTF-8 with each text, so that this only copies it.
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
