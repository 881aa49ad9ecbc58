"""TokenCounts: how often each id occurs in a split, counted while the split is written.

The file of counts has one u64 for each id from 0 to the largest. It shows which ids a tokenizer
uses never or rarely, and which special tokens the texts contain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.corpus.token_manifest import START_ANEW
from tokenizer_core.engines.native_calls import count_ids
from tokenizer_core.errors import TokenFilesCorruptError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_plan import TokenFilesPlan

RARE: Final = 10
"""An id with fewer occurrences than this, but at least one, is rare."""

_PIECE: Final = 1 << 19
"""Ids per read of a file."""


class TokenCounts:
    """Counts of the ids 0 to `largest_id`."""

    def __init__(self, largest_id: int) -> None:
        self._counts = np.zeros(largest_id + 1, dtype=np.uint64)

    def add(self, ids: NDArray[np.integer[Any]]) -> None:
        """Count ids, shape (n,)."""
        count_ids(ids, self._counts)

    def add_file(self, path: Path, dtype: np.dtype[Any], n_tokens: int, header_bytes: int) -> None:
        """Count the first `n_tokens` ids after the header of a file.

        Raises:
            TokenFilesCorruptError: the file has fewer ids, or one above the largest.
        """
        with path.open("rb") as file:
            file.seek(header_bytes)
            while n_tokens:
                ids = np.fromfile(file, dtype, min(n_tokens, _PIECE))
                if not len(ids) or ids.max() >= len(self._counts) or ids.min() < 0:
                    raise TokenFilesCorruptError(
                        f"{path.name} does not hold the ids it was written with; {START_ANEW}"
                    )
                self.add(ids)
                n_tokens -= len(ids)

    @property
    def counts(self) -> NDArray[np.uint64]:
        """The count of each id, shape (largest_id + 1,)."""
        return self._counts.astype("<u8")


def special_tokens_found(
    counts: NDArray[np.uint64], plan: TokenFilesPlan, n_documents: int
) -> dict[str, int]:
    """How often each special token occurs in the texts, without those that do not occur. The plan's
    begin and end ids of the documents do not count. Empty for a plan with a mask: a chat template
    or another encoder writes the special tokens, and the ids do not tell those of the texts.

    `counts`, shape (largest_id + 1,), belong to the split with `n_documents` documents.
    """
    if plan.loss_mask:
        return {}
    around = [plan.begin_of_document_id, plan.end_of_document_id]
    found = {
        name: int(counts[id_]) - n_documents * around.count(id_)
        for name, id_ in zip(plan.recognised_special, plan.special_ids, strict=True)
    }
    return {name: count for name, count in found.items() if count}
