"""Tokens that no text produces: each reason on a vocabulary built for it, and no false proof."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tests.profiles import examples
from tests.property.trap_texts import KINDS, short_trap_texts, tiny_spec
from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.evaluation.unreachable import PROVEN, unreachable_tokens
from tokenizer_core.formats import load_spec
from tokenizer_core.patterns import PATTERNS

NEVER_IN_UTF8 = [0xC0, 0xC1, *range(0xF5, 0x100)]


def reasons(tokenizer):
    return {
        found.token: found.reason
        for found in unreachable_tokens(tokenizer)
        if found.reason != "bytes"
    }


def test_bytes_alone_have_the_thirteen_that_utf8_never_has(engine):
    found = unreachable_tokens(merging([], engine=engine))
    assert [token.id for token in found] == NEVER_IN_UTF8
    assert {token.reason for token in found} == {"bytes"}


def test_bytes_that_begin_no_character():
    wrong = [(b"\xe0", b"\x80"), (b"\xed", b"\xa0"), (b"\x80", b"\x80"), (b"\xe4", b"a")]
    merges = [*wrong, (b"\x80\x80", b"\x80\x80"), (b"\xe4", b"\xb8"), (b"a", b"\xe4")]
    found = {t.token: t.reason for t in unreachable_tokens(merging(merges))}
    for token in (b"\xe0\x80", b"\xed\xa0", b"\x80\x80\x80\x80", b"\xe4a"):
        assert found[token] == "bytes", token  # overlong, a surrogate, too long, cut off
    assert not {b"\x80\x80", b"\xe4\xb8", b"a\xe4"} & found.keys()


def test_a_token_that_other_merges_come_before(engine):
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert reasons(merging(merges, engine=engine)) == {b"abc": "merges"}


def test_a_token_that_no_merge_makes(engine):
    assert reasons(merging(THE, extra=[b"other"], engine=engine)) == {b"other": "merges"}
    spec = TokenizerSpec.from_merges(BYTES | {256: b"other"}, [], ignore_merges=True)
    assert reasons(Tokenizer.from_spec(spec, engine=engine)) == {}  # the whole pre-token is one id


def test_what_is_taken_whole_where_the_text_around_it_makes_it_a_pre_token(engine):
    spec = TokenizerSpec.from_merges(
        BYTES | {256: b"ab", 257: b"cd", 258: b"\xe4\xb8"},
        [],
        pattern=r"ab(?=1)|cd(?=not tried)|(?s:.)",
        ignore_merges=True,
    )
    # Half a character is never a pre-token.
    expected = {b"cd": "not_found", b"\xe4\xb8": "merges"}
    assert reasons(Tokenizer.from_spec(spec, engine=engine)) == expected


def test_a_token_that_the_pattern_cuts(engine):
    merges = [(b"1", b"2"), (b"12", b"3"), (b"123", b"4"), (b"a", b" ")]
    by_pattern = {
        name: reasons(merging(merges, pattern=name, engine=engine)) for name in ("gpt2", "cl100k")
    }
    assert by_pattern["gpt2"] == {b"a ": "not_found"}
    assert by_pattern["cl100k"] == {b"a ": "not_found", b"1234": "not_found"}


def test_a_token_that_is_cut_alone_but_not_before_a_line_break(engine):
    merges = [(b"\n", b"\n"), (b"\n\n", b" ")]
    assert reasons(merging(merges, pattern="llama3", engine=engine)) == {}
    assert reasons(merging(merges, pattern="gpt2", engine=engine)) == {}


def test_the_second_id_of_the_same_bytes(engine):
    spec = TokenizerSpec.from_merges(BYTES | {256: b"ab", 300: b"ab"}, [(b"a", b"b")])
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    assert [t.id for t in unreachable_tokens(tokenizer) if t.reason == "same_bytes"] == [300]


def test_an_empty_token_is_not_expected_in_text(engine):
    spec = TokenizerSpec.from_merges(BYTES | {256: b"ab", 257: b""}, [(b"a", b"b")])
    found = unreachable_tokens(Tokenizer.from_spec(spec, engine=engine))
    assert {t.reason for t in found} == {"bytes"}


def test_a_token_that_nfc_changes(engine):
    merges = [(b"\xcc", b"\x81"), (b"e", b"\xcc\x81"), (b"\xc3", b"\xa9")]
    plain = merging(merges, pattern="qwen2", engine=engine)
    nfc = merging(merges, pattern="qwen2", engine=engine, normalizer="nfc")
    token = "e\u0301".encode()
    assert reasons(nfc)[token] == "normalizer"
    assert reasons(plain).get(token) != "normalizer"


def test_a_lead_byte_that_always_merges():
    merges = [(b"\xc2", bytes([byte])) for byte in range(0x80, 0xC0)]
    assert reasons(merging(merges)) == {b"\xc2": "not_found"}
    assert reasons(merging(merges[1:])) == {}


def test_special_tokens_are_not_looked_at(engine):
    assert reasons(merging(THE, special=["<|end|>"], engine=engine)) == {}


@examples(1 / 5)
@given(
    st.integers(0, 10**6),
    st.sampled_from(KINDS),
    st.sampled_from(list(PATTERNS)),
    st.sampled_from(["none", "nfc"]),
    st.lists(short_trap_texts, max_size=8),
)
def test_what_is_proven_never_comes_out_of_a_text(seed, kind, pattern, normalizer, texts):
    tokenizer = Tokenizer.from_spec(tiny_spec(seed, kind, pattern, normalizer))
    proven = {found.id for found in unreachable_tokens(tokenizer) if found.reason in PROVEN}
    every_token = [token.decode(errors="replace") for token in tokenizer.spec.vocab.values()]
    for text in [*texts, *every_token, "".join(every_token)]:
        came = set(tokenizer.encode_ordinary(text))
        assert not came & proven, (text, came & proven)


def test_both_engines_find_the_same():
    native_module()
    for seed in range(12):
        spec = tiny_spec(seed, KINDS[seed % 3], list(PATTERNS)[seed % 5])
        one, other = (Tokenizer.from_spec(spec, engine=name) for name in ("python", "native"))
        assert unreachable_tokens(one) == unreachable_tokens(other)


@pytest.mark.shared_data
def test_the_vocabulary_of_gpt2_has_none_but_the_thirteen(shared_data):
    """Land and Bartolo (2024) report none for GPT-2."""
    path = shared_data / "vocab" / "r50k_base.tiktoken"
    found = unreachable_tokens(Tokenizer.from_spec(load_spec([path], pattern="gpt2")))
    lines = [line.split() for line in path.read_bytes().splitlines()]
    never = {base64.b64encode(bytes([byte])) for byte in NEVER_IN_UTF8}
    expected = sorted(int(rank) for token, rank in lines if token in never)
    assert [token.id for token in found] == expected
