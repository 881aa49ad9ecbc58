"""Ids with a mask in one array: the highest bit of a uint32 says that the loss counts at this id.

Documents pass from the encoder through splits, shuffles and shards of a cluster to the writer as
one array, so the mask cannot get out of step with the ids. Ids are below 2^31. Up to where they are
counted, the next three bits say of an id how a turn of a conversation ended there; such ids are
below 2^28.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from tokenizer_core.chat.encoding import TurnProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BIT: Final = np.uint32(31)
_IDS: Final = np.uint32((1 << 31) - 1)
_NOTE_BIT: Final = np.uint32(28)
_NOTES: Final = np.uint32(7 << 28)
MOST_NOTED_IDS: Final = 1 << 28

TURN_NOTES: Final = ("with_end", *get_args(TurnProblem))
"""What can be said of a turn; the note of a token is one more than its index here."""


def mark_ids(ids: NDArray[np.integer[Any]], mask: NDArray[Any]) -> NDArray[np.uint32]:
    """The ids, shape (n,), with the bit set where the lowest bit of `mask`, shape (n,), is 1; its
    other bits are the note.

    Example:
        >>> [hex(id_) for id_ in mark_ids(np.array([5, 6, 7]), np.array([0, 1, 3]))]
        ['0x5', '0x80000006', '0x90000007']
    """
    bits = mask.astype(np.uint32)
    notes = (bits >> np.uint32(1)) << _NOTE_BIT
    marked: NDArray[np.uint32] = ids.astype(np.uint32) | (bits << _BIT) | notes
    return marked


def take_notes(marked: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], dict[str, int]]:
    """The marked ids without notes, and how often each note occurs.

    Example:
        >>> ids, counts = take_notes(mark_ids(np.array([5, 6, 7]), np.array([0, 1, 3])))
        >>> [hex(id_) for id_ in ids], counts
        (['0x5', '0x80000006', '0x80000007'], {'with_end': 1})
    """
    counts = np.bincount((marked & _NOTES) >> _NOTE_BIT, minlength=8).tolist()[1:]
    found = {name: count for name, count in zip(TURN_NOTES, counts, strict=False) if count}
    return marked & ~_NOTES, found


def unmark_ids(marked: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """The ids and the mask, 0 or 1, each of shape (n,).

    Example:
        >>> unmark_ids(mark_ids(np.array([5, 6]), np.array([0, 1])))
        (array([5, 6], dtype=uint32), array([0, 1], dtype=uint8))
    """
    return marked & _IDS, (marked >> _BIT).astype(np.uint8)
