"""The merges that make a token: the two tokens it consists of, the two parts of each, and so on
down to bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.formats.tiktoken_file import last_two_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokenizer_core.spec import TokenizerSpec

MAX_TREE_TOKEN_BYTES: Final = 1024
"""Longer tokens have no tree, which would have twice as many nodes as the token has bytes."""

_NO_RANK: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class MergeTree:
    """A token and the trees of its two parts. A byte, an added token, and a token that no merge
    makes have no parts. `is_cut`: the token has parts, but the tree ends here at `max_depth`."""

    id: int
    parts: tuple[MergeTree, MergeTree] | None = None
    is_cut: bool = False


class MergeTrees:
    """Ranks, parts and merge trees of the tokens of a spec. Uses 4 bytes per merge, 8 per token."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._added = {token.id for token in spec.added_tokens}
        products = (spec.token_to_id[left + right] for left, right in spec.merges)
        product_of = np.fromiter(products, np.int32, len(spec.merges))
        # The ranks of the merges that make each id, grouped by id, and the start of each group.
        self._ranks = np.argsort(product_of, kind="stable").astype(np.int32)
        ids = np.arange(spec.largest_id + 2)
        self._starts = np.searchsorted(product_of, ids, sorter=self._ranks)
        own = np.sort(np.fromiter((id_ for id_ in spec.vocab if id_ not in self._added), np.int64))
        if spec.kind == "ranks":
            self._new_tokens = own
            self.base_size = sum(len(spec.vocab[id_]) == 1 for id_ in own.tolist())
        else:
            # The rank of the first merge of each token.
            self._new_tokens = np.sort(np.unique(product_of, return_index=True)[1])
            self.base_size = int((~np.isin(own, product_of)).sum())

    def rank(self, id_: int) -> int | None:
        """The index of the merge that makes the token; for a spec of kind `ranks`, the id. None if
        no merge makes it.

        If several merges make it, as in lists made from ranks, this is the last merge when the
        token's own bytes are encoded, because every text uses that merge. If encoding these bytes
        does not give the token, or it is longer than `MAX_TREE_TOKEN_BYTES`, this is the first.
        """
        if self._spec.kind == "ranks":
            return None if id_ in self._added else id_
        ranks = self.ranks_of(id_)
        if len(ranks) < 2 or len(token := self._spec.vocab[id_]) > MAX_TREE_TOKEN_BYTES:
            return ranks[0] if ranks else None
        last = self._last_rank(token)
        return last if last in ranks else ranks[0]

    def parts(self, id_: int) -> tuple[int, int] | None:
        """The ids of the two tokens that merge into this one; None if no merge makes it.

        For a spec of kind `ranks`, which lists no merges, this is the last merge when the token's
        own bytes are encoded."""
        token_to_id = self._spec.token_to_id
        if self._spec.kind == "ranks":
            token = self._spec.vocab[id_]
            merge = None if id_ in self._added else last_two_parts(token, token_to_id)
        else:
            rank = self.rank(id_)
            merge = None if rank is None else self._spec.merges[rank]
        return None if merge is None else (token_to_id[merge[0]], token_to_id[merge[1]])

    @property
    def full_size(self) -> int:
        """The size of the vocabulary without added tokens."""
        n_new = len(self._new_tokens)
        return n_new if self._spec.kind == "ranks" else self.base_size + n_new

    def size_with(self, id_: int) -> int:
        """The size that the vocabulary had, without added tokens, once it could make this token:
        `base_size` for a token that no merge makes."""
        rank = self.rank(id_)
        if rank is None:
            return self.base_size
        size = int(np.searchsorted(self._new_tokens, rank, side="right"))
        return size if self._spec.kind == "ranks" else self.base_size + size

    def ranks_of(self, id_: int) -> list[int]:
        """The ranks of all merges that make the token."""
        ranks: list[int] = self._ranks[self._starts[id_] : self._starts[id_ + 1]].tolist()
        return ranks

    def _rank_of(self, left: bytes, right: bytes) -> int:
        product = self._spec.token_to_id.get(left + right)
        ranks = [] if product is None else self.ranks_of(product)
        merges = self._spec.merges
        return next((rank for rank in ranks if merges[rank] == (left, right)), _NO_RANK)

    def is_made(self, id_: int) -> bool:
        """Whether encoding the token's own bytes gives the token, by merges alone."""
        token = self._spec.vocab[id_]
        if len(self._spec.start_parts(token)) == 1:
            return True
        if self._spec.kind == "ranks":
            return last_two_parts(token, self._spec.token_to_id) is not None
        return self._last_rank(token) != _NO_RANK

    def _last_rank(self, token: bytes) -> int:
        """The rank of the last merge when `token` is encoded alone, or no rank."""
        parts = self._spec.start_parts(token)
        ranks = list(map(self._rank_of, parts, parts[1:]))
        while len(parts) > 2 and (lowest := min(ranks)) != _NO_RANK:
            at = ranks.index(lowest)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            for index in range(max(at - 1, 0), min(at + 1, len(ranks))):
                ranks[index] = self._rank_of(parts[index], parts[index + 1])
        return ranks[0] if len(parts) == 2 else _NO_RANK

    def all_parts(self, ids: Iterable[int]) -> dict[int, tuple[int, int] | None]:
        """The parts of these tokens, of their parts, and so on; None where there are none, and for
        tokens longer than `MAX_TREE_TOKEN_BYTES`.

        Encoding applies merges in the order of their rank wherever a merge only joins tokens that
        merges of a lower rank make, as in every trained vocabulary. Then replacing each token whose
        `size_with` is above n by its parts, again and again, gives the encoding by a vocabulary
        that was trained only to size n.
        """
        found: dict[int, tuple[int, int] | None] = {}
        waiting = list(ids)
        while waiting:
            id_ = waiting.pop()
            if id_ not in found:
                is_long = len(self._spec.vocab[id_]) > MAX_TREE_TOKEN_BYTES
                parts = found[id_] = None if is_long else self.parts(id_)
                waiting.extend(parts or ())
        return found

    def tree(self, id_: int, max_depth: int) -> MergeTree:
        """The token with its parts, their parts, and so on, at most `max_depth` merges deep."""
        parts = self.parts(id_)
        if parts is None:
            return MergeTree(id_)
        if max_depth <= 0 or len(self._spec.vocab[id_]) > MAX_TREE_TOKEN_BYTES:
            return MergeTree(id_, is_cut=True)
        left, right = parts
        return MergeTree(id_, (self.tree(left, max_depth - 1), self.tree(right, max_depth - 1)))
