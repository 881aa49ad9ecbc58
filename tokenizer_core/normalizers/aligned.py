"""Aligned: a normalized text, and where in the text as given its bytes came from.

`Normalizer.align` decides what a changed part came from; this maps. It is in `spaces`, in `steps`
(each step: `_followed`) and, for the forms of Unicode, in `forms.pieces_of_form`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Aligned(NamedTuple):
    """A normalized text, and what it came from.

    - `n_put`: this many bytes were put before the text, which is otherwise as given.
    - `runs`: if more changed, a row for each run of bytes, shape (n_runs, 4): where it begins,
      start and end in bytes of what it came from, and 1 if it is as given, byte for byte.
    """

    text: str
    n_put: int = 0
    runs: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, source: str, text: str, spans: NDArray[np.int64] | None) -> Aligned:
        """The text made of `source`; `spans` are start and end in `source` of what each character
        came from, shape (n_chars, 2). Without them, it is the one at the same index."""
        if text == source and spans is None:
            return cls(text)
        if spans is None:
            spans = each_character(len(text))
        codes, starts = characters_of(text)
        source_codes, source_starts = characters_of(source)
        firsts, ends = spans.T
        is_kept = (ends == firsts + 1) & (source_codes[firsts] == codes)
        begins = np.ones(len(codes), dtype=bool)
        begins[1:] = ~(is_kept[1:] & is_kept[:-1] & (firsts[1:] == ends[:-1]))
        columns = starts[:-1], source_starts[firsts], source_starts[ends], is_kept
        return cls(text, runs=np.stack([column[begins] for column in columns], axis=1))

    def sources_of(self, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Starts and ends in the text as given for those in this one, ascending, shape (n, 2). What
        is not as given comes from all of its source; what was put before the text, from the first
        character."""
        if (self.runs is None and not self.n_put) or not len(offsets):
            return offsets
        if self.runs is None:
            put = np.uint64(self.n_put)
            mapped = np.maximum(offsets, put) - put
            if offsets[0, 1] == put:
                mapped[0, 1] = len(self.text[self.n_put].encode())
            return mapped
        begins, firsts, ends, is_kept = self.runs.T
        signed = offsets.astype(np.int64)
        # A byte of a run is one that a token starts at, or the last before the one it ends at.
        for column, first, changed in ((0, begins, firsts), (1, begins + 1, ends)):
            # Repeating each run for its tokens is faster than searching the run of each token.
            counts = np.diff(np.searchsorted(signed[:, column], first), append=len(signed))
            signed[:, column] *= np.repeat(is_kept, counts)
            signed[:, column] += np.repeat(np.where(is_kept, firsts - begins, changed), counts)
        return signed.astype(np.uint64)

    def source_of(self, n_chars: int) -> int:
        """Where in bytes the text as given continues after what these first characters came
        from."""
        n_bytes = len(self.text[:n_chars].encode())
        return int(self.sources_of(np.array([[n_bytes, n_bytes]], dtype=np.uint64))[0, 0])


def each_character(n_chars: int) -> NDArray[np.int64]:
    """Start and end of each character of a text, shape (n_chars, 2)."""
    return np.stack([np.arange(n_chars), np.arange(1, n_chars + 1)], axis=1)


def characters_of(text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The code points of a text, shape (n_chars,), and where each begins and the last ends in
    UTF-8, shape (n_chars + 1,)."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    starts = np.zeros(len(codes) + 1, dtype=np.int64)
    np.cumsum(1 + (codes > 0x7F) + (codes > 0x7FF) + (codes > 0xFFFF), out=starts[1:])
    return codes, starts
