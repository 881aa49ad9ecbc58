"""Windows for a DataLoader: each target once, by rank, in an order that a run can continue."""

import json
import sys
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, write
from tokenizer_core.corpus import TokenDataset, plan_token_files
from tokenizer_core.corpus.token_samples import permuted
from tokenizer_core.errors import TokenFilesError

N_TOKENS = 61
CONTEXT = 4


@pytest.fixture
def dataset(tmp_path):
    plan = plan_token_files(NARROW, tokens_per_shard=7)
    write(tmp_path / "t", plan, [list(range(N_TOKENS))])  # each id is its own position
    return TokenDataset.open(tmp_path / "t", NARROW)


def starts(samples):
    return [int(inputs[0]) for inputs, _ in samples]


def test_every_target_is_in_one_sample(dataset):
    samples = dataset.samples(CONTEXT)
    assert len(samples) == 15
    assert starts(samples) == list(range(0, 60, CONTEXT))
    for inputs, targets in (samples[i] for i in range(len(samples))):
        assert inputs.shape == targets.shape == (CONTEXT,)
        assert inputs.dtype == targets.dtype == np.int64
        assert (targets == inputs + 1).all()
        assert not np.shares_memory(inputs, targets)
    assert (samples[-1][0] == samples[14][0]).all()
    assert (samples[np.int64(3)][0] == samples[3][0]).all()
    for outside in (15, -16):
        with pytest.raises(IndexError, match="there are 15"):
            samples[outside]
    with pytest.raises(TypeError):
        samples[1.0]
    assert len(dataset) == N_TOKENS  # stays the number of ids


def test_a_seed_shuffles_each_epoch_in_another_way_and_always_the_same(dataset):
    first, second = dataset.samples(CONTEXT, seed=1), dataset.samples(CONTEXT, seed=2)
    orders = [starts(first), starts(first), starts(second)]  # two epochs of the first
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == list(range(0, 60, CONTEXT)) for order in orders)
    assert [permuted(i, 15, "1/0") * CONTEXT for i in range(15)] == orders[0]
    assert [permuted(i, 10, "1/0") for i in range(10)] == PERMUTED


PERMUTED = [8, 6, 2, 4, 1, 5, 3, 7, 0, 9]


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 1000])
def test_the_order_is_a_permutation(n):
    assert sorted(permuted(i, n, "key") for i in range(n)) == list(range(n))


@pytest.mark.parametrize("seed", [None, 3])
def test_ranks_share_the_windows_and_have_equally_many(dataset, seed, monkeypatch):
    whole = starts(dataset.samples(CONTEXT, seed=seed))
    ranks = [starts(dataset.samples(CONTEXT, seed=seed, rank=r, world_size=4)) for r in range(4)]
    assert [len(rank) for rank in ranks] == [3] * 4
    assert [start for step in zip(*ranks, strict=True) for start in step] == whole[:12]
    assert len(dataset.samples(CONTEXT, rank=1, world_size=4)) == 15  # a sampler shares them itself
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert starts(dataset.samples(CONTEXT, seed=seed)) == ranks[2]


def test_workers_of_a_loader_share_the_samples(dataset, monkeypatch):
    taken = []
    for number in range(4):
        info = SimpleNamespace(id=number, num_workers=4)
        module = SimpleNamespace(get_worker_info=lambda info=info: info)
        monkeypatch.setitem(sys.modules, "torch.utils.data", module)
        samples = dataset.samples(CONTEXT)
        taken.append(starts(samples))
        assert samples.epoch == 1
    assert sorted(chain.from_iterable(taken)) == list(range(0, 60, CONTEXT))
    assert [len(part) for part in taken] == [4, 4, 4, 3]


def test_a_run_continues_in_the_middle_of_an_epoch(dataset):
    samples = dataset.samples(CONTEXT, seed=5)
    whole = starts(samples) + starts(samples)
    again = dataset.samples(CONTEXT, seed=5)
    iterator = iter(again)
    first = starts(next(iterator) for _ in range(6))
    state = json.loads(json.dumps(again.state_dict()))
    continued = dataset.samples(CONTEXT, seed=5)
    continued.load_state_dict(state)
    assert first + starts(continued) + starts(continued) == whole
    ranks = [dataset.samples(CONTEXT, seed=5, rank=rank, world_size=3) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = [start for step in zip(*map(starts, ranks), strict=True) for start in step]
    assert first + rest == whole[:15]


def test_numbers_of_numpy_are_saved_as_json_and_other_types_are_refused(dataset):
    samples = dataset.samples(np.int64(CONTEXT), seed=np.uint32(5), rank=np.int8(0))
    samples.set_epoch(np.int64(2))
    plain = dataset.samples(CONTEXT, seed=5)
    plain.set_epoch(2)
    assert json.loads(json.dumps(samples.state_dict())) == plain.state_dict()
    assert starts(samples) == starts(plain)
    for seed in ("5", 5.0):
        with pytest.raises(TypeError, match="integer"):
            dataset.samples(CONTEXT, seed=seed)


def test_a_state_of_other_samples_is_refused(dataset):
    state = dataset.samples(CONTEXT, seed=5).state_dict()
    for other, name in [
        (dataset.samples(CONTEXT, seed=6), "seed 5, and these samples have 6"),
        (dataset.samples(3, seed=5), "context_length 4"),
    ]:
        with pytest.raises(ValueError, match=name):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="7 samples were taken, which 2 ranks cannot divide"):
        dataset.samples(CONTEXT, seed=5, rank=0, world_size=2).load_state_dict(
            state | {"samples_taken": 7}
        )


def test_a_state_of_other_token_files_of_the_same_length_is_refused(dataset, tmp_path):
    write(tmp_path / "other", plan_token_files(NARROW), [list(range(N_TOKENS))[::-1]])
    other = TokenDataset.open(tmp_path / "other", NARROW).samples(CONTEXT, seed=5)
    state = dataset.samples(CONTEXT, seed=5).state_dict()
    with pytest.raises(ValueError, match="the state has token_files"):
        other.load_state_dict(state)


def test_what_cannot_be_is_refused(dataset):
    with pytest.raises(ValueError, match="context_length must be at least 1, not 0"):
        dataset.samples(0)
    with pytest.raises(ValueError, match="not 2 of 2"):
        dataset.samples(4, rank=2, world_size=2)
    with pytest.raises(TokenFilesError, match=r"61 ids, too few .* 61 .* each of 1 ranks"):
        dataset.samples(61)
    assert len(dataset.samples(60)) == 1


@pytest.mark.torch
def test_a_real_loader_collates_the_samples(dataset):
    import torch
    from torch.utils import data

    for workers in (0, 2):
        loader = data.DataLoader(dataset.samples(CONTEXT), batch_size=4, num_workers=workers)
        batches = list(loader)
        assert [tuple(inputs.shape) for inputs, _ in batches] == [(4, 4)] * 3 + [(3, 4)]
        assert all(inputs.dtype == torch.int64 for inputs, _ in batches)
        assert torch.cat([targets for _, targets in batches]).flatten().tolist() == list(
            range(1, 61)
        )
    shuffled = data.DataLoader(dataset.samples(CONTEXT), shuffle=True)
    assert sorted(int(inputs[0, 0]) for inputs, _ in shuffled) == list(range(0, 60, CONTEXT))
    samples = dataset.samples(CONTEXT, rank=1, world_size=3)
    sampler = data.DistributedSampler(samples, num_replicas=3, rank=1, shuffle=False)
    loader = data.DataLoader(sampler.dataset, sampler=sampler)
    assert [int(inputs[0, 0]) for inputs, _ in loader] == list(range(4, 60, 12))
