"""The work of merging: the runs of each partition, then all partitions into the file of counts.

Runs are sorted, so a merge reads them front to back and holds one entry of each: memory does not
grow with the corpus, and no process holds all counts in one table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from tokenizer_core.distributed.committed_shards import Attempt, CommittedFile
from tokenizer_core.distributed.corpus_sources import check_sum
from tokenizer_core.documents import BadDocuments, CorpusSource
from tokenizer_core.errors import CorpusError, RunError
from tokenizer_core.parallel import map_ahead
from tokenizer_core.splitting.patterns import SplitPattern
from tokenizer_core.training.counts import MAX_RUNS, Entry, FileCounts, merge_runs, write_entry
from tokenizer_core.training.pretoken_counts import MAX_SUM, PretokenCounts

MERGED: Final = "merged"
"""The name of a partition's only run."""

_THREADS: Final = 8

COUNTS: Final = "pretokens.counts"
"""The name of the file of counts in the last stage."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The runs of one partition, and the expected number of bytes of their pre-tokens."""

    runs: Sequence[CommittedFile]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class CountedCorpus:
    """The merged partitions, and the corpus fields of the file of counts."""

    partitions: Sequence[CommittedFile]
    pattern: SplitPattern
    special_tokens: tuple[str, ...]
    sources: tuple[CorpusSource, ...]
    n_bytes: int
    n_documents: int
    special_bytes: int
    bad: BadDocuments


def merge_partition(state: None, partition: Partition, attempt: Attempt) -> dict[str, Any]:
    """Merge all runs of a partition into one.

    Raises:
        RunError: their number of bytes differs from the counted one, or a run is damaged.
    """
    path = attempt.scratch / MERGED
    with _merged(partition.runs, attempt) as entries, path.open("xb") as file:
        summed = _Summed(entries)
        for entry in summed:
            write_entry(file, entry)
    if summed.n_bytes != partition.n_bytes:
        raise RunError(
            f"a partition has pre-tokens of {summed.n_bytes} bytes, and {partition.n_bytes} were "
            f"counted into it, which is a defect; please report it"
        )
    attempt.put(MERGED, path)
    return {}


def assemble_counts(state: None, corpus: CountedCorpus, attempt: Attempt) -> dict[str, Any]:
    """Write the file of counts, byte for byte the one that a single machine writes.

    Raises:
        CorpusError: the counts do not fit 64 bits.
        RunError: their number of bytes differs from the corpus, or a partition is damaged.
    """
    n_bytes = corpus.n_bytes
    if n_bytes > MAX_SUM:
        raise CorpusError("the corpus has more bytes than 64 bits count; count less of it")
    with _merged(corpus.partitions, attempt) as entries:
        summed = _Summed(entries)
        counts = FileCounts.write(summed, attempt.scratch)
    check_sum(corpus.pattern, "a corpus", n_bytes, summed.n_bytes, corpus.special_bytes)
    path = attempt.scratch / COUNTS
    PretokenCounts(
        counts=counts,
        pattern=corpus.pattern,
        special_tokens=corpus.special_tokens,
        sources=corpus.sources,
        n_bytes=n_bytes,
        n_documents=corpus.n_documents,
    ).save(path)
    attempt.put(COUNTS, path)
    return {"bad": corpus.bad.to_fields()}


class _Summed:
    """Passes entries on and sums up their bytes."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries, self.n_bytes = entries, 0

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._entries:
            self.n_bytes += len(entry[0]) * entry[1]
            yield entry


@contextlib.contextmanager
def _merged(files: Sequence[CommittedFile], attempt: Attempt) -> Iterator[Iterator[Entry]]:
    """The entries of all runs in order, merged in steps of at most `MAX_RUNS` open runs."""
    waiting: list[CommittedFile | Path] = list(files)
    n_made = 0
    while len(waiting) > MAX_RUNS:
        path = attempt.scratch / f"merged-{n_made}"
        with _opened(waiting[:MAX_RUNS], attempt) as runs, path.open("xb") as file:
            for entry in merge_runs(runs):
                write_entry(file, entry)
        # Append the result, so that every step merges runs of about the same size.
        waiting = [*waiting[MAX_RUNS:], path]
        n_made += 1
    with _opened(waiting, attempt) as runs:
        yield merge_runs(runs)


@contextlib.contextmanager
def _opened(
    runs: Sequence[CommittedFile | Path], attempt: Attempt
) -> Iterator[Sequence[IO[bytes]]]:
    """The runs as open local files, which are unlinked at once."""

    def to_disk(numbered: tuple[int, CommittedFile | Path]) -> Path:
        number, run = numbered
        if isinstance(run, Path):
            return run
        path = attempt.scratch / f"fetched-{number}"
        run.fetch(attempt.storage, path)
        return path

    with contextlib.ExitStack() as stack:
        files = []
        for path in map_ahead(to_disk, enumerate(runs), num_threads=_THREADS):
            files.append(stack.enter_context(path.open("rb")))
            path.unlink()
        yield files
