"""Counting and learning by the compiled module: the same answers as `count_pretokens` and
`learn_merges`, in threads of this process instead of worker processes.

It counts named patterns and valid UTF-8; the rest is counted in Python. Apart from both, so that
each way can be read, and tested against the other, by itself. May import `engines`, `errors`,
`patterns` and the parts of this folder that know no engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from tokenizer_core.engines.native_training import ChunkFailedError, NativeCounter, NativeCounts
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.training.corpus_chunks import Chunk, ChunkPlanner, CorpusFile
from tokenizer_core.training.learn_merges import (
    NO_RULES,
    LearnedMerges,
    LearningRules,
    TieBreak,
    check_tie_break,
)


def count_natively(
    files: Sequence[CorpusFile],
    planner: ChunkPlanner,
    *,
    pattern: SplitPattern,
    special_tokens: Sequence[str],
    num_threads: int,
    ceiling: tuple[int, str] | None,
    progress: Callable[[int], object],
    while_waiting: Callable[[], object] | None,
) -> tuple[NativeCounts, int, int] | Chunk:
    """The counts, the number of documents and how often a table was written to the disk; or the
    first chunk that cannot be counted.

    This thread plans and hashes while the others count. `progress` gets bytes done.

    Raises:
        CorpusError: a file changed.
        OSError: the folder of the ceiling is full or cannot be used.
    """
    chunks: list[Chunk] = []
    with NativeCounter(pattern.name, special_tokens, num_threads, ceiling) as counter:
        for file in files:
            if not _submit_all(counter, file, planner, chunks, progress, while_waiting):
                break
        try:
            counted = counter.finish()
        except ChunkFailedError as error:
            return chunks[error.number]
    progress(sum(file.size_bytes for file in files))
    return counted


def _submit_all(
    counter: NativeCounter,
    file: CorpusFile,
    planner: ChunkPlanner,
    chunks: list[Chunk],
    progress: Callable[[int], object],
    while_waiting: Callable[[], object] | None,
) -> bool:
    descriptor = file.open()
    try:
        for chunk in planner.plan(file):
            if while_waiting is not None:
                while_waiting()
            chunks.append(chunk)
            if not counter.submit(descriptor, chunk.start, chunk.end):
                return False
            progress(counter.bytes_done())
    finally:
        os.close(descriptor)
    return True


def learn_natively(
    counts: Mapping[str, int],
    n_merges: int,
    *,
    tie_break: TieBreak = "lexicographic",
    rules: LearningRules = NO_RULES,
    after_merge: Callable[[int], object] | None = None,
) -> LearnedMerges:
    """As `learn_merges`, but `after_merge` is called several times a second and at the end only.

    Raises:
        ValueError: as `learn_merges`; or the counts do not fit 64 bits.
    """
    check_tie_break(tie_break)
    learned = NativeCounts.of(counts).learn(
        n_merges,
        tie_break,
        after_merge,
        min_frequency=rules.min_frequency,
        max_token_length=rules.max_token_length,
        first_merges=rules.first_merges,
    )
    return LearnedMerges(*learned)
