"""Added tokens with flags are found as in `tokenizers`."""

from dataclasses import replace

import pytest
import tokenizers
from tokenizers import models

from tests.adversarial import code_points
from tokenizer_core.spec import AddedToken
from tokenizer_core.spec.added_tokens import ADDED_TOKEN_FLAGS as FLAGS
from tokenizer_core.specials.flags import FlaggedTokenMatcher, MatchStream


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
    stream = MatchStream(FlaggedTokenMatcher([AddedToken("<l>", 1, lstrip=True)]))
    assert stream.feed("a b  ") == [("a b", None)]
    assert stream.held == "  "
    assert stream.feed("<l> ") == [("", "<l>"), ("", None)]
    assert stream.feed("c") == [(" c", None)]
    stream = MatchStream(FlaggedTokenMatcher([AddedToken("<r>", 1, rstrip=True)]))
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
