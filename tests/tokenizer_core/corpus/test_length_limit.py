"""Documents over `max_length` are truncated or dropped, and counted."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import (
    CorpusFormat,
    LostTokens,
    OverLength,
    TokenFiles,
    TokenFilesPlan,
    TokenFilesWriter,
    corpus_encoding,
    encode_corpus,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesPlanError

END = 258


def plan_of(limit: int | None, over: OverLength, **how: Any) -> TokenFilesPlan:
    how.setdefault("end_of_document", "<|end|>")
    return plan_token_files(NARROW, max_length=limit, over_length=over, **how)


TEXTS = [("a b " * 100)[:n] for n in (3, 9, 1, 400, 10, 0, 11, 5)]


def write_corpus(folder: Path) -> list[Path]:
    (folder / "corpus.txt").write_text("|".join(TEXTS))
    return [folder / "corpus.txt"]


def encode(folder: Path, files: list[Path], plan: TokenFilesPlan, **how: Any) -> TokenFiles:
    options = {"corpus_format": CorpusFormat(separator="|"), **how}
    encode_corpus(NARROW, files, folder, plan, **options)
    verify_token_files(folder, tokenizer=NARROW)
    return TokenFiles.open(folder)


@pytest.mark.parametrize("batch_bytes", [1, 20, 1 << 19])
@pytest.mark.parametrize(("over", "shuffle"), [("truncate", True), ("drop", True), ("drop", False)])
def test_the_manifest_counts_lost_tokens(over, shuffle, batch_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_encoding, "BATCH_BYTES", batch_bytes)
    plan = plan_of(11, over)
    files = encode(tmp_path / "t", write_corpus(tmp_path), plan, shuffle=shuffle)
    # With the end id a text of 10 letters is exactly 11 ids long.
    (split,) = files.manifest.splits
    documents = [files.document(index).tolist() for index in range(split.n_documents)]
    lengths = [len(document) for document in documents]
    if over == "truncate":
        assert split.lost == LostTokens(2, 0, 390 + 1)
        assert sorted(lengths) == [1, 2, 4, 6, 10, 11, 11, 11]
        assert split.n_bytes == sum(map(len, TEXTS))
        # Of whole documents: their letters and ends.
        assert split.bytes_per_token == split.n_bytes / (split.n_bytes + len(TEXTS))
    else:
        assert split.lost == LostTokens(0, 2, 401 + 12)
        assert sorted(lengths) == [1, 2, 4, 6, 10, 11]
        assert split.n_bytes == 3 + 9 + 1 + 10 + 0 + 5
    assert all(document[-1] == END for document in documents)
    if not shuffle:
        assert lengths[:2] == [4, 10]


@pytest.mark.parametrize("normalizer", ["none", "nfc"])
@pytest.mark.parametrize("end", [None, "<|end|>"])
def test_truncated_documents_are_compared_with_the_beginning_of_their_text(
    end, normalizer, tmp_path
):
    tokenizer = Tokenizer.from_spec(replace(NARROW.spec, normalizer=normalizer))
    texts = ["ab\u0301", "é漢" * 9, "ab e\u0301" * 5, "", "x" * 10]
    (tmp_path / "corpus.txt").write_text("|".join(texts))
    plan = plan_token_files(tokenizer, max_length=10, end_of_document=end)
    how = CorpusFormat(separator="|")
    encode_corpus(tokenizer, [tmp_path / "corpus.txt"], tmp_path / "t", plan, corpus_format=how)
    verify = partial(verify_token_files, tmp_path / "t", tokenizer=tokenizer)
    found = verify(texts={"train": texts})
    assert (found.n_texts, found.n_lossy) == (5, int(normalizer == "nfc"))
    for index, other in ((0, "ab"), (0, "ab\u0301c"), (1, "é漢é"), (1, "漢é" * 9), (4, "x" * 8)):
        wrong = [*texts[:index], other, *texts[index + 1 :]]
        with pytest.raises(TokenFilesCorruptError, match=f"document {index} of train does not"):
            verify(texts={"train": wrong})


def test_the_writer_refuses_a_longer_document(tmp_path):
    with TokenFilesWriter(tmp_path / "t", plan_of(3, "drop")) as writer:
        with pytest.raises(TokenFilesPlanError, match="has 4 ids, and the plan's max_length is 3"):
            writer.append([1, 2, 3, END])
        writer.append([1, 2, END])
        writer.finish()


def test_verifying_finds_a_longer_document(tmp_path):
    with TokenFilesWriter(tmp_path / "t", plan_of(4, "drop")) as writer:
        writer.append([1, 2, 3, END])
        manifest = writer.finish()
    data = manifest.to_json()
    shorter = replace(manifest, plan=replace(manifest.plan, max_length=3)).to_json()
    assert data != shorter
    (tmp_path / "t" / "manifest.json").write_bytes(shorter)
    with pytest.raises(TokenFilesCorruptError, match="a document of 4 ids"):
        verify_token_files(tmp_path / "t")
