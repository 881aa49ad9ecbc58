"""Tokens that no text produces: each reason on a vocabulary built for it, and no false proof."""

from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.property.trap_texts import KINDS, short_trap_texts, tiny_spec
from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.evaluation.unreachable import PROVEN, unreachable_tokens
from tokenizer_core.patterns import PATTERNS

NEVER_IN_UTF8 = [0xC0, 0xC1, *range(0xF5, 0x100)]


def reasons(tokenizer):
    return {
        found.token: found.reason
        for found in unreachable_tokens(tokenizer)
        if found.reason != "bytes"
    }


def test_thirteen_single_bytes_are_in_no_utf8(engine):
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


def test_a_token_that_merges_do_not_make(engine):
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert reasons(merging(merges, engine=engine)) == {b"abc": "merges"}
    assert reasons(merging(THE, extra=[b"other"], engine=engine)) == {b"other": "merges"}
    spec = TokenizerSpec.from_merges(BYTES | {256: b"other"}, [], ignore_merges=True)
    assert reasons(Tokenizer.from_spec(spec, engine=engine)) == {}  # the whole pre-token is one id


def test_a_token_that_the_pattern_cuts(engine):
    merges = [(b"1", b"2"), (b"12", b"3"), (b"123", b"4"), (b"a", b" ")]
    by_pattern = {
        name: reasons(merging(merges, pattern=name, engine=engine)) for name in ("gpt2", "cl100k")
    }
    assert by_pattern["gpt2"] == {b"a ": "not_found"}
    assert by_pattern["cl100k"] == {b"a ": "not_found", b"1234": "not_found"}
    # Cut alone, and not before a line break.
    merges = [(b"\n", b"\n"), (b"\n\n", b" ")]
    assert reasons(merging(merges, pattern="llama3", engine=engine)) == {}


def test_second_ids_empty_tokens_and_special_tokens():
    vocab = BYTES | {256: b"ab", 257: b"", 300: b"ab"}
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b")], ["<|end|>"])
    found = unreachable_tokens(Tokenizer.from_spec(spec))
    assert [(t.id, t.reason) for t in found if t.reason != "bytes"] == [(300, "same_bytes")]


def test_a_token_that_nfc_changes(engine):
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


def test_a_lead_byte_that_always_merges():
    merges = [(b"\xc2", bytes([byte])) for byte in range(0x80, 0xC0)]
    assert reasons(merging(merges)) == {b"\xc2": "not_found"}
    assert reasons(merging(merges[1:])) == {}
