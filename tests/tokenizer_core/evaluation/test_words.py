"""What a word is, and the tokens it has."""

from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.evaluation.small_tokenizers import THE, merging
from tokenizer_core.evaluation.words import count_unspaced_letters, tokens_of_words, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, the dog.", ["The", "cat", "the", "dog"]),
        ("don't 'quoted' l’été", ["don't", "quoted", "l’été"]),
        ("e\u0301te\u0301 3.14 a_b", ["e\u0301te\u0301", "3", "14", "a", "b"]),
        ("Привет, мир 한국어 عربي", ["Привет", "мир", "한국어", "عربي"]),
        ("我们 are 世界 かな ไทย", ["are"]),
        ("x\U0001f642y <|endoftext|>", ["x", "y", "endoftext"]),
        ("\u07ff\u0800 a \uffef b \U00010000 c", ["\u0800", "a", "b", "\U00010000", "c"]),
        ("", []),
        (" \n\t'’", []),
    ],
)
def test_words_by_hand(text, words):
    data = text.encode()
    assert [data[a:b].decode() for a, b in word_spans(text).tolist()] == words


def test_letters_that_are_in_no_word():
    assert count_unspaced_letters("我们 are かな") == 4
    assert count_unspaced_letters("ascii only") == 0


UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]"
WORD = regex.compile(rf"(?V1){LETTER}++(?:['’]{LETTER}++)*+")


@given(st.lists(st.text(max_size=9) | st.sampled_from(["'", "’", "a", "世", "é"])).map("".join))
def test_words_are_what_an_expression_for_them_matches(text):
    data = text.encode()
    expected = WORD.findall(text)
    assert [data[a:b].decode() for a, b in word_spans(text).tolist()] == expected
    assert count_unspaced_letters(text) == len(regex.findall(f"[{UNSPACED}]", text))


def test_a_lone_surrogate_is_no_text():
    with pytest.raises(UnicodeEncodeError):
        word_spans("a \ud800")


@given(st.text(max_size=60))
def test_words_are_whole_characters_apart_from_each_other(text):
    data, before = text.encode(), -1
    for start, end in word_spans(text).tolist():
        assert before < start < end <= len(data)
        assert data[start:end].decode()
        before = end


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
def test_tokens_of_words_are_those_that_share_a_byte(lengths, data):
    ends = np.cumsum(lengths)
    cuts = sorted(data.draw(st.sets(st.integers(0, int(ends[-1])), min_size=2)))
    spans = np.array(list(pairwise(cuts)))
    bounds = list(zip([0, *ends.tolist()], ends.tolist(), strict=False))
    for span, found in zip(spans.tolist(), tokens_of_words(spans, ends).tolist(), strict=True):
        assert found == sum(a < span[1] and b > span[0] for a, b in bounds)


def test_tokens_of_words_of_a_real_tokenizer(engine):
    tokenizer = merging(THE, engine=engine)
    text = "the other"  # the | space o the r
    ids = tokenizer.encode(text)
    assert [tokenizer.decode([id_]) for id_ in ids] == ["the", " ", "o", "the", "r"]
    ends = np.cumsum([len(tokenizer.spec.vocab[id_]) for id_ in ids])
    assert tokens_of_words(word_spans(text), ends).tolist() == [1, 3]
