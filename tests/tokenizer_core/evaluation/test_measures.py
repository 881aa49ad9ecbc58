"""Measures equal worked values, and tokens that no text produces are found."""

import math
from collections import Counter

import numpy as np
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.property.trap_texts import KINDS, short_trap_texts, tiny_spec
from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import AddedToken, Tokenizer, TokenizerSpec
from tokenizer_core.evaluation import measures
from tokenizer_core.evaluation.measures import (
    count_unspaced_letters,
    lengths_in_text,
    longest_tokens,
    partial_utf8_tokens,
    save_token_bytes,
    token_byte_lengths,
    word_spans,
)
from tokenizer_core.evaluation.unreachable import PROVEN, unreachable_tokens
from tokenizer_core.spec import Alphabet
from tokenizer_core.spec.alphabet import is_utf8
from tokenizer_core.splitting.patterns import PATTERNS


def test_renyi_entropy_of_a_half_and_two_quarters_by_hand():
    counts = np.array([2, 0, 1, 1])
    # -log2(1/4 + 1/16 + 1/16), the collision entropy
    assert measures.renyi_entropy(counts, 2) == pytest.approx(math.log2(8 / 3))
    assert measures.renyi_entropy(counts, 1) == pytest.approx(1.5)  # Shannon
    assert measures.renyi_entropy(counts, 0) == pytest.approx(math.log2(3))  # Hartley
    assert measures.renyi_efficiency(counts, 4, 2) == pytest.approx(math.log2(8 / 3) / 2)
    assert measures.renyi_efficiency(counts, 3, 0) == pytest.approx(1)


def test_ratios_equal_worked_values():
    assert measures.bytes_per_token(len("naïve".encode()), 4) == 1.5
    # "the lower", as the | low er: two words, three tokens, one of the words is one token
    assert (measures.fertility(3, 2), measures.single_token_share(1, 2)) == (1.5, 0.5)
    assert measures.vocabulary_use(np.array([5, 0, 1, 0]), 4) == 0.5
    assert measures.bytes_per_second([(100, 1.0), (100, 0.5), (100, 50.0)]) == 100
    assert measures.parity({"en": 4, "ja": 10, "none": 0}, "ja") == {"en": 0.4, "ja": 1}
    lengths, weights = np.array([1, 2, 9, 3, 2, 0]), np.array([2, 1, 1, 3, 0, 5])
    assert measures.length_shares(lengths, weights, longest=3) == [2 / 7, 1 / 7, 4 / 7]
    assert measures.length_shares(lengths, 0 * weights, longest=2) == [0, 0]


def test_empty_counts_give_zero():
    nothing = np.zeros(5, dtype=np.int64)
    assert measures.bytes_per_token(0, 0) == measures.fertility(0, 0) == 0
    assert measures.single_token_share(0, 0) == measures.vocabulary_use(nothing[:0], 0) == 0
    assert measures.bytes_per_second([]) == measures.bytes_per_second([(5, 0.0)]) == 0
    assert measures.parity({"en": 4}, "absent") == {}
    assert measures.renyi_entropy(nothing) == measures.renyi_efficiency(nothing, 5) == 0
    assert measures.renyi_efficiency(np.array([7]), 1) == 0
    assert measures.rank_frequency(nothing) == []
    with pytest.raises(ValueError, match="not negative"):
        measures.renyi_entropy(np.array([1]), -1)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(2, 50))
def test_rank_frequency_is_that_of_a_counter(ids, n_points):
    commonest = [count for _, count in Counter(ids).most_common()]
    points = measures.rank_frequency(np.bincount(ids, minlength=41), n_points)
    assert len(points) <= n_points
    assert points[0][0] == 1
    assert points[-1][0] == len(commonest)
    assert all(share == commonest[rank - 1] / len(ids) for rank, share in points)


UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"〆\u302a-\u302d〱-〵〼\u3099\u309aーｰﾞﾟ"
)
LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]"
WORD = regex.compile(rf"(?V1){LETTER}++(?:['’]{LETTER}++)*+")


PARTS = [*"'’aé世ーｰﾊﾞﾟ〆〱〼ไ한_3🙂 .", "か\u3099", "き\u309a", "e\u0301", "\u07ff\u0800", "\uffef"]


@example("don't 'quoted' l’été")
@given(st.lists(st.text(max_size=9) | st.sampled_from(PARTS)).map("".join))
def test_words_are_what_an_expression_for_them_matches(text):
    data = text.encode()
    expected = WORD.findall(text)
    assert [data[a:b].decode() for a, b in word_spans(text).tolist()] == expected
    assert count_unspaced_letters(text) == len(regex.findall(f"[{UNSPACED}]", text))


def test_the_table_of_bytes_counts_what_is_text(tmp_path, engine):
    tokenizer = merging(THE, special=["<|end|>"], engine=engine)
    save_token_bytes(tokenizer.spec, tmp_path / "token_bytes.npy")
    table = np.load(tmp_path / "token_bytes.npy", allow_pickle=False)
    assert table.dtype == np.int32
    targets = np.array(tokenizer.encode("the naïve<|end|> the"))
    assert table[targets].sum() == len("the naïve the".encode())
    assert table[tokenizer.spec.special_tokens["<|end|>"]] == 0


def test_gaps_and_a_word_suffix_have_no_bytes_and_content_tokens_have_their_bytes():
    added = [AddedToken("<|end|>", 300), AddedToken("<think>", 302, special=False)]
    spec = TokenizerSpec.from_merges(BYTES, [], added)
    assert token_byte_lengths(spec)[298:].tolist() == [0, 0, 0, 0, 7]
    assert longest_tokens(spec, 2) == [(302, b"<think>"), (0, b"\x00")]
    assert longest_tokens(spec, -1) == []
    vocab = BYTES | {256 + i: bytes([i]) + b"</w>" for i in range(256)} | {512: b"at</w>"}
    added = [AddedToken("<|end|>", 513), AddedToken("x</w>", 514, special=False)]
    spec = TokenizerSpec.from_merges(
        vocab, [(b"a", b"t</w>")], added, alphabet=Alphabet(word_suffix=b"</w>")
    )
    assert token_byte_lengths(spec)[254:].tolist() == [1] * 258 + [2, 0, 5]
    assert lengths_in_text(spec)[513] == len("<|end|>")


def test_tokens_of_partial_characters_are_listed():
    half = [("é".encode()[:1], b"\xa8"), (b"\xa9", b"!")]  # è whole, and half a character with !
    tokenizer = merging([*half, (b"a", b"b")])
    partial = partial_utf8_tokens(tokenizer.spec)
    assert partial == [*range(128, 256), 257]
    assert is_utf8(tokenizer.spec.vocab[256])


def reasons(tokenizer):
    return {
        found.token: found.reason
        for found in unreachable_tokens(tokenizer)
        if found.reason != "bytes"
    }


NEVER_IN_UTF8 = [0xC0, 0xC1, *range(0xF5, 0x100)]


def test_bytes_that_begin_no_character_are_unreachable(engine):
    found = unreachable_tokens(merging([], engine=engine))
    assert [token.id for token in found] == NEVER_IN_UTF8
    assert {token.reason for token in found} == {"bytes"}
    wrong = [(b"\xe0", b"\x80"), (b"\xed", b"\xa0"), (b"\x80", b"\x80"), (b"\xe4", b"a")]
    merges = [*wrong, (b"\x80\x80", b"\x80\x80"), (b"\xe4", b"\xb8"), (b"a", b"\xe4")]
    found = {t.token: t.reason for t in unreachable_tokens(merging(merges))}
    for token in (b"\xe0\x80", b"\xed\xa0", b"\x80\x80\x80\x80", b"\xe4a"):
        assert found[token] == "bytes", token  # overlong, a surrogate, too long, cut off
    assert not {b"\x80\x80", b"\xe4\xb8", b"a\xe4"} & found.keys()


@pytest.mark.shared_data
def test_gpt2_has_no_unreachable_tokens_but_bytes(shared_data):
    """Land and Bartolo (2024) report none for GPT-2."""
    path = shared_data / "vocab" / "r50k_base.tiktoken"
    found = unreachable_tokens(Tokenizer.from_tiktoken(path, pattern="gpt2", special_tokens={}))
    assert sorted(token.token for token in found) == [bytes([byte]) for byte in NEVER_IN_UTF8]


DIGITS = [(b"1", b"2"), (b"12", b"3"), (b"123", b"4"), (b"a", b" ")]
OF_C2 = [(b"\xc2", bytes([byte])) for byte in range(0x80, 0xC0)]


@pytest.mark.parametrize(
    ("merges", "options", "expected"),
    [
        ([(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")], {}, {b"abc": "merges"}),
        (THE, {"extra": [b"other"]}, {b"other": "merges"}),
        (DIGITS, {}, {b"a ": "not_found"}),
        (DIGITS, {"pattern": "cl100k"}, {b"a ": "not_found", b"1234": "not_found"}),
        # Cut alone, and not before a line break.
        ([(b"\n", b"\n"), (b"\n\n", b" ")], {"pattern": "llama3"}, {}),
        (OF_C2, {}, {b"\xc2": "not_found"}),
        (OF_C2[1:], {}, {}),
    ],
)
def test_a_token_that_no_pre_token_gives_is_unreachable(engine, merges, options, expected):
    assert reasons(merging(merges, engine=engine, **options)) == expected


def test_a_second_id_of_the_same_bytes_is_unreachable():
    vocab = BYTES | {256: b"ab", 257: b"", 300: b"ab"}
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], ["<|end|>"])
    found = unreachable_tokens(Tokenizer.from_spec(spec))
    assert [(t.id, t.reason) for t in found if t.reason != "bytes"] == [(300, "same_bytes")]
    spec = TokenizerSpec.from_merges(BYTES | {256: b"other"}, [], ignore_merges=True)
    assert reasons(Tokenizer.from_spec(spec)) == {}  # the whole pre-token is one id


def test_a_token_that_nfc_changes_is_unreachable(engine):
    merges = [(b"\xcc", b"\x81"), (b"e", b"\xcc\x81"), (b"\xc3", b"\xa9")]
    plain = merging(merges, pattern="qwen2", engine=engine)
    nfc = merging(merges, pattern="qwen2", engine=engine, normalizer="nfc")
    token = "e\u0301".encode()
    assert reasons(nfc)[token] == "normalizer"
    assert reasons(plain).get(token) != "normalizer"


@examples(1 / 5)
@given(
    st.integers(0, 10**6),
    st.sampled_from(KINDS),
    st.sampled_from(list(PATTERNS)),
    st.sampled_from(["none", "nfc"]),
    st.lists(short_trap_texts, max_size=8),
)
def test_no_text_gives_a_token_that_is_proven_unreachable(seed, kind, pattern, normalizer, texts):
    tokenizer = Tokenizer.from_spec(tiny_spec(seed, kind, pattern, normalizer))
    proven = {found.id for found in unreachable_tokens(tokenizer) if found.reason in PROVEN}
    every_token = [token.decode(errors="replace") for token in tokenizer.spec.vocab.values()]
    for text in [*texts, *every_token, "".join(every_token)]:
        came = set(tokenizer.encode_ordinary(text))
        assert not came & proven, (text, came & proven)
