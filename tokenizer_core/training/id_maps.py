"""What a change of the vocabulary does to ids, and to the embeddings of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.spec import Merge, TokenizerSpec


class IdMap(NamedTuple):
    """From the ids of a tokenizer to those of the one made from it.

    - `new_ids`: of each old id, or -1; shape (largest old id + 1,), int64.
    - `parts`: pairs of a new id and an old one, by rising new id; shape (n, 2), int64. The
      embedding of a new id is the mean of those of its old ids: of itself, if it was there before.
    """

    new_ids: NDArray[np.int64]
    parts: NDArray[np.int64]

    @classmethod
    def of_kept(cls, base: TokenizerSpec, kept: Mapping[int, int]) -> IdMap:
        """The map of the tokens of `base` that get these new ids, old id -> new id."""
        pairs = sorted((new, old) for old, new in kept.items())
        parts = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        new_ids = np.full(base.largest_id + 1, -1, dtype=np.int64)
        new_ids[parts[:, 1]] = parts[:, 0]
        return cls(new_ids, parts)

    @classmethod
    def of_extension(
        cls, base: TokenizerSpec, extended: TokenizerSpec, merges: Sequence[Merge]
    ) -> IdMap:
        """The map of a tokenizer that these merges extend. The parts of a new token are the tokens
        that it joins; those of a reserved one are what its name encoded to."""
        kept = cls.of_kept(base, {id_: id_ for id_ in base.vocab})
        joined: dict[bytes, list[int]] = {}
        for left, right in merges:
            sides = (joined.get(side) or [base.token_to_id[side]] for side in (left, right))
            joined[left + right] = [id_ for side in sides for id_ in side]
        encode = Tokenizer.from_spec(base).encode_ordinary
        new = ((id_, token) for id_, token in extended.vocab.items() if id_ > base.largest_id)
        pairs = [(i, old) for i, t in new for old in joined.get(t) or encode(t.decode())]
        more = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(kept.new_ids, np.concatenate([kept.parts, more]))
