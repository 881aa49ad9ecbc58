"""count_distributed: pre-tokens of a corpus counted by many workers, as one machine counts them.

    cuts        where large files may be cut                          (a look at each place)
    count       shard -> sorted runs, one for each partition          beside it, the files' hashes
    merge       partition: the runs of all shards -> one sorted run
    assemble    all partitions -> the file of counts

What each stage does is in `count_shards` and `merge_shards`; here it is decided what its shards
are. Nothing of that depends on who works or how many, so a run may be gone on by others.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from tokenizer_core.distributed.committed_shards import ShardManifest
from tokenizer_core.distributed.corpus_sources import Part, SourceFile
from tokenizer_core.distributed.count_shards import (
    ShardRules,
    count_shard,
    find_cuts,
    hash_sources,
    run_name,
)
from tokenizer_core.distributed.merge_shards import (
    COUNTS,
    MERGED,
    CountedCorpus,
    Partition,
    assemble_counts,
    merge_partition,
)
from tokenizer_core.distributed.runs import Run, Stage
from tokenizer_core.errors import CorpusError
from tokenizer_core.parallel import Executor
from tokenizer_core.patterns import UNICODE_TABLES, SplitPattern
from tokenizer_core.training.count_pretokens import CountingRules
from tokenizer_core.training.pretoken_counts import CorpusSource

LARGEST_SHARD_BYTES: Final = 256 << 20
"""What a lost worker has to do again at most, up to `MOST_SHARDS`; larger ones would have fewer
runs to merge."""

MOST_SHARDS: Final = 1 << 14
"""Of a corpus of 4 TiB and more: each writes a file for every partition, and stores take no liking
to a hundred million of them."""

SMALLEST_SHARD_BYTES: Final = 16 << 20

MEMORY_BYTES: Final = 512 << 20
"""What the counts of a shard may take in a worker's memory; what is more goes to its disk."""

_SHARDS: Final = 64
_BYTES_PER_PARTITION: Final = 1 << 32
_FEWEST_PARTITIONS: Final = 4
_MOST_PARTITIONS: Final = 256
_PLACES_PER_TASK: Final = 256
_PARTS_PER_SHARD: Final = 4096
_FILES_PER_TASK: Final = 256
_LAYOUT: Final = 1

Phase = Literal["count", "merge"]
Progress = Callable[[Phase, int, int], object]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is counted, how, and in what parts; the identity of the run."""

    sources: tuple[SourceFile, ...]
    pattern: SplitPattern
    special_tokens: tuple[str, ...]
    shard_bytes: int
    n_partitions: int

    @property
    def n_bytes(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    def identity(self) -> dict[str, object]:
        return {
            "run": "count pre-tokens",
            "layout": _LAYOUT,
            "unicode_tables": UNICODE_TABLES,
            "inputs": [source.identity for source in self.sources],
            "pattern": asdict(self.pattern),
            "special_tokens": list(self.special_tokens),
            "shard_bytes": self.shard_bytes,
            "n_partitions": self.n_partitions,
        }


def count_distributed(
    inputs: Sequence[str | os.PathLike[str] | SourceFile],
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
    progress: Progress | None = None,
    while_waiting: Callable[[], object] | None = None,
) -> None:
    """Count these files, local or in a store, and write the file of counts to `output`.

    The file is, byte for byte, the one that `count_pretokens(...).save` writes, whoever counts and
    whatever fails on the way. All that is made lies in the storage at `storage`: interrupted, the
    same call goes on from there; once done, it has the result.

    - `executor`: who works. Its workers see the files at the same paths, and the storage.
    - `shard_bytes`, `n_partitions`: how the work is cut; they change nothing but time.
    - `max_memory_bytes`, `scratch_folder`: of each worker's counts, 512 MiB unless given; what is
      more goes to the folder, by default the system's, which also takes what is fetched.
    - `progress` gets `count` with bytes, then `merge` with partitions; `while_waiting` is called
      several times a second, and what it raises ends the run.

    Raises:
        CorpusError: as `count_pretokens`.
        RunConflictError: the storage holds another run.
        ShardFailedError: a shard failed each time it was tried.
        WorkerProcessError: the executor has no workers.
        StorageError: the storage cannot be used.
        OSError: `output` cannot be written.

    Example:
        >>> import tempfile; folder = Path(tempfile.mkdtemp())
        >>> from tokenizer_core.parallel import LocalExecutor
        >>> from tokenizer_core.patterns import PATTERNS
        >>> from tokenizer_core.training import PretokenCounts
        >>> _ = (folder / "text").write_text("low low lower")
        >>> count_distributed([folder / "text"], pattern=PATTERNS["gpt2"], storage=folder / "run",
        ...     executor=LocalExecutor(1), output=folder / "counts")
        >>> dict(PretokenCounts.load(folder / "counts").counts)
        {' low': 1, ' lower': 1, 'low': 1}
    """
    plan = _make_plan(inputs, pattern, special_tokens, shard_bytes, n_partitions)
    run = Run(storage, plan.identity(), scratch=scratch_folder)
    rules = CountingRules(plan.pattern, plan.special_tokens)
    state = ShardRules(rules, engine, plan.n_partitions, max_memory_bytes or MEMORY_BYTES)
    report = _Report(plan, progress)

    def carry_out(*stages: Stage) -> Mapping[str, list[ShardManifest]]:
        return run.carry_out(stages, executor, on_commit=report.note, while_waiting=while_waiting)

    result = run.committed("assemble", 0)
    if result is None:
        looks = _places_to_look(plan)
        cuts = carry_out(Stage("cuts", find_cuts, looks, state))["cuts"]
        counted = carry_out(
            Stage("hash", hash_sources, list(_in_batches(plan))),
            Stage("count", count_shard, list(_shards_of(plan, looks, cuts)), state),
        )
        partitions = _partitions_of(plan, counted["count"])
        merged = carry_out(Stage("merge", merge_partition, partitions))["merge"]
        corpus = _corpus_of(plan, counted, merged)
        (result,) = carry_out(Stage("assemble", assemble_counts, [corpus]))["assemble"]
    result.files[COUNTS].fetch(run.storage, Path(output))
    run.sweep([result])


def _make_plan(
    inputs: Sequence[str | os.PathLike[str] | SourceFile],
    pattern: SplitPattern,
    special_tokens: Sequence[str],
    shard_bytes: int | None,
    n_partitions: int | None,
) -> _Plan:
    sources = tuple(
        each if isinstance(each, SourceFile) else SourceFile.examine(each) for each in inputs
    )
    n_bytes = sum(source.size_bytes for source in sources)
    if not n_bytes:
        raise CorpusError(
            "the corpus is empty: give at least one file with text in it"
            if sources
            else "no corpus file was given"
        )
    # By the size of the corpus alone: who works, and how many, may change from try to try.
    some = min(max(n_bytes // _BYTES_PER_PARTITION, _FEWEST_PARTITIONS), _MOST_PARTITIONS)
    for name, given in (("shard_bytes", shard_bytes), ("n_partitions", n_partitions)):
        if given is not None and given < 1:
            raise ValueError(f"{name} must be at least 1, not {given}")
    size = shard_bytes or choose_shard_bytes(n_bytes)
    return _Plan(sources, pattern, tuple(special_tokens), size, n_partitions or some)


def choose_shard_bytes(n_bytes: int) -> int:
    """About how large the shards of a corpus of so many bytes are, unless somebody says.

    Example:
        >>> [choose_shard_bytes(10**n) >> 20 for n in (6, 10, 12, 14)]
        [16, 149, 256, 5820]
    """
    even = min(max(n_bytes // _SHARDS, SMALLEST_SHARD_BYTES), LARGEST_SHARD_BYTES)
    return max(even, n_bytes // MOST_SHARDS)


def _places_to_look(plan: _Plan) -> list[tuple[SourceFile, Sequence[int]]]:
    """Where large files are to be cut, in tasks of so many places."""
    looks: list[tuple[SourceFile, Sequence[int]]] = []
    for source in plan.sources:
        places = range(plan.shard_bytes, source.size_bytes, plan.shard_bytes)
        looks += (
            (source, places[first : first + _PLACES_PER_TASK])
            for first in range(0, len(places), _PLACES_PER_TASK)
        )
    return looks


def _shards_of(
    plan: _Plan, looks: Sequence[tuple[SourceFile, Sequence[int]]], found: Sequence[ShardManifest]
) -> Iterator[list[Part]]:
    """Parts of files, in their order, put together to about `shard_bytes` each."""
    cuts: defaultdict[SourceFile, set[int]] = defaultdict(set)
    for (source, _), manifest in zip(looks, found, strict=True):
        cuts[source].update(manifest.figures["cuts"])
    shard: list[Part] = []
    n_bytes = 0
    for source in plan.sources:
        places = sorted({0, *cuts[source], source.size_bytes})
        for start, end in pairwise(places):
            is_full = n_bytes + end - start > plan.shard_bytes or len(shard) == _PARTS_PER_SHARD
            if shard and is_full:
                yield shard
                shard, n_bytes = [], 0
            shard.append(Part(source, start, end))
            n_bytes += end - start
    if shard:
        yield shard


def _in_batches(plan: _Plan) -> Iterator[list[SourceFile]]:
    """The files in their order, small ones several at a time, for who hashes them."""
    batch: list[SourceFile] = []
    for source in plan.sources:
        batch.append(source)
        if sum(s.size_bytes for s in batch) >= plan.shard_bytes or len(batch) >= _FILES_PER_TASK:
            yield batch
            batch = []
    if batch:
        yield batch


def _partitions_of(plan: _Plan, counted: Sequence[ShardManifest]) -> list[Partition]:
    """The runs of all shards by partition, and what they come to."""
    return [
        Partition(
            runs=[m.files[run_name(p)] for m in counted if run_name(p) in m.files],
            n_bytes=sum(m.figures["partition_bytes"][p] for m in counted),
        )
        for p in range(plan.n_partitions)
    ]


def _corpus_of(
    plan: _Plan, counted: Mapping[str, Sequence[ShardManifest]], merged: Sequence[ShardManifest]
) -> CountedCorpus:
    hashes = [sha256 for manifest in counted["hash"] for sha256 in manifest.figures["sha256"]]
    return CountedCorpus(
        partitions=[manifest.files[MERGED] for manifest in merged],
        pattern=plan.pattern,
        special_tokens=plan.special_tokens,
        sources=tuple(
            CorpusSource(source.shown, source.size_bytes, sha256)
            for source, sha256 in zip(plan.sources, hashes, strict=True)
        ),
        n_documents=sum(manifest.figures["n_documents"] for manifest in counted["count"]),
        special_bytes=sum(manifest.figures["special_bytes"] for manifest in counted["count"]),
    )


class _Report:
    """Tells how far the run is, as shards are committed."""

    def __init__(self, plan: _Plan, progress: Progress | None) -> None:
        self._progress = progress
        self._n_bytes, self._n_merges = plan.n_bytes, plan.n_partitions + 1
        self._bytes_done = self._merges_done = 0

    def note(self, manifest: ShardManifest) -> None:
        """One more shard is committed."""
        if self._progress is None:
            return
        if manifest.stage == "count":
            self._bytes_done += manifest.figures["n_bytes"]
            self._progress("count", self._bytes_done, self._n_bytes)
        elif manifest.stage in ("merge", "assemble"):
            self._merges_done += 1
            self._progress("merge", self._merges_done, self._n_merges)
