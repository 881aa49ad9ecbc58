"""Ids with a mask in one array: the highest bit of a uint32 says that the loss counts at this id.

Documents pass from the encoder through splits, shuffles and shards of a cluster to the writer as
one array, so the mask cannot get out of step with the ids. Ids are below 2^31.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_LOSS: Final = -100
"""The target where the loss does not count: the default `ignore_index` of PyTorch's losses."""

_BIT: Final = np.uint32(31)
_IDS: Final = np.uint32((1 << 31) - 1)


def mark_ids(ids: NDArray[np.integer[Any]], mask: NDArray[Any]) -> NDArray[np.uint32]:
    """The ids, shape (n,), with the bit set where `mask`, shape (n,), is 1."""
    return ids.astype(np.uint32) | (mask.astype(np.uint32) << _BIT)


def unmark_ids(marked: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """The ids and the mask, 0 or 1, each of shape (n,).

    Example:
        >>> unmark_ids(mark_ids(np.array([5, 6]), np.array([0, 1])))
        (array([5, 6], dtype=uint32), array([0, 1], dtype=uint8))
    """
    return marked & _IDS, (marked >> _BIT).astype(np.uint8)
