"""Adds up several counts with weights, in whole numbers.

A weight says how much a source counts compared with the others. Only the ratio of the weights
affects the merges, so they are scaled to the smallest whole numbers in that ratio: no count is
rounded, and equal weights have no effect. The result records the weights with its sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from tokenizer_core.errors import CorpusError
from tokenizer_core.training.pretoken_counts import MAX_SUM, PretokenCounts, Pruning


def combine_counts(parts: Sequence[tuple[PretokenCounts, int | Fraction]]) -> PretokenCounts:
    """The weighted sum of these counts.

    The totals of the result (bytes, documents, pre-tokens) are weighted too: they are those of a
    corpus that contains each source that many times. Pruned pre-tokens are added in the same way.

    Raises:
        CorpusError: the counts have different patterns, special tokens or Unicode tables; two of
            them contain the same file; a weight is not above 0; the sum does not fit 64 bits.
        ValueError: `parts` is empty.
    """
    if not parts:
        raise ValueError("no counts were given; give one or more")
    first = parts[0][0]
    for counts, _ in parts:
        _check_same_settings(first, counts)
    _check_no_source_twice([counts for counts, _ in parts])
    weights = _whole_weights([weight for _, weight in parts])
    total: dict[str, int] = {}
    for (counts, _), weight in zip(parts, weights, strict=True):
        for pre_token, count in counts.counts.items():
            total[pre_token] = total.get(pre_token, 0) + weight * count
    weighted = [(counts, weight) for (counts, _), weight in zip(parts, weights, strict=True)]
    source_weights = [own * weight for counts, weight in weighted for own in counts.source_weights]
    pruned = [(counts.pruning, weight) for counts, weight in weighted if counts.pruning is not None]
    combined = PretokenCounts(
        counts=total,
        pattern=first.pattern,
        special_tokens=first.special_tokens,
        sources=tuple(source for counts, _ in weighted for source in counts.sources),
        n_bytes=sum(weight * counts.n_bytes for counts, weight in weighted),
        n_documents=sum(weight * counts.n_documents for counts, weight in weighted),
        unicode_tables=first.unicode_tables,
        weights=tuple(source_weights) if any(w != 1 for w in source_weights) else (),
        pruning=Pruning.combined(pruned) if pruned else None,
    )
    if combined.n_pre_token_bytes > MAX_SUM:
        raise CorpusError(
            f"with the weights {', '.join(map(str, weights))} the counts add up to more than 64 "
            f"bits hold; give weights with smaller numbers"
        )
    return combined


def _whole_weights(weights: Sequence[int | Fraction]) -> list[int]:
    """The smallest whole numbers in the ratio of these weights."""
    for weight in weights:
        if not isinstance(weight, int | Fraction) or weight <= 0:
            raise CorpusError(
                f"the weight {weight!r:.40} must be a whole number or a fraction above 0"
            )
    scale = lcm(*(Fraction(weight).denominator for weight in weights))
    whole = [int(weight * scale) for weight in weights]
    return [weight // gcd(*whole) for weight in whole]


def _check_same_settings(a: PretokenCounts, b: PretokenCounts) -> None:
    for name, of_a, of_b in (
        ("split pattern", a.pattern.name, b.pattern.name),
        ("split pattern", a.pattern.fields(), b.pattern.fields()),
        ("special tokens", list(a.special_tokens), list(b.special_tokens)),
        ("Unicode tables", a.unicode_tables, b.unicode_tables),
    ):
        if of_a != of_b:
            raise CorpusError(
                f"these counts were made with different {name}: {of_a!r:.100} and {of_b!r:.100}; "
                f"count one of the corpora again, as the other was"
            )


def _check_no_source_twice(parts: Sequence[PretokenCounts]) -> None:
    seen: dict[str, str] = {}
    for counts in parts:
        found = {source.sha256: source.path for source in counts.sources if source.size_bytes}
        for sha256, path in found.items():
            if sha256 in seen:
                raise CorpusError(
                    f"{path} is in two of these counts (there as {seen[sha256]}) and would count "
                    f"twice; leave one of them out, and to count it more often, give the other a "
                    f"larger weight"
                )
        seen |= found
