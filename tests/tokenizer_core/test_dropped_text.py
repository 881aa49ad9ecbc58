"""A pattern that drops text, as tiktoken's do: every way to encode leaves out the same text."""

from __future__ import annotations

import numpy as np
import pytest
import tiktoken

from tests.adversarial import adversarial_texts
from tests.tokenizer_core.every_way import check_cuts, check_every_way, check_parts
from tests.tokenizer_core.formats.small_specs import TRAINING_TEXT, trained_spec
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.evaluation import diff
from tokenizer_core.evaluation.samples import SamplePiece
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.registry.golden_text import check_golden_text
from tokenizer_core.text.round_trips import check_text
from tokenizer_core.text.truncate import chunk_text, truncate_text
from tokenizer_core.training import count_pretokens

# No match covers digits, spaces at the start of a line, or anything after a `#`.
EXPRESSION = r"(?<!#)[\p{L}\p{M}]+| [^\s\d#]+|\n+(?=\S)"
LEARNED = trained_spec().token_to_id
SPECIAL = {"<|x|>": 900}
TEXTS = [
    "",
    "123",
    "a1b22c é漢字 333",
    "  abc\n\n  def #ghi jkl\n",
    "x<|x|>1<|x|>2y",
    "caf\u00e9 1 cafe\u0301 2",
    TRAINING_TEXT,
    *adversarial_texts(n_random=30, seed=3),
]


@pytest.fixture(scope="module")
def theirs() -> tiktoken.Encoding:
    return tiktoken.Encoding(
        "dropping", pat_str=EXPRESSION, mergeable_ranks=dict(LEARNED), special_tokens=SPECIAL
    )


@pytest.fixture(scope="module")
def ours(engine: str) -> Tokenizer:
    spec = TokenizerSpec.from_ranks(LEARNED, SPECIAL, pattern=EXPRESSION)
    assert (spec.pattern.dialect, spec.pattern.unmatched) == ("fancy-regex", "drop")
    return Tokenizer.from_spec(spec, engine=engine)


def test_every_way_to_encode_gives_the_ids_of_tiktoken(ours, theirs):
    check_golden_text(ours.spec)
    expected = [theirs.encode(text, allowed_special="all") for text in TEXTS]
    changed = [theirs.decode(ids) != text for text, ids in zip(TEXTS, expected, strict=True)]
    assert any(changed)
    ordinary = [theirs.encode_ordinary(text) for text in TEXTS]
    assert [ours.encode_ordinary(text) for text in TEXTS] == ordinary
    for text, is_changed in zip(TEXTS, changed, strict=True):
        assert check_text(ours, text) == (None, is_changed)
    check_every_way(ours, TEXTS, expected)
    for text, ids in zip(TEXTS[:6], expected, strict=False):
        check_cuts(ours, text, ids)
    documents = ours.engine.encode_documents([text.encode() for text in TEXTS[:4]])
    assert documents.ids.tolist() == [id_ for ids in ordinary[:4] for id_ in ids]


def test_offsets_are_those_in_the_text_as_given(ours):
    for text in TEXTS:
        ids, offsets = ours.encode_with_offsets(text)
        assert ids == ours.encode(text)
        data = text.encode()
        covered = [data[start:end] for start, end in offsets.tolist()]
        assert covered == [ours.spec.vocab[id_] for id_ in ids]
        assert np.all(np.diff(offsets[:, 0].astype(np.int64)) > 0)
    ids, offsets = ours.encode_with_offsets("12é 3", unit="char")
    assert offsets.tolist() == [[2, 3]] * len(ids)


def test_offsets_after_normalizing_are_those_in_the_text_as_given(engine):
    dropping = SplitPattern("custom", r"\p{L}+", "fancy-regex", "drop")
    spec = trained_spec(pattern="gpt2", normalizer="nfc")
    spec = TokenizerSpec.from_merges(spec.vocab, spec.merges, pattern=dropping, normalizer="nfc")
    text = "1 cafe\u0301 2 x"
    ids, offsets = Tokenizer.from_spec(spec, engine=engine).encode_with_offsets(text)
    data = text.encode()
    assert offsets[0, 0] == 2
    assert data[offsets[-1, 0] : offsets[-1, 1]] == b"x"
    assert b"".join(spec.vocab[id_] for id_ in ids).decode() == "caf\u00e9x"


def test_parts_are_encoded_alone_and_keep_dropped_text(ours):
    for text in TEXTS:
        check_parts(ours, text, 8)
    assert truncate_text(ours, "ab1 cd2 ef", ours.count("ab cd")).text == "ab1 cd"
    # Dropped text belongs to the chunk before it.
    assert [chunk.text for chunk in chunk_text(ours, "12ab 123", 8)] == ["12ab 123"]
    assert [chunk.text for chunk in chunk_text(ours, "123", 8)] == ["123"]
    assert list(chunk_text(ours, "", 8)) == []


def test_training_counts_no_dropped_text(tmp_path, ours):
    (tmp_path / "corpus.txt").write_text("ab1 ab2 #c\n ab")
    counts = count_pretokens([tmp_path / "corpus.txt"], pattern=ours.spec.pattern)
    assert dict(counts.counts) == {"ab": 1, " ab": 2}


def test_a_comparison_leaves_out_texts_that_lose_some(ours, engine):
    whole = Tokenizer.from_spec(TokenizerSpec.from_ranks(LEARNED, SPECIAL, pattern="gpt2"))
    found = diff.diff_on_text(whole, ours, [SamplePiece(("ab cd", "ab12"), 0, 9, True)])
    assert (found.n_texts, found.n_texts_not_aligned, found.n_pre_tokens) == (2, 1, 2)
