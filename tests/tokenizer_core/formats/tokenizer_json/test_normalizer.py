"""Normalizers, and random files of both kinds of vocabulary, held against `tokenizers`: equal ids,
offsets and text, or a refusal by name."""

import json
from functools import partial
from itertools import count

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.every_way import check_parts, check_stream
from tests.tokenizer_core.formats.small_specs import (
    added_token,
    check_against_tokenizers,
    check_refusal,
    check_round_trips,
    pair_of,
)
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import (
    TOKENS,
    file_of,
    file_without_bytes,
    normalizers,
    pair_if_read,
    texts,
)
from tests.tokenizer_core.formats.tokenizer_json.test_metaspace import RULES, table_of
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.errors import FormatError, PreTokenTooLongError, SpecialTokenForbiddenError
from tokenizer_core.formats.gpt2_files import parse_token
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.specials.matchers import matcher_of_strings
from tokenizer_core.specials.parts import NO_TOKENS, join_parts, parts_as_encoded, text_as_decoded
from tokenizer_core.text.round_trips import check_text


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


LOWER, STRIP = {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}
CLIP = {"type": "Sequence", "normalizers": [{"type": "NFC"}, replace(r"\s+", " ", "Regex"), LOWER]}
CASES = [
    ([{"type": "Prepend", "prepend": "_"}], "x<é> <é>"),
    ([{"type": "Prepend", "prepend": "_"}], "<é><s><é>x"),
    # Steps remove the characters that a Prepend would stand before.
    ([{"type": "StripAccents"}, {"type": "Prepend", "prepend": "_"}], "\u0301\u0301ab<s>\u0301a"),
    (
        [
            {"type": "Prepend", "prepend": "x"},
            replace("xb", ""),
            {"type": "Prepend", "prepend": "_"},
        ],
        "bcd",
    ),
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
    matcher = matcher_of_strings(frozenset(token.content for token in spec.added_tokens))
    assert tokenizer.decode(tokenizer.encode(text)) == text_as_decoded(spec, matcher, text)
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == join_parts(
        parts_as_encoded(spec, text)
    )
    if spec.normalizer.name == "steps":
        assert check_text(tokenizer, text).first_difference is None


def test_ids_come_out_before_the_text_ends():
    tokenizer = Tokenizer.from_spec(parse_tokenizer_json(file_of(CLIP)))
    text = "Some Words\t\tand caf\u0065\u0301s, Ünïcödé, ПРИВЕТ, 中文字. " * 400
    stream = StreamingEncoder(tokenizer)
    ids = []
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
    spec = parse_tokenizer_json(file_of(CLIP, [("<Q>", True), ("<o>", False)]))
    tokenizer = Tokenizer.from_spec(spec, engine=engine)
    id_ = spec.special_tokens["<Q>"]
    assert tokenizer.encode(text)[-1] == id_
    assert tokenizer.decode([id_]) == "<q>"  # as Hugging Face does
    assert id_ not in tokenizer.encode(text, allowed_special="none")
    assert id_ not in tokenizer.encode_ordinary(text)
    forbidding = {"allowed_special": "none", "disallowed_special": "all"}
    stream, by_characters = (StreamingEncoder(tokenizer, **forbidding) for _ in range(2))
    for encode in (
        partial(tokenizer.encode, **forbidding),
        stream.feed,
        lambda text: list(map(by_characters.feed, text)),
    ):
        with pytest.raises(SpecialTokenForbiddenError, match="<Q>"):
            encode(text + " and more")
    some = {"allowed_special": ["<o>"], "disallowed_special": ["<Q>"]}
    check_stream(tokenizer, ["<", "<o>", "q>"], tokenizer.encode("<<o>q>", **some), **some)


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
    check_refusal(json.loads(file_of(normalizer, tokens)), named)


@pytest.mark.parametrize("content", ["‹é>", "<é>", "Ġx", "<日é>", "Ã©\x80", "e\u0301\xa0"])
def test_added_tokens_decode_to_their_text_and_in_tokenizers_by_the_alphabet(content):
    theirs, both = pair_of(json.loads(file_of({"type": "NFC"}, [(content, False)])))
    ids = theirs.encode(f"é{content}é").ids
    (id_,) = {added.id for added in both[0].spec.added_tokens}
    for ours in both:
        assert ours.encode(f"é{content}é") == ids
        assert ours.decode([id_]) == content
    data = parse_token(content)
    expected = content if data is None else data.decode(errors="replace")
    assert theirs.decode([id_], skip_special_tokens=False) == expected


CONTENTS = [
    "<s>", "<S>", "<é>", "<e\u0301>", "a", "ab", " ab", "A", "▁", "▁a", "▁▁", "  ", "\n", "é", "中",
    "<a b>", "<a▁b>", "x", "b<", "<<", ">", "\u0301", "ss", "ß", "<s>a", "K", "1", "_",
]  # fmt: skip
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


tokens = st.lists(
    st.fixed_dictionaries(
        {"content": st.sampled_from(CONTENTS), **dict.fromkeys((*FLAGS, "special"), st.booleans())}
    ),
    max_size=5,
    unique_by=lambda made: made["content"],
)
DIGITS = {"type": "Digits", "individual_digits": True}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+|\w+"}, "behavior": "Isolated", "invert": False}
pre_tokenizers = st.sampled_from(
    [
        BYTE_LEVEL,
        BYTE_LEVEL | {"use_regex": False},
        BYTE_LEVEL | {"add_prefix_space": True},
        {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]},
        {"type": "Sequence", "pretokenizers": [SPLIT, BYTE_LEVEL | {"use_regex": False}]},
    ]
)


def with_tokens(table, added):
    """The file with these added tokens after its own, under the ids that `tokenizers` gives."""
    entries = table["model"]["vocab"]
    known = {token["content"] for token in table["added_tokens"]}
    ids = count(len(entries))
    for token in added:
        content = token["content"]
        if content not in known:
            id_ = entries[content] if content in entries else next(ids)
            table["added_tokens"].append({"id": id_, **token})
    return table


def _of_bytes(normalizer, pre_tokenizer, added):
    table = json.loads(file_of(normalizer, []))
    return with_tokens(table | {"pre_tokenizer": pre_tokenizer}, added)


def _of_characters(rule, added, own):
    table = table_of(rule)
    for token in table["added_tokens"]:
        token |= dict.fromkeys(own, True)
    return with_tokens(table, added)


def _without_bytes(normalizer, tokens, **model):
    return json.loads(file_without_bytes(normalizer, tokens, **model))


files = st.one_of(
    st.builds(_of_bytes, normalizers, pre_tokenizers, tokens),
    st.builds(
        _without_bytes,
        normalizers,
        st.sampled_from([[], TOKENS]),
        unk_token=st.sampled_from([None, "<unk>"]),
        fuse_unk=st.booleans(),
        ignore_merges=st.booleans(),
    ),
    st.builds(
        _of_characters,
        st.sampled_from(list(RULES)),
        tokens,
        st.sampled_from([[], ["normalized"], ["normalized", "single_word"], ["lstrip"]]),
    ),
)
_PIECES = [
    *CONTENTS, *" \n\tab.x1_", "<s", "s>", "  ", " \n", "\u00a0", "\u212a", "İ", "É", "Ａ", "🙂",
    "</s>", "<unk>", "word", "中文",
]  # fmt: skip
any_texts = st.lists(st.sampled_from(_PIECES), max_size=14).map("".join) | texts

LOWERED = with_tokens(
    json.loads(file_of({"type": "Lowercase"}, [])),
    [
        added_token("<É>", normalized=True, rstrip=True),
        added_token("<s>", lstrip=True),
        added_token("X", single_word=True),
    ],
)
PREPENDED = with_tokens(table_of("metaspace-prepend"), [added_token("<a b>", normalized=True)])
# NFC joins a mark, which is a word character, to a symbol, which is none.
JOINED = with_tokens(
    json.loads(file_of({"type": "NFC"}, [])), [added_token("=|", single_word=True)]
)


def is_in_alphabet(content):
    """Whether `tokenizers` may decode such a token as bytes, which are not those of its text."""
    return any("\x7f" < character < "\u0144" for character in content)


@given(table=files, text=any_texts, is_trusted=st.booleans(), size=st.integers(0, 20))
@example(table=LOWERED, text="a <É> b <s> <é>\n<S> X xX", is_trusted=True, size=3)
@example(table=JOINED, text="=\u0338<|X= <|X=\u0338 a<|X=b <|X=.", is_trusted=True, size=2)
@example(table=PREPENDED, text="<a b>a <a b> b<s> <a▁b>", is_trusted=False, size=4)
@examples(3)
def test_ids_offsets_text_segments_and_written_files(table, text, is_trusted, size):
    theirs, ours = pair_if_read(json.dumps(table).encode())
    spec = ours[0].spec
    # With NFC alone, a token covers all characters that were composed.
    has_offsets = spec.normalizer.name != "nfc" and not spec.alphabet.missing
    check_against_tokenizers(theirs, ours, text, has_offsets=has_offsets)
    ids = theirs.encode(text, add_special_tokens=False).ids
    parts, found = [(text[:size], is_trusted), (text[size:], not is_trusted)], []
    for tokenizer in ours:
        assert check_text(tokenizer, text).first_difference is None
        assert tokenizer.encode_segments([(part, True) for part, _ in parts]) == ids
        try:
            found.append(tokenizer.encode_segments(parts))
        except Exception as error:
            found.append([type(error)])
    assert found[1:] == found[:-1]
    if spec.alphabet.missing:
        _, offsets = tokenizer.encode_with_offsets(text)
        assert (offsets[:, 0] <= offsets[:, 1]).all()
        plain = text_as_decoded(spec, NO_TOKENS, text, with_lost=False)
        assert tokenizer.decode(tokenizer.encode_ordinary(text)) == plain
        check_parts(tokenizer, text, 1 + size % 6)
    if not any(is_in_alphabet(theirs.id_to_token(added["id"])) for added in table["added_tokens"]):
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    try:
        again = tokenizers.Tokenizer.from_str(check_round_trips(spec).decode())
    except FormatError:  # the format cannot hold this spec
        return
    assert again.encode(text, add_special_tokens=False).ids == ids
