"""JoinedShards: a corpus out of its encoded shards, in order, as they are committed.

Here the documents have numbers, and so the splits are drawn. It stands apart because who encodes
and where plays no part.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.corpus.batch_encoding import EncodedBatch
from tokenizer_core.distributed.committed_shards import scratch_folder
from tokenizer_core.distributed.corpus_shards import encode_shard, hash_source
from tokenizer_core.distributed.encoded_shards import ShardPlace, ids_dtype, read_encoded_shard
from tokenizer_core.distributed.runs import Stage
from tokenizer_core.documents import corpus_file_name
from tokenizer_core.parallel import map_ahead
from tokenizer_core.training.pretoken_counts import CorpusSource

if TYPE_CHECKING:
    from tokenizer_core.corpus.batch_encoding import SplitDraw
    from tokenizer_core.corpus.token_plan import TokenFilesPlan
    from tokenizer_core.distributed.committed_shards import ShardManifest
    from tokenizer_core.distributed.corpus_shards import CorpusShard, ShardEncoding
    from tokenizer_core.distributed.corpus_sources import SourceFile
    from tokenizer_core.distributed.runs import Run
    from tokenizer_core.parallel import Executor

_ENCODE: Final = "encode"
_HASH: Final = "hash"
_BEGINNING: Final = ShardPlace()


@dataclass(frozen=True, slots=True)
class JoinPlace:
    """How far the shards are joined: whole ones, and within the one after them. The `sources` are
    known at the end only."""

    n_shards: int = 0
    in_shard: ShardPlace = _BEGINNING
    n_documents: int = 0
    bytes_done: int = 0
    sources: tuple[CorpusSource, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        """As JSON has it, without the sources."""
        return {
            "n_shards": self.n_shards,
            "in_shard": list(self.in_shard),
            "n_documents": self.n_documents,
            "bytes_done": self.bytes_done,
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> JoinPlace:
        """The place that `to_fields` gave `fields` of."""
        return cls(**{**fields, "in_shard": ShardPlace(*fields["in_shard"])})


class JoinedShards:
    """The documents of all shards of a run, which `executor` encodes: an `EncodedCorpus`."""

    def __init__(
        self,
        run: Run,
        shards: Sequence[CorpusShard],
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
        self._cut = [shard.source for shard in shards if shard.start == 0 and not shard.is_whole]
        # What is hashed first is done last: one worker reads a large file from end to end.
        self._stages = [
            Stage(_HASH, hash_source, self._cut, encoding),
            Stage(_ENCODE, encode_shard, shards, encoding),
        ]
        self._sha256: dict[SourceFile, str] = {}
        self.settings = settings
        self.bytes_total = sum(shard.stop - shard.start for shard in shards)

    def batches(
        self, plan: TokenFilesPlan, place: Mapping[str, Any] | None
    ) -> Generator[EncodedBatch, None, None]:
        """See `EncodedCorpus`."""
        del plan  # decides nothing but the layout
        reached = JoinPlace() if place is None else JoinPlace.from_fields(place)
        with (
            closing(self._in_order(reached.n_shards)) as manifests,
            scratch_folder(self._scratch) as scratch,
            closing(map_ahead(partial(self._fetch, scratch), manifests, num_threads=1)) as fetched,
        ):
            for manifest, folder in fetched:
                yield from self._join(manifest, folder, reached)
                shutil.rmtree(folder)
                reached = self._behind(reached, manifest)
        yield EncodedBatch([], replace(reached, sources=self._sources()))

    def _in_order(self, first: int) -> Generator[ShardManifest, None, None]:
        """The shards from `first` on, in order, as they are committed; the hashes are noted."""
        waiting: dict[int, ShardManifest] = {}
        with closing(self._run.commits(self._stages, self._executor)) as manifests:
            for manifest in manifests:
                if manifest.stage == _HASH:
                    self._sha256[self._cut[manifest.shard]] = manifest.figures["sha256"]
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
        self, manifest: ShardManifest, folder: Path, reached: JoinPlace
    ) -> Iterator[EncodedBatch]:
        """The batches of a shard behind the place that was reached."""
        before = reached.n_documents - reached.in_shard.n_documents
        for batch in read_encoded_shard(folder, self._dtype, reached.in_shard):
            number = before + batch.first_document
            parts = self._draw.parts(number, batch.documents, is_open=batch.is_open)
            n_documents = before + batch.place.n_documents
            yield EncodedBatch(
                parts, replace(reached, in_shard=batch.place, n_documents=n_documents)
            )

    def _behind(self, reached: JoinPlace, manifest: ShardManifest) -> JoinPlace:
        """The place behind a shard, somewhere in or before which is `reached`."""
        shard = self._shards[manifest.shard]
        before = reached.n_documents - reached.in_shard.n_documents
        return JoinPlace(
            n_shards=manifest.shard + 1,
            n_documents=before + manifest.figures["n_documents"],
            bytes_done=reached.bytes_done + shard.stop - shard.start,
        )

    def _sources(self) -> tuple[CorpusSource, ...]:
        begun = [shard.source for shard in self._shards if shard.start == 0]
        return tuple(
            CorpusSource(corpus_file_name(one.shown), one.size_bytes, self._sha256[one])
            for one in begun
        )
