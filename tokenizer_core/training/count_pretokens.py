"""Corpus files -> counts of pre-tokens, in worker processes and bounded memory.

The files are cut into many small chunks (`corpus_chunks`), each is counted by itself, and the
counts are added up. So the memory needed is that of the distinct pre-tokens, whatever the size of
the corpus (or less, with a ceiling: what is more goes to the disk), and the result is the same for
any number of workers and any size of chunk. Workers are replaced now and then: a Python process
does not give back the memory of its largest chunk.

With the native engine the chunks are counted by threads of this process (`native_kernels`).
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tokenizer_core.engines import resolve_engine
from tokenizer_core.engines.native_training import NativeCounter
from tokenizer_core.errors import CorpusError
from tokenizer_core.parallel import run_tasks
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.pretokenize import split_in_windows
from tokenizer_core.special_tokens import matcher_of
from tokenizer_core.training.corpus_chunks import WINDOW_BYTES, Chunk, ChunkPlanner, CorpusFile
from tokenizer_core.training.counts import CountTable
from tokenizer_core.training.pretoken_counts import CorpusSource, PretokenCounts

DecodeErrors = Literal["strict", "replace"]

LARGEST_CHUNK_BYTES: Final = 4 << 20
"""Larger chunks only cost memory; the counts of this much text are added up in a tenth of the
time it takes to count it."""

_SMALLEST_CHUNK_BYTES: Final = 256 << 10
_CHUNKS_PER_WORKER: Final = 8  # so that no worker is left with a whole chunk while others idle
_CHUNKS_BEFORE_REPLACEMENT: Final = 64
_CEILING_PER_CHUNK: Final = 64
SMALLEST_CEILING_BYTES: Final = 16 << 20
"""A smaller ceiling would be spent on the tables of the smallest chunks."""

SMALL_CORPUS_BYTES: Final = 3 << 20
"""Up to here starting workers takes longer than they save, so the counting is done in place."""


@dataclass(frozen=True, slots=True)
class CountingRules:
    """What decides the counts of a chunk; given once to every worker."""

    pattern: SplitPattern
    special_tokens: tuple[str, ...]
    errors: DecodeErrors = "strict"


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """The counts of one chunk, its size, and how many documents begin in it."""

    counts: dict[str, int]
    n_bytes: int
    n_documents: int


def count_chunk(rules: CountingRules, chunk: Chunk) -> ChunkCounts:
    """The pre-tokens of one chunk. This is what a worker does.

    Raises:
        CorpusError: the bytes are not UTF-8 (and `errors` is strict), or the file changed.
    """
    data = chunk.read()
    try:
        text = data.decode("utf-8", rules.errors)
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"the corpus file {chunk.file.path} is not UTF-8 at byte {chunk.start + error.start} "
            f"(0x{data[error.start]:02x}: {error.reason}); convert it first, for instance "
            f"with iconv"
        ) from None
    del data
    counts: Counter[str] = Counter()
    n_documents = 0
    # A chunk begins at the beginning of the file, at a special token, or inside a document, which
    # began in a chunk before.
    goes_on = chunk.start > 0
    for plain, _ in matcher_of(frozenset(rules.special_tokens)).split(text):
        if plain:
            n_documents += not goes_on
            for pre_tokens in split_in_windows(plain, rules.pattern):
                counts.update(pre_tokens)
        goes_on = False
    return ChunkCounts(dict(counts), chunk.end - chunk.start, n_documents)


def count_pretokens(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    pattern: SplitPattern,
    special_tokens: Sequence[str] = (),
    num_workers: int | None = None,
    errors: DecodeErrors = "strict",
    chunk_bytes: int | None = None,
    engine: str = "auto",
    progress: Callable[[int, int], object] | None = None,
    while_waiting: Callable[[], object] | None = None,
    max_memory_bytes: int | None = None,
    scratch_folder: str | os.PathLike[str] | None = None,
) -> PretokenCounts:
    """How often each pre-token occurs in these files, taken one after the other.

    Special tokens are cut out first, leftmost, then longest, and are hard boundaries, as are the
    ends of the files. Newlines are taken as they are. `progress` gets bytes done and bytes in all;
    `while_waiting` is called often, and what it raises ends the run (this is how to cancel).

    - `num_workers`: processes or threads; by default as many as there are processors, one for a
      small corpus.
    - `chunk_bytes`: about how much is counted at a time; changes nothing but memory and time.
    - `engine`: see `choose_counting_engine`.
    - `max_memory_bytes`: what counts may take while the corpus is read, at least 16 MiB. Beyond it
      they go to `scratch_folder` (the system's, unless given), sorted, and are added up at the end;
      the result is the same. The native engine then has the sum packed in memory, at the size of
      its text and a few bytes a pre-token; the Python one reads it from the disk.

    Raises:
        CorpusError: a file is missing, no regular file, not UTF-8 (names file and byte offset),
            or changed during the run; or all files are empty.
        WorkerProcessError: a worker was killed.
        EngineUnavailableError: the engine asked for is not installed.
        ValueError: `max_memory_bytes` is too small.
        OSError: the scratch folder is full or cannot be used.
    """
    if errors not in ("strict", "replace"):
        raise ValueError(f"errors must be 'strict' or 'replace', not {errors!r:.40}")
    if max_memory_bytes is not None and max_memory_bytes < SMALLEST_CEILING_BYTES:
        raise ValueError(
            f"max_memory_bytes must be at least {SMALLEST_CEILING_BYTES}, not {max_memory_bytes}"
        )
    native = choose_counting_engine(engine, pattern, errors) == "native"
    files = [CorpusFile.examine(path) for path in inputs]
    n_bytes = sum(file.size_bytes for file in files)
    if not n_bytes:
        raise CorpusError(
            "the corpus is empty: give at least one file with text in it"
            if files
            else "no corpus file was given"
        )
    workers = choose_num_workers(n_bytes, num_workers)
    chunk_bytes = chunk_bytes or _choose_chunk_bytes(n_bytes, workers, max_memory_bytes)
    rules = CountingRules(pattern, tuple(special_tokens), errors)
    folder = Path(scratch_folder or tempfile.gettempdir())
    ceiling = None if max_memory_bytes is None else (max_memory_bytes, folder)
    planner = ChunkPlanner(
        pattern,
        special_tokens,
        chunk_bytes=chunk_bytes,
        window_bytes=min(chunk_bytes, WINDOW_BYTES),
        stop_at_invalid=errors == "strict",
    )
    count = _count_in_threads if native else _count_in_processes
    counts, n_documents, n_spills = count(
        files,
        planner,
        rules,
        workers,
        ceiling,
        lambda n_done: progress(n_done, n_bytes) if progress is not None else None,
        while_waiting,
    )
    for file in files:
        file.check_unchanged()
    return PretokenCounts(
        counts=counts,
        pattern=pattern,
        special_tokens=tuple(special_tokens),
        sources=tuple(CorpusSource(f.path, f.size_bytes, planner.sha256[f]) for f in files),
        n_bytes=n_bytes,
        n_documents=n_documents,
        n_spills=n_spills,
    )


def _count_in_processes(
    files: Sequence[CorpusFile],
    planner: ChunkPlanner,
    rules: CountingRules,
    workers: int,
    ceiling: tuple[int, Path] | None,
    progress: Callable[[int], object],
    while_waiting: Callable[[], object] | None,
) -> tuple[Mapping[str, int], int, int]:
    # Half of the ceiling is for what the workers count meanwhile.
    table = CountTable() if ceiling is None else CountTable(ceiling[0] // 2, ceiling[1])
    bytes_done = n_documents = 0
    for _, counted in run_tasks(
        count_chunk,
        (chunk for file in files for chunk in planner.plan(file)),
        num_workers=workers,
        state=rules,
        max_tasks_per_worker=_CHUNKS_BEFORE_REPLACEMENT,
        while_waiting=while_waiting,
    ):
        table.add(counted.counts)
        bytes_done += counted.n_bytes
        n_documents += counted.n_documents
        progress(bytes_done)
    return table.finish(), n_documents, table.n_spills


def _count_in_threads(
    files: Sequence[CorpusFile],
    planner: ChunkPlanner,
    rules: CountingRules,
    workers: int,
    ceiling: tuple[int, Path] | None,
    progress: Callable[[int], object],
    while_waiting: Callable[[], object] | None,
) -> tuple[Mapping[str, int], int, int]:
    """Count in threads of the compiled module while this thread plans and hashes chunks."""
    chunks: list[Chunk] = []
    limit = None if ceiling is None else (ceiling[0], os.fspath(ceiling[1]))
    with NativeCounter(rules.pattern.name, rules.special_tokens, workers, limit) as counter:
        for file in files:
            if not _submit_all(counter, file, planner, chunks, progress, while_waiting):
                break
        counted = counter.finish()
    if isinstance(counted, int):  # the first chunk that cannot be counted
        count_chunk(rules, chunks[counted])  # raises what is wrong with it, in the same words
        raise chunks[counted].file.changed()
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


def choose_counting_engine(engine: str, pattern: SplitPattern, errors: DecodeErrors) -> str:
    """Which engine counts when `engine` is asked for: the native one knows the named patterns, and
    leaves the replacing of bytes that are not UTF-8 to Python.

    Raises:
        EngineUnavailableError, ValueError: as `resolve_engine`.
    """
    can_be_native = pattern.is_named and errors == "strict"
    resolved = resolve_engine(engine)
    return resolved if can_be_native else "python"


def choose_num_workers(n_bytes: int, asked: int | None) -> int:
    """The number of worker processes for a corpus of this size; 1 means none but this process."""
    if asked is not None and asked < 1:
        raise ValueError(f"num_workers must be at least 1, not {asked}")
    if n_bytes <= SMALL_CORPUS_BYTES:
        return 1
    return asked if asked is not None else count_processors()


def count_processors() -> int:
    """Processors this process may use: those it is bound to, or fewer if its control group
    (a container) is given less time."""
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:
        processors = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        allowed = int(quota) // int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return processors
    return max(1, min(processors, allowed))


def _choose_chunk_bytes(n_bytes: int, workers: int, max_memory_bytes: int | None) -> int:
    even = n_bytes // (workers * _CHUNKS_PER_WORKER)
    if max_memory_bytes is not None:
        # What is distinct in a chunk takes many times its bytes.
        even = min(even, max_memory_bytes // (workers * _CEILING_PER_CHUNK))
    return min(max(even, _SMALLEST_CHUNK_BYTES), LARGEST_CHUNK_BYTES)
