"""Strings in a text: leftmost, then longest; settled under every cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer_core.reference import split_at_special_tokens
from tokenizer_core.specials.flags import MatchStream
from tokenizer_core.specials.matcher import SpecialTokenMatcher

contents = st.lists(st.text("ab<", min_size=1, max_size=4), max_size=5)


@given(contents, st.text("ab<", max_size=30))
def test_split_equals_the_definition(tokens, text):
    assert list(SpecialTokenMatcher(tokens).split(text)) == split_at_special_tokens(text, tokens)


@given(contents, st.text("ab<", max_size=12), st.text("ab<", max_size=12))
def test_what_is_settled_stays_whatever_follows(tokens, before, after):
    *pairs, (plain, _) = MatchStream(SpecialTokenMatcher(tokens)).feed(before)
    whole = split_at_special_tokens(before + after, tokens)
    assert whole[: len(pairs)] == pairs
    assert whole[len(pairs)][0].startswith(plain)


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
    found = [match.span() for match in matcher.matches_before(half, text, 1)]
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
    stream = MatchStream(SpecialTokenMatcher(["<|a|>"]))
    assert (stream.feed("x<|a|>"), stream.held) == ([("x", "<|a|>"), ("", None)], "")
    assert (stream.feed("x<|a"), stream.held) == ([("x", None)], "<|a")
    none = SpecialTokenMatcher([])
    assert not none
    assert MatchStream(none).feed("abc") == [("abc", None)]
    assert none.find("abc") is None


def test_hundreds_of_tokens_each_the_beginning_of_the_next():
    matcher = SpecialTokenMatcher(["<" * n for n in range(1, 700)])
    assert list(matcher.split("x" + "<" * 800)) == [("x", "<" * 699), ("", "<" * 101), ("", None)]
