"""Training batches and samples: each target once, by rank, and only where the mask is 1."""

import json
import pickle
import sys
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE, reseal, write
from tokenizer_core.corpus import (
    TokenDataset,
    TokenFiles,
    TokenFilesWriter,
    plan_token_files,
    upload_token_files,
    verify_token_files,
)
from tokenizer_core.corpus.corpus_encoding import check_settings
from tokenizer_core.corpus.remote_token_files import StoredTokenFiles
from tokenizer_core.corpus.token_samples import permuted
from tokenizer_core.errors import (
    TokenFilesCorruptError,
    TokenFilesError,
    TokenFilesPlanError,
    TokenizerMismatchError,
)

N_TOKENS = 61
CONTEXT = 4
DOCUMENTS = [*(list(range(start, start + 5)) for start in range(0, 60, 5)), [60]]
"""Each id is its own position, so that a row shows its start."""


@pytest.fixture
def dataset(tmp_path):
    plan = plan_token_files(NARROW, end_of_document="", tokens_per_shard=7)
    write(tmp_path / "t", plan, DOCUMENTS, validation=[[1, 2, 3]])
    return TokenDataset.open(tmp_path / "t", NARROW)


def test_every_start_is_drawn_equally_often(dataset):
    """A chi-squared of 50 degrees of freedom; the seed is fixed, so it cannot fail by chance."""
    context, n_draws = 10, 20_000
    inputs, targets = dataset.sample_batch(n_draws, context, np.random.default_rng(2))
    for array in (inputs, targets):
        assert array.shape == (n_draws, context)
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
    assert not np.shares_memory(inputs, targets)
    assert (targets == inputs + 1).all()
    assert (inputs == inputs[:, :1] + np.arange(context)).all(), "a row across shards is torn"
    counts = np.bincount(inputs[:, 0], minlength=N_TOKENS)
    n_starts = N_TOKENS - context
    assert counts[n_starts:].sum() == 0, "a row without room for its targets"
    expected = n_draws / n_starts
    assert ((counts[:n_starts] - expected) ** 2 / expected).sum() < 90


@pytest.mark.parametrize(("batch", "context"), [(1, 60), (4, 7), (100, 1), (4, 10)])
def test_windows_go_over_each_id_once(batch, context, dataset):
    batches = list(dataset.windows(batch, context))
    assert all(len(inputs) == batch for inputs, _ in batches[:-1])
    inputs, targets = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    n_windows = (N_TOKENS - 1) // context
    assert inputs.tolist() == np.arange(n_windows * context).reshape(-1, context).tolist()
    assert (targets == inputs + 1).all()
    assert inputs.dtype == targets.dtype == np.int64


def test_another_tokenizer_split_or_size_is_refused(dataset):
    folder = dataset.files.folder
    with pytest.raises(TokenizerMismatchError) as raised:
        TokenDataset.open(folder, WIDE)
    for tokenizer in (NARROW, WIDE):
        assert tokenizer.spec.fingerprint[:12] in str(raised.value)
    with pytest.raises(LookupError, match="no split 'test'"):
        TokenDataset.open(folder, split="test")
    for sizes in ((0, 1), (1, 0), (-1, 5)):
        with pytest.raises(ValueError, match="must be at least 1"):
            dataset.sample_batch(*sizes, np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"default_rng\(seed\).* not int"):
        dataset.sample_batch(1, 1, 0)
    message = "train has 61 ids, and a row of context_length 61 with its targets needs 62; take a"
    for rows in (partial(dataset.sample_batch, rng=np.random.default_rng(3)), dataset.windows):
        with pytest.raises(TokenFilesError, match=message):
            rows(1, N_TOKENS)
    for error, how, message in (
        (ValueError, {"context_length": 0}, "context_length must be at least 1, not 0"),
        (ValueError, {"rank": 2, "world_size": 2}, "not 2 of 2"),
        (ValueError, {"loss_mask": "labels"}, "targets, apart or ignored"),
        (TokenFilesError, {"loss_mask": "apart"}, "no loss mask to show apart"),
        (TokenFilesError, {"context_length": 61}, r"61 ids, too few .* 61 .* each of 1 ranks"),
        (TypeError, {"seed": "5"}, "integer"),
        (TypeError, {"seed": 5.0}, "integer"),
    ):
        with pytest.raises(error, match=message):
            dataset.samples(**{"context_length": 4} | how)
    assert len(dataset.samples(60)) == 1


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
    assert [permuted(i, 10, "1/0") for i in range(10)] == [8, 6, 2, 4, 1, 5, 3, 7, 0, 9]
    for n in (1, 2, 3, 16, 17, 1000):
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
    for n in (9, 6):  # an iteration that is broken off is begun again
        first = starts(islice(again, n))
        assert first == whole[:n]
    state = json.loads(json.dumps(again.state_dict()))
    continued = dataset.samples(CONTEXT, seed=5)
    continued.load_state_dict(state)
    assert first + starts(continued) + starts(continued) == whole
    ranks = [dataset.samples(CONTEXT, seed=5, rank=rank, world_size=3) for rank in range(3)]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = [start for step in zip(*map(starts, ranks), strict=True) for start in step]
    assert first + rest == whole[:15]


def test_numbers_of_numpy_are_saved_as_json(dataset):
    samples = dataset.samples(np.int64(CONTEXT), seed=np.uint32(5), rank=np.int8(0))
    samples.set_epoch(np.int64(2))
    plain = dataset.samples(CONTEXT, seed=5)
    plain.set_epoch(2)
    assert json.loads(json.dumps(samples.state_dict())) == plain.state_dict()
    assert starts(samples) == starts(plain)


def test_a_state_of_other_samples_is_refused(dataset, tmp_path):
    write(
        tmp_path / "other",
        plan_token_files(NARROW, end_of_document=""),
        [list(range(N_TOKENS))[::-1]],
    )
    other = TokenDataset.open(tmp_path / "other", NARROW)
    state = dataset.samples(CONTEXT, seed=5).state_dict()
    for samples, message in (
        (dataset.samples(CONTEXT, seed=6), "seed 5, and these samples have 6"),
        (dataset.samples(3, seed=5), "context_length 4"),
        (other.samples(CONTEXT, seed=5), "the state has token_files"),
        (
            dataset.samples(CONTEXT, seed=5, rank=0, world_size=2),
            "7 samples were taken, which 2 ranks cannot divide",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            samples.load_state_dict(state | {"samples_taken": 7})


@pytest.mark.torch
def test_a_real_loader_collates_the_samples(dataset):
    import torch
    from torch.utils import data

    for workers in (0, 2):
        loader = data.DataLoader(dataset.samples(CONTEXT), batch_size=4, num_workers=workers)
        batches = list(loader)
        assert [tuple(inputs.shape) for inputs, _ in batches] == [(4, 4)] * 3 + [(3, 4)]
        assert all(inputs.dtype == torch.int64 for inputs, _ in batches)
        found = torch.cat([targets for _, targets in batches]).flatten().tolist()
        assert found == list(range(1, 61))
    samples = dataset.samples(CONTEXT, rank=1, world_size=3)
    sampler = data.DistributedSampler(samples, num_replicas=3, rank=1, shuffle=False)
    loader = data.DataLoader(sampler.dataset, sampler=sampler)
    assert [int(inputs[0, 0]) for inputs, _ in loader] == list(range(4, 60, 12))


MASKED = plan_token_files(NARROW, loss_mask=True)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, "these ids have no mask"),
        ([1], r"one integer per id \(2\)"),
        ([1, 2], "nothing else"),
        ([0.5, 1], "of float64"),
    ],
)
def test_a_mask_that_does_not_fit_its_ids_is_refused(mask, expected, tmp_path):
    with TokenFilesWriter(tmp_path / "t", MASKED) as writer:
        with pytest.raises(TokenFilesPlanError, match=expected):
            writer.append([1, 2], mask=mask)
        writer.append([1, 2], mask=np.array([True, False]))
        writer.finish()
    assert TokenDataset.open(tmp_path / "t").mask().tolist() == [1, 0]


def test_files_in_a_bucket_bring_their_mask(tmp_path):
    write(tmp_path / "t", replace(MASKED, tokens_per_shard=2), [[1, 2], [4]])
    upload_token_files(tmp_path / "t", str(tmp_path / "shared"))
    stored = StoredTokenFiles(str(tmp_path / "shared"), cache=tmp_path / "cache")
    files = TokenFiles(stored.folder, stored.manifest, stored)
    assert files.document(0).tolist() == [1, 2]
    assert not list((tmp_path / "cache").glob("*/*.u8")), "the mask is fetched when it is needed"
    assert files.document_mask(0).tolist() == [1, 0]
    assert len(list((tmp_path / "cache").glob("*/*.u8"))) == 1
    assert TokenDataset(files).mask().tolist() == [1, 0, 1]


def test_a_mask_belongs_to_a_plan_that_has_one(dataset, tmp_path):
    plan = plan_token_files(NARROW, end_of_document="")
    with (
        TokenFilesWriter(tmp_path / "u", plan) as writer,
        pytest.raises(TokenFilesPlanError, match="the plan has no mask"),
    ):
        writer.append([1], mask=[1])
    with pytest.raises(TokenFilesError, match="no loss mask; encode conversations"):
        dataset.files.document_mask(0)
    with pytest.raises(TokenFilesPlanError, match="plain text has no loss mask"):
        check_settings(NARROW, MASKED, 0, None)
    with pytest.raises(TokenFilesPlanError, match="plan with loss_mask=True"):
        check_settings(NARROW, plan, 0, SimpleNamespace(settings={}))


@pytest.mark.parametrize(
    ("mask", "expected"), [(b"\0\0\1", "has 1 tokens with loss"), (b"\0\2\0", "values up to 2")]
)
def test_verifying_finds_a_wrong_mask(mask, expected, tmp_path):
    """A mask with its own hash in the manifest, as a broken writer would leave it."""
    write(tmp_path / "t", MASKED, [[1, 2, 4]])
    verify_token_files(tmp_path / "t")
    path = tmp_path / "t" / "train.loss-mask.u8"
    for data in (mask, mask[:2]):
        path.write_bytes(data)
        with pytest.raises(TokenFilesCorruptError, match=r"changed or damaged|2 bytes"):
            verify_token_files(tmp_path / "t")
    path.write_bytes(mask)
    reseal(tmp_path / "t", path.name, lambda data: None)
    with pytest.raises(TokenFilesCorruptError, match=expected):
        verify_token_files(tmp_path / "t")
    path.unlink()
    with pytest.raises(TokenFilesCorruptError, match=r"loss-mask\.u8 is missing"):
        TokenFiles.open(tmp_path / "t")


@pytest.fixture
def masked_dataset(tmp_path):
    """Ids 0 to 40 in shards of 7."""
    plan = plan_token_files(NARROW, loss_mask=True, tokens_per_shard=7)
    write(tmp_path / "t", plan, [list(range(41))])
    return TokenDataset.open(tmp_path / "t")


def test_targets_are_left_out_where_the_mask_is_0(masked_dataset):
    expected = [id_ if id_ % 3 == 1 else -100 for id_ in range(1, 41)]
    samples = masked_dataset.samples(8)
    assert [id_ for inputs, _ in samples for id_ in inputs.tolist()] == list(range(40))
    assert [id_ for _, targets in samples for id_ in targets.tolist()] == expected
    (batch,) = masked_dataset.windows(5, 8)
    assert batch[1].flatten().tolist() == expected
    inputs, targets = masked_dataset.sample_batch(50, 8, np.random.default_rng(0))
    assert all(
        (target == expected[start : start + 8]).all()
        for target, start in zip(targets, inputs[:, 0], strict=True)
    )
    assert masked_dataset.mask(28, 32).tolist() == [1, 0, 0, 1]
    copy = pickle.loads(pickle.dumps(samples))
    assert copy[2][1].tolist() == samples[2][1].tolist()


def test_samples_give_the_mask_apart_or_ignore_it(masked_dataset):
    for inputs, targets, mask in masked_dataset.samples(8, loss_mask="apart"):
        assert (targets == inputs + 1).all()
        assert mask.tolist() == [int(id_ % 3 == 1) for id_ in targets.tolist()]
        assert mask.dtype == np.int64
    for inputs, targets in masked_dataset.samples(8, loss_mask="ignored"):
        assert (targets == inputs + 1).all()
