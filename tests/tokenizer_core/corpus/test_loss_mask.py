"""The mask beside the ids: written, read, resumed and verified in step with them."""

import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import LAYOUT_NAMES, NARROW, WIDE, reseal
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import (
    TokenDataset,
    TokenFiles,
    TokenFilesWriter,
    TokenManifest,
    plan_token_files,
    upload_token_files,
    verify_token_files,
)
from tokenizer_core.corpus.corpus_encoding import check_settings
from tokenizer_core.corpus.remote_token_files import StoredTokenFiles
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesError, TokenFilesPlanError

Marked = list[tuple[int, int]]


def write_marked(
    folder: Path,
    documents: list[Marked],
    *,
    validation: list[Marked] | None = None,
    tokenizer: Tokenizer = NARROW,
    pieces: int | None = None,
    **how: Any,
) -> TokenManifest:
    """Token files of ids with their masks; with `pieces` in batches of that many ids, which end
    anywhere in a document."""
    plan = plan_token_files(tokenizer, loss_mask=True, **how)
    with TokenFilesWriter(folder, plan) as writer:
        for split, listed in (("train", documents), ("validation", validation or [])):
            for document in listed:
                ids, mask = [id_ for id_, _ in document], [bit for _, bit in document]
                step = pieces or len(ids) or 1
                for start in range(0, len(ids) or 1, step):
                    part = ids[start : start + step]
                    writer.append_batch(
                        part,
                        [0, len(part)],
                        mask=mask[start : start + step],
                        split=split,
                        is_open=start + step < len(ids),
                    )
        return writer.finish()


def marked_documents(tokenizer: Tokenizer) -> st.SearchStrategy[list[Marked]]:
    pairs = st.tuples(st.sampled_from(sorted(tokenizer.spec.vocab)), st.integers(0, 1))
    return st.lists(st.lists(pairs, max_size=9), min_size=1, max_size=9).filter(any)


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
@examples(1 / 5)
@given(data=st.data())
def test_the_mask_is_read_back_beside_the_ids(layout, data, tmp_path_factory):
    tokenizer = data.draw(st.sampled_from([NARROW, WIDE]))
    documents = {"train": data.draw(marked_documents(tokenizer))}
    documents["validation"] = data.draw(st.just([]) | marked_documents(tokenizer))
    limit = data.draw(st.none() | st.integers(1, 20))
    folder = tmp_path_factory.mktemp("t") / "tokens"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        manifest = write_marked(
            folder,
            documents["train"],
            validation=documents["validation"],
            tokenizer=tokenizer,
            pieces=data.draw(st.none() | st.integers(1, 5)),
            layout=layout,
            tokens_per_shard=limit,
        )
    verify_token_files(folder, tokenizer=tokenizer)
    files = TokenFiles.open(folder)
    for record in manifest.splits:
        expected = documents[record.name]
        flat = [pair for document in expected for pair in document]
        assert TokenDataset(files, record.name).mask().tolist() == [bit for _, bit in flat]
        assert record.n_loss_tokens == sum(bit for _, bit in flat)
        for index, document in enumerate(expected):
            assert files.document(index, record.name).tolist() == [id_ for id_, _ in document]
            assert files.document_mask(index, record.name).tolist() == [b for _, b in document]
        for shard in record.shards:
            name = next(name for name in shard.files if name.endswith(".loss-mask.u8"))
            assert (folder / name).stat().st_size == shard.n_tokens


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
    with TokenFilesWriter(tmp_path / "t", plan_token_files(NARROW, loss_mask=True)) as writer:
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
    write_marked(tmp_path / "t", [[(1, 1), (2, 0), (3, 1)]])
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
    write_marked(tmp_path / "t", [[(1, 1), (2, 0)], [(3, 1)]], tokens_per_shard=2)
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
    """Ids 0 to 40 in shards of 7, the loss counts at odd ones and from 30 on."""
    documents = [[(id_, int(id_ % 2 or id_ >= 30)) for id_ in range(41)]]
    write_marked(tmp_path / "t", documents, tokens_per_shard=7)
    return TokenDataset.open(tmp_path / "t")


def test_targets_are_left_out_where_the_mask_is_0(dataset):
    expected = [id_ if id_ % 2 or id_ >= 30 else -100 for id_ in range(1, 41)]
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
    assert dataset.mask(28, 32).tolist() == [0, 1, 1, 1]
    copy = pickle.loads(pickle.dumps(samples))
    assert copy[2][1].tolist() == samples[2][1].tolist()


def test_samples_give_the_mask_apart_or_ignore_it(dataset):
    for inputs, targets, mask in dataset.samples(8, loss_mask="apart"):
        assert (targets == inputs + 1).all()
        assert mask.tolist() == [int(id_ % 2 or id_ >= 30) for id_ in targets.tolist()]
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
