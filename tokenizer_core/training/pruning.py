"""Pruning: what was left out of counts, and by how much that can mislead learning.

Apart from the counts that carry it and from the pruning itself, so that a report can hold it
without either. Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Pruning:
    """What `prune_counts` dropped.

    - `min_count`: pre-tokens that occurred less often were dropped. Where counts were combined,
      the largest of theirs.
    - `n_distinct`: the pre-tokens dropped, one that was dropped of two counts twice;
      `n_pre_tokens`, `n_bytes`: their occurrences, and the UTF-8 bytes of these.
    - `bound`: no pair of tokens occurs more often than this in what was dropped, whatever was
      merged before. So each merge that is learned occurs in the whole text at most so many times
      less than the pair that occurs most often there then (`prune_counts` has the proof).
    """

    min_count: int
    n_distinct: int
    n_pre_tokens: int
    n_bytes: int
    bound: int

    @classmethod
    def combined(cls, parts: Iterable[tuple[Pruning, int]]) -> Pruning:
        """Of counts that were added up, each so many times: what is lost of a pair adds up too.

        Example:
            >>> Pruning.combined([(Pruning(2, 9, 9, 50, 4), 3), (Pruning(3, 5, 8, 40, 2), 1)])
            Pruning(min_count=3, n_distinct=14, n_pre_tokens=35, n_bytes=190, bound=14)
        """
        listed = list(parts)
        return cls(
            min_count=max(part.min_count for part, _ in listed),
            n_distinct=sum(part.n_distinct for part, _ in listed),
            n_pre_tokens=sum(weight * part.n_pre_tokens for part, weight in listed),
            n_bytes=sum(weight * part.n_bytes for part, weight in listed),
            bound=sum(weight * part.bound for part, weight in listed),
        )

    @classmethod
    def parse(cls, table: dict[str, Any]) -> Pruning:
        """What `asdict` made; raises ValueError, KeyError or TypeError for anything else."""
        values = [table[field.name] for field in fields(cls)]
        if len(table) != len(values) or any(type(n) is not int or n < 0 for n in values):
            raise ValueError("pruning is not five numbers, 0 or above")
        return cls(*values)
