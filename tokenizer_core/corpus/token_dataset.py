"""TokenDataset: batches of shape `(batch, context)` from token files, for a training loop.

The start of each row is drawn uniformly from all positions that leave room for its targets, which
are the same ids shifted by one. If the files have a mask, a target where the loss does not count is
-100, which PyTorch's losses ignore. A split is one sequence of ids across all shards, so the same
generator gives the same batches for any shard size. Windows are copied from memory-mapped files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokenizer_core.corpus.marked_ids import NO_LOSS
from tokenizer_core.corpus.packing import PackedSamples, default_pack_folder
from tokenizer_core.corpus.token_files import TokenFiles
from tokenizer_core.corpus.token_samples import LossMask, TokenSamples
from tokenizer_core.errors import TokenFilesError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from tokenizer_core.tokenizer import Tokenizer

    Batch = tuple[NDArray[np.int64], NDArray[np.int64]]


class TokenDataset:
    """One split of token files, to sample training batches from or to read in order."""

    def __init__(self, files: TokenFiles, split: str = "train") -> None:
        self._files, self._split = files, split
        self._n_tokens = files.n_tokens(split)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        tokenizer: Tokenizer | None = None,
        *,
        split: str = "train",
        cache: str | os.PathLike[str] | None = None,
    ) -> TokenDataset:
        """A split of the token files in a folder; `tokenizer`, if given, must be theirs.

        Files at an address, `s3://bucket/prefix`, are cached in the folder `cache`.

        Raises:
            LookupError: no such split.
            TokenFilesError and its subclasses: as `TokenFiles.open`.
        """
        return cls(TokenFiles.open(folder, tokenizer, cache=cache), split)

    def __len__(self) -> int:
        """The number of ids."""
        return self._n_tokens

    @property
    def files(self) -> TokenFiles:
        """The token files, with their manifest."""
        return self._files

    @property
    def document_encoder(self) -> Mapping[str, Any] | None:
        """How ids and mask of conversations were made: digests of the chat templates, loss rule.
        None for plain text; see `TokenManifest`."""
        return self._files.manifest.document_encoder

    def mask(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
        """The mask of the ids `start` to `stop` (excluded), shape (stop - start,), uint8: 1 where
        the loss counts, else 0.

        Raises:
            TokenFilesError: the files have no mask.
            IndexError: the range is not within the split.
        """
        end = len(self) if stop is None else stop
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"the split has no ids {start} to {end}: it has {len(self)}")
        out = np.empty(end - start, np.uint8)
        self._files.copy_mask(start, out, self._split)
        return out

    def sample_batch(self, batch_size: int, context_length: int, rng: np.random.Generator) -> Batch:
        """Inputs and targets, each of shape (batch_size, context_length), int64; -100 for a target
        that the mask of the files leaves out.

        `rng` draws the start of each row, uniformly and with replacement, from all
        `len(self) - context_length` positions that leave room for the targets.

        Raises:
            TokenFilesError: the split has too few ids for one row.
            ValueError: a size below 1.
            TypeError: `rng` is a seed: give `numpy.random.default_rng(seed)`.
        """
        n_starts = self._count_starts(batch_size, context_length)
        if not isinstance(rng, np.random.Generator):
            raise TypeError(
                f"rng must be a Generator, such as numpy.random.default_rng(seed), made once for "
                f"all batches, not {type(rng).__name__}"
            )
        return self._batch(rng.integers(0, n_starts, size=batch_size).tolist(), context_length)

    def windows(self, batch_size: int, context_length: int) -> Iterator[Batch]:
        """Windows in order, for a validation loss that counts every id once.

        Each starts at the end of the one before: inputs `[0, context)`, `[context, 2 context)` and
        so on. The last batch may have fewer rows. A rest with fewer than `context_length` targets
        is omitted.

        Raises:
            TokenFilesError, ValueError: as `sample_batch`; at the call, not while iterating.
        """
        n_starts = self._count_starts(batch_size, context_length)
        starts = range(0, n_starts, context_length)
        return (
            self._batch(starts[first : first + batch_size], context_length)
            for first in range(0, len(starts), batch_size)
        )

    def samples(
        self,
        context_length: int,
        *,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        loss_mask: LossMask = "targets",
    ) -> TokenSamples:
        """The windows as a map-style data set for a `DataLoader` of PyTorch; see `TokenSamples`.

        Raises:
            TokenFilesError: the split has too few ids for a window on each rank, or `loss_mask` is
                `apart` and the files have none.
            ValueError: a size below 1, or a rank that is not below `world_size`.
        """
        return TokenSamples(
            self._files,
            self._split,
            context_length,
            seed=seed,
            rank=rank,
            world_size=world_size,
            loss_mask=loss_mask,
        )

    def packed(
        self,
        pack: int | str | os.PathLike[str],
        *,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> PackedSamples:
        """The sequences of a pack (`pack_token_files`), as a map-style data set for a `DataLoader`
        of PyTorch. `pack` is its folder, or its length if it is in the default folder.

        Raises:
            TokenFilesError and its subclasses, LookupError: as `PackedSamples`.
            ValueError: a rank that is not below `world_size`.
        """
        folder = default_pack_folder(self._files.folder, pack) if isinstance(pack, int) else pack
        return PackedSamples(
            self._files, self._split, folder, seed=seed, rank=rank, world_size=world_size
        )

    def _count_starts(self, batch_size: int, context_length: int) -> int:
        if batch_size < 1 or context_length < 1:
            raise ValueError(
                f"batch_size and context_length must be at least 1, not {batch_size} and "
                f"{context_length}"
            )
        n_starts = self._n_tokens - context_length
        if n_starts < 1:
            raise TokenFilesError(
                f"{self._split} has {self._n_tokens} ids, and a row of context_length "
                f"{context_length} with its targets needs {context_length + 1}; take a shorter "
                f"context, or more text"
            )
        return n_starts

    def _batch(self, starts: Iterable[int], context_length: int) -> Batch:
        listed = list(starts)
        rows = np.empty((len(listed), context_length + 1), np.int64)
        for row, start in zip(rows, listed, strict=True):
            self._files.copy_tokens(start, row, self._split)
        # Two separate arrays, so that changing the inputs does not change the targets.
        inputs, targets = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])
        if self._files.has_mask:
            mask = np.empty(context_length, np.uint8)
            for target, start in zip(targets, listed, strict=True):
                self._files.copy_mask(start + 1, mask, self._split)
                target[mask == 0] = NO_LOSS
        return inputs, targets
