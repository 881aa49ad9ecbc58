"""Normalizers in a `tokenizer.json`, held against `tokenizers`."""

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.formats.normalizer_files import (
    TOKENS,
    file_of,
    file_without_bytes,
    normalizers,
    texts,
)
from tokenizer_core import StreamingEncoder, Tokenizer, chunk_text, truncate_text
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.errors import FormatError, PreTokenTooLongError, SpecialTokenForbiddenError
from tokenizer_core.formats.gpt2_files import byte_to_unicode
from tokenizer_core.formats.manifest_fields import (
    build_spec,
    parse_manifest_json,
    render_manifest_json,
    render_spec_fields,
)
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json, render_tokenizer_json
from tokenizer_core.normalization import NO_TOKENS, text_as_decoded, text_as_encoded
from tokenizer_core.registry.golden_text import check_golden_text
from tokenizer_core.special_tokens import matcher_of
from tokenizer_core.text.round_trips import check_text

ENGINES = ["python"] if native_unavailable_reason() else ["native", "python"]
CLIP = {
    "type": "Sequence",
    "normalizers": [
        {"type": "NFC"},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Lowercase"},
    ],
}


def both(normalizer, tokens=None) -> tuple[tokenizers.Tokenizer, list[Tokenizer]]:
    """Hugging Face's tokenizer and ours; no example if this one is refused."""
    data = file_of(normalizer, tokens)
    try:
        spec = parse_tokenizer_json(data)
    except FormatError:
        assume(False)
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    return theirs, [Tokenizer.from_spec(spec, engine=name) for name in ENGINES]


@given(normalizer=normalizers, text=texts, tokens=st.sampled_from([[], TOKENS]))
def test_ids_and_offsets(normalizer, text, tokens):
    theirs, ours = both(normalizer, tokens)
    expected = theirs.encode(text)
    for tokenizer in ours:
        assert tokenizer.encode(text) == expected.ids
        assert tokenizer.count(text) == len(expected.ids)
        assert json.loads(tokenizer.encode_to_json(text)[0]) == expected.ids
        assert tokenizer.encode_batch(["", text], num_threads=1)[1] == expected.ids
        ids, offsets = tokenizer.encode_with_offsets(text, unit="char")
        assert ids == expected.ids
        if tokenizer.spec.normalizer == "steps":
            assert list(map(tuple, offsets.tolist())) == expected.offsets


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


@pytest.mark.parametrize(("listed", "text"), CASES)
def test_by_hand(listed, text):
    theirs, ours = both({"type": "Sequence", "normalizers": listed})
    expected = theirs.encode(text)
    for tokenizer in ours:
        ids, offsets = tokenizer.encode_with_offsets(text, unit="char")
        assert tokenizer.encode(text) == ids == expected.ids
        assert list(map(tuple, offsets.tolist())) == expected.offsets
        for cut in range(len(text) + 1):
            stream = StreamingEncoder(tokenizer)
            found = stream.feed(text[:cut]) + stream.feed(text[cut:])
            assert found + stream.finish() == expected.ids


@given(normalizer=normalizers, text=texts, tokens=st.sampled_from([[], TOKENS]))
def test_streams_at_every_cut(normalizer, text, tokens):
    _, (tokenizer, *_) = both(normalizer, tokens)
    expected = tokenizer.encode(text)
    for cut in range(len(text) + 1):
        stream = StreamingEncoder(tokenizer)
        ids = stream.feed(text[:cut])
        assert stream.bytes_settled <= len(text[:cut].encode())
        assert ids + stream.feed(text[cut:]) + stream.finish() == expected
        assert stream.bytes_settled == len(text.encode())
    stream = StreamingEncoder(tokenizer)
    assert [id_ for c in text for id_ in stream.feed(c)] + stream.finish() == expected


@given(normalizer=normalizers, text=texts)
def test_written_files_and_manifests_give_the_same(normalizer, text):
    theirs, (tokenizer, *_) = both(normalizer)
    spec = tokenizer.spec
    data = render_tokenizer_json(spec)
    assert parse_tokenizer_json(data) == spec
    assert tokenizers.Tokenizer.from_str(data.decode()).encode(text).ids == theirs.encode(text).ids
    manifest = render_manifest_json(render_spec_fields(spec))
    again = build_spec(parse_manifest_json(manifest), spec.vocab, spec.merges)
    assert again == spec
    assert again.added_tokens == spec.added_tokens
    assert again.normalizer_steps == spec.normalizer_steps


@given(normalizer=normalizers, text=texts, size=st.integers(1, 6))
@examples(1 / 2)
def test_truncated_and_chunked_texts_keep_their_promises(normalizer, text, size):
    _, (tokenizer, *_) = both(normalizer)
    data = text.encode()
    for side in ("left", "right"):
        part = truncate_text(tokenizer, text, size, side=side)
        assert part.ids.tolist() == tokenizer.encode(part.text)
        assert len(part.ids) <= size
        assert data[part.start : part.end].decode() == part.text
    n_most = max([len(tokenizer.encode(character)) for character in text], default=1)
    covered = 0
    for chunk in chunk_text(tokenizer, text, max(size, n_most)):
        assert chunk.start == covered < chunk.end
        assert chunk.ids.tolist() == tokenizer.encode(chunk.text)
        covered = chunk.end
    assert covered == len(data)


@given(normalizer=normalizers, text=texts)
def test_decoding_gives_the_normalized_text(normalizer, text):
    _, (tokenizer, *_) = both(normalizer)
    spec = tokenizer.spec
    matcher = matcher_of(frozenset(token.content for token in spec.added_tokens))
    assert tokenizer.decode(tokenizer.encode(text)) == text_as_decoded(spec, matcher, text)
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text_as_encoded(spec, text)
    if spec.normalizer == "steps":
        assert check_text(tokenizer, text).first_difference is None


def test_cuts_need_nothing_of_the_text_after_them():
    """Ids come out before the text ends, in the order of what was fed."""
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


@pytest.mark.parametrize(
    "step",
    [
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": "(?<=a)b"}, "content": "c"},
    ],
)
def test_what_never_settles_is_bounded(step):
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
    ({"type": "Replace", "pattern": {"String": ""}, "content": "a"}, "may match nothing"),
    ({"type": "Replace", "pattern": {"Regex": "a*"}, "content": "a"}, "may match nothing"),
    ({"type": "Replace", "pattern": {"Regex": r"(a)\1"}, "content": ""}, "normalizer.*offset"),
    ({"type": "Replace", "pattern": "a", "content": "b"}, "normalizer"),
    ({"type": "Replace", "pattern": {"String": "a"}}, "normalizer.content is missing"),
    ({"type": "Replace", "pattern": {"String": "a"}, "content": "\ud800"}, "surrogate"),
    ({"type": "Prepend", "prepend": ""}, "leave it out"),
    ({"type": "Prepend", "prepend": 3}, "normalizer"),
    ({"type": "Strip", "strip_left": 1, "strip_right": True}, "normalizer"),
    ({"type": "NFD", "extra": 1}, "normalizer.extra"),
    ({"type": "Sequence", "normalizers": [{"type": "NFD"}] * 65}, "at most 64 steps"),
    (
        {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"}] * 6},
        "times as long",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("normalizer", "named"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_exact_is_refused_by_name(normalizer, named):
    with pytest.raises(FormatError, match=named):
        parse_tokenizer_json(file_of(normalizer))


@pytest.mark.parametrize(
    ("normalizer", "tokens"),
    [
        ({"type": "Lowercase"}, [("<A>", True), ("<a>", True)]),
        ({"type": "Strip", "strip_left": True, "strip_right": True}, [("  ", True)]),
    ],
)
def test_tokens_that_the_normalizer_makes_alike_are_refused(normalizer, tokens):
    with pytest.raises(FormatError, match="normalizer makes the added token"):
        parse_tokenizer_json(file_of(normalizer, tokens))


def test_nfc_alone_and_none_stay_as_they_were():
    nfc, none = {"type": "NFC"}, None
    specs = [parse_tokenizer_json(file_of(one, [])) for one in (nfc, none)]
    nested = {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [nfc]}]}
    assert parse_tokenizer_json(file_of(nested, [])) == specs[0]
    assert [spec.normalizer for spec in specs] == ["nfc", "none"]
    assert not any(spec.extensions() for spec in specs)


@pytest.mark.parametrize("step", ["NFD", "NFKC", "Lowercase", "StripAccents"])
def test_the_golden_text_comes_back_normalized(step):
    check_golden_text(parse_tokenizer_json(file_of({"type": step})))


def test_offsets_in_bytes_are_those_of_the_characters():
    tokenizer = Tokenizer.from_spec(parse_tokenizer_json(file_of({"type": "NFD"}, [])))
    _, offsets = tokenizer.encode_with_offsets("xéz中")
    assert offsets.dtype == np.uint64
    assert offsets.tolist() == [[0, 1], [1, 3], [1, 3], [3, 4], [4, 5], [5, 6], [6, 7]]


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
    try:
        spec = parse_tokenizer_json(data)
    except FormatError:
        assume(False)
    assert spec.missing
    expected = tokenizers.Tokenizer.from_str(data.decode()).encode(text)
    rendered = render_tokenizer_json(spec)
    assert parse_tokenizer_json(rendered) == spec
    assert tokenizers.Tokenizer.from_str(rendered.decode()).encode(text).ids == expected.ids
    for tokenizer in (Tokenizer.from_spec(spec, engine=name) for name in ENGINES):
        assert tokenizer.encode(text) == expected.ids
        assert tokenizer.encode_batch(["", text], num_threads=1)[1] == expected.ids
        ids, offsets = tokenizer.encode_with_offsets(text)
        assert ids == expected.ids
        assert (offsets[:, 0] <= offsets[:, 1]).all()
        assert offsets.max(initial=0) <= len(text.encode())
        for cut in range(len(text) + 1):
            assert list(tokenizer.encode_iterable([text[:cut], text[cut:]])) == expected.ids
        plain = text_as_decoded(spec, NO_TOKENS, text, with_lost=False)
        assert tokenizer.decode(tokenizer.encode_ordinary(text)) == plain
        for side in ("left", "right"):
            part = truncate_text(tokenizer, text, size, side=side)
            assert part.ids.tolist() == tokenizer.encode(part.text)
            assert len(part.ids) <= size
        n_most = max([len(tokenizer.encode(character)) for character in text], default=1)
        chunks = list(chunk_text(tokenizer, text, max(size, n_most)))
        assert "".join(chunk.text for chunk in chunks) == text
        assert all(chunk.ids.tolist() == tokenizer.encode(chunk.text) for chunk in chunks)


@pytest.mark.parametrize("unk", [None, "<unk>"])
def test_the_golden_text_comes_back_without_missing_bytes(unk):
    for step in ("NFD", "Lowercase"):
        check_golden_text(parse_tokenizer_json(file_without_bytes({"type": step}, unk_token=unk)))


_ALPHABET = {character: byte for byte, character in byte_to_unicode().items()}
contents = st.text(
    st.sampled_from("<é>|ĠĊ ‹日\u0301Ã©\x80\xa0a") | st.characters(codec="utf-8"),
    min_size=2,
    max_size=5,
)


@given(contents=st.lists(contents, min_size=1, max_size=4, unique=True), text=texts)
@example(contents=["‹é>", "<é>", "Ġx", "<日é>"], text="é")
def test_added_tokens_decode_to_their_text_and_in_tokenizers_by_the_alphabet(contents, text):
    theirs, ours = both({"type": "NFC"}, [(content, False) for content in contents])
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
