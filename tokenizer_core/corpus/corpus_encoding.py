"""encode_corpus: read the documents of files in batches, encode them with several workers, and
write them to a folder of token files."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.corpus.batch_encoding import BatchEncoder, encode_batches
from tokenizer_core.corpus.document_batches import CorpusPosition, iterate_batches
from tokenizer_core.corpus.encoding_run import EncodingProgress, write_encoded
from tokenizer_core.corpus.token_files import check_tokenizer
from tokenizer_core.corpus.token_plan import plan_for_records
from tokenizer_core.documents import (
    ENDS_OF_TEXT,
    BadDocument,
    CorpusFormat,
    corpus_file_identity,
    corpus_file_names,
    corpus_file_size,
    open_utf8_documents,
    raise_not_utf8,
)
from tokenizer_core.documents.bad_documents import check_max_bad
from tokenizer_core.documents.corpus_files import unchanged_files
from tokenizer_core.errors import (
    DocumentRefusedError,
    SpecialTokenForbiddenError,
    TokenFilesPlanError,
)

if TYPE_CHECKING:
    from tokenizer_core.corpus.batch_encoding import DocumentEncoder, EncodedBatch
    from tokenizer_core.corpus.token_manifest import TokenManifest
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.tokenizer import Tokenizer

BATCH_BYTES: Final = 1 << 20
"""Text per engine call; a longer document is encoded in parts."""

_PROCESS_BATCH_BYTES: Final = 1 << 17
"""The Python engine needs a tenth of a second for this."""


def encode_corpus(
    tokenizer: Tokenizer,
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    plan: TokenFilesPlan,
    *,
    corpus_format: CorpusFormat | None = None,
    validation_share: float = 0.0,
    shuffle: bool = False,
    workers: int = 1,
    resume: bool = False,
    progress: Callable[[EncodingProgress], object] | None = None,
    document_encoder: DocumentEncoder | None = None,
    max_bad: float | None = None,
) -> TokenManifest:
    """Encode all documents of `files`, in order, into the new folder `folder`; return the manifest.

    Without a `corpus_format`, `<|endoftext|>` ends a document in plain text. The plan gives the ids
    around each document, and decides which special tokens in the text are recognised. With a
    `validation_share` each document goes to the split `validation` with that probability, drawn
    from the plan's seed (0 without one). The files have the same bytes for any number of `workers`:
    threads with the native engine, processes with the Python engine. With `shuffle` each split has
    its documents in a random order, an exact permutation drawn from the same seed. A plan with
    `max_length` truncates or drops longer documents, and the manifest counts them. A
    `document_encoder` gives ids and masks of complete documents, in worker processes; it belongs to
    a plan with a `loss_mask`. `progress` is called after each batch.

    A bad document (see `documents.bad_documents`) ends the call. With `max_bad` such documents are
    left out, and the manifest counts them by reason and has the places of the first ten. More than
    the share `max_bad` of those read, of at least 1,000 before the end, ends the call.

    The call writes a checkpoint every few seconds, and when a document ends it. With `resume` it
    continues from the checkpoint of an earlier call for the same folder, even of a killed one, and
    the files become those of an uninterrupted call. It reads again the file in which the earlier
    call stopped; if a file has changed, it continues before that one, after a file that was read to
    its end. `max_bad` may be another one, and a plan that forbids special tokens a plan that does
    not, because no text so far has one. Without a checkpoint it starts from the beginning. If the
    folder is complete, and a call with the same settings wrote it from these files as they are now,
    it returns the manifest. Without `resume`, a checkpoint is an error.

    Memory: some twenty batches of `BATCH_BYTES` and their ids, for any corpus and documents; with
    `shuffle` eight bytes per document, and disk space for all ids twice.

    Raises:
        CorpusError: a file cannot be read in its format; a document has 16 Mi characters without a
            safe cut, or is a conversation that the `document_encoder` refuses. Names file and line.
        CorpusChangedError: a file was changed, replaced or removed during the call.
        TokenFilesError: the folder exists already, an earlier call left a checkpoint and `resume`
            is false, or the files have no text.
        TooManyBadDocumentsError: more than `max_bad` of the documents are bad.
        TokenFilesPlanError: the share is not between 0 and 1, or `workers` is below 1; the
            checkpoint has other files or settings, or a file has changed since a shuffle began.
        TokenizerMismatchError: the plan is for another tokenizer.
        SpecialTokenForbiddenError: a text holds a token that the plan forbids; names the document.
        WorkerProcessError: a worker process died.
    """
    check_settings(tokenizer, plan, validation_share, document_encoder)
    check_max_bad(max_bad)
    if workers < 1:
        raise TokenFilesPlanError("workers must be at least 1")
    named = [files] if isinstance(files, str | os.PathLike) else files
    paths = [os.fspath(file) for file in named]
    corpus_format = corpus_format or ENDS_OF_TEXT
    plan = plan_for_files(tokenizer, plan, paths, corpus_format)
    skip_bad = max_bad is not None
    encoder = BatchEncoder(tokenizer, plan, validation_share, document_encoder, skip_bad=skip_bad)
    has_threads = tokenizer.engine.has_threads and document_encoder is None
    settings = corpus_settings(paths, corpus_format, validation_share, document_encoder)
    corpus = _Files(encoder, paths, corpus_format, settings, workers, has_threads=has_threads)
    return write_encoded(
        corpus, folder, plan, shuffle=shuffle, resume=resume, progress=progress, max_bad=max_bad
    )


def check_settings(
    tokenizer: Tokenizer,
    plan: TokenFilesPlan,
    validation_share: float,
    document_encoder: DocumentEncoder | None,
) -> None:
    """Raise as `encode_corpus` if the plan or the share is invalid for this tokenizer."""
    check_tokenizer(plan, tokenizer)
    if plan.loss_mask != (document_encoder is not None):
        raise TokenFilesPlanError(
            "plain text has no loss mask; encode conversations, or plan without loss_mask"
            if plan.loss_mask
            else "a document_encoder gives masks; plan with loss_mask=True"
        )
    if not 0 <= validation_share < 1:
        raise TokenFilesPlanError("validation_share must be at least 0 and below 1")


def plan_for_files(
    tokenizer: Tokenizer, plan: TokenFilesPlan, paths: Sequence[str], corpus_format: CorpusFormat
) -> TokenFilesPlan:
    """The plan with the special tokens that count in these files, if nobody named them. Raises
    as `CorpusFormat.choose`."""
    is_text = all(corpus_format.choose(path)[0].startswith("txt") for path in paths)
    return plan if plan.loss_mask or is_text else plan_for_records(plan, tokenizer.spec)


def corpus_settings(
    files: Sequence[str],
    corpus_format: CorpusFormat,
    validation_share: float,
    document_encoder: DocumentEncoder | None,
) -> dict[str, Any]:
    """The settings that decide the documents and their splits, for checkpoints."""
    names = corpus_file_names(files)
    more = {} if document_encoder is None else {"encoder": dict(document_encoder.settings)}
    how = corpus_format.settings()
    return {"files": names, "validation_share": validation_share, **how, **more}


class _Files:
    """The documents of files, encoded in this process or in worker processes."""

    def __init__(
        self,
        encoder: BatchEncoder,
        files: list[str],
        corpus_format: CorpusFormat,
        settings: Mapping[str, Any],
        workers: int,
        *,
        has_threads: bool,
    ) -> None:
        self._encoder, self.paths, self._format = encoder, files, corpus_format
        self._workers, self._has_threads = workers, has_threads
        self.bytes_total = sum(corpus_file_size(file) for file in files)
        self.settings = settings
        self._identities: dict[str, tuple[int, str]] = {}

    def identities(self) -> list[Any]:
        return [list(corpus_file_identity(file)) for file in self.paths]

    def is_current(self, position: Mapping[str, Any]) -> bool:
        begun = CorpusPosition.from_fields(position).identities
        for file, identity in zip(self.paths, begun, strict=False):
            if file not in self._identities:
                self._identities[file] = corpus_file_identity(file)
            if self._identities[file] != identity:
                return False
        return True

    def batches(self, position: Mapping[str, Any] | None) -> Generator[EncodedBatch, None, None]:
        start = CorpusPosition() if position is None else CorpusPosition.from_fields(position)
        reached = start
        batch_bytes = BATCH_BYTES if self._has_threads else min(BATCH_BYTES, _PROCESS_BATCH_BYTES)
        cuts = self._encoder.find_cuts()
        batches = iterate_batches(
            self.paths, self._format, cuts, start, batch_bytes, skip_bad=self._encoder.skip_bad
        )
        encoded = encode_batches(
            self._encoder, batches, workers=self._workers, in_processes=not self._has_threads
        )
        with unchanged_files(self.paths), closing(encoded):
            try:
                for batch in encoded:
                    if isinstance(batch.position, CorpusPosition):
                        reached = batch.position
                    yield batch
            except UnicodeDecodeError:
                raise_not_utf8(self.paths[len(reached.sources) :], self._format)
            except DocumentRefusedError as error:
                place = self._locate(error.number, reached)
                if error.forbidden is not None:
                    raise SpecialTokenForbiddenError(error.forbidden, place) from None
                raise error.kind(f"{place}: {error.reason}") from None

    def _locate(self, number: int, reached: CorpusPosition) -> str:
        """The file of a document and the place in it, by reading the files again."""
        left = number - (reached.n_documents - reached.n_in_file)
        for file in self.paths[len(reached.sources) :]:
            bad: list[BadDocument] | None = [] if self._encoder.skip_bad else None
            with open_utf8_documents(file, self._format, bad=bad) as reader:
                place, n_in_file = reader.find_place(left)
                if place is not None:
                    return f"the corpus file {reader.path!r}, {place}"
            left -= n_in_file
        return f"document {number} of the corpus"
