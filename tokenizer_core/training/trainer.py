"""Training from end to end: check the arguments, count the corpus, learn the merges, report.

    train_bpe            (vocab, merges) in one call
    train                the same with the tokenizer, the counts and a report
    train_from_iterator  as `train`, from texts in memory
    train_from_counts    another vocabulary size from existing counts

The registry publishes the result.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from typing import Any, Final, Literal, SupportsIndex

from tokenizer_core.documents import BY_NAME, BadDocuments, CorpusFormat
from tokenizer_core.documents.bad_documents import NO_BAD_DOCUMENTS
from tokenizer_core.engines import choose_engine
from tokenizer_core.engines.base import checked_number
from tokenizer_core.errors import (
    CorpusError,
    InvalidSpecError,
    TrainingCancelledError,
    VocabSizeError,
)
from tokenizer_core.parallel import resident_bytes_of_tree
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import SplitPattern, resolve_pattern
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_core.training.count_pretokens import (
    DecodeErrors,
    check_counting,
    choose_counting_engine,
    choose_num_workers,
    count_pretokens,
    count_texts,
)
from tokenizer_core.training.extension import check_may_extend, learn_more, normalized_pieces
from tokenizer_core.training.learn_merges import (
    LearnedMerges,
    TieBreak,
    check_tie_break,
    learn_merges,
    learn_natively,
)
from tokenizer_core.training.pretoken_counts import PretokenCounts, Pruning
from tokenizer_core.training.vocabulary_plan import (
    NO_OPTIONS,
    VocabularyOptions,
    VocabularyPlan,
    plan_extension,
    plan_vocabulary,
    refuse_string,
)

Path = str | os.PathLike[str]

_PHASES: Final = {
    "count": "counting pre-tokens",
    "merge": "merging counts",
    "learn": "learning merges",
}
_POLL_SECONDS: Final = 0.1
_SAMPLE_SECONDS: Final = 0.2

CURVE_POINTS: Final = 100
_ROUND_SIZES: Final = frozenset(n * 10**power for n in (1, 2, 5) for power in range(2, 7))
_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """What to learn from a corpus, and with what.

    - `vocab_size` counts the bytes, the special tokens and the merges.
    - `pattern`: the split pattern or its name, by default `gpt2`. `tie_break`: see the head of
      `learn_merges.py`.
    - `extend`: keep all of this tokenizer, with its pattern and special tokens, and learn merges
      after its own (`extension.py`).
    - `vocabulary`: further options of the vocabulary.
    - `engine` counts and learns. For the native engine, the Python engine counts custom patterns
      without an automaton and `errors="replace"`; the report names both.
    - `num_workers`: the number of counting processes, or threads of the native engine; by default
      one per processor. One worker counts a corpus of a few megabytes.
    - `errors`: `strict` refuses bytes that are not UTF-8, `replace` reads them as U+FFFD. Packed
      files, those with a separator, JSON lines and Parquet must be UTF-8 in either case.
    - `corpus_format`: how files hold documents, by default as their names say. `max_bad`: leave
      out bad documents, at most this share.
    - `chunk_bytes`, `max_memory_bytes`, `scratch_folder`: see `count_pretokens`. Learning needs all
      distinct pre-tokens in memory.

    Raises as `train` for what no corpus could make right.
    """

    vocab_size: int
    special_tokens: Sequence[str] = ()
    _: KW_ONLY
    pattern: str | SplitPattern | None = None
    extend: TokenizerSpec | None = None
    vocabulary: VocabularyOptions = NO_OPTIONS
    tie_break: TieBreak = "lexicographic"
    engine: str = "auto"
    num_workers: int | None = None
    errors: DecodeErrors = "strict"
    corpus_format: CorpusFormat = BY_NAME
    max_bad: float | None = None
    chunk_bytes: int | None = None
    max_memory_bytes: int | None = None
    scratch_folder: Path | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.vocab_size, SupportsIndex):
            raise TypeError(f"vocab_size must be an int, not {type(self.vocab_size).__name__}")
        if not isinstance(self.extend, TokenizerSpec | None):
            raise TypeError(
                f"extend must be the `spec` of a tokenizer, not {type(self.extend).__name__}"
            )
        refuse_string(self.special_tokens)
        object.__setattr__(self, "special_tokens", tuple(self.special_tokens))  # read twice
        self.make_plan().n_merges(self.vocab_size)
        check_tie_break(self.tie_break)
        choose_engine(self.engine)
        check_counting(self.errors, self.max_bad, self.max_memory_bytes)
        for name in ("num_workers", "chunk_bytes"):
            checked_number(getattr(self, name), name)

    def make_plan(self) -> VocabularyPlan:
        """The checked plan of the vocabulary."""
        if self.extend is None:
            pattern = resolve_pattern("gpt2" if self.pattern is None else self.pattern)
            return plan_vocabulary(self.special_tokens, pattern, self.vocabulary)
        if self.special_tokens or self.pattern is not None:
            raise InvalidSpecError(
                "a tokenizer is extended with its own special tokens and split pattern; leave out "
                "special_tokens and pattern (Tokenizer.with_special_tokens adds special tokens)"
            )
        check_may_extend(self.extend)
        return plan_extension(self.extend, self.vocabulary)


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The progress of a run: `done` of `total` bytes of the corpus (`count`), partitions of sharded
    counts (`merge`), or merges (`learn`)."""

    phase: Literal["count", "merge", "learn"]
    done: int
    total: int

    @property
    def message(self) -> str:
        """The phase in words."""
        return _PHASES[self.phase]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The compression of the training text with a vocabulary of this size, without padding."""

    vocab_size: int
    n_tokens: int
    bytes_per_token: float


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Figures of one training run. Sizes are in bytes, times in seconds of wall clock.

    - `engine` learned the merges; `counting_engine` counted, or is None if the counts were given.
    - `options`: the options of the vocabulary. `n_seed_merges`: the merges of its seed tokens.
      `n_reserved`: its reserved tokens, padding included.
    - `learned_vocab_size`: the size that the run learned. It is larger than `vocab_size` in the
      report of a smaller size (`TrainingResult.at_size`). Times and memory are those of the run.
    - `curve`: exact, for about a hundred sizes from the smallest to this one, evenly spaced in
      their logarithm, and for 500, 1,000, 2,000, 5,000 and so on. With `superwords_from`, that is
      the smallest.
    - `stopped_early`: why there are fewer merges than requested, or None.
    - `peak_memory_bytes`: the highest resident memory of this process and its workers together,
      sampled five times a second. `peak_own_memory_bytes`: the highest memory of this process in
      its lifetime, including before training (`ru_maxrss`).
    - `longest_token_text`: the first 200 characters of the longest learned token, with U+FFFD for
      bytes that are not UTF-8.
    - `bytes_per_token`: on the training text without special tokens.
    - `seconds_counting`: 0 when the counts came from a file.
    - `pruning`: the pre-tokens dropped before learning, and the bound; None if none were dropped.
      Numbers of tokens and pre-tokens do not include them.
    - `bad_documents`: those that were left out.
    - `extends`: the fingerprint of the tokenizer that was extended. Merges are then the new ones.
    """

    engine: str
    counting_engine: str | None
    tie_break: str
    num_workers: int
    options: VocabularyOptions
    learned_vocab_size: int
    vocab_size: int
    n_merges: int
    n_seed_merges: int
    n_reserved: int
    stopped_early: str | None
    seconds_counting: float
    seconds_learning: float
    peak_memory_bytes: int
    peak_own_memory_bytes: int
    n_bytes: int
    n_documents: int
    n_pre_tokens: int
    n_distinct_pre_tokens: int
    n_tokens: int
    bytes_per_token: float
    longest_token_bytes: int
    longest_token_text: str
    curve: tuple[CurvePoint, ...]
    pruning: Pruning | None = None
    bad_documents: BadDocuments = NO_BAD_DOCUMENTS
    extends: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures as a JSON-serialisable dict."""
        figures = asdict(self)
        figures["curve"] = list(figures["curve"])
        figures["bad_documents"] = self.bad_documents.to_fields()
        figures["options"]["seed_tokens"] = list(self.options.seed_tokens)
        return figures


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a run: the merges in order, the spec made of them, a report, and the counts,
    which can train larger sizes."""

    merges: list[tuple[bytes, bytes]]
    spec: TokenizerSpec
    report: TrainingReport
    counts: PretokenCounts
    plan: VocabularyPlan
    learned: LearnedMerges
    """The merges of the whole run, even for a smaller size of it."""

    @property
    def vocab(self) -> dict[int, bytes]:
        """id -> bytes, a new dict."""
        return dict(self.spec.vocab)

    @property
    def tokenizer(self) -> Tokenizer:
        """A new tokenizer of the spec."""
        return Tokenizer.from_spec(self.spec)

    @property
    def warnings(self) -> list[str]:
        """What differs from what was asked for, in sentences: documents that were left out, an
        early end, and tokens learned from `<|endoftext|>`, which is no special token and no
        separator here."""
        report, found = self.report, []
        if report.bad_documents.count:
            found.append(f"documents left out: {report.bad_documents}")
        if report.stopped_early:
            n_entries = f"{report.curve[-1].vocab_size} of {report.learned_vocab_size} entries"
            found.append(f"training ended early, with {n_entries}: {report.stopped_early}")
        word, end = b"endoftext", "<|endoftext|>"
        if end not in self.spec.special_tokens and any(word in a + b for a, b in self.merges):
            found.append(
                f"the text has {end!r}, and tokens were learned from it: name it as a special "
                f"token (--special-token, special_tokens), or as the separator of plain text "
                f"(--separator, separator)"
            )
        return found

    def at_size(self, vocab_size: int) -> TrainingResult:
        """The result of a run for this smaller size, without learning again.

        Its report contains the times and the memory of the whole run.

        Raises:
            VocabSizeError: the size is too small, or larger than that of the run.
        """
        if vocab_size > self.report.learned_vocab_size:
            raise VocabSizeError(
                f"vocab_size {vocab_size} is larger than the {self.report.learned_vocab_size} of "
                f"this run; train the largest size and take the smaller ones from it"
            )
        n_merges = self.plan.n_merges(vocab_size)
        learned = self.learned.first(n_merges)
        spec = self.plan.make_spec(learned.merges)
        figures = describe_merges(self.plan, learned, spec, self.counts.n_pre_token_bytes)
        report = replace(self.report, **figures)
        return replace(self, merges=learned.merges, spec=spec, report=report)


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

    Ids 0-255 are the bytes, followed by the special tokens in the given order and the merges.
    `vocab_size` counts all of them. The result is the same for any number of workers. Warns of what
    `TrainingResult.warnings` names: a text that gives fewer merges, for instance.

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
    options = TrainingOptions(
        vocab_size,
        special_tokens,
        pattern=pattern,
        num_workers=num_workers,
        engine=engine,
        tie_break=tie_break,
        errors=errors,
    )
    result = train(input_path, options, progress=progress, should_cancel=should_cancel)
    for warning in result.warnings:
        warnings.warn(warning, stacklevel=2)
    return result.vocab, result.merges


def train(
    inputs: Path | Sequence[Path],
    options: TrainingOptions,
    *,
    progress: Callable[[TrainingProgress], object] | None = None,
    should_cancel: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Count the pre-tokens of these files and learn merges from them.

    For several sizes, train the largest and derive the others with `at_size`. `progress` and
    `should_cancel` are called several times a second; the run ends when `should_cancel` returns
    true.

    Raises:
        VocabSizeError: too small for the bytes and the special tokens, or too large.
        InvalidSpecError: a special token is empty, a single byte, or given twice; a seed or
            reserved token is impossible; another option is out of range; or the tokenizer to extend
            does not take it.
        CorpusError: see `count_pretokens`.
        TrainingCancelledError: `should_cancel` returned true.
        WorkerProcessError: a worker was killed.
        EngineUnavailableError: the requested engine is not installed.
    """
    _require_options(options)
    files = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    count = partial(
        count_pretokens, files, corpus_format=options.corpus_format, max_bad=options.max_bad
    )
    return _count_and_learn(count, options, progress, should_cancel)


def train_from_iterator(
    texts: Iterable[str],
    options: TrainingOptions,
    *,
    progress: Callable[[TrainingProgress], object] | None = None,
    should_cancel: Callable[[], bool] | None = None,
) -> TrainingResult:
    """As `train`, from texts: a list, a generator, a column of a data set. Nothing joins across
    two texts. They are copied to a file in `scratch_folder` first, not kept in memory; only those
    of an iterator are, with `superwords_from`.

    Raises:
        TypeError: `texts` is one string, or an element is not a string.
        as `train`.
    """
    _require_options(options)
    if isinstance(texts, Iterator) and options.vocabulary.superwords_from is not None:
        texts = list(texts)  # they are counted twice
    return _count_and_learn(partial(count_texts, texts), options, progress, should_cancel)


def _require_options(options: object) -> None:
    if not isinstance(options, TrainingOptions):
        raise TypeError(
            f"options must be TrainingOptions, for instance TrainingOptions({options!r:.40}), not "
            f"{type(options).__name__}"
        )


def _count_and_learn(
    count: Callable[..., PretokenCounts],
    options: TrainingOptions,
    progress: Callable[[TrainingProgress], object] | None,
    should_cancel: Callable[[], bool] | None,
) -> TrainingResult:
    """Count with `count`, which takes the keyword arguments of `count_pretokens`, and learn."""
    base, plan = options.extend, options.make_plan()
    engine = choose_engine(options.engine).name
    watch = _Watch(progress, should_cancel)
    started = time.perf_counter()
    if base is not None and base.normalizer.name != "none":
        count = partial(count, change=partial(normalized_pieces, base))
    count = partial(
        count,
        special_tokens=plan.special_tokens,
        num_workers=options.num_workers,
        errors=options.errors,
        chunk_bytes=options.chunk_bytes,
        engine=engine,
        max_memory_bytes=options.max_memory_bytes,
        scratch_folder=options.scratch_folder,
        progress=watch.count,
        while_waiting=watch.poll,
    )
    counts = count(pattern=plan.pattern)
    seconds_learning_words = 0.0
    if options.vocabulary.superwords_from is not None:
        began, size = time.perf_counter(), options.vocabulary.superwords_from
        words, _ = _learn_merges(counts, plan.of_words, size, engine, options.tie_break, watch)
        seconds_learning_words = time.perf_counter() - began
        plan, before = plan.of_superwords(words.merges), (counts.sources, counts.n_bytes)
        del counts
        counts = count(pattern=plan.pattern)
        if (counts.sources, counts.n_bytes) != before:  # texts have no sources
            raise CorpusError("the corpus changed while it was counted; train again")
    return _learn(
        counts,
        plan,
        options.vocab_size,
        engine=engine,
        counting_engine=choose_counting_engine(engine, plan.pattern, options.errors),
        tie_break=options.tie_break,
        watch=watch,
        seconds_counting=time.perf_counter() - started - seconds_learning_words,
        seconds_learning_words=seconds_learning_words,
        workers=choose_num_workers(counts.n_bytes, options.num_workers),
    )


def train_from_counts(
    counts: PretokenCounts,
    vocab_size: int,
    *,
    engine: str = "auto",
    tie_break: TieBreak = "lexicographic",
    options: VocabularyOptions = NO_OPTIONS,
    extend: TokenizerSpec | None = None,
    progress: Callable[[TrainingProgress], object] | None = None,
    should_cancel: Callable[[], bool] | None = None,
) -> TrainingResult:
    """Learn merges from existing counts, which define the pattern and the special tokens; with
    `extend`, they must be those of that tokenizer.

    The merges of a smaller size are the beginning of those of a larger one (see
    `TrainingResult.at_size`).

    Raises:
        VocabSizeError, InvalidSpecError, TrainingCancelledError: as `train`.
    """
    if options.superwords_from is not None:
        raise InvalidSpecError(
            "superwords are learned from two counts of a text; give the text instead of counts, or "
            "leave out superwords_from"
        )
    if extend is None:
        plan = plan_vocabulary(counts.special_tokens, counts.pattern, options)
    else:
        check_may_extend(extend, counts)
        plan = plan_extension(extend, options)
    plan.n_merges(vocab_size)
    check_tie_break(tie_break)
    return _learn(
        counts,
        plan,
        vocab_size,
        engine=choose_engine(engine).name,
        counting_engine=None,
        tie_break=tie_break,
        watch=_Watch(progress, should_cancel),
        seconds_counting=0.0,
        workers=1,
    )


class _Watch:
    """Reports progress, checks for cancelling and samples memory, several times a second.

    A machine needs the sum over all processes at one moment, and `ru_maxrss` includes the time
    before training, so memory is sampled.
    """

    def __init__(
        self,
        progress: Callable[[TrainingProgress], object] | None,
        should_cancel: Callable[[], bool] | None,
    ) -> None:
        self._progress = progress
        self._should_cancel = should_cancel
        self._next_poll = self._next_sample = 0.0
        self.peak_memory_bytes = 0
        self.poll()

    def sample_memory(self) -> None:
        """Note the resident memory of this process and its children, if it is the largest."""
        self.peak_memory_bytes = max(self.peak_memory_bytes, resident_bytes_of_tree(os.getpid()))
        self._next_sample = time.monotonic() + _SAMPLE_SECONDS

    def poll(self) -> None:
        """Sample memory, and end the run if `should_cancel` returns true."""
        if time.monotonic() < self._next_poll:
            return
        if time.monotonic() >= self._next_sample:  # finding the children takes milliseconds
            self.sample_memory()
        if self._should_cancel is not None and self._should_cancel():
            raise TrainingCancelledError(
                "training was cancelled by its caller; nothing was written"
            )
        self._next_poll = time.monotonic() + _POLL_SECONDS

    def count(self, n_done: int, n_bytes: int) -> None:
        """Report bytes counted."""
        self.poll()
        self._report("count", n_done, n_bytes)

    def learn(self, n_done: int, n_merges: int) -> None:
        """Report merges learned. Fast enough to be called after every merge."""
        if n_done == n_merges or time.monotonic() >= self._next_poll:
            self.poll()
            self._report("learn", n_done, n_merges)

    def _report(self, phase: Literal["count", "learn"], done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(TrainingProgress(phase, done, total))


def _learn_merges(
    counts: PretokenCounts,
    plan: VocabularyPlan,
    vocab_size: int,
    engine: str,
    tie_break: TieBreak,
    watch: _Watch,
) -> tuple[LearnedMerges, str]:
    """The merges, and the engine that learned them."""
    n_merges = plan.n_merges(vocab_size)
    watch.sample_memory()
    options: dict[str, Any] = {
        "tie_break": tie_break,
        "rules": plan.rules,
        "after_merge": lambda n_done: watch.learn(n_done, n_merges),
    }
    if plan.base is not None:
        learned, engine = learn_more(plan.base, counts, n_merges, engine, **options)
    else:
        learn = learn_natively if engine == "native" else learn_merges
        learned = learn(counts.counts, n_merges, **options)
    watch.sample_memory()
    return learned, engine


def _learn(
    counts: PretokenCounts,
    plan: VocabularyPlan,
    vocab_size: int,
    *,
    engine: str,
    counting_engine: str | None,
    tie_break: TieBreak,
    watch: _Watch,
    seconds_counting: float,
    workers: int,
    seconds_learning_words: float = 0.0,
) -> TrainingResult:
    started = time.perf_counter() - seconds_learning_words
    learned, engine = _learn_merges(counts, plan, vocab_size, engine, tie_break, watch)
    spec = plan.make_spec(learned.merges)
    report = TrainingReport(
        engine=engine,
        counting_engine=counting_engine,
        tie_break=tie_break,
        num_workers=workers,
        options=plan.options,
        learned_vocab_size=vocab_size,
        seconds_counting=round(seconds_counting, 3),
        seconds_learning=round(time.perf_counter() - started, 3),
        peak_memory_bytes=watch.peak_memory_bytes,
        peak_own_memory_bytes=_peak_own_memory_bytes(),
        n_bytes=counts.n_bytes,
        n_documents=counts.n_documents,
        n_pre_tokens=counts.n_pre_tokens,
        n_distinct_pre_tokens=len(counts.counts),
        pruning=counts.pruning,
        bad_documents=counts.bad_documents,
        extends=None if plan.base is None else plan.base.fingerprint,
        **describe_merges(plan, learned, spec, counts.n_pre_token_bytes),
    )
    return TrainingResult(learned.merges, spec, report, counts, plan, learned)


def _peak_own_memory_bytes() -> int:
    import sys

    try:
        import resource
    except ImportError:  # Windows
        import psutil

        now = psutil.Process().memory_info()
        return int(getattr(now, "peak_wset", now.rss))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def describe_merges(
    plan: VocabularyPlan, learned: LearnedMerges, spec: TokenizerSpec, n_bytes: int
) -> dict[str, Any]:
    """The fields of a report that describe these merges; `n_bytes` is that of all pre-tokens."""
    longest = max((left + right for left, right in learned.merges), key=len, default=b"")
    return {
        "vocab_size": len(spec.vocab),
        "n_merges": len(learned.merges),
        "n_seed_merges": plan.n_seed_merges,
        "n_reserved": len(spec.added_tokens) - len(plan.special_tokens),
        "stopped_early": _say_why(plan.options) if learned.no_pair_left else None,
        "n_tokens": learned.n_tokens,
        "bytes_per_token": _ratio(n_bytes, learned.n_tokens),
        "longest_token_bytes": len(longest),
        "longest_token_text": longest.decode("utf-8", "replace")[:_SHOWN_CHARS],
        "curve": _curve(plan, learned, n_bytes),
    }


def _say_why(options: VocabularyOptions) -> str:
    limits = []
    if options.min_frequency > 1:
        limits.append(f"occurs at least {options.min_frequency} times (min_frequency)")
    if options.max_token_length is not None:
        limits.append(f"makes at most {options.max_token_length} bytes (max_token_length)")
    if limits:
        return (
            f"no pair is left to merge that {' and '.join(limits)}; "
            f"a larger vocabulary needs more text or wider limits"
        )
    return (
        "no pair is left to merge: every pre-token of the corpus has become one token; "
        "a larger vocabulary needs more text"
    )


def _curve(plan: VocabularyPlan, learned: LearnedMerges, n_bytes: int) -> tuple[CurvePoint, ...]:
    smallest = plan.n_other + len(plan.rules.first_merges)
    last = len(learned.token_counts) - 1
    growth = (smallest + last) / smallest
    spread = [round(smallest * growth ** (step / CURVE_POINTS)) for step in range(CURVE_POINTS)]
    sizes = {*spread, *_ROUND_SIZES, smallest + last}
    return tuple(
        CurvePoint(size, n_tokens, _ratio(n_bytes, n_tokens))
        for size in sorted(sizes)
        if smallest <= size <= smallest + last
        for n_tokens in [learned.token_counts[size - smallest]]
    )


def _ratio(n_bytes: int, n_tokens: int) -> float:
    return round(n_bytes / n_tokens, 4) if n_tokens else 0.0
