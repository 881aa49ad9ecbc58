"""count_distributed: many workers count the pre-tokens of a corpus, as one machine counts them.

    cuts        offsets -> the positions at which to cut large files
    count       shard -> sorted runs, one for each partition     (and the hashes of the files)
    merge       partition: the runs of all shards -> one sorted run
    assemble    all partitions -> the file of counts

`count_shards` and `merge_shards` do the work of each stage; this module decides the shards. The
shards do not depend on the workers, so other workers may continue a run.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from tokenizer_core.distributed.committed_shards import ShardManifest
from tokenizer_core.distributed.corpus_sources import Part, SourceFile, examine_files, hash_sources
from tokenizer_core.distributed.count_shards import ShardRules, count_shard, find_cuts, run_name
from tokenizer_core.distributed.merge_shards import (
    COUNTS,
    MERGED,
    CountedCorpus,
    Partition,
    assemble_counts,
    merge_partition,
)
from tokenizer_core.distributed.runs import Run, Stage
from tokenizer_core.documents import BY_NAME, BadDocuments, CorpusFormat, CorpusSource
from tokenizer_core.documents.bad_documents import NO_BAD_DOCUMENTS, check_max_bad
from tokenizer_core.errors import CorpusError
from tokenizer_core.parallel import Executor
from tokenizer_core.splitting.patterns import UNICODE_TABLES, SplitPattern
from tokenizer_core.training.count_pretokens import CountingRules
from tokenizer_core.training.vocabulary_plan import refuse_string

LARGEST_SHARD_BYTES: Final = 256 << 20
"""The most work that a lost worker repeats, up to `MOST_SHARDS` shards. Larger shards would give
fewer runs to merge."""

MOST_SHARDS: Final = 1 << 14
"""Reached by a corpus of 4 TiB: each shard writes a file for every partition, and a store handles a
hundred million files badly."""

SMALLEST_SHARD_BYTES: Final = 16 << 20

MEMORY_BYTES: Final = 512 << 20
"""Memory of a worker for the counts of a shard; the worker writes the rest to its disk."""

_SHARDS: Final = 64
_BYTES_PER_PARTITION: Final = 1 << 32
_FEWEST_PARTITIONS: Final = 4
_MOST_PARTITIONS: Final = 256
_OFFSETS_PER_TASK: Final = 256
_PARTS_PER_SHARD: Final = 4096
_FILES_PER_TASK: Final = 256
_LAYOUT: Final = 3
_EMPTY: Final = "the corpus is empty: give at least one file with text in it"

Phase = Literal["count", "merge"]
Progress = Callable[[Phase, int, int], object]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to count, how, and in which parts; the identity of the run."""

    sources: tuple[SourceFile, ...]
    pattern: SplitPattern
    special_tokens: tuple[str, ...]
    shard_bytes: int
    n_partitions: int
    corpus_format: CorpusFormat
    skips_bad: bool

    @property
    def n_bytes(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    def is_plain(self, source: SourceFile) -> bool:
        """Whether the bytes of the file are counted, not copies of its documents, of which bad ones
        can be left out."""
        separator = self.corpus_format.separator
        is_ended = separator is None or separator in self.special_tokens
        is_ended &= not self.skips_bad
        return is_ended and self.corpus_format.is_plain_text(source.path)

    def identity(self) -> dict[str, object]:
        return {
            "run": "count pre-tokens",
            "layout": _LAYOUT,
            "unicode_tables": UNICODE_TABLES,
            "inputs": [source.identity for source in self.sources],
            "pattern": self.pattern.fields(),
            "special_tokens": list(self.special_tokens),
            "shard_bytes": self.shard_bytes,
            "n_partitions": self.n_partitions,
            "format": self.corpus_format.settings(),
            "skips_bad": self.skips_bad,
        }


def count_distributed(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    pattern: SplitPattern,
    special_tokens: Sequence[str] = (),
    storage: str | os.PathLike[str],
    executor: Executor,
    output: str | os.PathLike[str],
    engine: str = "auto",
    shard_bytes: int | None = None,
    n_partitions: int | None = None,
    max_memory_bytes: int | None = None,
    scratch_folder: Path | None = None,
    corpus_format: CorpusFormat = BY_NAME,
    progress: Progress | None = None,
    max_bad: float | None = None,
) -> BadDocuments:
    """Count these files, local or in a store, and write the file of counts to `output`; return the
    bad documents that were left out.

    The file equals, byte for byte, the one that `count_pretokens(...).save` writes, for any workers
    and after any failures. The storage at `storage` holds all intermediate results: the same call
    continues an interrupted run, and returns the result of a finished one.

    - `executor`: its workers need access to the files, at the same paths, and to the storage.
    - `shard_bytes`, `n_partitions`: the sizes of the work; they affect only the time.
    - `max_memory_bytes`, `scratch_folder`: for each worker's counts, 512 MiB by default; the rest
      goes to the folder, by default the system's, as do files that a worker fetches, and the text
      of its shard of files that are not plain text.
    - `corpus_format`: how the files hold documents, as for `count_pretokens`. A packed file or
      Parquet is one shard; with `max_bad`, which is as for `count_pretokens`, so is plain text
      without a separator.
    - `progress` gets `count` with bytes, then `merge` with partitions.

    Raises:
        CorpusError: as `count_pretokens`.
        RunConflictError: the storage holds another run.
        ShardFailedError: a shard failed in every attempt.
        WorkerProcessError: the executor has no workers.
        StorageError: the storage cannot be used.
        OSError: `output` cannot be written.
    """
    check_max_bad(max_bad)
    plan = _make_plan(
        inputs, pattern, special_tokens, shard_bytes, n_partitions, corpus_format, max_bad
    )
    run = Run(storage, plan.identity(), scratch=scratch_folder)
    rules = CountingRules(plan.pattern, plan.special_tokens)
    memory_bytes = max_memory_bytes or MEMORY_BYTES
    state = ShardRules(rules, engine, plan.n_partitions, memory_bytes, skips_bad=plan.skips_bad)
    done = Counter[Phase]()

    def report(manifest: ShardManifest) -> None:
        if progress is not None and manifest.stage == "count":
            done["count"] += manifest.figures["n_read"]
            progress("count", done["count"], plan.n_bytes)
        elif progress is not None and manifest.stage in ("merge", "assemble"):
            done["merge"] += 1
            progress("merge", done["merge"], plan.n_partitions + 1)

    def carry_out(*stages: Stage) -> Mapping[str, list[ShardManifest]]:
        return run.carry_out(stages, executor, on_commit=report)

    result = run.committed("assemble", 0)
    if result is None:
        looks = _offsets_to_look_at(plan)
        cuts = carry_out(Stage("cuts", find_cuts, looks, state))["cuts"]
        counted = carry_out(
            Stage("hash", hash_sources, list(_in_batches(plan))),
            Stage("count", count_shard, list(_shards_of(plan, looks, cuts)), state),
        )
        bad = _bad_documents(counted["count"], max_bad)
        partitions = _partitions_of(plan, counted["count"])
        merged = carry_out(Stage("merge", merge_partition, partitions))["merge"]
        corpus = _corpus_of(plan, counted, merged, bad)
        (result,) = carry_out(Stage("assemble", assemble_counts, [corpus]))["assemble"]
    result.files[COUNTS].fetch(run.storage, Path(output))
    run.sweep([result])
    return BadDocuments.from_fields(result.figures["bad"])


def _make_plan(
    inputs: Sequence[str | os.PathLike[str]],
    pattern: SplitPattern,
    special_tokens: Sequence[str],
    shard_bytes: int | None,
    n_partitions: int | None,
    corpus_format: CorpusFormat,
    max_bad: float | None,
) -> _Plan:
    refuse_string(special_tokens)
    sources = tuple(examine_files(inputs))
    for source in sources:
        source.check_content(corpus_format)
    n_bytes = sum(source.size_bytes for source in sources)
    if not n_bytes:
        raise CorpusError(_EMPTY if sources else "no corpus file was given")
    # Only the size of the corpus decides: the workers may change between calls.
    some = min(max(n_bytes // _BYTES_PER_PARTITION, _FEWEST_PARTITIONS), _MOST_PARTITIONS)
    for name, given in (("shard_bytes", shard_bytes), ("n_partitions", n_partitions)):
        if given is not None and given < 1:
            raise ValueError(f"{name} must be at least 1, not {given}")
    size = shard_bytes or choose_shard_bytes(n_bytes)
    return _Plan(
        sources,
        pattern,
        tuple(special_tokens),
        size,
        n_partitions or some,
        corpus_format,
        max_bad is not None,
    )


def choose_shard_bytes(n_bytes: int) -> int:
    """The default size of the shards of a corpus of `n_bytes` bytes.

    Example:
        >>> [choose_shard_bytes(10**n) >> 20 for n in (6, 10, 12, 14)]
        [16, 149, 256, 5820]
    """
    even = min(max(n_bytes // _SHARDS, SMALLEST_SHARD_BYTES), LARGEST_SHARD_BYTES)
    return max(even, n_bytes // MOST_SHARDS)


def _offsets_to_look_at(plan: _Plan) -> list[tuple[SourceFile, Sequence[int]]]:
    """The offsets at which large files are to be cut, in tasks."""
    looks: list[tuple[SourceFile, Sequence[int]]] = []
    for source in filter(plan.is_plain, plan.sources):
        offsets = range(plan.shard_bytes, source.size_bytes, plan.shard_bytes)
        looks += (
            (source, offsets[first : first + _OFFSETS_PER_TASK])
            for first in range(0, len(offsets), _OFFSETS_PER_TASK)
        )
    return looks


def _shards_of(
    plan: _Plan, looks: Sequence[tuple[SourceFile, Sequence[int]]], found: Sequence[ShardManifest]
) -> Iterator[list[Part]]:
    """Parts of files, in order, combined to about `shard_bytes` each."""
    cuts: defaultdict[SourceFile, set[int]] = defaultdict(set)
    for (source, _), manifest in zip(looks, found, strict=True):
        cuts[source].update(manifest.figures["cuts"])
    shard: list[Part] = []
    n_bytes = 0
    for source in plan.sources:
        documents = None if plan.is_plain(source) else plan.corpus_format
        if documents is not None and plan.corpus_format.can_be_entered(source.path):
            cuts[source].update(range(plan.shard_bytes, source.size_bytes, plan.shard_bytes))
        bounds = sorted({0, *cuts[source], source.size_bytes})
        for start, end in pairwise(bounds):
            is_full = n_bytes + end - start > plan.shard_bytes or len(shard) == _PARTS_PER_SHARD
            if shard and is_full:
                yield shard
                shard, n_bytes = [], 0
            shard.append(Part(source, start, end, documents))
            n_bytes += end - start
    if shard:
        yield shard


def _in_batches(plan: _Plan) -> Iterator[list[SourceFile]]:
    """The files in order, in batches to hash, several small ones together."""
    batch: list[SourceFile] = []
    for source in plan.sources:
        batch.append(source)
        if sum(s.size_bytes for s in batch) >= plan.shard_bytes or len(batch) >= _FILES_PER_TASK:
            yield batch
            batch = []
    if batch:
        yield batch


def _partitions_of(plan: _Plan, counted: Sequence[ShardManifest]) -> list[Partition]:
    """The runs of all shards by partition, with their number of bytes."""
    return [
        Partition(
            runs=[m.files[run_name(p)] for m in counted if run_name(p) in m.files],
            n_bytes=sum(m.figures["partition_bytes"][p] for m in counted),
        )
        for p in range(plan.n_partitions)
    ]


def _bad_documents(counted: Sequence[ShardManifest], max_bad: float | None) -> BadDocuments:
    """The bad documents of all shards; raise TooManyBadDocumentsError for more than the share."""
    found = NO_BAD_DOCUMENTS
    for manifest in counted:
        found = found.plus(BadDocuments.from_fields(manifest.figures["bad"]))
    found.check_share(sum(m.figures["n_found"] for m in counted), max_bad or 0.0)
    return found


def _corpus_of(
    plan: _Plan,
    counted: Mapping[str, Sequence[ShardManifest]],
    merged: Sequence[ShardManifest],
    bad: BadDocuments,
) -> CountedCorpus:
    n_bytes = sum(manifest.figures["n_bytes"] for manifest in counted["count"])
    if not n_bytes:
        raise CorpusError(_EMPTY)
    hashes = [sha256 for manifest in counted["hash"] for sha256 in manifest.figures["sha256"]]
    return CountedCorpus(
        partitions=[manifest.files[MERGED] for manifest in merged],
        pattern=plan.pattern,
        special_tokens=plan.special_tokens,
        sources=tuple(
            CorpusSource(source.shown, source.size_bytes, sha256)
            for source, sha256 in zip(plan.sources, hashes, strict=True)
        ),
        n_bytes=n_bytes,
        n_documents=sum(manifest.figures["n_documents"] for manifest in counted["count"]),
        special_bytes=sum(manifest.figures["special_bytes"] for manifest in counted["count"]),
        bad=bad,
    )
