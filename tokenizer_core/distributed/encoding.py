"""encode_distributed: many workers encode a corpus, byte for byte as `encode_corpus` does.

Workers encode shards of documents and commit their ids to the run's storage. This process joins
them in order and writes them with the writer of `encode_corpus`, which also draws the splits, cuts
the shards of token files, writes checkpoints and shuffles.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.corpus.batch_encoding import BatchEncoder, EncodedBatch
from tokenizer_core.corpus.corpus_encoding import check_settings, corpus_settings, plan_for_files
from tokenizer_core.corpus.encoding_run import EncodingProgress, write_encoded
from tokenizer_core.corpus.split_writer import SplitDraw
from tokenizer_core.corpus.token_manifest import render_plan
from tokenizer_core.distributed.committed_shards import ShardManifest, scratch_folder
from tokenizer_core.distributed.corpus_sources import Part, SourceFile, examine_files, hash_sources
from tokenizer_core.distributed.encode_shards import (
    ShardEncoding,
    ShardPosition,
    cut_corpus,
    encode_shard,
    ids_dtype,
    read_encoded_shard,
)
from tokenizer_core.distributed.runs import Run, Stage
from tokenizer_core.documents import (
    ENDS_OF_TEXT,
    BadDocuments,
    CorpusFormat,
    CorpusSource,
)
from tokenizer_core.documents.bad_documents import check_max_bad
from tokenizer_core.errors import TokenFilesPlanError
from tokenizer_core.parallel import map_ahead
from tokenizer_core.splitting.patterns import UNICODE_TABLES

if TYPE_CHECKING:
    from tokenizer_core.corpus.batch_encoding import DocumentEncoder
    from tokenizer_core.corpus.token_manifest import TokenManifest
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.parallel import Executor
    from tokenizer_core.tokenizer import Tokenizer

SHARD_BYTES: Final = 32 << 20
"""About a second of work: a lost worker costs little, and requests to the storage are rare."""

MOST_SHARDS: Final = 1 << 16
"""Reached by a corpus of 2 TiB; larger ones get larger shards, because the joining process keeps
a list of all shards."""

_LAYOUT: Final = 3
"""Version of the committed files."""
_ENCODE: Final = "encode"
_HASH: Final = "hash"
_BEGINNING: Final = ShardPosition()


def encode_distributed(
    tokenizer: Tokenizer,
    files: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    plan: TokenFilesPlan,
    *,
    storage: str | os.PathLike[str],
    executor: Executor,
    corpus_format: CorpusFormat | None = None,
    validation_share: float = 0.0,
    shuffle: bool = False,
    resume: bool = False,
    progress: Callable[[EncodingProgress], object] | None = None,
    shard_bytes: int | None = None,
    scratch_folder: Path | None = None,
    document_encoder: DocumentEncoder | None = None,
    max_bad: float | None = None,
) -> TokenManifest:
    """As `encode_corpus`, with the same bytes, by the workers of `executor`; return the manifest.

    `storage` is a folder that all workers share, or `s3://bucket/prefix`. Workers commit shards of
    about `shard_bytes` of the files there (by default chosen from their size), and the storage
    keeps them until the token files are complete. The shard of a dead worker is retried; the error
    for a shard that keeps failing names it. Every worker must find the files at the same paths or
    addresses. `max_bad` is checked after each shard, in order. With `resume` a call with the same
    folder and storage continues the last one, on any executor; every file must be as it was.

    Workers and this process keep the ids of one or two shards in `scratch_folder`, by default the
    system's. Each worker needs the memory of `encode_corpus` with one worker.

    Raises:
        RunConflictError: the storage holds another run, or one of files that have changed.
        ShardFailedError: a shard failed in every attempt.
        RunError: a committed file is damaged or missing.
        StorageError: the storage cannot be used.
        CorpusError, TokenFilesError, TokenFilesPlanError, TokenizerMismatchError,
        WorkerProcessError: as `encode_corpus`; a text that the plan forbids, or that cannot be cut,
            is a CorpusError too.
    """
    check_settings(tokenizer, plan, validation_share, document_encoder)
    check_max_bad(max_bad)
    if shard_bytes is not None and shard_bytes < 1:
        raise TokenFilesPlanError("shard_bytes must be at least 1")
    corpus_format = corpus_format or ENDS_OF_TEXT
    sources = examine_files(files)
    for source in sources:
        source.check_content(corpus_format)
    plan = plan_for_files(tokenizer, plan, [source.shown for source in sources], corpus_format)
    if shard_bytes is None:
        shard_bytes = max(SHARD_BYTES, sum(source.size_bytes for source in sources) // MOST_SHARDS)
    identity = {
        "run": "encode a corpus",
        "layout": _LAYOUT,
        "unicode_tables": UNICODE_TABLES,
        "inputs": [source.identity for source in sources],
        "format": corpus_format.settings(),
        "plan": render_plan(plan),
        "shard_bytes": shard_bytes,
    }
    if document_encoder is not None:
        identity["encoder"] = dict(document_encoder.settings)
    # Cut before the run claims the storage: an unknown format is an error.
    shards = list(cut_corpus(sources, corpus_format, shard_bytes))
    run = Run(storage, identity, scratch=scratch_folder)
    encoder = BatchEncoder(
        tokenizer, plan, document_encoder=document_encoder, skip_bad=max_bad is not None
    )
    encoding = ShardEncoding(encoder, plan, corpus_format)
    settings = corpus_settings(
        [s.shown for s in sources], corpus_format, validation_share, document_encoder
    )
    corpus = JoinedShards(
        run,
        shards,
        encoding,
        executor,
        draw=SplitDraw(plan, validation_share),
        settings={**settings, "run": run.id},
        scratch=scratch_folder,
    )
    manifest = write_encoded(
        corpus, folder, plan, shuffle=shuffle, resume=resume, progress=progress, max_bad=max_bad
    )
    run.remove()
    return manifest


@dataclass(frozen=True, slots=True)
class JoinPosition:
    """How far the shards are joined: complete ones, and the position in the next one. `sources` is
    known only at the end."""

    n_shards: int = 0
    in_shard: ShardPosition = _BEGINNING
    n_documents: int = 0
    bytes_done: int = 0
    sources: tuple[CorpusSource, ...] = ()
    is_between_files: bool = False  # the run checks its files

    def to_fields(self) -> dict[str, Any]:
        """As JSON, without the sources."""
        return {
            "n_shards": self.n_shards,
            "in_shard": list(self.in_shard),
            "n_documents": self.n_documents,
            "bytes_done": self.bytes_done,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> JoinPosition:
        """The position that `to_fields` rendered."""
        return cls(**{**fields, "in_shard": ShardPosition(*fields["in_shard"])})


class JoinedShards:
    """The documents of all shards of a run, in order, as `executor` encodes them: an
    `EncodedCorpus`."""

    def __init__(
        self,
        run: Run,
        shards: Sequence[Part],
        encoding: ShardEncoding,
        executor: Executor,
        *,
        draw: SplitDraw,
        settings: Mapping[str, Any],
        scratch: Path | None,
    ) -> None:
        self._run, self._shards, self._executor = run, shards, executor
        self._dtype = ids_dtype(encoding.plan)
        self._draw, self._scratch = draw, scratch
        self._cut = [
            shard.source for shard in shards if shard.start == 0 and shard.within is not None
        ]
        # Start with hashing, which takes longest: one worker reads a large file to its end.
        self._stages = [
            Stage(_HASH, hash_sources, [[source] for source in self._cut]),
            Stage(_ENCODE, encode_shard, shards, encoding),
        ]
        self._sha256: dict[SourceFile, str] = {}
        self.settings = settings
        files = [shard.source for shard in shards if shard.start == 0]
        self.paths = [file.path for file in files]
        self.bytes_total = sum(file.size_bytes for file in files)

    def identities(self) -> list[Any]:
        return []  # the run checks its files

    def is_current(self, position: Mapping[str, Any]) -> bool:
        del position
        return True  # the run checks its files

    def batches(self, position: Mapping[str, Any] | None) -> Generator[EncodedBatch, None, None]:
        reached = JoinPosition() if position is None else JoinPosition.from_fields(position)
        with (
            closing(self._in_order(reached.n_shards)) as manifests,
            scratch_folder(self._scratch) as scratch,
            closing(map_ahead(partial(self._fetch, scratch), manifests, num_threads=1)) as fetched,
        ):
            for manifest, folder in fetched:
                yield from self._join(manifest, folder, reached)
                shutil.rmtree(folder)
                reached = self._after(reached, manifest)
                bad = BadDocuments.from_fields(manifest.figures["bad"])
                yield EncodedBatch([], reached, bad, [reached.n_documents - 1] * bad.count)
        yield EncodedBatch([], replace(reached, sources=self._sources()))

    def _in_order(self, first: int) -> Generator[ShardManifest, None, None]:
        """The shards from `first`, in order, as workers commit them; also note the hashes."""
        waiting: dict[int, ShardManifest] = {}
        with closing(self._run.commits(self._stages, self._executor)) as manifests:
            for manifest in manifests:
                if manifest.stage == _HASH:
                    (self._sha256[self._cut[manifest.shard]],) = manifest.figures["sha256"]
                    continue
                if manifest.figures["sha256"] is not None:
                    self._sha256[self._shards[manifest.shard].source] = manifest.figures["sha256"]
                waiting[manifest.shard] = manifest
                while first in waiting:
                    yield waiting.pop(first)
                    first += 1

    def _fetch(self, scratch: Path, manifest: ShardManifest) -> tuple[ShardManifest, Path]:
        folder = scratch / str(manifest.shard)
        folder.mkdir()
        for name, file in manifest.files.items():
            file.fetch(self._run.storage, folder / name)
        return manifest, folder

    def _join(
        self, manifest: ShardManifest, folder: Path, reached: JoinPosition
    ) -> Iterator[EncodedBatch]:
        """The batches of a shard after the position that was reached."""
        before = reached.n_documents - reached.in_shard.n_documents
        is_begun = reached.in_shard != _BEGINNING
        counts = Counter[str]({} if is_begun else manifest.figures["counts"])
        for batch in read_encoded_shard(folder, self._dtype, reached.in_shard):
            number = before + batch.first_document
            parts = self._draw.parts(number, batch.documents, is_open=batch.is_open)
            n_documents = before + batch.position.n_documents
            position = replace(reached, in_shard=batch.position, n_documents=n_documents)
            yield EncodedBatch(parts, position, counts=counts)
            counts = Counter()

    def _after(self, reached: JoinPosition, manifest: ShardManifest) -> JoinPosition:
        """The position after a shard; `reached` is at its start or within it."""
        shard = self._shards[manifest.shard]
        before = reached.n_documents - reached.in_shard.n_documents
        return JoinPosition(
            n_shards=manifest.shard + 1,
            n_documents=before + manifest.figures["n_documents"],
            bytes_done=reached.bytes_done + shard.end - shard.start,
        )

    def _sources(self) -> tuple[CorpusSource, ...]:
        begun = [shard.source for shard in self._shards if shard.start == 0]
        return tuple(CorpusSource(one.name, one.size_bytes, self._sha256[one]) for one in begun)
