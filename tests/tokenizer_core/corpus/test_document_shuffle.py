"""Documents in a random order: all of them, each whole, the same for the same seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, content
from tests.tokenizer_core.corpus.test_corpus_resume import (
    Interrupted,
    encode,
    small_batches,
    write_corpus,
)
from tokenizer_core.corpus import (
    EncodingProgress,
    TokenFiles,
    can_resume,
    document_shuffle,
    encode_corpus,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesPlanError

__all__ = ["small_batches"]


def documents_of(folder: Path) -> dict[str, list[bytes]]:
    files = TokenFiles.open(folder)
    return {
        split.name: [
            files.document(number, split.name).tobytes() for number in range(split.n_documents)
        ]
        for split in files.manifest.splits
    }


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("layout", ["raw", "megatron"])
def test_a_shuffle_is_a_permutation_of_all_documents(layout, tmp_path):
    files = write_corpus(tmp_path)

    def shuffled(name: str, seed: int = 7, **how: Any) -> dict[str, list[bytes]]:
        plan = plan_token_files(
            NARROW, layout=layout, tokens_per_shard=5000, end_of_document="<|end|>", seed=seed
        )
        encode(tmp_path / name, files, plan, **how)
        return documents_of(tmp_path / name)

    in_order, found = shuffled("a"), shuffled("b", shuffle=True)
    assert {split: sorted(found[split]) for split in found} == {
        split: sorted(in_order[split]) for split in in_order
    }
    for split, documents in found.items():
        assert documents != in_order[split]
        # No buffer limits the order: documents of the first half appear everywhere.
        places = [documents.index(document) for document in in_order[split][: len(documents) // 2]]
        assert max(places) > len(documents) * 0.8
    assert shuffled("d", seed=8, shuffle=True)["train"] != found["train"]
    shuffled("e", shuffle=True, workers=2)
    assert content(tmp_path / "e") == content(tmp_path / "b")
    manifests = [TokenFiles.open(tmp_path / name).manifest for name in "ab"]
    assert manifests[0].sources == manifests[1].sources
    assert [split.n_bytes for split in manifests[0].splits] == [
        split.n_bytes for split in manifests[1].splits
    ]
    assert np.array_equal(
        TokenFiles.open(tmp_path / "a").token_counts(),
        TokenFiles.open(tmp_path / "b").token_counts(),
    )
    verify_token_files(tmp_path / "b", tokenizer=NARROW)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("layout", ["raw", "megatron"])
def test_resuming_after_any_batch_gives_the_same_bytes(layout, tmp_path):
    files = write_corpus(tmp_path)
    plan = plan_token_files(NARROW, layout=layout, tokens_per_shard=5000, seed=3)
    n_batches = encode(tmp_path / "expected", files, plan, shuffle=True)
    for stop in (1, 13, 2 * n_batches // 3, n_batches):
        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(Interrupted):
            encode(folder, files, plan, stop, shuffle=True)
        assert can_resume(folder)
        left = encode(folder, files, plan, shuffle=True, resume=True, workers=2)
        assert left < n_batches or stop == 1
        assert content(folder) == content(tmp_path / "expected")


@pytest.mark.usefixtures("small_batches")
def test_a_shuffle_is_resumed_only_as_a_shuffle(tmp_path):
    files = write_corpus(tmp_path)
    plan = plan_token_files(NARROW)
    encode(tmp_path / "expected", files, plan)
    for begun in (False, True):
        with pytest.raises(Interrupted):
            encode(tmp_path / "t", files, plan, 10, shuffle=begun)
        with pytest.raises(TokenFilesPlanError, match="begun with another shuffle"):
            encode(tmp_path / "t", files, plan, shuffle=not begun, resume=True)
    encode(tmp_path / "t", files, plan)  # anew
    assert content(tmp_path / "t") == content(tmp_path / "expected")


def test_progress_names_the_second_phase(tmp_path):
    files = write_corpus(tmp_path)
    seen: list[EncodingProgress] = []
    plan = plan_token_files(NARROW)
    encode_corpus(NARROW, files, tmp_path / "t", plan, shuffle=True, progress=seen.append)
    assert {now.phase for now in seen} == {"encoding", "shuffling"}
    last = seen[-1]
    opened = TokenFiles.open(tmp_path / "t")
    assert last.bytes_done == last.bytes_total == 2 * last.n_tokens == 2 * opened.n_tokens()
    assert last.n_documents == opened.n_documents()


def test_scratch_that_was_cut_short_is_found(tmp_path):
    files = write_corpus(tmp_path)
    encode_corpus(NARROW, files, tmp_path / "t", plan_token_files(NARROW))
    opened = TokenFiles.open(tmp_path / "t")
    (tmp_path / "t" / "train.bin").write_bytes(b"12")
    with pytest.raises(TokenFilesCorruptError, match="ends before a document does"):
        list(document_shuffle.shuffle_documents(opened, 0, document_shuffle.ShufflePosition()))
