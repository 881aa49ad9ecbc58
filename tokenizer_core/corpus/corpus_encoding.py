"""Corpus encoding: the documents of files in, a folder of token files out.

It stands alone because it joins what knows nothing of each other: reading documents, encoding them,
and writing ids. Documents go through in batches of some megabytes, one call of the engine each. May
import `documents`, `streaming`, `tokenizer` and its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.corpus.token_files import check_tokenizer
from tokenizer_core.corpus.token_writer import TokenFilesWriter
from tokenizer_core.documents import corpus_file_name, corpus_file_size, open_documents
from tokenizer_core.errors import TokenFilesPlanError
from tokenizer_core.streaming import StreamingEncoder
from tokenizer_core.training.pretoken_counts import CorpusSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_manifest import TokenManifest
    from tokenizer_core.corpus.token_plan import Split, TokenFilesPlan
    from tokenizer_core.documents import DocumentReader
    from tokenizer_core.tokenizer import Tokenizer

    Ids = NDArray[np.uint32]
    Offsets = NDArray[np.int64]

BATCH_CHARS: Final = 1 << 22
"""Text that is encoded in one call. A document that is longer is encoded piece by piece."""

_BATCH_DOCUMENTS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class EncodingProgress:
    """How far it is: bytes of the files as they lie on the disk, documents and ids written."""

    bytes_done: int
    bytes_total: int
    n_documents: int
    n_tokens: int


@dataclass(frozen=True, slots=True)
class CorpusFormat:
    """How documents stand in the files; the words of `open_documents`."""

    format: str | None = None
    field: str = "text"
    separator: str | None = None


def encode_corpus(
    tokenizer: Tokenizer,
    files: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    plan: TokenFilesPlan,
    *,
    corpus_format: CorpusFormat | None = None,
    validation_share: float = 0.0,
    num_threads: int | None = None,
    progress: Callable[[EncodingProgress], object] | None = None,
) -> TokenManifest:
    """Encode all documents of `files`, in order, into the new folder `folder`; its manifest.

    The plan's begin and end ids are put around each document, and its policy says which special
    tokens in the text are recognised. With a `validation_share` each document goes to the split
    `validation` with that probability, drawn from the plan's seed (0 without one): the same for
    any size of batches and any number of threads. `progress` is called after each batch.

    Memory: some batches of `BATCH_CHARS`, and the ids of the longest document.

    Raises:
        CorpusError: a file cannot be read as what it should be; nothing is left of the folder.
        TokenFilesError: the folder is there already, or there is no text.
        TokenFilesPlanError: the plan is not for this tokenizer's ids, or no share between 0 and 1.
        TokenizerMismatchError: the plan is another tokenizer's.
        SpecialTokenForbiddenError: a text holds a token that the plan forbids.

    Example:
        >>> import tempfile; from pathlib import Path
        >>> from tokenizer_core import Tokenizer
        >>> from tokenizer_core.corpus import TokenFiles, encode_corpus, plan_token_files
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|end|>"])
        >>> here = Path(tempfile.mkdtemp())
        >>> _ = (here / "some.txt").write_text("one<|end|>two")
        >>> plan = plan_token_files(tokenizer, end_of_document="<|end|>")
        >>> manifest = encode_corpus(
        ...     tokenizer, [here / "some.txt"], here / "tokens", plan,
        ...     corpus_format=CorpusFormat(separator="<|end|>"),
        ... )
        >>> manifest.split("train").n_documents, manifest.split("train").n_tokens
        (2, 8)
        >>> TokenFiles.open(here / "tokens").decode_document(1, tokenizer)
        'two<|end|>'
    """
    check_tokenizer(plan, tokenizer)
    if not 0 <= validation_share < 1:
        raise TokenFilesPlanError("validation_share must be at least 0 and below 1")
    paths = [os.fspath(file) for file in files]
    total = sum(corpus_file_size(path) for path in paths)
    with TokenFilesWriter(folder, plan) as writer:
        run = _Run(tokenizer, plan, writer, validation_share, num_threads)
        sources: list[CorpusSource] = []
        for path in paths:
            done = sum(source.size_bytes for source in sources)
            for reader in run.encode_file(path, corpus_format or CorpusFormat()):
                if progress is not None:
                    progress(run.progress(done + reader.position_bytes, total))
            sources.append(run.source_of(path, reader))
        return writer.finish(sources=sources)


@dataclass(slots=True)
class _Batch:
    """Whole documents that wait to be encoded."""

    texts: list[str] = field(default_factory=list)
    n_chars: int = 0

    def add(self, text: str) -> None:
        self.texts.append(text)
        self.n_chars += len(text)

    @property
    def is_full(self) -> bool:
        return self.n_chars >= BATCH_CHARS or len(self.texts) >= _BATCH_DOCUMENTS


class _Run:
    """The documents of all files on their way into one writer."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        plan: TokenFilesPlan,
        writer: TokenFilesWriter,
        validation_share: float,
        num_threads: int | None,
    ) -> None:
        self._tokenizer, self._writer, self._num_threads = tokenizer, writer, num_threads
        self._share = validation_share
        self._draws = np.random.Generator(np.random.PCG64(plan.seed or 0))
        self._policy: dict[str, Any] = {
            "allowed_special": frozenset(plan.recognised_special),
            "disallowed_special": frozenset(plan.forbidden_special),
        }
        self._begin, self._end = (
            np.array([] if id_ is None else [id_], dtype=np.uint32)
            for id_ in (plan.begin_of_document_id, plan.end_of_document_id)
        )
        self._n_documents = self._n_tokens = 0

    def progress(self, bytes_done: int, bytes_total: int) -> EncodingProgress:
        return EncodingProgress(bytes_done, bytes_total, self._n_documents, self._n_tokens)

    def encode_file(self, path: str, corpus_format: CorpusFormat) -> Iterator[DocumentReader]:
        """Append the documents of a file; gives its reader after each batch, and at the end."""
        batch = _Batch()
        with open_documents(
            path,
            format=corpus_format.format,
            field=corpus_format.field,
            separator=corpus_format.separator,
            hash_source=True,
        ) as reader:
            for text, rest in _documents(reader):
                if rest is None:
                    batch.add(text)
                else:  # longer than a batch
                    self._append_batch(batch)
                    batch = _Batch()
                    self._append_long(text, rest)
                if batch.is_full:
                    self._append_batch(batch)
                    batch = _Batch()
                    yield reader
            self._append_batch(batch)
            yield reader

    @staticmethod
    def source_of(path: str, reader: DocumentReader) -> CorpusSource:
        """What the manifest says of a file that was read to its end."""
        if reader.sha256 is None:
            raise RuntimeError("a file counts as read before its end")
        return CorpusSource(corpus_file_name(path), reader.position_bytes, reader.sha256)

    def _append_batch(self, batch: _Batch) -> None:
        if not batch.texts:
            return
        ids, offsets = self._tokenizer.encode_batch_to_numpy(
            batch.texts, num_threads=self._num_threads, **self._policy
        )
        sizes = np.array([_utf8_length(text) for text in batch.texts], dtype=np.int64)
        self._append(*self._surround(ids, offsets.astype(np.int64)), sizes)

    def _append_long(self, text: str, rest: Iterator[str]) -> None:
        stream = StreamingEncoder(self._tokenizer, **self._policy)
        parts = [np.array(stream.feed(text), dtype=np.uint32)]
        size = _utf8_length(text)
        for piece in rest:
            parts.append(np.array(stream.feed(piece), dtype=np.uint32))
            size += _utf8_length(piece)
        parts.append(np.array(stream.finish(), dtype=np.uint32))
        ids = np.concatenate(parts)
        self._append(*self._surround(ids, np.array([0, len(ids)])), np.array([size]))

    def _surround(self, ids: Ids, offsets: Offsets) -> tuple[Ids, Offsets]:
        """The same documents with the begin and end ids around each."""
        n_around = len(self._begin) + len(self._end)
        if not n_around:
            return ids, offsets
        moved = offsets + n_around * np.arange(len(offsets))
        surrounded = np.empty(moved[-1], dtype=np.uint32)
        is_text = np.ones(len(surrounded), dtype=bool)
        for around, places in ((self._begin, moved[:-1]), (self._end, moved[1:] - 1)):
            if len(around):
                surrounded[places] = around
                is_text[places] = False
        surrounded[is_text] = ids
        return surrounded, moved

    def _append(self, ids: Ids, offsets: Offsets, sizes: NDArray[np.int64]) -> None:
        n_documents = len(sizes)
        self._n_documents += n_documents
        self._n_tokens += len(ids)
        # Drawn for each document, also where none is wanted: a share does not move the others.
        is_held_out = self._draws.random(n_documents) < self._share
        parts: tuple[tuple[Split, NDArray[np.bool_]], ...] = (
            ("train", ~is_held_out),
            ("validation", is_held_out),
        )
        for split, chosen in parts:
            if chosen.any():
                part, ends = _choose(ids, offsets, chosen)
                self._writer.append_batch(part, ends, n_bytes=int(sizes[chosen].sum()), split=split)


def _documents(pieces: Iterator[Any]) -> Iterator[tuple[str, Iterator[str] | None]]:
    """Each document whole, or for a longer one than a batch its beginning and an iterator of the
    rest, which is to be used up before the next."""
    parts: list[str] = []
    n_chars = 0
    for piece in pieces:
        parts.append(piece.text)
        n_chars += len(piece.text)
        if piece.is_last:
            yield "".join(parts), None
        elif n_chars >= BATCH_CHARS:
            yield "".join(parts), _rest(pieces)
        else:
            continue
        parts.clear()
        n_chars = 0


def _rest(pieces: Iterator[Any]) -> Iterator[str]:
    for piece in pieces:
        yield piece.text
        if piece.is_last:
            return


def _choose(ids: Ids, offsets: Offsets, chosen: NDArray[np.bool_]) -> tuple[Ids, Offsets]:
    """The chosen documents."""
    if chosen.all():
        return ids, offsets
    lengths = np.diff(offsets)
    kept = lengths[chosen]
    return ids[np.repeat(chosen, lengths)], np.concatenate(([0], np.cumsum(kept)))


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
