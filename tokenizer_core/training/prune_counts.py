"""Counts without what is rare in them, and a bound of what that can change.

Pre-tokens that occur once or twice are most of the distinct ones and decide few merges; learning
needs all that is distinct in memory. Leaving them out makes learning from more text than memory
possible, no longer exact, and this says how inexact.

**What holds.** Take any state of learning: some merges, those of seed tokens among them, applied
in their order to all pre-tokens, kept and dropped alike. Let f(p) be how often the pair of tokens p
occurs in all of them, and g(p) in those kept; the rest occurs in those dropped. Where (x, y)
occurs, the bytes of x + y stand, and no two of its occurrences begin at the same byte. So each of
them has a place of its own for each two adjacent bytes of x + y, and with D[a][b] as how often byte
b follows byte a in what was dropped,

    f(x, y) - g(x, y)  <=  the least D[a][b] of adjacent bytes a b of x + y  <=  B = max D.

Learning takes a pair p with the greatest g of those that may be merged. Let q be the one with the
greatest f. Then f(q) <= g(q) + B <= g(p) + B <= f(p) + B: **the merge taken occurs at most B times
less than the best one**, in the state where it is taken. B is found while pruning and kept as
`Pruning.bound`. Counts that are added up, or pruned again, have the sum of their bounds.

**With rules.** `max_token_length` forbids the same pairs with and without the rare pre-tokens.
First merges are part of the state; they are not chosen, so nothing is said of them. With
`min_frequency` m, what is merged occurs m times in the whole text too, and learning may end sooner:
when it ends, no pair that may be merged occurs m + B times in the whole text (m is 1 by default).

**What is not said.** That the merges are those of all counts: ties, and gaps of at most B, may fall
otherwise, and from there on the states differ, each compared with its own best. And nothing of
bytes per token, on this text or another; `benchmarks/pruning_loss.py` measures that. Where merges
occur less often than B times themselves, as late ones do, the bound says nothing new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.errors import CorpusError
from tokenizer_core.training.counts import view
from tokenizer_core.training.pretoken_counts import MAX_SUM, PretokenCounts, Pruning

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH: Final = 1 << 16


def prune_counts(counts: PretokenCounts, *, min_count: int) -> PretokenCounts:
    """The counts without the pre-tokens that occur fewer than `min_count` times; their `pruning`
    says what was dropped and bounds what it changes.

    Counts are gone through once, wherever they are, and only what is kept is held in memory. The
    figures of the corpus (`n_bytes`, `n_documents`, sources) stay those of the whole;
    `n_pre_tokens` and `n_pre_token_bytes` are of what was kept.

    Raises:
        ValueError: `min_count` is below 2, or what is dropped does not fit 64 bits.
        CorpusError: nothing would be kept.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> counts = PretokenCounts({"low": 5, "slow": 1, "owl": 2}, PATTERNS["gpt2"])
        >>> pruned = prune_counts(counts, min_count=3)
        >>> pruned.counts, pruned.pruning.n_distinct, pruned.pruning.n_bytes
        ({'low': 5}, 2, 10)
        >>> pruned.pruning.bound  # `ow`: once in slow, twice in owl
        3
    """
    if min_count < 2:
        raise ValueError(f"min_count must be at least 2, not {min_count}: all occur once or more")
    following = np.zeros(1 << 16, np.uint64)
    kept: dict[str, int] = {}
    n_distinct = n_pre_tokens = n_bytes = 0
    entries = view(counts.counts).entries()
    while batch := list(islice(entries, _BATCH)):
        kept.update(entry for entry in batch if entry[1] >= min_count)
        rare = [(pre_token.encode(), count) for pre_token, count in batch if count < min_count]
        n_distinct += len(rare)
        n_pre_tokens += sum(count for _, count in rare)
        n_bytes += sum(count * len(word) for word, count in rare)
        if n_bytes > MAX_SUM:
            raise ValueError("what occurs so rarely adds up to more bytes than 64 bits hold")
        if rare:
            _add_adjacent_bytes(following, rare)
    if not kept:
        raise CorpusError(
            f"no pre-token occurs {min_count} times, so that nothing would be left; give a smaller "
            f"min_count, or count more text"
        )
    dropped = Pruning(min_count, n_distinct, n_pre_tokens, n_bytes, int(following.max()))
    before = [] if counts.pruning is None else [(counts.pruning, 1)]
    return replace(counts, counts=kept, pruning=Pruning.combined([*before, (dropped, 1)]))


def _add_adjacent_bytes(following: NDArray[np.uint64], words: Sequence[tuple[bytes, int]]) -> None:
    """Add to `following[256 * a + b]` how often byte b follows byte a in these counted words."""
    lengths = np.fromiter((len(word) for word, _ in words), np.intp, len(words))
    counts = np.fromiter((count for _, count in words), np.uint64, len(words))
    data = np.frombuffer(b"".join([word for word, _ in words]), np.uint8).astype(np.intp)
    goes_on = np.ones(len(data), np.bool_)  # whether the next byte is of the same word
    goes_on[np.cumsum(lengths) - 1] = False
    inside = goes_on[:-1]
    pairs = 256 * data[:-1] + data[1:]
    np.add.at(following, pairs[inside], np.repeat(counts, lengths)[:-1][inside])
