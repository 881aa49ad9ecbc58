"""Batches from token files through PyTorch's DataLoader, and an epoch that is continued.

tokenizer corpus encode stories.txt --tokenizer stories --output tokens
python examples/journeys/data_loader.py tokens
"""

import sys

import torch
from torch.utils.data import DataLoader

from tokenizer_core.corpus import TokenDataset

CONTEXT_LENGTH = 16


def main() -> None:
    """Read one shuffled epoch, and show that an iteration continues where it stopped."""
    dataset = TokenDataset.open(sys.argv[1])
    samples = dataset.samples(CONTEXT_LENGTH)
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(
        samples, batch_size=8, shuffle=True, num_workers=2, drop_last=True, generator=generator
    )
    n_tokens = 0
    for inputs, targets in loader:
        if not torch.equal(inputs[:, 1:], targets[:, :-1]):  # here a model would learn
            raise SystemExit("the targets are not the inputs one id later")
        n_tokens += targets.numel()
    print(f"{len(dataset)} ids, {len(samples)} samples, {n_tokens} targets in full batches")

    # Without a DataLoader: the order has a seed, and the position is part of a checkpoint.
    iterated = dataset.samples(CONTEXT_LENGTH, seed=1)
    rows = iter(iterated)
    first = [next(rows) for _ in range(3)]
    checkpoint = iterated.state_dict()
    continued = dataset.samples(CONTEXT_LENGTH, seed=1)
    continued.load_state_dict(checkpoint)
    print(f"taken {len(first)}, then {len(list(continued))} of epoch {checkpoint['epoch']}")


if __name__ == "__main__":
    main()
