"""Corpus files -> counts of pre-tokens, in worker processes and bounded memory.

`corpus_chunks` cuts the files into many small chunks. Workers count each chunk separately, and the
counts are added up. Memory therefore depends on the number of distinct pre-tokens, not on the size
of the corpus; counts beyond a ceiling, if given, are written to disk. The result is the same for
any number of workers and any chunk size. Worker processes are replaced regularly, because a Python
process does not release the memory of its largest chunk.

With the native engine, threads of this process count the chunks.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

from tokenizer_core.documents import (
    BY_NAME,
    CorpusFormat,
    CorpusSource,
    corpus_file_size,
    make_separator,
    plain_text_copies,
    write_separated,
)
from tokenizer_core.documents.bad_documents import check_max_bad
from tokenizer_core.documents.corpus_files import changed_error, unchanged_files
from tokenizer_core.documents.document_reader import ChangePieces
from tokenizer_core.engines import choose_engine
from tokenizer_core.engines.base import checked_number
from tokenizer_core.engines.native_training import ChunkFailedError, NativeCounter
from tokenizer_core.errors import CorpusDocumentError, CorpusError
from tokenizer_core.parallel import CAN_START_WORKERS, run_tasks
from tokenizer_core.specials.matchers import matcher_of_strings
from tokenizer_core.splitting.patterns import SplitPattern
from tokenizer_core.splitting.pretokenize import split_in_windows
from tokenizer_core.training.corpus_chunks import WINDOW_BYTES, Chunk, ChunkPlanner, open_chunks
from tokenizer_core.training.counts import CountTable
from tokenizer_core.training.pretoken_counts import PretokenCounts
from tokenizer_core.training.vocabulary_plan import refuse_string

DecodeErrors = Literal["strict", "replace"]


LARGEST_CHUNK_BYTES: Final = 4 << 20
"""Larger chunks use more memory and save no time: adding up the counts of this much text takes a
tenth of the time of counting it."""

_SMALLEST_CHUNK_BYTES: Final = 256 << 10
_CHUNKS_PER_WORKER: Final = 8  # so that the last chunks are short and no worker idles for long
_CHUNKS_BEFORE_REPLACEMENT: Final = 64
_CEILING_PER_CHUNK: Final = 64
SMALLEST_CEILING_BYTES: Final = 16 << 20
"""The tables of the smallest chunks would fill a smaller ceiling."""

SMALL_CORPUS_BYTES: Final = 3 << 20
"""Up to this size, starting workers takes longer than they save; this process counts without
them."""


@dataclass(frozen=True, slots=True)
class CountingRules:
    """The settings that decide the counts of a chunk; each worker receives them once."""

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
    """Count the pre-tokens of one chunk. This is the task of a worker.

    Raises:
        CorpusError: the bytes are not UTF-8 (and `errors` is strict), or the file changed.
    """
    data = chunk.read()
    try:
        text = data.decode("utf-8", rules.errors)
    except UnicodeDecodeError as error:
        raise CorpusDocumentError(
            f"the corpus file {chunk.path} is not UTF-8 at byte {chunk.start + error.start} "
            f"(0x{data[error.start]:02x}: {error.reason}); convert it first, for instance "
            f"with iconv"
        ) from None
    del data
    counts: Counter[str] = Counter()
    n_documents = 0
    # A chunk begins at the start of the file, at a special token, or inside a document that began
    # in an earlier chunk.
    goes_on = chunk.start > 0
    for plain, _ in matcher_of_strings(frozenset(rules.special_tokens)).split(text):
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
    corpus_format: CorpusFormat = BY_NAME,
    max_bad: float | None = None,
    change: ChangePieces | None = None,
) -> PretokenCounts:
    """Count how often each pre-token occurs in the documents of these files. A file that is given
    twice counts twice; `documents.find_corpus_files` gives each once.

    Special tokens are cut out first: the leftmost match, the longest of equals. They are hard
    boundaries, as are the ends of documents and files. Newlines stay unchanged. `progress` gets the
    bytes done and the total; `while_waiting` is called often, and an exception from it cancels the
    run.

    - `corpus_format`: how the files hold documents (`documents.open_documents`), by default as
      their names say. Files that are not plain text are first unpacked to `scratch_folder`, which
      takes as much disk as their text.
    - `max_bad`: leave out bad documents, at most this share (`documents.plain_text_copies`). By
      default the first one is an error.
    - `change`: what makes the text to count of documents in pieces of UTF-8. All files are then
      copied, so they must be UTF-8.

    - `num_workers`: processes or threads; by default one per processor, and one for a small corpus.
    - `chunk_bytes`: the approximate size of a chunk; it changes only memory and time.
    - `engine`: see `choose_counting_engine`.
    - `max_memory_bytes`: a ceiling for the counts while the corpus is read, at least 16 MiB. Counts
      beyond it are sorted, written to `scratch_folder` (by default the system's) and added up at
      the end; the result is the same. The native engine then keeps the sum packed in memory: its
      text and a few bytes per pre-token. The Python engine reads it from disk.

    Raises:
        CorpusError: a file is missing, not a regular file, or not UTF-8 (names file and byte
            offset), or as `documents.open_documents`; or all files are empty.
        TooManyBadDocumentsError: more than `max_bad` of the documents are bad.
        CorpusChangedError: a file was changed, replaced or removed during the run.
        WorkerProcessError: a worker was killed.
        EngineUnavailableError: the requested engine is not installed.
        ValueError: `max_memory_bytes` is too small; `max_bad` is no share, or given with `replace`.
        OSError: the scratch folder is full or unusable.
    """
    check_counting(errors, max_bad, max_memory_bytes)
    refuse_string(special_tokens)
    copied = [change or corpus_format.needs_copy(path, special_tokens) for path in inputs]
    sizes = [corpus_file_size(path) for path in inputs]
    n_copied = sum(size for size, is_copied in zip(sizes, copied, strict=True) if is_copied)
    total = n_copied + sum(sizes)

    def unpack(n_read: int) -> None:
        if while_waiting is not None:
            while_waiting()
        if progress is not None:
            progress(n_read, total)

    with plain_text_copies(
        inputs,
        corpus_format,
        keeps=special_tokens,
        folder=scratch_folder,
        progress=unpack,
        max_bad=max_bad,
        change=change,
    ) as (copies, separator, bad):
        n_bytes = sum(copy.n_bytes for copy in copies)
        if not n_bytes:
            raise CorpusError(
                "the corpus is empty: give at least one file with text in it"
                if copies
                else "no corpus file was given"
            )

        def report(n_counted: int) -> None:
            if progress is not None:
                progress(n_copied + n_counted * sum(sizes) // n_plain, total)

        # Only copies have the separator.
        cut_out = (*special_tokens, *([separator] if any(copy.sha256 for copy in copies) else ()))
        rules = CountingRules(pattern, cut_out, errors)
        engine = choose_counting_engine(engine, pattern, errors)
        paths = [copy.path for copy in copies]
        n_plain = sum(map(corpus_file_size, paths))
        if num_workers is None and not (engine == "native" or CAN_START_WORKERS):
            num_workers = 1
        workers = choose_num_workers(n_plain, num_workers)
        chunk_bytes = chunk_bytes or _choose_chunk_bytes(n_plain, workers, max_memory_bytes)
        folder = Path(scratch_folder or tempfile.gettempdir())
        planner = ChunkPlanner(
            pattern,
            cut_out,
            chunk_bytes=chunk_bytes,
            window_bytes=min(chunk_bytes, WINDOW_BYTES),
            stop_at_invalid=errors == "strict",
        )
        with unchanged_files(paths):
            counts, n_documents, n_spills = count_chunks(
                rules,
                chain.from_iterable(map(planner.plan, paths)),
                engine=engine,
                num_workers=workers,
                ceiling=None if max_memory_bytes is None else (max_memory_bytes, folder),
                progress=report,
                while_waiting=while_waiting,
            )
    return PretokenCounts(
        counts=counts,
        pattern=pattern,
        special_tokens=tuple(special_tokens),
        sources=tuple(
            CorpusSource(copy.source, copy.size_bytes, copy.sha256 or planner.sha256[copy.path])
            for copy in copies
        ),
        n_bytes=n_bytes,
        n_documents=n_documents,
        n_spills=n_spills,
        bad_documents=bad,
    )


def count_texts(
    texts: Iterable[str],
    *,
    special_tokens: Sequence[str] = (),
    scratch_folder: str | os.PathLike[str] | None = None,
    while_waiting: Callable[[], object] | None = None,
    change: ChangePieces | None = None,
    **options: Any,
) -> PretokenCounts:
    """As `count_pretokens`, of texts. They are written to a temporary file, with a separator that
    is cut out as a special token. The counts have no sources.

    Raises:
        TypeError: `texts` is one string, or an element is not a string.
        CorpusError: a text contains a lone surrogate (names the text); or all texts are empty.
        as `count_pretokens`.
    """
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        kind = "one string" if isinstance(texts, str | bytes) else type(texts).__name__
        raise TypeError(f"texts must be an iterable of strings, not {kind}; give a list")
    separator = make_separator(special_tokens)
    index = 0

    def documents() -> Iterator[tuple[bytes, bool]]:
        nonlocal index
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"texts[{index}] is a {type(text).__name__}, not a string")
            if while_waiting is not None:
                while_waiting()
            yield text.encode(), True

    with tempfile.TemporaryDirectory(dir=scratch_folder, prefix="texts-") as folder:
        path = Path(folder, "texts.txt")
        try:
            texts_to_count = documents() if change is None else change(documents())
            n_bytes = write_separated(path, texts_to_count, separator)
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"texts[{index}] has a lone surrogate at character {error.start}; decode its "
                f"source with errors='replace'"
            ) from None
        if not n_bytes:
            raise CorpusError("the corpus is empty: give at least one text that is not empty")
        counts = count_pretokens(
            [path],
            special_tokens=[*special_tokens, separator],
            scratch_folder=scratch_folder,
            while_waiting=while_waiting,
            corpus_format=CorpusFormat("txt"),
            **options,
        )
    return replace(counts, special_tokens=tuple(special_tokens), sources=(), n_bytes=n_bytes)


def count_chunks(
    rules: CountingRules,
    chunks: Iterable[Chunk],
    *,
    engine: str,
    num_workers: int = 1,
    ceiling: tuple[int, Path] | None,
    progress: Callable[[int], object] | None = None,
    while_waiting: Callable[[], object] | None = None,
) -> tuple[Mapping[str, int], int, int]:
    """The counts of all chunks, their number of documents, and how often counts were written to
    disk. `engine` is native (threads) or python (processes); `ceiling` is a number of bytes and a
    folder for the rest; `progress` gets the bytes counted.
    """
    bytes_done = n_documents = 0
    if engine == "native":
        submitted: list[Chunk] = []
        limit = None if ceiling is None else (ceiling[0], os.fspath(ceiling[1]))
        with NativeCounter(rules.pattern, rules.special_tokens, num_workers, limit) as counter:
            for chunk in chunks:
                if while_waiting is not None:
                    while_waiting()
                submitted.append(chunk)
                with open_chunks(chunk.path) as descriptor:
                    if not counter.submit(descriptor, chunk.start, chunk.end):
                        break
                bytes_done += chunk.end - chunk.start
                if progress is not None:
                    progress(counter.bytes_done())
            try:
                counted = counter.finish()
            except ChunkFailedError as error:
                failed = submitted[error.number]
                count_chunk(rules, failed)  # raises the Python engine's error
                raise changed_error(failed.path) from None
        if progress is not None:
            progress(bytes_done)
        return counted
    # Half of the ceiling is for counts that the workers have not yet returned.
    table = CountTable() if ceiling is None else CountTable(ceiling[0] // 2, ceiling[1])
    for _, found in run_tasks(
        count_chunk,
        chunks,
        num_workers=num_workers,
        state=rules,
        max_tasks_per_worker=_CHUNKS_BEFORE_REPLACEMENT,
        while_waiting=while_waiting,
    ):
        table.add(found.counts)
        bytes_done += found.n_bytes
        n_documents += found.n_documents
        if progress is not None:
            progress(bytes_done)
    return table.finish(), n_documents, table.n_spills


def check_counting(
    errors: DecodeErrors, max_bad: float | None, max_memory_bytes: int | None
) -> None:
    """Raise ValueError as `count_pretokens`."""
    if errors not in ("strict", "replace"):
        raise ValueError(f"errors must be 'strict' or 'replace', not {errors!r:.40}")
    check_max_bad(max_bad)
    if max_bad is not None and errors == "replace":
        raise ValueError("max_bad leaves out what errors='replace' would read; take one of them")
    if max_memory_bytes is not None and max_memory_bytes < SMALLEST_CEILING_BYTES:
        raise ValueError(
            f"max_memory_bytes must be at least {SMALLEST_CEILING_BYTES}, not {max_memory_bytes}"
        )


def choose_counting_engine(engine: str, pattern: SplitPattern, errors: DecodeErrors) -> str:
    """The engine that counts for `engine`. The native engine counts by patterns that it can split
    by, with strict decoding; the Python engine counts all other cases.

    Raises:
        EngineUnavailableError, ValueError: as `choose_engine`.
    """
    chosen = choose_engine(engine).name
    can_be_native = errors == "strict" and (pattern.is_named or pattern.automaton is not None)
    return chosen if can_be_native else "python"


def choose_num_workers(n_bytes: int, asked: int | None) -> int:
    """The number of workers for a corpus of this size; 1 means only this process."""
    checked_number(asked, "num_workers")
    if n_bytes <= SMALL_CORPUS_BYTES:
        return 1
    return asked if asked is not None else count_processors()


def count_processors() -> int:
    """The number of processors this process may use, by its affinity and its control group (the
    limit of a container)."""
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
        # The counts of a chunk take many times its bytes.
        even = min(even, max_memory_bytes // (workers * _CEILING_PER_CHUNK))
    return min(max(even, _SMALLEST_CHUNK_BYTES), LARGEST_CHUNK_BYTES)
