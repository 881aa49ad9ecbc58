"""Training from end to end: check what was asked, count the corpus, learn the merges, report.

    train_bpe          (vocab, merges) in one call
    train              the same with the spec, the counts and a report
    train_from_counts  another vocabulary size from counts that are there already

Publishing the result is the store's business. May import everything in this folder, `engines`,
`spec` and below; nothing above.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tokenizer_core.engines import resolve_engine
from tokenizer_core.errors import InvalidSpecError, TrainingCancelledError, VocabSizeError
from tokenizer_core.patterns import SplitPattern, resolve_pattern
from tokenizer_core.spec import MAX_TOKEN_ID, TokenizerSpec
from tokenizer_core.training.count_pretokens import (
    DecodeErrors,
    choose_counting_engine,
    choose_num_workers,
    count_pretokens,
)
from tokenizer_core.training.learn_merges import (
    LearnedMerges,
    TieBreak,
    check_tie_break,
    learn_merges,
)
from tokenizer_core.training.native_kernels import learn_natively
from tokenizer_core.training.pretoken_counts import PretokenCounts
from tokenizer_core.training.training_report import TrainingReport

Path = str | os.PathLike[str]

_N_BYTES: Final = 256
_POLL_SECONDS: Final = 0.1
_SHOWN_CHARS: Final = 200
NO_PAIR_LEFT: Final = (
    "no pair is left to merge: every pre-token of the corpus has become one token; "
    "a larger vocabulary needs more text"
)


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a run is. `count` is measured in bytes of the corpus, `learn` in merges."""

    phase: Literal["count", "learn"]
    done: int
    total: int
    message: str


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a run made: the vocabulary (id -> bytes), the merges in order, the same as a spec,
    a report, and the counts, from which other sizes can be trained."""

    vocab: dict[int, bytes]
    merges: list[tuple[bytes, bytes]]
    spec: TokenizerSpec
    report: TrainingReport
    counts: PretokenCounts


def train_bpe(
    input_path: Path | Sequence[Path],
    vocab_size: int,
    special_tokens: Sequence[str],
    *,
    pattern: str | SplitPattern = "gpt2",
    num_workers: int | None = None,
    engine: str = "auto",
    tie_break: TieBreak = "lexicographic",
    errors: DecodeErrors = "strict",
    progress: Callable[[TrainingProgress], object] | None = None,
    should_cancel: Callable[[], bool] | None = None,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Train a byte-level BPE tokenizer; `(vocab, merges)` as the CS336 course defines them.

    Ids 0-255 are the bytes, then come the special tokens in the order given, then the merges.
    `vocab_size` counts all of them. The result is the same for any number of workers.

    Raises:
        as `train`.

    Example:
        >>> import pathlib, tempfile
        >>> text = "low low lower newest newest widest widest widest"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     corpus = pathlib.Path(folder, "corpus.txt")
        ...     _ = corpus.write_text(text)
        ...     vocab, merges = train_bpe(corpus, 260, ["<|endoftext|>"])
        >>> vocab[256], merges
        (b'<|endoftext|>', [(b's', b't'), (b'e', b'st'), (b'w', b'i')])
    """
    inputs = [input_path] if isinstance(input_path, str | os.PathLike) else list(input_path)
    result = train(
        inputs,
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        pattern=pattern,
        num_workers=num_workers,
        engine=engine,
        tie_break=tie_break,
        errors=errors,
        progress=progress,
        should_cancel=should_cancel,
    )
    return result.vocab, result.merges


def train(
    inputs: Sequence[Path],
    *,
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str | SplitPattern = "gpt2",
    num_workers: int | None = None,
    engine: str = "auto",
    tie_break: TieBreak = "lexicographic",
    errors: DecodeErrors = "strict",
    chunk_bytes: int | None = None,
    progress: Callable[[TrainingProgress], object] | None = None,
    should_cancel: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Count the pre-tokens of these files and learn merges from them.

    - `num_workers`: processes, or threads of the native engine, that count; by default as many as
      there are processors. A corpus of a few megabytes is counted by one.
    - `engine`: what counts and learns. The native one leaves custom patterns, and bytes that
      `errors="replace"` is for, to the Python one to count; the report names both.
    - `errors`: `strict` refuses bytes that are not UTF-8, `replace` takes U+FFFD for them.
    - `progress` is called several times a second; `should_cancel` too, and ends the run when true.

    Raises:
        VocabSizeError: too small for the bytes and the special tokens, or too large.
        InvalidSpecError: a special token is empty, a single byte, or given twice.
        CorpusError: see `count_pretokens`.
        TrainingCancelledError: `should_cancel` said so.
        WorkerProcessError: a worker was killed.
        EngineUnavailableError: the engine asked for is not installed.
    """
    split_pattern = resolve_pattern(pattern)
    tokens = check_special_tokens(special_tokens)
    check_vocab_size(vocab_size, len(tokens))
    check_tie_break(tie_break)
    engine = resolve_engine(engine)
    watch = _Watch(progress, should_cancel)
    started = time.perf_counter()
    counts = count_pretokens(
        inputs,
        pattern=split_pattern,
        special_tokens=tokens,
        num_workers=num_workers,
        errors=errors,
        chunk_bytes=chunk_bytes,
        engine=engine,
        progress=watch.count,
        while_waiting=watch.poll,
    )
    return _learn(
        counts,
        vocab_size,
        engine=engine,
        counting_engine=choose_counting_engine(engine, split_pattern, errors),
        tie_break=tie_break,
        watch=watch,
        seconds_counting=time.perf_counter() - started,
        workers=choose_num_workers(counts.n_bytes, num_workers),
    )


def train_from_counts(
    counts: PretokenCounts,
    vocab_size: int,
    *,
    engine: str = "auto",
    tie_break: TieBreak = "lexicographic",
    progress: Callable[[TrainingProgress], object] | None = None,
    should_cancel: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Learn merges from counts made before; pattern and special tokens are those of the counts.

    A smaller size gives the beginning of the merges of a larger one.

    Raises:
        VocabSizeError, InvalidSpecError, TrainingCancelledError: as `train`.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> counts = PretokenCounts({"low": 2, " lower": 1}, PATTERNS["gpt2"])
        >>> train_from_counts(counts, 258).merges
        [(b'o', b'w'), (b'l', b'ow')]
    """
    check_vocab_size(vocab_size, len(check_special_tokens(counts.special_tokens)))
    check_tie_break(tie_break)
    return _learn(
        counts,
        vocab_size,
        engine=resolve_engine(engine),
        counting_engine=None,
        tie_break=tie_break,
        watch=_Watch(progress, should_cancel),
        seconds_counting=0.0,
        workers=1,
    )


def check_special_tokens(special_tokens: Sequence[str]) -> tuple[str, ...]:
    """The special tokens, once it is certain that each can have an id of its own.

    Raises:
        InvalidSpecError: one is empty, a single byte, not encodable as UTF-8, or given twice; or
            a string was given where a list of strings is meant.
    """
    if isinstance(special_tokens, str):
        raise InvalidSpecError(
            f"special_tokens must be a list of strings: [{special_tokens!r:.60}]"
        )
    for token in special_tokens:
        if not isinstance(token, str) or not token:
            raise InvalidSpecError(
                f"the special token {token!r:.60} must be a string that is not empty"
            )
        try:
            size = len(token.encode())
        except UnicodeEncodeError:
            raise InvalidSpecError(
                f"the special token {token!r:.60} holds a lone surrogate, which is no text"
            ) from None
        if size == 1:
            raise InvalidSpecError(
                f"the special token {token!r} is a single byte and has an id already; "
                f"choose a longer one, such as '<|{token}|>'"
            )
    if len(set(special_tokens)) != len(special_tokens):
        twice = next(token for token in special_tokens if list(special_tokens).count(token) > 1)
        raise InvalidSpecError(f"the special token {twice!r:.60} is given twice")
    return tuple(special_tokens)


def check_vocab_size(vocab_size: int, n_special_tokens: int) -> None:
    """Raise VocabSizeError, which names the bound, unless this size can be trained."""
    smallest = _N_BYTES + n_special_tokens
    if vocab_size < smallest:
        raise VocabSizeError(
            f"vocab_size {vocab_size} is too small: {_N_BYTES} bytes and {n_special_tokens} "
            f"special tokens need at least {smallest} (which learns no merge; ask for more)"
        )
    if vocab_size > MAX_TOKEN_ID + 1:
        raise VocabSizeError(
            f"vocab_size {vocab_size} is too large: ids stay below 2^20, so ask for at most "
            f"{MAX_TOKEN_ID + 1}"
        )


class _Watch:
    """Passes on progress, asks whether to cancel, and samples memory, each not too often."""

    def __init__(
        self,
        progress: Callable[[TrainingProgress], object] | None,
        should_cancel: Callable[[], bool] | None,
    ) -> None:
        # psutil takes tens of milliseconds to import, which every worker process would pay.
        from tokenizer_core.training.process_memory import PeakMemory

        self._progress = progress
        self._should_cancel = should_cancel
        self._next_poll = 0.0
        self.memory = PeakMemory()
        self.poll()

    def poll(self) -> None:
        """Sample memory and stop the run if the caller wants that."""
        if time.monotonic() < self._next_poll:
            return
        self.memory.sample()
        if self._should_cancel is not None and self._should_cancel():
            raise TrainingCancelledError(
                "training was cancelled by its caller; nothing was written"
            )
        self._next_poll = time.monotonic() + _POLL_SECONDS

    def count(self, n_done: int, n_bytes: int) -> None:
        """Report bytes counted."""
        self.poll()
        self._report("count", n_done, n_bytes, "counting pre-tokens")

    def learn(self, n_done: int, n_merges: int) -> None:
        """Report merges learned; cheap enough to be called after every merge."""
        if n_done == n_merges or time.monotonic() >= self._next_poll:
            self.poll()
            self._report("learn", n_done, n_merges, "learning merges")

    def _report(self, phase: Literal["count", "learn"], done: int, total: int, what: str) -> None:
        if self._progress is not None:
            self._progress(TrainingProgress(phase, done, total, what))


def _learn(
    counts: PretokenCounts,
    vocab_size: int,
    *,
    engine: str,
    counting_engine: str | None,
    tie_break: TieBreak,
    watch: _Watch,
    seconds_counting: float,
    workers: int,
) -> TrainingResult:
    started = time.perf_counter()
    n_merges = vocab_size - _N_BYTES - len(counts.special_tokens)
    watch.memory.sample(now=True)
    learn = learn_natively if engine == "native" else learn_merges
    learned = learn(
        counts.counts,
        n_merges,
        tie_break=tie_break,
        after_merge=lambda n_done: watch.learn(n_done, n_merges),
    )
    watch.memory.sample(now=True)
    vocab = _build_vocab(counts.special_tokens, learned.merges)
    spec = TokenizerSpec.from_merges(
        vocab, learned.merges, counts.special_tokens, pattern=counts.pattern
    )
    longest = max((left + right for left, right in learned.merges), key=len, default=b"")
    report = TrainingReport(
        engine=engine,
        counting_engine=counting_engine,
        tie_break=tie_break,
        num_workers=workers,
        vocab_size=len(vocab),
        n_merges=len(learned.merges),
        stopped_early=NO_PAIR_LEFT if learned.no_pair_left else None,
        seconds_counting=round(seconds_counting, 3),
        seconds_learning=round(time.perf_counter() - started, 3),
        peak_memory_bytes=watch.memory.peak_bytes,
        peak_own_memory_bytes=_peak_own_memory_bytes(),
        n_bytes=counts.n_bytes,
        n_documents=counts.n_documents,
        n_pre_tokens=counts.n_pre_tokens,
        n_distinct_pre_tokens=len(counts.counts),
        n_tokens=learned.n_tokens,
        bytes_per_token=_bytes_per_token(counts, learned),
        longest_token_bytes=len(longest),
        longest_token_text=longest.decode("utf-8", "replace")[:_SHOWN_CHARS],
    )
    return TrainingResult(vocab, learned.merges, spec, report, counts)


def _build_vocab(
    special_tokens: Sequence[str], merges: Sequence[tuple[bytes, bytes]]
) -> dict[int, bytes]:
    vocab = {byte: bytes([byte]) for byte in range(_N_BYTES)}
    for token in special_tokens:
        vocab[len(vocab)] = token.encode()
    # A product is never a token already (see `learn_merges`), and never a special token: a stretch
    # of text holds none. Counts made by hand may break the second; the id is then shared.
    known = set(vocab.values())
    for left, right in merges:
        if left + right not in known:
            known.add(left + right)
            vocab[len(vocab)] = left + right
    return vocab


def _bytes_per_token(counts: PretokenCounts, learned: LearnedMerges) -> float:
    if not learned.n_tokens:
        return 0.0
    return round(counts.n_pre_token_bytes / learned.n_tokens, 4)


def _peak_own_memory_bytes() -> int:
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
