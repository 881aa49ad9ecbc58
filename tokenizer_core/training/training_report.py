"""TrainingReport: what a training run did and what it cost, ready for a manifest.

Apart from the trainer so that what reads a report needs no trainer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.training.learn_merges import LearnedMerges
from tokenizer_core.training.pruning import Pruning
from tokenizer_core.training.vocabulary_plan import VocabularyOptions, VocabularyPlan

CURVE_POINTS: Final = 100
_ROUND_SIZES: Final = frozenset(n * 10**power for n in (1, 2, 5) for power in range(2, 7))
_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What a vocabulary of this size, padding left out, makes of the text it was trained on."""

    vocab_size: int
    n_tokens: int
    bytes_per_token: float


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """Figures of one training run. Sizes in bytes, times in seconds of wall clock.

    - `engine` learned; `counting_engine` counted, None when the counts came from elsewhere.
    - `options`: what was asked of the vocabulary beside its size. `n_seed_merges` and `n_reserved`:
      how many merges its seed tokens took, and its reserved tokens, padding included.
    - `learned_vocab_size`: the size the run was asked for, larger than `vocab_size` where this is a
      smaller one cut from it. Times and memory are of the run.
    - `curve`: exact, of about a hundred sizes from the smallest to this one, spread evenly over
      their logarithm, and of 500, 1,000, 2,000, 5,000 and so on.
    - `stopped_early`: why there are fewer merges than asked for, or None.
    - `peak_memory_bytes`: resident memory of this process and its workers together, at its
      highest; sampled five times a second. `peak_own_memory_bytes`: the most this process has
      ever held, before training too (`ru_maxrss`).
    - `longest_token_text`: the longest learned token, U+FFFD for what is not UTF-8 in it; cut off
      at 200 characters.
    - `bytes_per_token`: on the text that was trained on, special tokens left out.
    - `seconds_counting`: 0 when the counts came from a file.
    - `pruning`: what was left out of the counts before learning, and how far a merge may be from
      the best; None where nothing was. Tokens and pre-tokens are of what was kept.
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

    def to_dict(self) -> dict[str, Any]:
        """The figures as a dict that `json.dumps` takes."""
        figures = asdict(self)
        figures["curve"] = list(figures["curve"])
        figures["options"]["seed_tokens"] = list(self.options.seed_tokens)
        return figures


def describe_merges(
    plan: VocabularyPlan, learned: LearnedMerges, spec: TokenizerSpec, n_bytes: int
) -> dict[str, Any]:
    """The fields of a report that are about these merges; `n_bytes` is of all pre-tokens."""
    longest = max((left + right for left, right in learned.merges), key=len, default=b"")
    n_specials = len(spec.special_tokens)
    return {
        "vocab_size": len(spec.vocab),
        "n_merges": len(learned.merges),
        "n_seed_merges": len(plan.rules.first_merges),
        "n_reserved": n_specials - len(plan.special_tokens),
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
