"""The count of each id in the files, and of special tokens in the texts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE, write_texts
from tokenizer_core.corpus import (
    TokenFiles,
    TokenFilesWriter,
    plan_token_files,
    token_counts,
    verify_token_files,
)
from tokenizer_core.corpus.token_counts import TokenCounts
from tokenizer_core.errors import TokenFilesCorruptError


@pytest.mark.parametrize("piece", [1, 7, 1 << 18])
def test_counts_are_those_of_all_ids(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_counts, "_PIECE", piece)
    rng = np.random.default_rng(0)
    use = TokenCounts(300)
    parts = [rng.integers(0, 301, size).astype(np.uint16) for size in (0, 5, 100, 1)]
    for part in parts:
        use.add(part)
    expected = np.bincount(np.concatenate(parts), minlength=301)
    assert use.counts.tolist() == expected.tolist()
    use.add(np.array([300]))
    assert use.counts[300] == expected[300] + 1


@pytest.mark.parametrize("layout", ["raw", "npy", "megatron", "llmc"])
def test_a_split_is_counted_as_it_is_written(layout: str, tmp_path: Path) -> None:
    write_texts(tmp_path / "t", layout, WIDE)
    files = TokenFiles.open(tmp_path / "t")
    for split in ("train", "validation"):
        ids = np.concatenate([files.document(n, split) for n in range(files.n_documents(split))])
        expected = np.bincount(ids, minlength=70_001)
        assert files.token_counts(split).tolist() == expected.tolist()
    assert files.manifest.split("train").special_tokens_found == {"<|end|>": 1}
    assert files.manifest.split("validation").special_tokens_found == {}


def test_the_tokens_around_documents_are_not_counted_as_found(tmp_path: Path) -> None:
    plan = plan_token_files(NARROW, end_of_document="<|end|>")
    ids = np.array([257, 97, 258, 258, 98, 258])
    with TokenFilesWriter(tmp_path / "t", plan) as writer:
        writer.append_batch(ids, [0, 3, 6])
        ids[:] = 1  # the caller's again
        manifest = writer.finish()
    assert manifest.split("train").special_tokens_found == {"<|begin|>": 1, "<|end|>": 1}


def test_special_tokens_of_an_encoder_of_conversations_are_not_found_in_texts(
    tmp_path: Path,
) -> None:
    plan = plan_token_files(NARROW, end_of_document="<|end|>", loss_mask=True)
    ids = np.array([257, 97, 258, 98, 258])
    with TokenFilesWriter(tmp_path / "t", plan) as writer:
        writer.append_batch(ids, [0, 5], mask=np.ones(5, np.uint8))
        manifest = writer.finish()
    assert manifest.split("train").special_tokens_found == {}
    verify_token_files(tmp_path / "t")
    found = {"<|begin|>": 1, "<|end|>": 1}
    (train,) = manifest.splits
    wrong = replace(manifest, splits=(replace(train, special_tokens_found=found),))
    (tmp_path / "t" / "manifest.json").write_bytes(wrong.to_json())
    with pytest.raises(TokenFilesCorruptError, match="which special tokens"):
        verify_token_files(tmp_path / "t")


def test_ids_are_counted_again_from_files(tmp_path: Path) -> None:
    path = tmp_path / "train.npy"
    path.write_bytes(b"head" + np.array([1, 2, 2, 9], "<u2").tobytes())
    use = TokenCounts(2)
    use.add_file(path, np.dtype("<u2"), 3, 4)
    assert use.counts.tolist() == [0, 1, 2]
    for n_tokens in (4, 5):
        with pytest.raises(TokenFilesCorruptError, match="start anew, without resume"):
            TokenCounts(9 if n_tokens == 5 else 8).add_file(path, np.dtype("<u2"), n_tokens, 4)
