"""RankedSamples: samples of token files as a map-style data set of PyTorch, without its import.

With a `seed` the samples are shuffled by a permutation that is computed for each index, a small
cipher: it takes no memory, is the same on every machine, and lets a run continue in the middle of a
pass. TokenSamples are the windows of a split: window `i` has the inputs
`[i * context, (i + 1) * context)` and the targets one id later, so that a pass over all windows
sees each target once.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from functools import cached_property
from hashlib import blake2b, sha256
from operator import index
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import numpy as np

from tokenizer_core.corpus.marked_ids import NO_LOSS
from tokenizer_core.errors import TokenFilesError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokenizer_core.corpus.token_files import TokenFiles

    Sample = tuple[NDArray[np.int64], ...]

LossMask = Literal["targets", "apart", "ignored"]

_ROUNDS: Final = 4
_SampleT = TypeVar("_SampleT")


class RankedSamples(ABC, Generic[_SampleT]):
    """Samples that are read by index, shuffled by a seed and shared between ranks.

    - `len(samples)` and `samples[i]`: all samples, in the shuffled order if there is a seed. A
      `DataLoader` and its samplers use these, and share the samples between ranks themselves.
    - Iterating gives the samples of this rank, `rank`, `rank + world_size` and so on; within a
      worker of a `DataLoader` only every n-th of them. Each rank has equally many, and at most
      `world_size - 1` samples are left out. After the last one the next epoch begins, which a seed
      orders differently; after an incomplete iteration the same epoch begins anew.
    - `state_dict` and `load_state_dict` save and restore epoch and position of an iteration: the
      next one continues there.

    Copies in worker processes map the files themselves.
    """

    def __init__(
        self, n_samples: int, *, seed: int | None, rank: int | None, world_size: int | None
    ) -> None:
        """`rank` and `world_size` are by default those of torchrun (RANK and WORLD_SIZE)."""
        self._n_samples = n_samples
        # Plain ints: NumPy's are no JSON, which `state_dict` promises.
        self.seed = None if seed is None else index(seed)
        self.rank = index(int(os.environ.get("RANK", "0")) if rank is None else rank)
        self.world_size = index(
            int(os.environ.get("WORLD_SIZE", "1")) if world_size is None else world_size
        )
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank must be in 0..world_size - 1, not {self.rank} of {self.world_size}"
            )
        self.epoch = 0
        self._n_taken = 0
        self._continues = False

    @abstractmethod
    def _read(self, number: int) -> _SampleT:
        """Sample `number` of the unshuffled ones."""

    @abstractmethod
    def _identity(self) -> dict[str, Any]:
        """What a saved position belongs to (JSON)."""

    def __len__(self) -> int:
        return self._n_samples

    def __getitem__(self, i: int) -> _SampleT:
        number = index(i)
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no sample {i}: there are {len(self)}")
        number %= len(self)
        if self.seed is not None:
            number = permuted(number, len(self), f"{self.seed}/{self.epoch}")
        return self._read(number)

    def __iter__(self) -> Iterator[_SampleT]:
        worker, n_workers = _worker()
        n_of_rank = len(self) // self.world_size
        n_taken = self._n_taken if self._continues else 0
        self._continues = False
        while n_taken < n_of_rank:
            mine = n_taken + worker
            self._n_taken = n_taken = n_taken + n_workers
            if mine < n_of_rank:
                yield self[mine * self.world_size + self.rank]
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins at the start of this epoch."""
        self.epoch, self._n_taken, self._continues = index(epoch), 0, False

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position, as JSON values, and what they are positions of."""
        return {
            "epoch": self.epoch,
            "samples_taken": self._n_taken * self.world_size,
            **self._identity(),
            "seed": self.seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, on as many ranks as then or on another number.

        Raises:
            ValueError: the state is of other samples, or its position lies within a step of all
                ranks.
        """
        for name, mine in {**self._identity(), "seed": self.seed}.items():
            if state.get(name) != mine:
                raise ValueError(
                    f"the state has {name} {state.get(name)}, and these samples have {mine}; "
                    f"open the token files and the samples that the state was saved from"
                )
        n_taken, rest = divmod(state["samples_taken"], self.world_size)
        if rest:
            raise ValueError(
                f"{state['samples_taken']} samples were taken, which {self.world_size} ranks "
                f"cannot divide; use a number of ranks that divides it"
            )
        self.epoch, self._n_taken, self._continues = state["epoch"], n_taken, True


class TokenSamples(RankedSamples["Sample"]):
    """The windows of a split; `TokenDataset.samples` makes it.

    A sample is inputs and targets, each of shape (context_length,), int64. If the files have a
    mask, `loss_mask` says how samples show it:

    - `targets`: where the loss does not count at a target, it is -100.
    - `apart`: the third array of a sample is the mask of the targets, 0 or 1, int64.
    - `ignored`: samples are those of files without a mask.
    """

    def __init__(
        self,
        files: TokenFiles,
        split: str,
        context_length: int,
        *,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        loss_mask: LossMask = "targets",
    ) -> None:
        if context_length < 1:
            raise ValueError(f"context_length must be at least 1, not {context_length}")
        self.context_length, self._files, self._split = index(context_length), files, split
        self._loss_mask = checked_loss_mask(loss_mask, files)
        n_windows = (files.n_tokens(split) - 1) // context_length
        super().__init__(n_windows, seed=seed, rank=rank, world_size=world_size)
        if n_windows < self.world_size:
            raise TokenFilesError(
                f"{split} has {files.n_tokens(split)} ids, too few for a window of context_length "
                f"{context_length} and its targets for each of {self.world_size} ranks; take a "
                f"shorter context, or more text"
            )

    def _read(self, number: int) -> Sample:
        row = np.empty(self.context_length + 1, np.int64)
        start = number * self.context_length
        self._files.copy_tokens(start, row, self._split)
        # Separate arrays, so that changing the inputs does not change the targets.
        inputs, targets = row[:-1].copy(), row[1:].copy()
        if self._loss_mask == "ignored":
            return inputs, targets
        mask = np.empty(self.context_length, np.int64)
        self._files.copy_mask(start + 1, mask, self._split)
        if self._loss_mask == "apart":
            return inputs, targets, mask
        targets[mask == 0] = NO_LOSS
        return inputs, targets

    def _identity(self) -> dict[str, Any]:
        manifest = self._files.manifest
        return {
            **self._token_files,
            "tokens": manifest.split(self._split).n_tokens,
            "context_length": self.context_length,
        }

    @cached_property
    def _token_files(self) -> dict[str, Any]:
        digest = sha256(self._files.manifest.to_json()).hexdigest()
        return {"token_files": digest, "split": self._split}


def checked_loss_mask(loss_mask: LossMask, files: TokenFiles) -> LossMask:
    """How to show the mask: `ignored` if the files have none.

    Raises:
        ValueError: an unknown way.
        TokenFilesError: `apart`, and the files have no mask.
    """
    if loss_mask not in ("targets", "apart", "ignored"):
        raise ValueError(f"loss_mask must be targets, apart or ignored, not {loss_mask!r:.40}")
    if not files.has_mask and loss_mask == "apart":
        raise TokenFilesError(
            "these token files have no loss mask to show apart; leave loss_mask out, or encode "
            "conversations"
        )
    return loss_mask if files.has_mask else "ignored"


def _worker() -> tuple[int, int]:
    """The index of this worker of a `DataLoader`, and their number; (0, 1) elsewhere."""
    torch_data = sys.modules.get("torch.utils.data")
    worker = None if torch_data is None else torch_data.get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def permuted(i: int, n: int, key: str) -> int:
    """Where a pseudo-random permutation of 0..n - 1 puts `i`: a Feistel network on the smallest
    even number of bits, repeated until the result is below `n`.
    """
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = i >> half, i & mask
        for number in range(_ROUNDS):
            mixed = blake2b(f"{key}/{number}/{right}".encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(mixed, "little") & mask)
        i = left << half | right
        if i < n:
            return i
