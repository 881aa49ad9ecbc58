"""The reference: figures worked out by hand, and its promise to stay readable and independent."""

import pytest

from tokenizer_core import reference


def test_of_pairs_with_equal_counts_the_greatest_is_merged_side_by_side():
    # `ab c` and `a bc` join to the same bytes; the left sides decide.
    merges = [(b"a", b"b"), (b"b", b"c")]
    words = {"abc": 1, "bc": 1, "ab": 1}
    assert reference.learn(words, 1, first_merges=merges[:1]) == merges[:1]
    assert reference.learn(words, 1) == [(b"b", b"c")]
    assert reference.learn(words, 1, "huggingface") == [(b"a", b"b")]
    # A longer left side is greater than its own prefix, for any right side.
    assert reference.learn({"abc": 1, "az": 1}, 2, first_merges=merges[:1])[1] == (b"ab", b"c")


def test_merges_follow_the_list_and_ranks_the_joined_bytes():
    assert reference.join([b"a"] * 5, (b"a", b"a")) == [b"aa", b"aa", b"a"]
    merges = [(b"b", b"c"), (b"a", b"b")]
    assert reference.apply_merges(b"abc", merges) == [b"a", b"bc"]
    assert reference.apply_merges(b"abab", merges) == [b"ab", b"ab"]
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"abab": 5, b"cab": 6}
    assert reference.apply_ranks(b"abc", ranks) == [b"a", b"bc"]
    assert reference.apply_ranks(b"cab", ranks) == [b"cab"]


def test_a_text_comes_back_from_its_ids():
    text = "low lowest<|end|>caf\u00e9 \U0001f600"
    vocab, merges = reference.train(text * 3, 270, ["<|end|>", "<|end|><|end|>"])
    ids = reference.encode(text, vocab, merges, ["<|end|>"])
    assert ids.count(256) == 1
    assert reference.decode(ids, vocab) == text
    assert reference.decode([0xE2], vocab) == "\ufffd"
    with pytest.raises(ValueError, match="at least 257, not 256"):
        reference.train("a", 256, ["<e>"])
