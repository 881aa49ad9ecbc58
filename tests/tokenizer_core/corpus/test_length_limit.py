"""Documents over `max_length` are truncated or dropped, and counted."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.corpus.small_corpora import NARROW
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import (
    CorpusFormat,
    LostTokens,
    OverLength,
    TokenFiles,
    TokenFilesPlan,
    TokenFilesWriter,
    encode_corpus,
    plan_token_files,
    verify_token_files,
)
from tokenizer_core.corpus.batch_encoding import SplitPart
from tokenizer_core.corpus.encoding_run import LengthLimit
from tokenizer_core.corpus.loss_mask import mark_ids
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesPlanError

END = 258


def plan_of(limit: int | None, over: OverLength, **how: Any) -> TokenFilesPlan:
    how.setdefault("end_of_document", "<|end|>")
    return plan_token_files(NARROW, max_length=limit, over_length=over, **how)


def parts_of(documents: list[list[int]], cuts: list[int], *, marked: bool) -> Iterator[SplitPart]:
    """The documents in batches that are cut at these numbers of ids, also within a document."""
    ids = [id_ for document in documents for id_ in document]
    ends = np.cumsum([len(document) for document in documents]).tolist()
    starts = [0, *ends[:-1]]
    begin = 0
    for stop in [*sorted(cut for cut in cuts if cut < len(ids)), len(ids)]:
        within = [
            (max(start, begin), min(end, stop), start)
            for start, end in zip(starts, ends, strict=True)
            if start < stop and end > begin
        ]
        if not within:
            continue
        offsets = np.array([0, *(end - begin for _, end, _ in within)])
        given: Any = np.array(ids[begin:stop], np.uint32)
        if marked:
            given = mark_ids(given, given % 2)
        sizes = np.array([7 if first == start else 0 for first, _, start in within], np.uint64)
        yield SplitPart("train", given, offsets, sizes, is_open=stop not in ends)
        begin = stop


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=12),
    st.lists(st.integers(1, 100), max_size=9),
    st.integers(2, 13),
    st.sampled_from(["truncate", "drop"]),
    st.booleans(),
)
def test_each_document_is_kept_cut_or_dropped(lengths, cuts, limit, over, marked):
    documents = [[*range(number, number + n - 1), END] for number, n in enumerate(lengths)]
    lengths_limit = LengthLimit(plan_of(limit, over, loss_mask=marked), {})
    found, n_bytes = [], 0
    for part in parts_of(documents, cuts, marked=marked):
        kept = lengths_limit.apply(part)
        assert not kept.is_open
        ends = kept.offsets.tolist()
        assert ends[-1] == len(kept.ids)
        found += [kept.ids[first:last].tolist() for first, last in pairwise(ends)]
        n_bytes += int(kept.n_bytes.sum())
        assert len(kept.n_bytes) == len(ends) - 1
    assert not lengths_limit.holds_document
    expected, lost = [], LostTokens()
    for document in documents:
        bits = [id_ | (marked and id_ % 2) << 31 for id_ in document]
        n_over = len(document) - limit
        if n_over <= 0:
            expected.append(bits)
        elif over == "truncate" and marked and not any(bit >> 31 for bit in bits[: limit - 1]):
            lost = replace(lost, n_refused=lost.n_refused + 1)
        elif over == "truncate":
            expected.append([*bits[: limit - 1], END])
            lost = replace(lost, n_cut=lost.n_cut + 1, n_tokens=lost.n_tokens + n_over)
        else:
            lost = LostTokens(0, lost.n_dropped + 1, lost.n_tokens + len(document))
    assert found == expected
    assert n_bytes == 7 * len(expected)
    assert lengths_limit.lost.get("train", LostTokens()) == lost
    again = LengthLimit(plan_of(limit, over), lengths_limit.to_fields().get("lost", {}))
    assert again.lost == lengths_limit.lost


TEXTS = ["a" * n for n in (3, 9, 1, 400, 10, 0, 11, 5)]


def write_corpus(folder: Path) -> list[Path]:
    (folder / "corpus.txt").write_text("|".join(TEXTS))
    return [folder / "corpus.txt"]


def encode(folder: Path, files: list[Path], plan: TokenFilesPlan, **how: Any) -> TokenFiles:
    options = {"corpus_format": CorpusFormat(separator="|"), **how}
    encode_corpus(NARROW, files, folder, plan, **options)
    verify_token_files(folder, tokenizer=NARROW)
    return TokenFiles.open(folder)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("over", ["truncate", "drop"])
def test_the_manifest_counts_what_was_lost(over, shuffle, tmp_path):
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
