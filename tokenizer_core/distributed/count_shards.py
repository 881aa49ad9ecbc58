"""The work of counting: count a shard of the corpus, and write its counts in partitions.

Only the bytes of a pre-token decide its partition, so all shards put its counts into the same one.
Within a partition each shard's counts are sorted: a run, as `training.counts` writes it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tokenizer_core.distributed.committed_shards import Attempt
from tokenizer_core.distributed.corpus_sources import Part, SourceFile, check_sum, check_tables
from tokenizer_core.documents import make_separator
from tokenizer_core.documents.document_reader import SkippedDocuments
from tokenizer_core.errors import CorpusError
from tokenizer_core.splitting.patterns import UNICODE_TABLES
from tokenizer_core.training.corpus_chunks import Chunk, ChunkPlanner
from tokenizer_core.training.count_pretokens import (
    CountingRules,
    choose_counting_engine,
    count_chunks,
)
from tokenizer_core.training.counts import Entry, view, write_entry

_CHUNK_BYTES: Final = 1 << 20
_BATCH: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ShardRules:
    """Sent to every worker: the rules of counting and the limits of a worker."""

    rules: CountingRules
    engine: str
    n_partitions: int
    max_memory_bytes: int
    unicode_tables: str = UNICODE_TABLES
    skips_bad: bool = False


def find_cuts(
    state: ShardRules, payload: tuple[SourceFile, Sequence[int]], attempt: Attempt
) -> dict[str, Any]:
    """For each of several offsets of a file, in order, the first position at or after it to cut at.

    If a cut is after the next offset, it is the cut of that offset too, without a search. Otherwise
    searches in a file with few cuts would read to its end for each offset.
    """
    check_tables(state.unicode_tables)
    source, offsets = payload
    planner = _planner(state.rules)
    cuts = [0]
    with source.reading() as read:
        for offset in offsets:
            if cuts[-1] < offset:
                cuts.append(planner.find_cut(read, source.size_bytes, offset))
    return {"cuts": cuts}


def count_shard(state: ShardRules, parts: Sequence[Part], attempt: Attempt) -> dict[str, Any]:
    """The counts of some parts of the corpus: a sorted run for each partition that is not empty.
    `n_bytes` of them are text, `n_read` is the size of the parts. `n_found` of the documents were
    read, `bad` are left out.

    Raises:
        CorpusError: a part is not UTF-8, or its file changed.
        RunError: the store of a file does not respond; or the counts do not add up to the bytes (a
            defect).
    """
    check_tables(state.unicode_tables)
    rules = state.rules
    separator = make_separator(rules.special_tokens)
    # The caller knows the documents of all shards, and checks the share.
    skipped = SkippedDocuments(1.0 if state.skips_bad else None)
    if any(part.documents for part in parts):
        rules = replace(rules, special_tokens=(*rules.special_tokens, separator))
    chunks, n_bytes = list[Chunk](), 0
    for i, part in enumerate(parts):
        try:
            chunk, part_bytes = part.to_chunk(
                attempt.scratch / f"part-{i}", separator, skipped, rules.special_tokens
            )
        except CorpusError as error:
            error.args = (str(error).replace(part.source.path, part.source.shown),)
            raise
        chunks.append(chunk)
        n_bytes += part_bytes
    special_bytes = 0

    def small_chunks() -> Iterator[Chunk]:
        nonlocal special_bytes
        for chunk in chain.from_iterable(map(_planner(rules).cut, chunks)):
            special_bytes += _special_bytes(chunk, state.rules, rules)
            yield chunk

    try:
        counts, n_documents, _ = count_chunks(
            rules,
            small_chunks(),
            engine=choose_counting_engine(state.engine, rules.pattern, "strict"),
            ceiling=(state.max_memory_bytes, attempt.scratch),
        )
        for chunk, part in zip(chunks, parts, strict=True):
            if chunk.path == part.source.path:  # no copy, of which nobody else knows
                part.source.check()
    except CorpusError as error:
        for part in parts:
            part.source.check()
        error.args = (_with_names(str(error), chunks, parts),)
        raise
    folder = attempt.scratch / "partitions"
    folder.mkdir()
    partition_bytes = _write_partitions(sorted_entries(counts), state.n_partitions, folder)
    check_sum(rules.pattern, "a shard", n_bytes, sum(partition_bytes), special_bytes)
    attempt.put_all(
        {run_name(p): folder / str(p) for p, n_bytes in enumerate(partition_bytes) if n_bytes}
    )
    return {
        "n_bytes": n_bytes,
        "n_read": sum(part.end - part.start for part in parts),
        "special_bytes": special_bytes,
        "n_documents": n_documents,
        "n_found": skipped.n_documents,
        "bad": skipped.bad.to_fields(),
        "partition_bytes": partition_bytes,
    }


def run_name(partition: int) -> str:
    """The name of a shard's run for a partition."""
    return f"{partition:05d}"


def sorted_entries(counts: Mapping[str, int]) -> Iterator[Entry]:
    """All entries in the order of their bytes, for every kind of counts.

    Example:
        >>> list(sorted_entries({"b": 1, "a": 2}))
        [(b'a', 2), (b'b', 1)]
    """
    return ((pre_token.encode(), count) for pre_token, count in view(counts).sorted().entries())


def _write_partitions(entries: Iterable[Entry], n_partitions: int, folder: Path) -> list[int]:
    """Write one sorted run for each partition; return the bytes of the pre-tokens in each, with
    repetitions."""
    sizes = [0] * n_partitions
    with ExitStack() as files:
        runs = [files.enter_context((folder / str(p)).open("xb")) for p in range(n_partitions)]
        for entry in entries:
            pre_token, count = entry
            partition = zlib.crc32(pre_token) % n_partitions
            write_entry(runs[partition], entry)
            sizes[partition] += count * len(pre_token)
    return sizes


def _special_bytes(chunk: Chunk, counted: CountingRules, cut_out: CountingRules) -> int:
    """How many bytes of a chunk are special tokens: found independently, to check the counting.

    `cut_out` also has the separator of documents, in which special tokens may occur; it is no text,
    so only the tokens of `counted` are counted.
    """
    if not counted.special_tokens:
        return 0
    tokens = sorted(map(str.encode, cut_out.special_tokens), key=len, reverse=True)
    found = re.findall(b"|".join(map(re.escape, tokens)), chunk.read())
    known = set(map(str.encode, counted.special_tokens))
    return sum(len(token) for token in found if token in known)


def _planner(rules: CountingRules) -> ChunkPlanner:
    return ChunkPlanner(rules.pattern, rules.special_tokens, chunk_bytes=_CHUNK_BYTES)


def _with_names(message: str, chunks: Sequence[Chunk], parts: Sequence[Part]) -> str:
    """Replace the paths of local copies by the names that the caller gave."""
    for chunk, part in zip(chunks, parts, strict=True):
        message = message.replace(chunk.path, part.source.shown)
    return message
