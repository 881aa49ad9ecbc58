"""Figures worked out by hand: counts, words, vocabularies."""

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import AddedToken, TokenizerSpec
from tokenizer_core.evaluation import measures
from tokenizer_core.evaluation.measures import (
    count_unspaced_letters,
    is_utf8,
    lengths_in_text,
    longest_tokens,
    partial_utf8_tokens,
    save_token_bytes,
    token_byte_lengths,
    tokens_of_words,
    word_spans,
)

ids_of_text = st.lists(st.integers(0, 40), max_size=200)
positive_counts = st.lists(st.integers(0, 10**12), min_size=1, max_size=50)


def counted(ids: list[int]) -> np.ndarray:
    return np.bincount(np.array(ids, dtype=np.int64), minlength=41)


def test_bytes_per_token_by_hand():
    assert measures.bytes_per_token(len("naïve".encode()), 4) == 1.5
    assert measures.bytes_per_token(0, 0) == 0


def test_measures_of_words_by_hand():
    # "the lower", as the | low er: two words, three tokens, one of the words is one token
    assert measures.fertility(3, 2) == 1.5
    assert measures.single_token_share(1, 2) == 0.5
    assert measures.fertility(0, 0) == measures.single_token_share(0, 0) == 0


def test_renyi_entropy_of_a_half_and_two_quarters_by_hand():
    counts = np.array([2, 0, 1, 1])
    # -log2(1/4 + 1/16 + 1/16), the collision entropy
    assert measures.renyi_entropy(counts, 2) == pytest.approx(math.log2(8 / 3))
    assert measures.renyi_entropy(counts, 1) == pytest.approx(1.5)  # Shannon
    assert measures.renyi_entropy(counts, 0) == pytest.approx(math.log2(3))  # Hartley
    assert measures.renyi_efficiency(counts, 4, 2) == pytest.approx(math.log2(8 / 3) / 2)
    assert measures.renyi_efficiency(counts, 3, 0) == pytest.approx(1)


def test_renyi_efficiency_is_that_of_the_authors_program():
    """The two texts and the figures of tokenization-scorer's own test, on the resulting ids."""
    texts = {
        "pick @@ed pick @@l @@ed pick @@les": 0.8265064834225245,
        "pick @@e @@d pick @@l @@e @@d pick @@l @@e @@s": 0.9204840242168808,
    }
    for text, expected in texts.items():
        came = np.array(list(Counter(text.split()).values()))
        assert measures.renyi_efficiency(came, len(came)) == pytest.approx(expected, abs=1e-3)


def test_degenerate_distributions():
    nothing = np.zeros(5, dtype=np.int64)
    assert measures.renyi_entropy(nothing) == measures.renyi_efficiency(nothing, 5) == 0
    assert measures.renyi_efficiency(np.array([7]), 1) == 0
    assert measures.rank_frequency(nothing) == []
    with pytest.raises(ValueError, match="not negative"):
        measures.renyi_entropy(np.array([1]), -1)


@given(ids_of_text.filter(bool), st.sampled_from([0, 0.5, 2, 2.5, 3, 7]))
def test_renyi_entropy_is_the_sum_over_a_counter(ids, alpha):
    shares = [count / len(ids) for count in Counter(ids).values()]
    expected = math.log2(math.fsum(share**alpha for share in shares)) / (1 - alpha)
    assert measures.renyi_entropy(counted(ids), alpha) == pytest.approx(expected, abs=1e-9)
    shannon = -math.fsum(share * math.log2(share) for share in shares)
    assert measures.renyi_entropy(counted(ids), 1) == pytest.approx(shannon, abs=1e-9)


@given(positive_counts)
def test_renyi_entropy_falls_with_its_order_and_stays_within_bounds(counts):
    array = np.array(counts)
    orders = [measures.renyi_entropy(array, alpha) for alpha in (0, 0.5, 1, 2, 2.5, 10)]
    assert all(a >= b - 1e-6 for a, b in pairwise(orders))
    assert 0 <= measures.renyi_efficiency(array, len(counts)) <= 1 + 1e-9


@given(ids_of_text)
def test_vocabulary_use_is_the_size_of_a_set(ids):
    assert measures.vocabulary_use(counted(ids), 41) == len(set(ids)) / 41


@given(ids_of_text.filter(bool), st.integers(2, 50))
def test_rank_frequency_is_that_of_a_counter(ids, n_points):
    commonest = [count for _, count in Counter(ids).most_common()]
    points = measures.rank_frequency(counted(ids), n_points)
    assert len(points) <= n_points
    assert points[0][0] == 1
    assert points[-1][0] == len(commonest)
    assert all(share == commonest[rank - 1] / len(ids) for rank, share in points)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=60))
def test_length_shares_add_up_by_length(tokens):
    lengths, weights = (np.array([t[i] for t in tokens], dtype=np.int64) for i in (0, 1))
    shares = measures.length_shares(lengths, weights, longest=16)
    kept = [(length, weight) for length, weight in tokens if length and weight]
    total = sum(weight for _, weight in kept)
    for place, share in enumerate(shares, start=1):
        alike = sum(w for length, w in kept if length == place or length > place == 16)
        assert share == (pytest.approx(alike / total) if total else 0)


def test_parity_by_hand():
    assert measures.parity({"en": 4, "ja": 10, "none": 0}, "ja") == {"en": 0.4, "ja": 1}
    assert measures.parity({"en": 4}, "absent") == {}


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**6)), min_size=1, max_size=9))
def test_the_rate_is_the_median_piece(pieces):
    rates = sorted(Fraction(n, s) for n, s in pieces)
    middle = (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2
    timed = [(n, float(s)) for n, s in pieces]
    assert measures.bytes_per_second(timed) == pytest.approx(float(middle))
    assert measures.bytes_per_second([]) == measures.bytes_per_second([(5, 0.0)]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, the dog.", ["The", "cat", "the", "dog"]),
        ("don't 'quoted' l’été", ["don't", "quoted", "l’été"]),
        ("e\u0301te\u0301 3.14 a_b", ["e\u0301te\u0301", "3", "14", "a", "b"]),
        ("Привет, мир 한국어 عربي", ["Привет", "мир", "한국어", "عربي"]),
        ("我们 are 世界 かな ไทย", ["are"]),
        ("スーパー ｽｰﾊﾟｰ ﾊﾞｽ か\u3099き\u309a 〆切 〱 〼 the", ["the"]),
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
    assert count_unspaced_letters("スーパー") == 4
    assert count_unspaced_letters("ascii only") == 0


UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"〆\u302a-\u302d〱-〵〼\u3099\u309aーｰﾞﾟ"
)
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


def test_the_table_of_bytes_makes_bits_per_byte_of_a_loss(tmp_path, engine):
    tokenizer = merging(THE, special=["<|end|>"], engine=engine)
    save_token_bytes(tokenizer.spec, tmp_path / "token_bytes.npy")
    table = np.load(tmp_path / "token_bytes.npy", allow_pickle=False)
    assert table.dtype == np.int32
    text = "the naïve<|end|> the"
    targets = np.array(tokenizer.encode(text))
    assert table[targets].sum() == len("the naïve the".encode())
    assert table[tokenizer.spec.special_tokens["<|end|>"]] == 0
    # A model that gives each of `n` ids the same probability loses log(n) nats a token.
    is_text = table[targets] > 0
    loss = np.full(is_text.sum(), math.log(len(table)))
    bits = loss.sum() / (math.log(2) * table[targets].sum())
    assert bits == math.log2(len(table)) * is_text.sum() / 14


def test_gaps_have_no_bytes_and_content_tokens_theirs():
    added = [AddedToken("<|end|>", 300), AddedToken("<think>", 302, special=False)]
    spec = TokenizerSpec.from_merges(BYTES, [], added)
    assert token_byte_lengths(spec)[298:].tolist() == [0, 0, 0, 0, 7]
    assert longest_tokens(spec, 2) == [(302, b"<think>"), (0, b"\x00")]
    assert longest_tokens(spec, -1) == []


def test_a_word_suffix_has_no_bytes():
    vocab = BYTES | {256 + i: bytes([i]) + b"</w>" for i in range(256)} | {512: b"at</w>"}
    added = [AddedToken("<|end|>", 513), AddedToken("x</w>", 514, special=False)]
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"t</w>")], added, word_suffix=b"</w>")
    assert token_byte_lengths(spec)[254:].tolist() == [1] * 258 + [2, 0, 5]
    assert lengths_in_text(spec)[513] == len("<|end|>")


def test_partial_tokens_by_hand():
    half = [("é".encode()[:1], b"\xa8"), (b"\xa9", b"!")]  # è whole, and half a character with !
    tokenizer = merging([*half, (b"a", b"b")])
    partial = partial_utf8_tokens(tokenizer.spec)
    assert partial == [*range(128, 256), 257]
    assert is_utf8(tokenizer.spec.vocab[256])
