"""Encode batches of documents with several workers, in order, with the tokens around each document.

The native engine runs in threads of this process, because it releases the GIL; the Python engine
runs in processes. Reading continues meanwhile, and the number of batches in memory is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.corpus.marked_ids import mark_ids
from tokenizer_core.corpus.split_writer import LEFT_OUT, DocumentIds, SplitDraw, SplitPart
from tokenizer_core.documents.bad_documents import NO_BAD_DOCUMENTS, BadDocument, BadDocuments
from tokenizer_core.engines import DOCUMENTS
from tokenizer_core.engines.base import join_with_offsets
from tokenizer_core.errors import (
    ConversationError,
    CorpusDocumentError,
    CorpusError,
    DocumentRefusedError,
    SpecialTokenForbiddenError,
    TurnEndError,
)
from tokenizer_core.parallel import map_ahead, run_ahead, run_tasks, until_error
from tokenizer_core.specials.matchers import matcher_of_spec
from tokenizer_core.specials.policy import forbid, forbid_normalized

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokenizer_core.corpus.document_batches import DocumentBatch
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.documents import CorpusSource
    from tokenizer_core.engines.protocol import EncodedDocuments
    from tokenizer_core.specials.matcher import SpecialTokenMatcher
    from tokenizer_core.tokenizer import Tokenizer

_BATCHES_AHEAD: Final = 8
_BATCHES_AHEAD_OF_OLDEST: Final = 8
"""Batches per process: the other processes continue for a while when one batch takes long."""


class EncodedConversation(NamedTuple):
    """The ids and the mask of a document, and what the manifest counts of it, by name."""

    ids: NDArray[np.integer[Any]]
    mask: NDArray[Any]
    counts: Mapping[str, int] = {}


class DocumentEncoder(Protocol):
    """Turns complete documents into ids and a mask, for plans with a `loss_mask`. Can be pickled:
    worker processes call it."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything besides tokenizer and documents that decides the ids and masks (JSON)."""
        ...

    def encode(
        self, tokenizer: Tokenizer, documents: Sequence[bytes]
    ) -> Iterable[EncodedConversation | tuple[NDArray[Any], NDArray[Any]] | ConversationError]:
        """The ids of each document, and a mask of the same length: 1 where the loss counts, 0
        elsewhere; without the plan's ids around documents. For a document that cannot be encoded,
        the error; it ends the run if a `TurnEndError` caused it."""
        ...


class Position(Protocol):
    """How far the documents are encoded: complete documents, bytes of the stored files, and the
    files that were read to their end."""

    @property
    def n_documents(self) -> int: ...  # noqa: D102

    @property
    def bytes_done(self) -> int: ...  # noqa: D102

    @property
    def sources(self) -> tuple[CorpusSource, ...]: ...  # noqa: D102

    @property
    def is_between_files(self) -> bool: ...  # noqa: D102

    def to_fields(self) -> dict[str, Any]:
        """The position as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The ids of a batch, with the plan's tokens around each document, and the position after
    it; the bad documents that it leaves out, and their numbers in the corpus; what the encoder
    counted in it."""

    parts: list[SplitPart]
    position: Position
    bad: BadDocuments = NO_BAD_DOCUMENTS
    bad_numbers: Sequence[int] = ()
    counts: Counter[str] = field(default_factory=Counter)


class BatchEncoder:
    """Encodes batches according to a plan, with `document_encoder` if there is one; with `skip_bad`
    it leaves out what that refuses. Can be pickled."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        plan: TokenFilesPlan,
        validation_share: float = 0.0,
        document_encoder: DocumentEncoder | None = None,
        *,
        skip_bad: bool = False,
    ) -> None:
        self._tokenizer, self._plan, self._document_encoder = tokenizer, plan, document_encoder
        self.skip_bad = skip_bad
        self._draw = SplitDraw(plan, validation_share)
        self._recognised = frozenset(plan.recognised_special)
        self._forbidden = frozenset(plan.forbidden_special)
        # Looking at the ids of a batch costs less than searching its texts. So those of these
        # tokens are looked for first: of the special tokens that stay text, or of the forbidden
        # ones, if each of them in a text gives such an id where only they are recognised.
        spec = tokenizer.spec
        kept = spec.special_tokens.keys() - self._recognised - self._forbidden
        forbidden = [token for token in spec.added_tokens if token.content in self._forbidden]
        is_plain = not any(token.single_word or token.normalized for token in forbidden)
        is_known = is_plain and self._forbidden <= spec.added_ids.keys()
        self._searches = bool(self._forbidden and (self._recognised or kept or not is_known))
        self._watched = kept if self._searches else self._forbidden or kept
        self._watched_ids = [t.id for t in spec.added_tokens if t.content in self._watched]
        self._begin, self._end = plan.begin_of_document_id, plan.end_of_document_id
        self._narrow = plan.disk_dtype == np.uint16

    def find_cuts(self) -> DocumentCuts:
        """Where this encoder can encode a long document in parts."""
        is_whole = self._document_encoder is not None
        return DocumentCuts(self._plan, self._tokenizer.spec, is_whole=is_whole)

    def encode(self, batch: DocumentBatch) -> EncodedBatch:
        """The ids of a batch, by split.

        Raises:
            UnicodeDecodeError: a text is not UTF-8.
            DocumentRefusedError: a text holds a token that the plan forbids, or the document
                encoder refuses it.
        """
        counts = Counter[str]()
        documents, bad = self.encode_documents(batch, counts)
        parts = self._draw.parts(batch.first_document, documents, is_open=batch.is_open)
        numbers = [batch.first_document + index for index in sorted(bad)]
        found = BadDocuments.of(bad[index] for index in sorted(bad)) if bad else NO_BAD_DOCUMENTS
        return EncodedBatch(parts, batch.position, found, numbers, counts)

    def encode_documents(
        self, batch: DocumentBatch, counts: Counter[str]
    ) -> tuple[DocumentIds, dict[int, BadDocument]]:
        """The documents between the begin and end ids: no begin id before a continued document, no
        end id after an open one; and the bad ones by index. What the document encoder counts is
        added to `counts`. Raise as `encode`."""
        bad = dict(batch.bad)
        if self._document_encoder is not None:
            documents = self._encode_whole(self._document_encoder, batch, bad, counts)
        else:
            documents = self._encode_batch(batch, counts)
        return (_leave_out(documents, list(bad)) if bad else documents), bad

    def _encode_batch(self, batch: DocumentBatch, counts: Counter[str]) -> DocumentIds:
        if not batch.texts:
            no_ids, no_sizes = np.empty(0, np.uint16), np.empty(0, np.uint64)
            return DocumentIds(no_ids, np.zeros(1, np.int64), no_sizes)
        encoded = self._encode_texts(batch.texts, batch.first_document, counts)
        ids, unsigned_offsets, n_bytes = encoded
        offsets = unsigned_offsets.astype(np.int64)
        if batch.is_continued and self._begin is not None:
            ids, offsets = ids[1:], np.maximum(offsets - 1, 0)
        if batch.is_open and self._end is not None:
            ids, offsets = ids[:-1], np.minimum(offsets, len(ids) - 1)
        return DocumentIds(ids, offsets, n_bytes)

    def _encode_whole(
        self,
        encoder: DocumentEncoder,
        batch: DocumentBatch,
        bad: dict[int, BadDocument],
        counts: Counter[str],
    ) -> DocumentIds:
        """The loss counts at the end id if it counts at the id before, and never at the begin
        id. What the encoder refuses is added to `bad`."""
        found = [np.empty(0, np.uint32)] * len(batch.texts)
        given = [index for index in range(len(found)) if index not in bad]
        encoded = encoder.encode(self._tokenizer, [batch.texts[index] for index in given])
        for index, one in zip(given, encoded, strict=True):
            if not isinstance(one, ConversationError):
                ids, mask, counted = EncodedConversation(*one)
                found[index] = self._put_around(ids, mask)
                counts.update(counted)
                continue
            is_bad = not isinstance(one.__cause__, TurnEndError)
            if not (is_bad and self.skip_bad):
                kind = CorpusDocumentError if is_bad else CorpusError
                raise DocumentRefusedError(batch.first_document + index, str(one), kind=kind)
            bad[index] = batch.as_bad(index, one.reason)
        marked, offsets = join_with_offsets(found)
        n_bytes = np.array([len(text) for text in batch.texts], dtype=np.uint64)
        return DocumentIds(marked, offsets.astype(np.int64), n_bytes)

    def _put_around(self, ids: NDArray[np.integer[Any]], mask: NDArray[Any]) -> NDArray[np.uint32]:
        if not 0 < len(ids) == len(mask):
            raise ValueError(
                f"a document has {len(ids)} ids and a mask of {len(mask)}; give as many of both, "
                f"or a ConversationError"
            )
        begin, end = ([] if id_ is None else [id_] for id_ in (self._begin, self._end))
        around = [0] * len(begin), [int(mask[-1])] * len(end)
        return mark_ids(
            np.concatenate((begin, ids, end)), np.concatenate((around[0], mask, around[1]))
        )

    def _encode_texts(
        self, texts: Sequence[bytes], first_document: int, counts: Counter[str]
    ) -> EncodedDocuments:
        spec = self._tokenizer.spec
        begin, end = (() if id_ is None else (id_,) for id_ in (self._begin, self._end))
        wanted = DOCUMENTS._replace(prefix_ids=begin, suffix_ids=end, as_uint16=self._narrow)
        encode = self._tokenizer.engine.encode_batch
        matcher = matcher_of_spec(spec, self._recognised)
        if self._searches:
            self._forbid(matcher, texts, first_document)
        n_found = 0
        if self._watched_ids:
            encoded = encode(texts, matcher_of_spec(spec, self._recognised | self._watched), wanted)
            around = sum(id_ in self._watched_ids for id_ in (*begin, *end))
            n_found = self._count_watched(encoded)
            if n_found == around * len(texts):
                return encoded
        if not self._searches:
            self._forbid(matcher, texts, first_document)
        encoded = encode(texts, matcher, wanted)
        if n_kept := n_found - self._count_watched(encoded):
            counts["special_tokens_kept_as_text"] += n_kept
        return encoded

    def _forbid(
        self, matcher: SpecialTokenMatcher, texts: Sequence[bytes], first_document: int
    ) -> None:
        for number, data in enumerate(texts if self._forbidden else (), first_document):
            text = data.decode()
            with _refusing(number):
                forbid(text, self._forbidden)
                forbid_normalized(self._tokenizer.spec, matcher, self._forbidden, text)

    def _count_watched(self, encoded: EncodedDocuments) -> int:
        return int(np.count_nonzero(np.isin(encoded[0], self._watched_ids)))


@contextmanager
def _refusing(number: int) -> Iterator[None]:
    """Name the document of a forbidden special token in the block."""
    try:
        yield
    except SpecialTokenForbiddenError as error:
        raise DocumentRefusedError(number, str(error), error.token) from None


def encode_batches(
    encoder: BatchEncoder, batches: Iterator[DocumentBatch], *, workers: int, in_processes: bool
) -> Generator[EncodedBatch, None, None]:
    """The encoded batches, in order, by `workers` workers.

    Raises:
        WorkerProcessError: a worker process died.
    """
    if in_processes:
        yield from _encode_in_processes(encoder, batches, workers)
        return
    with (
        closing(run_ahead(batches, n_ahead=_BATCHES_AHEAD)) as read,
        closing(
            map_ahead(encoder.encode, read, num_threads=workers, n_ahead=_BATCHES_AHEAD)
        ) as encoded,
    ):
        yield from encoded


def _encode_in_processes(
    encoder: BatchEncoder, batches: Iterator[DocumentBatch], workers: int
) -> Generator[EncodedBatch, None, None]:
    """Yield the results in order; a bounded number of them waits for an earlier one."""
    waiting: dict[int, EncodedBatch] = {}
    next_index = 0
    errors: list[Exception] = []
    tasks = run_tasks(
        BatchEncoder.encode,
        until_error(batches, errors),
        num_workers=workers,
        state=encoder,
        max_ahead=_BATCHES_AHEAD_OF_OLDEST * workers,
    )
    with closing(tasks):
        for index, encoded in tasks:
            waiting[index] = encoded
            while next_index in waiting:
                yield waiting.pop(next_index)
                next_index += 1
    for error in errors:
        raise error


def _leave_out(documents: DocumentIds, bad: list[int]) -> DocumentIds:
    """The documents without the ids of the bad ones, of which none is open."""
    ids, offsets, n_bytes = documents
    lengths, is_present = np.diff(offsets), np.ones(len(n_bytes), np.bool_)
    is_present[bad] = False
    kept = ids[np.repeat(is_present, lengths)]
    ends = np.cumsum(np.where(is_present, lengths, 0))
    return DocumentIds(kept, np.concatenate(([0], ends)), np.where(is_present, n_bytes, LEFT_OUT))
