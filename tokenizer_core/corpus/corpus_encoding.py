"""Corpus encoding: the documents of files in, a folder of token files out.

It stands alone because it joins what knows nothing of each other: reading documents in batches,
encoding them by several workers, writing ids, and checkpoints to go on from. May import its
neighbours and `tokenizer`.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from tokenizer_core.corpus.batch_encoding import BatchEncoder, encode_batches
from tokenizer_core.corpus.document_batches import CorpusFormat, CorpusPlace, iterate_batches
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.corpus.document_shuffle import ShufflePlace, shuffle_documents
from tokenizer_core.corpus.token_files import TokenFiles, check_tokenizer
from tokenizer_core.corpus.token_writer import TokenFilesWriter, can_resume
from tokenizer_core.documents import corpus_file_name, corpus_file_size, open_documents
from tokenizer_core.errors import CorpusError, TokenFilesPlanError

if TYPE_CHECKING:
    from tokenizer_core.corpus.batch_encoding import SplitPart
    from tokenizer_core.corpus.token_manifest import TokenManifest
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.tokenizer import Tokenizer

BATCH_BYTES: Final = 1 << 19
"""Text that is encoded in one call. A document that is longer is encoded in parts. Twice as much is
no faster, and takes 40 MB more."""

CHECKPOINT_SECONDS: Final = 5.0
"""The least time between checkpoints; where they take long, fifty times what the last one took."""

_CHECKPOINT_SHARE: Final = 0.02
_PROCESS_BATCH_BYTES: Final = 1 << 17
"""The Python engine takes a tenth of a second for so much."""


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


def encode_corpus(
    tokenizer: Tokenizer,
    files: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    plan: TokenFilesPlan,
    *,
    corpus_format: CorpusFormat | None = None,
    validation_share: float = 0.0,
    shuffle: bool = False,
    workers: int = 1,
    resume: bool = False,
    progress: Callable[[EncodingProgress], object] | None = None,
) -> TokenManifest:
    """Encode all documents of `files`, in order, into the new folder `folder`; its manifest.

    The plan's begin and end ids are put around each document, and its policy says which special
    tokens in the text are recognised. With a `validation_share` each document goes to the split
    `validation` with that probability, drawn from the plan's seed (0 without one). The same bytes
    for any number of `workers`: threads with the native engine, processes with the Python engine.
    With `shuffle` the documents of each split stand in a random order, a permutation of all of them
    drawn from the same seed. `progress` is called after each batch.

    Every few seconds a checkpoint is put on the disk. With `resume` one that an earlier call for
    the same folder left, however it ended, is gone on from, and the files become those of a call
    that was never interrupted; the file at which it stopped is read again up to there. Without
    `resume`, or a checkpoint, it begins anew.

    Memory: for each worker some batches of `BATCH_BYTES`, whatever the corpus and its documents;
    with `shuffle` eight bytes a document, and on the disk all ids twice.

    Raises:
        CorpusError: a file cannot be read as what it should be.
        PreTokenTooLongError: a document has 16 Mi characters without a place to cut it.
        TokenFilesError: the folder is there already, or there is no text.
        TokenFilesPlanError: the plan is not for this tokenizer's ids, no share between 0 and 1,
            no worker; the checkpoint is of other files or settings, or a file has changed since.
        TokenizerMismatchError: the plan is another tokenizer's.
        SpecialTokenForbiddenError: a text holds a token that the plan forbids.
        WorkerProcessError: a worker process died.

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
    if workers < 1:
        raise TokenFilesPlanError("workers must be at least 1")
    paths = [os.fspath(file) for file in files]
    run = _Run(paths, corpus_format or CorpusFormat(), validation_share, progress, shuffle=shuffle)
    with TokenFilesWriter(folder, plan, resume=resume) as writer:
        if shuffle:
            return run.encode_shuffled(tokenizer, writer, workers)
        return run.encode(tokenizer, writer, workers)


class _Run:
    """The documents of all files on their way into one writer."""

    def __init__(
        self,
        files: list[str],
        corpus_format: CorpusFormat,
        validation_share: float,
        progress: Callable[[EncodingProgress], object] | None,
        *,
        shuffle: bool,
    ) -> None:
        self._files, self._format, self._share = files, corpus_format, validation_share
        self._progress = progress
        self._bytes_total = sum(corpus_file_size(file) for file in files)
        self._settings: dict[str, Any] = {
            "files": [corpus_file_name(file) for file in files],
            "validation_share": validation_share,
            "shuffle": shuffle,
            **asdict(corpus_format),
        }
        self._place = CorpusPlace()
        self._n_tokens = 0

    def encode(self, tokenizer: Tokenizer, writer: TokenFilesWriter, workers: int) -> TokenManifest:
        """Append what is missing, in the order of the files, and finish."""
        if writer.position is not None:
            self._check_settings(writer.position)
            self._place = CorpusPlace.from_fields(writer.position["place"])
            self._n_tokens = writer.position["n_tokens"]
        has_threads = tokenizer.engine.has_threads
        batches = iterate_batches(
            self._files,
            self._format,
            DocumentCuts(writer.plan),
            self._place,
            BATCH_BYTES if has_threads else min(BATCH_BYTES, _PROCESS_BATCH_BYTES),
        )
        encoder = BatchEncoder(tokenizer, writer.plan, self._share)
        checkpoints = _Checkpoints(writer)
        with (
            self._not_utf8(),
            closing(
                encode_batches(encoder, batches, workers=workers, in_processes=not has_threads)
            ) as encoded,
        ):
            for batch in encoded:
                for part in batch.parts:
                    self._append(writer, part)
                self._place = batch.place
                checkpoints.write_if_due(self._place_in_files)
                n_documents = self._place.n_documents
                self._report(self._place.bytes_done, self._bytes_total, n_documents, "encoding")
        return writer.finish(sources=self._place.sources)

    @contextmanager
    def _not_utf8(self) -> Iterator[None]:
        """Tell of bytes that are not UTF-8 in which file they are, and where: who found them knows
        the document only, so the files are read again, up to there."""
        try:
            yield
        except UnicodeDecodeError:
            for file in self._files[len(self._place.sources) :]:
                with open_documents(file, **asdict(self._format)) as reader:
                    deque(reader, maxlen=0)
            raise CorpusError(
                "a corpus file was not UTF-8 and has changed since; read a copy that nobody "
                "writes to"
            ) from None

    def encode_shuffled(
        self, tokenizer: Tokenizer, writer: TokenFilesWriter, workers: int
    ) -> TokenManifest:
        """As `encode`, into scratch, and from there in a random order."""
        in_order = writer.scratch / "in-order"
        if writer.position is None:
            writer.checkpoint(self._position({"shuffled": ShufflePlace()}))
        position = dict(writer.position or {})
        self._check_settings(position)
        if not in_order.exists():
            plan = replace(writer.plan, layout_name="raw", tokens_per_shard=None)
            try:
                with TokenFilesWriter(in_order, plan, resume=True) as first:
                    self.encode(tokenizer, first, workers)
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

    def _place_in_files(self) -> dict[str, Any]:
        return self._position({"place": self._place.to_fields()})

    def _position(self, place: dict[str, Any]) -> dict[str, Any]:
        """What a checkpoint says."""
        return {"settings": self._settings, "n_tokens": self._n_tokens, **place}

    def _check_settings(self, position: dict[str, Any]) -> None:
        settings = position.get("settings", {})  # none where the caller had a writer of its own
        for name, value in self._settings.items():
            if settings.get(name) != value:
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
