"""Normalizers in a `tokenizer.json`, held against `tokenizers`."""

import json

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.every_way import check_parts
from tests.tokenizer_core.formats.normalizer_files import (
    TOKENS,
    file_of,
    file_without_bytes,
    normalizers,
    pair_if_read,
    texts,
)
from tests.tokenizer_core.formats.small_specs import check_against_tokenizers, pair_of
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.errors import FormatError, PreTokenTooLongError, SpecialTokenForbiddenError
from tokenizer_core.formats.gpt2_files import byte_to_unicode
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json, render_tokenizer_json
from tokenizer_core.normalization import NO_TOKENS, text_as_decoded, text_as_encoded
from tokenizer_core.special_tokens import matcher_of
from tokenizer_core.text.round_trips import check_text

CLIP = {
    "type": "Sequence",
    "normalizers": [
        {"type": "NFC"},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Lowercase"},
    ],
}


def replace(pattern: str, content: str, kind: str = "String") -> dict:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


LOWER, STRIP = {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}
CASES = [
    ([{"type": "Prepend", "prepend": "_"}], "x<é> <é>"),
    ([{"type": "Prepend", "prepend": "_"}], "<é><s><é>x"),
    ([replace("aab", "xyz")], "caabaabc"),
    ([replace(r"\s{2,}", "__", "Regex")], "a  b \t\u3000 c "),
    ([LOWER, replace("aa", "b")], "AAAaAxaA"),
    ([replace("Aa", "b"), LOWER], "AAaAxaAa"),
    ([STRIP], "\x1c \u3000a\x1f b\x1c\x85 "),
    ([STRIP, {"type": "NFD"}], " \u00e9 <s> \u00c9\t"),
    ([{"type": "StripAccents"}], "\u0301a\u0301e\u0301\u0323 \u0301"),
    ([{"type": "NFD"}, {"type": "StripAccents"}, LOWER], "ÉÀ Å\u0327ç ΑΣ İ"),
    ([{"type": "NFKC"}], "ﬁ ｶﾞ \u1100\u3161\u11a8 ½ \u0344 a\u0315\u0300\u05ae"),
    ([{"type": "NFC"}, {"type": "NFC"}], "a\u0323\u0302 \u1100\u1161\u11a8e\u0301"),
    # Newer characters, which Python decomposes and Hugging Face does not.
    ([{"type": "NFD"}], "\U00011938 \u0301"),
    ([{"type": "NFKD"}], "\u32ff \ua7f2\u0301"),
    ([replace("-", ""), {"type": "NFC"}], "a-\u0301b e--\u0301-"),
    ([replace("^", "\u0302"), {"type": "NFC"}], "a^b^ ^"),
]


@pytest.mark.parametrize(("listed", "text"), CASES, ids=range(len(CASES)))
def test_steps_give_ids_offsets_and_streams_of_tokenizers(listed, text):
    table = json.loads(file_of({"type": "Sequence", "normalizers": listed}))
    check_against_tokenizers(*pair_of(table), text)


@given(normalizer=normalizers, text=texts)
def test_decoding_gives_the_normalized_text(normalizer, text):
    _, (tokenizer, *_) = pair_if_read(file_of(normalizer))
    spec = tokenizer.spec
    matcher = matcher_of(frozenset(token.content for token in spec.added_tokens))
    assert tokenizer.decode(tokenizer.encode(text)) == text_as_decoded(spec, matcher, text)
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text_as_encoded(spec, text)
    if spec.normalizer == "steps":
        assert check_text(tokenizer, text).first_difference is None


def test_ids_come_out_before_the_text_ends():
    tokenizer = Tokenizer.from_spec(parse_tokenizer_json(file_of(CLIP)))
    text = "Some Words\t\tand caf\u0065\u0301s, Ünïcödé, ПРИВЕТ, 中文字. " * 400
    stream = StreamingEncoder(tokenizer)
    ids: list[int] = []
    for start in range(0, len(text), 500):
        piece = text[start : start + 500]
        ids += stream.feed(piece)
        fed = len(text[: start + 500].encode())
        assert fed - 100 < stream.bytes_settled < fed
        done = text.encode()[: stream.bytes_settled].decode("utf-8", "ignore")
        assert tokenizer.encode(done)[: len(ids) - 4] == ids[:-4]
    assert ids + stream.finish() == tokenizer.encode(text)


@pytest.mark.parametrize("step", [STRIP, replace("(?<=a)b", "c", "Regex")])
def test_pending_text_is_bounded(step):
    tokenizer = Tokenizer.from_spec(parse_tokenizer_json(file_of(step)))
    stream = StreamingEncoder(tokenizer, max_pending_chars=1000)
    with pytest.raises(PreTokenTooLongError, match="normalizer of this tokenizer settles nothing"):
        list(map(stream.feed, [" " * 100] * 100))


@pytest.mark.parametrize("text", ["x <Q>", "x <q>"])
def test_tokens_in_the_normalized_text_follow_the_policy(engine, text):
    spec = parse_tokenizer_json(file_of(CLIP, [("<Q>", True)]))
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    id_ = spec.special_tokens["<Q>"]
    assert tokenizer.encode(text)[-1] == id_
    assert tokenizer.decode([id_]) == "<q>"  # as Hugging Face does
    assert id_ not in tokenizer.encode(text, allowed_special="none")
    assert id_ not in tokenizer.encode_ordinary(text)
    with pytest.raises(SpecialTokenForbiddenError, match="<Q>"):
        tokenizer.encode(text, allowed_special="none", disallowed_special="all")
    stream = StreamingEncoder(tokenizer, allowed_special="none", disallowed_special="all")
    with pytest.raises(SpecialTokenForbiddenError, match="<Q>"):
        stream.feed(text + " and more")


REFUSED = [
    ({"type": "BertNormalizer"}, "normalizer.type"),
    (replace("", "a"), "may match nothing"),
    (replace("a*", "a", "Regex"), "may match nothing"),
    (replace(r"(a)\1", "", "Regex"), "normalizer.*offset"),
    ({"type": "Replace", "pattern": "a", "content": "b"}, "normalizer"),
    ({"type": "Replace", "pattern": {"String": "a"}}, "normalizer.content is missing"),
    (replace("a", "\ud800"), "surrogate"),
    ({"type": "Prepend", "prepend": ""}, "leave it out"),
    ({"type": "Prepend", "prepend": 3}, "normalizer"),
    (STRIP | {"strip_left": 1}, "normalizer"),
    ({"type": "NFD", "extra": 1}, "normalizer.extra"),
    ({"type": "Sequence", "normalizers": [{"type": "NFD"}] * 65}, "at most 64 steps"),
    ({"type": "Sequence", "normalizers": [replace("a", "aaaa")] * 6}, "times as long"),
    (LOWER, "normalizer makes the added token"),
    (replace("<é>", "", "String"), "normalizer makes the added token"),
]


@pytest.mark.parametrize(("normalizer", "named"), REFUSED, ids=range(len(REFUSED)))
def test_a_normalizer_that_cannot_be_exact_is_refused_by_name(normalizer, named):
    tokens = [("<A>", True), ("<a>", True), ("<é>", True)]
    with pytest.raises(FormatError, match=named):
        parse_tokenizer_json(file_of(normalizer, tokens))


@given(
    normalizer=normalizers,
    text=texts,
    tokens=st.sampled_from([[], TOKENS]),
    unk=st.sampled_from([None, "<unk>"]),
    is_fused=st.booleans(),
    ignore_merges=st.booleans(),
    size=st.integers(1, 6),
)
@examples(1 / 2)
def test_missing_bytes_beside_steps(normalizer, text, tokens, unk, is_fused, ignore_merges, size):
    data = file_without_bytes(
        normalizer, tokens, unk_token=unk, fuse_unk=is_fused, ignore_merges=ignore_merges
    )
    theirs, ours = pair_if_read(data)
    spec = ours[0].spec
    assert spec.missing
    rendered = render_tokenizer_json(spec)
    assert parse_tokenizer_json(rendered) == spec
    again = tokenizers.Tokenizer.from_str(rendered.decode())
    assert again.encode(text).ids == theirs.encode(text).ids
    check_against_tokenizers(theirs, ours, text, has_offsets=False)
    for tokenizer in ours:
        _, offsets = tokenizer.encode_with_offsets(text)
        assert (offsets[:, 0] <= offsets[:, 1]).all()
        plain = text_as_decoded(spec, NO_TOKENS, text, with_lost=False)
        assert tokenizer.decode(tokenizer.encode_ordinary(text)) == plain
        check_parts(tokenizer, text, size)


_ALPHABET = {character: byte for byte, character in byte_to_unicode().items()}
contents = st.text(
    st.sampled_from("<é>|ĠĊ ‹日\u0301Ã©\x80\xa0a") | st.characters(codec="utf-8"),
    min_size=2,
    max_size=5,
)


@given(contents=st.lists(contents, min_size=1, max_size=4, unique=True), text=texts)
@example(contents=["‹é>", "<é>", "Ġx", "<日é>"], text="é")
def test_added_tokens_decode_to_their_text_and_in_tokenizers_by_the_alphabet(contents, text):
    tokens = [(content, False) for content in contents]
    theirs, ours = pair_if_read(file_of({"type": "NFC"}, tokens))
    text = text.join(["", *contents, ""])
    ids = theirs.encode(text).ids
    for tokenizer in ours:
        assert tokenizer.encode(text) == ids
        for token in tokenizer.spec.added_tokens:
            content, id_ = token.content, token.id
            assert tokenizer.decode([id_]) == content
            decoded = content
            if all(character in _ALPHABET for character in content):
                decoded = bytes(map(_ALPHABET.__getitem__, content)).decode(errors="replace")
            assert theirs.decode([id_], skip_special_tokens=False) == decoded
            assert (decoded == content) or not content.isascii()
