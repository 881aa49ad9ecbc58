"""The mask beside the ids: written, read, resumed and verified in step with them."""

import pickle
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, reseal, write
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
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError, TokenFilesPlanError

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
def test_another_mask_is_refused(mask, expected, tmp_path):
    with TokenFilesWriter(tmp_path / "t", MASKED) as writer:
        with pytest.raises(TokenFilesPlanError, match=expected):
            writer.append([1, 2], mask=mask)
        writer.append([1, 2], mask=np.array([True, False]))
        writer.finish()
    assert TokenDataset.open(tmp_path / "t").mask().tolist() == [1, 0]


def test_a_mask_belongs_to_a_plan_that_has_one(tmp_path):
    with TokenFilesWriter(tmp_path / "t", plan_token_files(NARROW)) as writer:
        with pytest.raises(TokenFilesPlanError, match="the plan has no mask"):
            writer.append([1], mask=[1])
        writer.append([1])
        writer.finish()
    files = TokenFiles.open(tmp_path / "t")
    with pytest.raises(TokenFilesError, match="no loss mask; encode conversations"):
        files.document_mask(0)
    with pytest.raises(TokenFilesError, match="no loss mask to show apart"):
        TokenDataset(files).samples(1, loss_mask="apart")
    with pytest.raises(TokenFilesPlanError, match="plain text has no loss mask"):
        check_settings(NARROW, plan_token_files(NARROW, loss_mask=True), 0, None)
    with pytest.raises(TokenFilesPlanError, match="plan with loss_mask=True"):
        check_settings(NARROW, plan_token_files(NARROW), 0, SimpleNamespace(settings={}))


def test_a_mask_that_is_shorter_than_its_checkpoint_is_refused(tmp_path):
    plan = plan_token_files(NARROW, loss_mask=True)
    with TokenFilesWriter(tmp_path / "t", plan) as writer:
        writer.append([1, 2, 3], mask=[1, 0, 1])
        writer.checkpoint({})
    (mask,) = (tmp_path / ".t.partial" / "files").glob("*.u8")
    mask.write_bytes(b"\1\0")
    with pytest.raises(TokenFilesCorruptError, match=r"train\.loss-mask\.u8 is missing or shorter"):
        TokenFilesWriter(tmp_path / "t", plan, resume=True)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [(b"\0\0\1", "has 1 tokens with loss"), (b"\0\2\0", "values up to 2")],
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

    def change(data: bytearray) -> None:
        data[:] = mask

    reseal(tmp_path / "t", "train.loss-mask.u8", change)
    with pytest.raises(TokenFilesCorruptError, match=expected):
        verify_token_files(tmp_path / "t")


def test_files_in_a_bucket_bring_their_mask(tmp_path):
    plan = plan_token_files(NARROW, loss_mask=True, tokens_per_shard=2)
    write(tmp_path / "t", plan, [[1, 2], [4]])
    upload_token_files(tmp_path / "t", str(tmp_path / "shared"))
    stored = StoredTokenFiles(str(tmp_path / "shared"), cache=tmp_path / "cache")
    files = TokenFiles(stored.folder, stored.manifest, stored)
    assert files.document(0).tolist() == [1, 2]
    assert not list((tmp_path / "cache").glob("*/*.u8")), "the mask is fetched when it is needed"
    assert files.document_mask(0).tolist() == [1, 0]
    assert len(list((tmp_path / "cache").glob("*/*.u8"))) == 1
    assert TokenDataset(files).mask().tolist() == [1, 0, 1]


@pytest.fixture
def dataset(tmp_path):
    """Ids 0 to 40 in shards of 7."""
    plan = plan_token_files(NARROW, loss_mask=True, tokens_per_shard=7)
    write(tmp_path / "t", plan, [list(range(41))])
    return TokenDataset.open(tmp_path / "t")


def test_targets_are_left_out_where_the_mask_is_0(dataset):
    expected = [id_ if id_ % 3 == 1 else -100 for id_ in range(1, 41)]
    samples = dataset.samples(8)
    assert [id_ for inputs, _ in samples for id_ in inputs.tolist()] == list(range(40))
    assert [id_ for _, targets in samples for id_ in targets.tolist()] == expected
    (batch,) = dataset.windows(5, 8)
    assert batch[1].flatten().tolist() == expected
    inputs, targets = dataset.sample_batch(50, 8, np.random.default_rng(0))
    assert all(
        (target == expected[start : start + 8]).all()
        for target, start in zip(targets, inputs[:, 0], strict=True)
    )
    assert dataset.mask(28, 32).tolist() == [1, 0, 0, 1]
    copy = pickle.loads(pickle.dumps(samples))
    assert copy[2][1].tolist() == samples[2][1].tolist()


def test_samples_give_the_mask_apart_or_ignore_it(dataset):
    for inputs, targets, mask in dataset.samples(8, loss_mask="apart"):
        assert (targets == inputs + 1).all()
        assert mask.tolist() == [int(id_ % 3 == 1) for id_ in targets.tolist()]
        assert mask.dtype == np.int64
    for inputs, targets in dataset.samples(8, loss_mask="ignored"):
        assert (targets == inputs + 1).all()
    with pytest.raises(ValueError, match="targets, apart or ignored"):
        dataset.samples(8, loss_mask="labels")


def test_a_copied_folder_without_its_mask_is_refused(dataset, tmp_path):
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    (tmp_path / "copy" / "train_000002.loss-mask.u8").unlink()
    with pytest.raises(TokenFilesCorruptError, match=r"loss-mask\.u8 is missing"):
        TokenFiles.open(tmp_path / "copy")
