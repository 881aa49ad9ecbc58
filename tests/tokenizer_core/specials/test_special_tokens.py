"""Special tokens: leftmost, then longest; settled under every cut; the policy."""

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
from tokenizer_core.specials.special_tokens import (
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


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (
            [".*", "a|b", "(?:", "\\", "[x]", "^$", "a{2}", "\n", "😀+"],
            "x.*y a|b(?:\\[x]^$aaa{2}\n😀+",
        ),
        # At the edges of windows.
        *(
            (["<|a|>", "<|a|><|a|>"], "x" * before + "<|a|><|a|>" + "y" * 65_536 + "<|a|>")
            for before in (0, 65_530, 65_536, 131_071)
        ),
        ([], "abc"),
    ],
)
def test_tokens_are_plain_text_anywhere(tokens, text):
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


def test_what_is_settled_at_once():
    matcher = SpecialTokenMatcher(["<|a|>"])
    assert matcher.split_settled("x<|a|>") == ([("x", "<|a|>")], 6, 6)
    assert matcher.split_settled("x<|a") == ([], 0, 1)
    none = SpecialTokenMatcher([])
    assert not none
    assert none.split_settled("abc") == ([], 0, 3)
    assert none.find("abc") is None


def test_hundreds_of_tokens_each_the_beginning_of_the_next():
    matcher = SpecialTokenMatcher(["<" * n for n in range(1, 700)])
    assert list(matcher.split("x" + "<" * 800)) == [("x", "<" * 699), ("", "<" * 101), ("", None)]


@pytest.mark.parametrize(
    ("flags", "text", "expected"),
    [
        # One hides another that begins within it.
        ([{"rstrip": True}, {}, {}], "ab  bx", [("", "ab"), ("", "bx"), ("", None)]),
        # A dropped match hides another.
        ([{"single_word": True}, {}, {}], "xab abx", [("", "x"), ("ab ab", "x"), ("", None)]),
        # Two passes.
        ([{"normalized": True}, {}, {}], "abx", [("a", "bx"), ("", None)]),
    ],
)
def test_tokens_with_flags_are_found_as_in_tokenizers(flags, text, expected):
    tokens = [AddedToken(content, 1) for content in ("ab", "bx", "x")]
    tokens = [replace(one, **flag) for one, flag in zip(tokens, flags, strict=True)]
    theirs = in_tokenizers(tokens)
    assert list(FlaggedTokenMatcher(tokens).split(text)) == expected
    letters = [letter for plain, token in expected for letter in [*plain, token] if letter]
    assert [theirs.id_to_token(id_) for id_ in theirs.encode(text).ids] == letters


def in_tokenizers(tokens):
    """A model of four letters with these tokens."""
    letters = {letter: id_ for id_, letter in enumerate("abx ")}
    theirs = tokenizers.Tokenizer(models.BPE(vocab=letters, merges=[]))
    for token in tokens:
        flags = {name: getattr(token, name) for name in FLAGS}
        theirs.add_tokens([tokenizers.AddedToken(token.content, **flags)])
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
    assert resolve_policy(ADDED, "ordinary", "all") == (frozenset(), {"<s>", "</s>"})
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
