"""Training batches: uniform starts, targets shifted by one, the same for any shards."""

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import LAYOUT_NAMES, NARROW, WIDE, write
from tokenizer_core.corpus import TokenDataset, plan_token_files
from tokenizer_core.errors import TokenFilesError, TokenizerMismatchError

N_TOKENS = 60
DOCUMENTS = [list(range(start, start + 5)) for start in range(0, N_TOKENS, 5)]
"""Each id is its own position, so that a row shows its start."""


@pytest.fixture
def dataset(tmp_path):
    plan = plan_token_files(NARROW, tokens_per_shard=7)
    write(tmp_path / "t", plan, DOCUMENTS, validation=[[1, 2, 3]])
    return TokenDataset.open(tmp_path / "t", NARROW)


def test_inputs_and_targets(dataset):
    inputs, targets = dataset.sample_batch(32, 11, np.random.default_rng(1))
    for array in (inputs, targets):
        assert array.shape == (32, 11)
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
    assert not np.shares_memory(inputs, targets)
    assert (targets == inputs + 1).all()
    assert (inputs == inputs[:, :1] + np.arange(11)).all(), "a row across shards is torn"


def test_every_start_is_drawn_equally_often(dataset):
    """A chi-squared of 49 degrees of freedom; the seed is fixed, so it cannot fail by chance."""
    context, n_draws = 10, 20_000
    inputs, _ = dataset.sample_batch(n_draws, context, np.random.default_rng(2))
    counts = np.bincount(inputs[:, 0], minlength=N_TOKENS)
    n_starts = N_TOKENS - context
    assert counts[n_starts:].sum() == 0, "a row without room for its targets"
    assert counts[:n_starts].min() > 0
    expected = n_draws / n_starts
    assert ((counts[:n_starts] - expected) ** 2 / expected).sum() < 90


def test_the_longest_context_has_one_start(dataset):
    inputs, targets = dataset.sample_batch(3, N_TOKENS - 1, np.random.default_rng(3))
    assert (inputs == np.arange(N_TOKENS - 1)).all()
    assert (targets == np.arange(1, N_TOKENS)).all()
    message = "train has 60 ids, and a row of context_length 60 with its targets needs 61; take a"
    with pytest.raises(TokenFilesError, match=message):
        dataset.sample_batch(1, N_TOKENS, np.random.default_rng(3))
    with pytest.raises(TokenFilesError, match=message):
        dataset.windows(1, N_TOKENS)


def test_the_same_generator_gives_the_same_batches_for_any_layout_and_shards(tmp_path):
    found = []
    for layout in LAYOUT_NAMES:
        for limit in (1, 13, 1000):
            plan = plan_token_files(NARROW, layout=layout, tokens_per_shard=limit)
            write(tmp_path / f"{layout}{limit}", plan, DOCUMENTS)
            dataset = TokenDataset.open(tmp_path / f"{layout}{limit}")
            found.append(dataset.sample_batch(5, 9, np.random.default_rng(4))[0].tolist())
    assert found == found[:1] * len(found)


@pytest.mark.parametrize(("batch", "context"), [(1, 59), (4, 7), (100, 1), (4, 10)])
def test_windows_go_over_each_id_once(batch, context, dataset):
    batches = list(dataset.windows(batch, context))
    assert all(len(inputs) == batch for inputs, _ in batches[:-1])
    inputs, targets = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    n_windows = (N_TOKENS - 1) // context
    assert inputs.tolist() == np.arange(n_windows * context).reshape(-1, context).tolist()
    assert (targets == inputs + 1).all()
    assert inputs.dtype == targets.dtype == np.int64


def test_refusals(dataset):
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
