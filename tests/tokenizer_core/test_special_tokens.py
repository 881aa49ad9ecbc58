"""Special tokens: leftmost, then longest; settled under every cut; the policy."""

import itertools
from dataclasses import replace

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from tests.adversarial import code_points
from tokenizer_core.errors import SpecialTokenForbiddenError
from tokenizer_core.reference import split_at_special_tokens
from tokenizer_core.spec import ADDED_TOKEN_FLAGS as FLAGS
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.special_tokens import (
    FlaggedTokenMatcher,
    SpecialTokenMatcher,
    forbid,
    resolve_policy,
)

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
    for text in map("".join, itertools.product(["<|a|>", "|>", "a", "<|", "x"], repeat=3)):
        whole = split_at_special_tokens(text, tokens)
        for cut in range(len(text)):
            pairs, _, _ = matcher.split_settled(text[:cut])
            assert pairs == whole[: len(pairs)]


def test_a_complete_token_is_settled_at_once_when_nothing_longer_can_come():
    assert SpecialTokenMatcher(["<|a|>"]).split_settled("x<|a|>") == ([("x", "<|a|>")], 6, 6)
    assert SpecialTokenMatcher(["<|a|>"]).split_settled("x<|a") == ([], 0, 1)


@given(
    st.lists(st.sampled_from(["<a>", "<a><a>", "<", "<<b"]), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(["<", "<a>", "<<b", "<a"]), st.integers(1, 20)), max_size=4),
    st.sampled_from(["", "x" * 30, "x" * 1100]),
)
def test_beginnings_that_are_frequent_or_rare(tokens, runs, between):
    text = between.join(between.join([part] * n) for part, n in runs)
    matcher = SpecialTokenMatcher(tokens)
    assert list(matcher.split(text)) == split_at_special_tokens(text, tokens)
    half = len(text) // 2
    found = [match.span() for match in matcher.matches(text, 1, half)]
    assert found == [match.span() for match in SpecialTokenMatcher(tokens).matches(text[:half], 1)]


def test_special_characters_of_expressions_are_plain():
    tokens = [".*", "a|b", "(?:", "\\", "[x]", "^$", "a{2}", "\n", "😀+"]
    text = "x.*y a|b(?:\\[x]^$aaa{2}\n😀+"
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


def test_hundreds_of_tokens_each_the_beginning_of_the_next():
    matcher = SpecialTokenMatcher(["<" * n for n in range(1, 700)])
    assert list(matcher.split("x" + "<" * 800)) == [("x", "<" * 699), ("", "<" * 101), ("", None)]
    # The expression has common beginnings once: the search does not try every token everywhere.
    tokens = [f"{'<' * 200}{a}{b}" for a in "abcdef" for b in "ghijkl"]
    assert len(SpecialTokenMatcher(tokens)._expression.pattern) < 500


@pytest.mark.parametrize("before", [0, 65_530, 65_536, 131_071])
def test_tokens_at_the_edges_of_windows(before):
    text = "x" * before + "<|a|><|a|>" + "y" * 65_536 + "<|a|>"
    tokens = ["<|a|>", "<|a|><|a|>"]
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


def test_no_tokens():
    matcher = SpecialTokenMatcher([])
    assert not matcher
    assert list(matcher.split("abc")) == [("abc", None)]
    assert matcher.split_settled("abc") == ([], 0, 3)
    assert matcher.find("abc") is None


A, B = AddedToken("ab", 1), AddedToken("bx", 2)
FLAGGED = {
    "one hides another that begins within it": [replace(A, rstrip=True), B],
    "tokens that begin with white space": [
        AddedToken("a", 1, rstrip=True),
        AddedToken(" b", 2),
        AddedToken(" x", 3, lstrip=True),
    ],
    "a dropped match hides others": [
        replace(A, single_word=True),
        AddedToken("b", 2),
        AddedToken("x", 3, lstrip=True),
    ],
    "two passes": [
        AddedToken("a", 1, lstrip=True),
        AddedToken("b", 2, normalized=True, rstrip=True),
        AddedToken("xb", 3, normalized=True, single_word=True),
    ],
    "white space within": [
        AddedToken("a x", 1, lstrip=True),
        AddedToken("x a", 2, rstrip=True, single_word=True),
        AddedToken("x a b", 3, normalized=True),
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("one hides another that begins within it", "ab  bx", [("", "ab"), ("", "bx"), ("", None)]),
        ("one hides another that begins within it", "abx", [("", "ab"), ("x", None)]),
        ("tokens that begin with white space", "a  b", [("", "a"), ("", " b"), ("", None)]),
        ("tokens that begin with white space", "b  x", [("b", " x"), ("", None)]),
        ("a dropped match hides others", "xab", [("", "x"), ("ab", None)]),
        ("a dropped match hides others", "ab b", [("", "ab"), (" ", "b"), ("", None)]),
        ("two passes", "xb a xb", [("", "xb"), ("", "a"), (" ", "xb"), ("", None)]),
        ("two passes", "b  a b", [("", "b"), ("", "a"), (" ", "b"), ("", None)]),
        ("white space within", "x a b", [("", "x a"), ("b", None)]),
    ],
)
def test_tokens_with_flags_are_found_as_in_tokenizers(name, text, expected):
    theirs = in_tokenizers(FLAGGED[name])
    assert list(FlaggedTokenMatcher(FLAGGED[name]).split(text)) == expected
    letters = [letter for plain, token in expected for letter in [*plain, token] if letter]
    assert [theirs.id_to_token(id_) for id_ in theirs.encode(text).ids] == letters


def in_tokenizers(tokens):
    """A model of four letters with these tokens."""
    letters = {letter: id_ for id_, letter in enumerate("abx ")}
    theirs = tokenizers.Tokenizer(models.BPE(vocab=letters, merges=[]))
    flags = [{name: getattr(token, name) for name in FLAGS} for token in tokens]
    theirs.add_tokens(
        [
            tokenizers.AddedToken(token.content, **own)
            for token, own in zip(tokens, flags, strict=True)
        ]
    )
    return theirs


def test_white_space_that_may_be_included_is_held_back():
    stream = FlaggedTokenMatcher([AddedToken("<l>", 1, lstrip=True)]).stream()
    assert stream.feed("a b  ") == [("a b", None)]
    assert stream.held == "  "
    assert stream.feed("<l> ") == [("", "<l>"), ("", None)]
    assert stream.feed("c") == [(" c", None)]
    stream = FlaggedTokenMatcher([AddedToken("<r>", 1, rstrip=True)]).stream()
    assert stream.feed("a <r> ") == [("a ", None)]
    assert stream.feed("\u3000") == [("", None)]
    assert stream.feed("\x1c") == [("", "<r>"), ("\x1c", None)]  # Unicode: no white space


@pytest.mark.thorough
def test_code_points_are_white_space_or_words_as_in_tokenizers():
    tokens = [
        AddedToken("<w>", 1, single_word=True),
        AddedToken("<l>", 2, lstrip=True),
        AddedToken("<r>", 3, rstrip=True),
    ]
    theirs = in_tokenizers(tokens)
    matcher = FlaggedTokenMatcher(tokens)
    codes = [code for code in code_points() if code < 0x3100 or code % 13 == 0]
    for first in range(0, len(codes), 16):  # in short texts: tokenizers takes quadratic time
        characters = map(chr, codes[first : first + 16])
        text = "".join(f"a{c}<w>a<w>{c}<l>a<r>{c}a" for c in characters)
        encoded = theirs.encode(text)
        pairs = zip(encoded.tokens, encoded.offsets, strict=True)
        expected = [offsets for name, offsets in pairs if "<" in name]
        found = [(span.start, span.end) for span in matcher.spans(text)]
        assert found == expected, hex(codes[first])


ADDED = [AddedToken("<s>", 1), AddedToken("</s>", 2), AddedToken("<think>", 3, special=False)]


def test_policy():
    assert resolve_policy(ADDED, "all", ()) == ({"<s>", "</s>", "<think>"}, frozenset())
    assert resolve_policy(ADDED, "none", "all") == ({"<think>"}, {"<s>", "</s>"})
    assert resolve_policy(ADDED, {"<s>"}, "all") == ({"<s>", "<think>"}, {"</s>"})
    assert resolve_policy(ADDED, set(), ["anything"]) == ({"<think>"}, {"anything"})
    forbid("a <s> b", frozenset())
    with pytest.raises(SpecialTokenForbiddenError, match=r"'<s>'.*allowed_special"):
        forbid("a <s> b", frozenset({"<s>", "zzz"}))


@pytest.mark.parametrize(
    ("allowed", "disallowed", "error"),
    [
        ({"<typo>"}, (), ValueError),
        ("some", (), ValueError),
        ("all", "none", ValueError),
        (iter(["<s>"]), (), TypeError),  # can be read only once
        ("all", iter(["<s>"]), TypeError),
        (None, (), TypeError),
    ],
)
def test_a_wrong_policy_is_refused(allowed, disallowed, error):
    with pytest.raises(error, match=r"special|must be a set or list"):
        resolve_policy(ADDED, allowed, disallowed)


def test_new_special_tokens_go_one_by_one_behind_the_largest_id():
    vocab = {byte: bytes([byte]) for byte in range(256)} | {300: b"ab"}
    tokens = ("<|a|>", AddedToken("<|far|>", 900), "<|b|>", "ab", "<|c|>")
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], tokens)
    assert [token.id for token in spec.added_tokens] == [301, 900, 901, 300, 902]
