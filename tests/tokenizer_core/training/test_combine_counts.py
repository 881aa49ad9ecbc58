"""Weighted sums of counts: exactly those of a corpus with that many copies, or a refusal."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tokenizer_core.errors import CorpusError
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import (
    CorpusSource,
    PretokenCounts,
    combine_counts,
    count_pretokens,
    train_from_counts,
)

TEXTS = {"a": "low low lower<|e|>newest 漢字", "b": "widest widest low\n", "c": "é é lower " * 3}
GPT2 = PATTERNS["gpt2"]


def count(folder: Path, names: str, engine: str = "python") -> PretokenCounts:
    for name in names:
        (folder / name).write_text(TEXTS[name], encoding="utf-8")
    paths = [folder / name for name in names]
    return count_pretokens(paths, pattern=GPT2, special_tokens=["<|e|>"], engine=engine)


def test_merged_counts_are_those_of_the_files_together(tmp_path, engine):
    apart = [(count(tmp_path, name, engine), 1) for name in "abc"]
    together = count(tmp_path, "abc", engine)
    assert combine_counts(apart) == together
    combine_counts(apart).save(tmp_path / "apart")
    together.save(tmp_path / "together")
    assert (tmp_path / "apart").read_bytes() == (tmp_path / "together").read_bytes()
    grown = combine_counts([(combine_counts(apart[:2]), 1), apart[2]])  # one more file
    assert grown == together


def test_a_weight_is_so_many_copies_of_the_files(tmp_path, engine):
    a, b, c = (count(tmp_path, name, engine) for name in "abc")
    weighted = combine_counts([(a, Fraction(1, 2)), (b, Fraction("0.75")), (c, 2)])  # 2 : 3 : 8
    copies = [tmp_path / name for name in "aabbbcccccccc"]
    copied = count_pretokens(copies, pattern=GPT2, special_tokens=["<|e|>"], engine=engine)
    assert weighted.counts == copied.counts
    for figure in ("n_bytes", "n_documents", "n_pre_tokens", "n_pre_token_bytes"):
        assert getattr(weighted, figure) == getattr(copied, figure)
    assert weighted.weights == weighted.source_weights == (2, 3, 8)
    again = train_from_counts(weighted, 280, engine=engine)
    assert again.spec == train_from_counts(copied, 280, engine=engine).spec


def test_weights_are_kept_in_the_file_and_multiplied(tmp_path):
    a, b, c = (count(tmp_path, name) for name in "abc")
    assert combine_counts([(a, 4), (b, 4)]) == combine_counts([(a, 1), (b, 1)])
    assert combine_counts([(a, Fraction(1, 3))]) == a
    two = combine_counts([(a, 2), (b, 3)])
    two.save(tmp_path / "two")
    loaded = PretokenCounts.load(tmp_path / "two")
    assert loaded == two
    three = combine_counts([(loaded, 5), (c, 7)])
    assert three.weights == (10, 15, 7)
    assert three.n_bytes == sum(
        weight * source.size_bytes
        for weight, source in zip(three.weights, three.sources, strict=True)
    )


def test_numbers_beyond_what_floats_hold_are_exact():
    one = PretokenCounts({"ab": (1 << 53) + 1}, GPT2)
    two = PretokenCounts({"ab": 1, "cd": 1}, GPT2)
    summed = combine_counts([(one, Fraction(3, 7)), (two, Fraction(1, 7))])
    assert summed.counts == {"ab": 3 * (1 << 53) + 4, "cd": 1}
    large = (1 << 55) + 1
    assert combine_counts([(two, large), (two, Fraction(1, 3))]).counts["cd"] == 3 * large + 1


def test_sums_beyond_64_bits_are_refused(engine):
    most = ((1 << 64) - 1) // 5
    part = PretokenCounts({"abcde": most // 3, "a": 1}, GPT2)
    other = PretokenCounts({"b": 1}, GPT2)
    fits = combine_counts([(part, 2), (other, 1)])
    assert train_from_counts(fits, 260, engine=engine).report.n_tokens == most // 3 * 2 + 3
    assert combine_counts([(PretokenCounts({"a": (1 << 64) - 2}, GPT2), 1), (other, 1)])
    for counts in (part, PretokenCounts({"a": (1 << 64) - 1}, GPT2)):
        with pytest.raises(CorpusError, match="64 bits hold; give weights with smaller"):
            combine_counts([(counts, 4), (other, 1)])


def test_invalid_weights_and_no_counts_are_refused():
    for weight in (0, Fraction(-1, 2), 0.5, "2"):
        with pytest.raises(CorpusError, match="whole number or a fraction above 0"):
            combine_counts([(PretokenCounts({"a": 1}, GPT2), weight)])
    with pytest.raises(ValueError, match="no counts"):
        combine_counts([])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pattern": PATTERNS["cl100k"]}, "split pattern: 'gpt2' and 'cl100k'"),
        ({"special_tokens": ("<|e|>",)}, "special tokens"),
        ({"unicode_tables": "regex 2030.1.1"}, r"Unicode tables: .* and 'regex 2030.1.1'"),
    ],
)
def test_counts_made_otherwise_are_not_added(changes, said):
    counts = PretokenCounts({"a": 1}, GPT2)
    with pytest.raises(CorpusError, match=f"different {said}.*count one of the corpora again"):
        combine_counts([(counts, 1), (replace(counts, **changes), 1)])


def test_one_file_in_two_counts_is_refused_unless_it_is_empty(tmp_path):
    with pytest.raises(CorpusError, match=r"b is in two of these counts .*leave one of them out"):
        combine_counts([(count(tmp_path, "ab"), 1), (count(tmp_path, "b"), 1)])
    empty = CorpusSource("empty", 0, "ab" * 32)
    counts = PretokenCounts({"a": 1}, GPT2, sources=(empty,))
    assert combine_counts([(counts, 1), (counts, 1)]).sources == (empty, empty)
