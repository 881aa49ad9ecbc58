"""Special tokens: leftmost, then longest; settled under every cut; the policy."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core.errors import SpecialTokenForbiddenError
from tokenizer_core.reference import split_at_special_tokens
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.special_tokens import SpecialTokenMatcher, forbid, resolve_policy

contents = st.lists(st.text("ab<", min_size=1, max_size=4), max_size=5)


@given(contents, st.text("ab<", max_size=30))
def test_split_equals_the_definition(tokens, text):
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


@given(contents, st.text("ab<", max_size=12), st.text("ab<", max_size=12))
def test_what_is_settled_stays_whatever_follows(tokens, before, after):
    pairs, start, end = SpecialTokenMatcher(tokens).split_settled(before)
    whole = split_at_special_tokens(before + after, tokens)
    assert whole[: len(pairs)] == pairs
    # What follows the settled pairs is certainly plain up to `end`.
    assert whole[len(pairs)][0].startswith(before[start:end])


def test_every_cut_of_overlapping_tokens():
    tokens = ["<|a|>", "<|a|><|a|>", "|><|", "a"]
    matcher = SpecialTokenMatcher(tokens)
    for text in map("".join, itertools.product(["<|a|>", "|>", "a", "<|", "x"], repeat=4)):
        whole = split_at_special_tokens(text, tokens)
        for cut in range(len(text)):
            pairs, _, _ = matcher.split_settled(text[:cut])
            assert pairs == whole[: len(pairs)]


def test_a_complete_token_is_settled_at_once_when_nothing_longer_can_come():
    assert SpecialTokenMatcher(["<|a|>"]).split_settled("x<|a|>") == ([("x", "<|a|>")], 6, 6)
    assert SpecialTokenMatcher(["<|a|>"]).split_settled("x<|a") == ([], 0, 1)


@given(st.lists(st.text("ab", min_size=1, max_size=9), max_size=40), st.text("ab", max_size=40))
def test_many_tokens_that_begin_alike(tokens, text):
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


def test_special_characters_of_expressions_are_plain():
    tokens = [".*", "a|b", "(?:", "\\", "[x]", "^$", "a{2}", "\n", "😀+"]
    text = "x.*y a|b(?:\\[x]^$aaa{2}\n😀+"
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


def test_hundreds_of_tokens_each_the_beginning_of_the_next():
    tokens = ["<" * n for n in range(1, 1200)]
    matcher = SpecialTokenMatcher(tokens)
    assert list(matcher.split("x" + "<" * 1300)) == [("x", "<" * 1199), ("", "<" * 101), ("", None)]


@pytest.mark.parametrize("before", [0, 65_530, 65_536, 131_071])
def test_tokens_at_the_edges_of_windows(before):
    text = "x" * before + "<|a|><|a|>" + "y" * 65_536 + "<|a|>"
    tokens = ["<|a|>", "<|a|><|a|>"]
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


def test_the_search_does_not_try_every_token_at_every_place():
    # As a pattern, not as a time: common beginnings are written once.
    tokens = [f"{'<' * 200}{a}{b}" for a in "abcdef" for b in "ghijkl"]
    assert len(SpecialTokenMatcher(tokens)._expression.pattern) < 500


def test_no_tokens():
    matcher = SpecialTokenMatcher([])
    assert not matcher
    assert list(matcher.split("abc")) == [("abc", None)]
    assert matcher.split_settled("abc") == ([], 0, 3)
    assert matcher.find("abc") is None


ADDED = [AddedToken("<s>", 1), AddedToken("</s>", 2), AddedToken("<think>", 3, special=False)]


def test_policy():
    assert resolve_policy(ADDED, "all", ()) == ({"<s>", "</s>", "<think>"}, frozenset())
    assert resolve_policy(ADDED, "none", "all") == ({"<think>"}, {"<s>", "</s>"})
    assert resolve_policy(ADDED, {"<s>"}, "all") == ({"<s>", "<think>"}, {"</s>"})
    assert resolve_policy(ADDED, set(), ["anything"]) == ({"<think>"}, {"anything"})


@pytest.mark.parametrize(
    ("allowed", "disallowed"), [({"<typo>"}, ()), ("some", ()), ("all", "none")]
)
def test_a_policy_that_means_nothing_is_refused(allowed, disallowed):
    with pytest.raises(ValueError, match="special"):
        resolve_policy(ADDED, allowed, disallowed)


def test_forbid_names_the_token_and_the_remedy():
    forbid("a <s> b", frozenset())
    with pytest.raises(SpecialTokenForbiddenError, match=r"'<s>'.*allowed_special"):
        forbid("a <s> b", frozenset({"<s>", "zzz"}))


def test_new_special_tokens_go_one_by_one_behind_the_largest_id():
    vocab = {byte: bytes([byte]) for byte in range(256)} | {300: b"ab"}
    tokens = ("<|a|>", AddedToken("<|far|>", 900), "<|b|>", "ab", "<|c|>")
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], tokens)
    assert [token.id for token in spec.added_tokens] == [301, 900, 901, 300, 902]
