"""Pack lengths into as few sequences as two heuristics find: best-fit and first-fit decreasing.

Both take the longest item first. Best fit puts it into the sequence with the least space that is
left for it, first fit into the first one. Equal items follow each other, so all sequences that were
filled in the same way are one run, and a step fills a run: the number of steps depends on the
number of different lengths, not of items. Sorting the items takes the most time.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_NONE: Final = 1 << 62


class PackedLengths(NamedTuple):
    """Sequence `i` has the items `items[ends[i - 1]:ends[i]]`, in rising order, and sequences are
    in the order of their first items. `items`, shape (n_items,), `ends`, shape (n_sequences,)."""

    items: NDArray[np.int64]
    ends: NDArray[np.int64]


def pack_lengths(lengths: NDArray[np.int64], capacity: int) -> PackedLengths:
    """The items in sequences of at most `capacity`; `lengths`, shape (n,), are from 1 to it.

    Best fit decreasing, or first fit decreasing where that needs fewer sequences.
    """
    # A stable sort of 16 bits takes linear time.
    keys = capacity - lengths
    order = np.argsort(keys.astype(np.uint16) if capacity < 1 << 16 else keys, kind="stable")
    distinct, counts = np.unique(lengths, return_counts=True)
    falling = list(zip(distinct[::-1].tolist(), counts[::-1].tolist(), strict=True))
    fillings = _fill(falling, capacity, _Spaces.tightest)
    if _count(fillings) > fewest_sequences(lengths, capacity):
        other = _fill(falling, capacity, _Spaces.first)
        fillings = min(fillings, other, key=_count)
    return _assemble(order, fillings)


def fewest_sequences(lengths: NDArray[np.int64], capacity: int) -> int:
    """A number of sequences below which no packing gets: Martello and Toth's bound L2.

    For each length `a` of at most half the capacity: items longer than `capacity - a` are alone,
    those longer than half have a sequence each, and the items between `a` and half fill what these
    leave.
    """
    distinct, counts = np.unique(lengths, return_counts=True)
    n_above = np.concatenate((counts[::-1].cumsum()[::-1], [0]))
    sum_above = np.concatenate(((distinct * counts)[::-1].cumsum()[::-1], [0]))
    half = int(np.searchsorted(distinct, capacity // 2, side="right"))
    smallest = np.concatenate(([0], distinct[:half]))
    first = np.searchsorted(distinct, smallest)
    alone = np.searchsorted(distinct, capacity - smallest, side="right")
    n_large, n_middle = n_above[half], n_above[half] - n_above[alone]
    space = n_middle * capacity - (sum_above[half] - sum_above[alone])
    rest = sum_above[first] - sum_above[half] - space
    return int((n_large + np.maximum(0, -(-rest // capacity))).max())


class _Filling(NamedTuple):
    """Each of the sequences `first` to `first + n_sequences` gets `n_items` more items."""

    first: int
    n_sequences: int
    n_items: int


def _count(fillings: list[_Filling]) -> int:
    return max((first + n for first, n, _ in fillings), default=0)


class _Spaces:
    """Runs of sequences `(first, number)` by the space that each of them has left.

    The tree has the first sequence of each space in its leaves, and the least of two below it in
    every other node.
    """

    def __init__(self, capacity: int) -> None:
        self._size = 1 << capacity.bit_length()
        self._tree = [_NONE] * (2 * self._size)
        self._runs: dict[int, list[tuple[int, int]]] = {}

    def push(self, space: int, first: int, number: int) -> None:
        heappush(self._runs.setdefault(space, []), (first, number))
        self._update(space)

    def pop(self, space: int) -> tuple[int, int]:
        run = heappop(self._runs[space])
        self._update(space)
        return run

    def tightest(self, length: int) -> int | None:
        """The least space of at least `length` that any sequence has."""
        node = self._size + length
        while self._tree[node] == _NONE:
            while node & 1:  # a right child: go up to where a subtree is on the right
                node >>= 1
            if not node:
                return None
            node += 1
        while node < self._size:
            node = 2 * node if self._tree[2 * node] < _NONE else 2 * node + 1
        return node - self._size

    def first(self, length: int) -> int | None:
        """The space of the first sequence that has at least `length` left."""
        node = best = self._size + length
        while node > 1:
            if not node & 1 and self._tree[node + 1] < self._tree[best]:
                best = node + 1
            node >>= 1
        if self._tree[best] == _NONE:
            return None
        while best < self._size:
            best = 2 * best if self._tree[2 * best] == self._tree[best] else 2 * best + 1
        return best - self._size

    def _update(self, space: int) -> None:
        runs = self._runs[space]
        node, value = self._size + space, runs[0][0] if runs else _NONE
        tree = self._tree
        while node and tree[node] != value:
            tree[node] = value
            value = min(value, tree[node ^ 1])
            node >>= 1


def _fill(
    falling: list[tuple[int, int]], capacity: int, find: Callable[[_Spaces, int], int | None]
) -> list[_Filling]:
    """Fill sequences with `(length, number)` of items, the longest first; the fillings in their
    order."""
    spaces, n_opened = _Spaces(capacity), 0
    fillings = []
    for length, number in falling:
        n_left = number
        while n_left:
            space = find(spaces, length)
            if space is None:
                space, first = capacity, n_opened
                n_sequences = -(-n_left // (capacity // length))
                n_opened += n_sequences
            else:
                first, n_sequences = spaces.pop(space)
            n_items = min(space // length, n_left)
            n_filled = min(n_sequences, n_left // n_items)
            fillings.append(_Filling(first, n_filled, n_items))
            n_left -= n_filled * n_items
            spaces.push(space - n_items * length, first, n_filled)
            if n_filled < n_sequences:
                spaces.push(space, first + n_filled, n_sequences - n_filled)
    return fillings


def _assemble(order: NDArray[np.int64], fillings: list[_Filling]) -> PackedLengths:
    """`order` has the items in the order in which they were taken."""
    n_items, n_sequences = len(order), _count(fillings)
    taken = np.empty(n_items, np.int64)
    done = 0
    for first, number, each in fillings:
        sequences = np.arange(first, first + number)
        taken[done : done + number * each] = np.repeat(sequences, each)
        done += number * each
    sequence_of = np.empty(n_items, np.int64)
    sequence_of[order] = taken
    # Number the sequences by their first items: the last value that is assigned stays.
    first_item = np.empty(n_sequences, np.int64)
    first_item[sequence_of[::-1]] = np.arange(n_items - 1, -1, -1)
    number_of = np.empty(n_sequences, np.int64)
    number_of[np.argsort(first_item)] = np.arange(n_sequences)
    sequence_of = number_of[sequence_of]
    items = np.argsort(sequence_of, kind="stable")
    return PackedLengths(items, np.bincount(sequence_of, minlength=n_sequences).cumsum())
