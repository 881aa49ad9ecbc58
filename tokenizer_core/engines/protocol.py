"""The seam between the tokenizer and what computes its ids.

An engine does whole calls: a text without special tokens in, ids out; ids in, bytes out. What is
around them (special tokens, normalizing, streaming, batches) is the same for every engine and
lives above. Every engine gives identical results; only speed differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """How an engine's pre-token cache has done; `maximum` entries bound it."""

    hits: int
    misses: int
    entries: int
    maximum: int


class Engine(Protocol):
    """Encodes and decodes for one TokenizerSpec. Immutable from outside and thread-safe."""

    name: str

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, which holds no special token and is normalized.

        Raises:
            UnicodeEncodeError: `text` holds a lone surrogate.
        """
        ...

    def encode_to_numpy(self, text: str, num_threads: int | None = None) -> NDArray[np.uint32]:
        """As `encode`, as an array of shape (n_tokens,), uint32."""
        ...

    def encode_pre_tokens(self, pre_tokens: Sequence[str]) -> list[int]:
        """Ids of pre-tokens that are already split, one after the other."""
        ...

    def count(self, text: str, limit: int | None = None) -> int:
        """The number of ids of `text`; may stop counting once it is over `limit`."""
        ...

    def decode_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> bytes:
        """The bytes of `ids`, joined; an array has shape (n_tokens,).

        Raises:
            UnknownTokenIdError: an id is not in the vocabulary.
        """
        ...

    def cache_statistics(self) -> CacheStatistics:
        """Hits, misses and size of the pre-token cache since the engine was made."""
        ...
