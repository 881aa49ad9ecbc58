"""Drops rare pre-tokens from counts, and bounds the effect.

Most distinct pre-tokens occur once or twice and decide few merges, but learning needs all distinct
pre-tokens in memory. Without the rare ones, it can learn from more text than memory holds. The
result is no longer exact; this module bounds the error.

**The bound.** Take any state of learning: some merges, including those of seed tokens, applied in
order to all pre-tokens, kept and dropped. Let f(p) be the number of occurrences of the pair of
tokens p in all of them, and g(p) in the kept ones; f(p) - g(p) is the number in the dropped ones.
Every occurrence of (x, y) contains the bytes of x + y, and no two occurrences begin at the same
byte. For two adjacent bytes of x + y, each occurrence therefore has its own position. Let D[a][b]
be the number of times byte b follows byte a in the dropped pre-tokens. Then

    f(x, y) - g(x, y)  <=  the least D[a][b] of adjacent bytes a b of x + y  <=  B = max D.

Learning takes the pair p with the greatest g among the allowed pairs. Let q be the pair with the
greatest f. Then f(q) <= g(q) + B <= g(p) + B <= f(p) + B: **the merge taken occurs at most B times
less than the best one**, in the state where it is taken. Pruning computes B and stores it as
`Pruning.bound`. The bound of counts that are added up, or pruned again, is the sum of the bounds.

**With rules.** `max_token_length` forbids the same pairs with and without the rare pre-tokens.
First merges are part of the state; learning does not choose them, so the bound does not apply to
them. With `min_frequency` m, every learned merge occurs m times in the whole text too, and learning
may end sooner: when it ends, no allowed pair occurs m + B times in the whole text (m is 1 by
default).

**Not guaranteed.** The merges may differ from those of all counts: ties and gaps of at most B may
be decided differently. From there on the states differ, and each is compared with its own best. The
bound does not limit bytes per token; `benchmarks/pruning_loss.py` measures these. For merges that
occur less than B times, as late merges do, the bound is meaningless.
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
    """The counts without pre-tokens that occur fewer than `min_count` times. `pruning` of the
    result describes the dropped pre-tokens and the bound.

    Makes one pass over the counts, in memory or on disk; memory holds only kept pre-tokens. The
    totals of the corpus (`n_bytes`, `n_documents`, sources) stay those of the whole corpus;
    `n_pre_tokens` and `n_pre_token_bytes` are those of the kept pre-tokens.

    Raises:
        ValueError: `min_count` is below 2, or the dropped bytes do not fit 64 bits.
        CorpusError: no pre-token would remain.
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
    """Add to `following[256 * a + b]` the number of times byte b follows byte a in these words."""
    lengths = np.fromiter((len(word) for word, _ in words), np.intp, len(words))
    counts = np.fromiter((count for _, count in words), np.uint64, len(words))
    data = np.frombuffer(b"".join([word for word, _ in words]), np.uint8).astype(np.intp)
    goes_on = np.ones(len(data), np.bool_)  # whether the next byte is in the same word
    goes_on[np.cumsum(lengths) - 1] = False
    inside = goes_on[:-1]
    pairs = 256 * data[:-1] + data[1:]
    np.add.at(following, pairs[inside], np.repeat(counts, lengths)[:-1][inside])
