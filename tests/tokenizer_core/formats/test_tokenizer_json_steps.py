"""Sequences of pre-tokenizers in a `tokenizer.json`, held against `tokenizers`."""

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.adversarial import class_borders_in_context
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.errors import FormatError, UnknownPatternError
from tokenizer_core.formats.gpt2_files import byte_to_unicode
from tokenizer_core.formats.manifest_fields import (
    build_spec,
    parse_manifest_json,
    render_manifest_json,
    render_spec_fields,
)
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json, render_tokenizer_json
from tokenizer_core.patterns import SplitPattern, resolve_pattern

ENGINES = ["python"] if native_unavailable_reason() else ["native", "python"]
MERGES = [
    ("a", "b"), ("Ġ", "a"), ("Ġa", "b"), ("1", "2"), ("12", "3"), ("Ġ", "Ġ"), ("x", "a"),
    ("'", "s"), ("Ċ", "Ċ"), ("b", "1"), ("ä", "¸"), (".", "."), ("a", "."), (".", "a"),
]  # fmt: skip
TEXTS = [left + right for left, right in MERGES]
VOCAB = {text: id_ for id_, text in enumerate([*byte_to_unicode().values(), *TEXTS])}
EXPRESSIONS = [
    r"\p{N}{1,3}", r"\p{N}", "[A-Za-z]+", r"\s+(?!\S)|\s+", r" ?\p{L}+", r"[^\s\p{L}]+", "(?<=a)b",
    "[一-龥]+", "a|ab", r"\n+", "(?i:'s|'t)|x", r"\s*[\r\n]+|\s+", r" ?[\p{P}\p{S}]+[\r\n]*",
    r"\s*", "x*", "(?=a)",
]  # fmt: skip
STRINGS = [" ", "ab", "a", "  ", ".", "[", "\n", "文", "a b", "-", "'s", "1", "\\", "#"]
BEHAVIORS = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]

patterns = st.one_of(
    st.fixed_dictionaries({"Regex": st.sampled_from(EXPRESSIONS)}),
    st.fixed_dictionaries({"String": st.sampled_from(STRINGS)}),
)
steps = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("Split"),
            "pattern": patterns,
            "behavior": st.sampled_from(BEHAVIORS),
            "invert": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"type": st.just("Digits"), "individual_digits": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("Punctuation"), "behavior": st.sampled_from(BEHAVIORS)}),
    st.sampled_from([{"type": "Whitespace"}, {"type": "WhitespaceSplit"}]),
)
texts = st.lists(
    st.sampled_from([*"ab1 x.[-#\n\r中文é\u0301!🙂\u3000\x85٣½\\", "ab", "23", "'s", "  "])
)


def table_of(listed: list[dict], *, use_regex: bool) -> bytes:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    table = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*listed, {**byte_level, "use_regex": use_regex}],
        },
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": VOCAB,
            "merges": [f"{left} {right}" for left, right in MERGES],
        },
    }
    return json.dumps(table).encode()


@given(
    listed=st.lists(steps, min_size=1, max_size=4),
    use_regex=st.booleans(),
    samples=st.lists(texts.map("".join), min_size=1, max_size=8),
)
def test_any_sequence_gives_the_ids_of_tokenizers(listed, use_regex, samples):
    data = table_of(listed, use_regex=use_regex)
    spec, theirs = parse_tokenizer_json(data), tokenizers.Tokenizer.from_str(data.decode())
    written = render_tokenizer_json(spec)
    assert parse_tokenizer_json(written) == spec
    again = tokenizers.Tokenizer.from_str(written.decode())
    fields = parse_manifest_json(render_manifest_json(render_spec_fields(spec)))
    assert build_spec(fields, spec.vocab, spec.merges) == spec
    for engine in ENGINES:
        ours = Tokenizer.from_spec(spec, engine=engine)
        for text in samples:
            ids = theirs.encode(text).ids
            assert ours.encode(text) == ids == again.encode(text).ids
            assert ours.count(text) == len(ids)
            stream = StreamingEncoder(ours)
            streamed = [id_ for character in text for id_ in stream.feed(character)]
            assert streamed + stream.finish() == ids
            found, offsets = ours.encode_with_offsets(text)
            assert found == ids
            assert [text.encode()[a:b] for a, b in offsets.tolist()] == [spec.vocab[i] for i in ids]


@pytest.mark.parametrize(
    "step", [{"type": "Punctuation"}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"}]
)
def test_the_classes_are_those_of_tokenizers_on_every_code_point(step):
    data = table_of([step], use_regex=False)
    ours, theirs = Tokenizer.from_spec(parse_tokenizer_json(data)), None
    theirs = getattr(tokenizers.pre_tokenizers, step["type"])()
    for start in range(0, 0x110000, 0x1000):
        points = [chr(c) for c in range(start, start + 0x1000) if not 0xD800 <= c <= 0xDFFF]
        text = "".join(f"a{character}a" for character in points)
        pieces = [piece for piece, _ in theirs.pre_tokenize_str(text)]
        expected = [id_ for piece in pieces for id_ in ours.engine.encode_pre_tokens([piece])]
        assert ours.encode(text) == expected, hex(start)


def test_class_borders_after_two_steps():
    listed = [
        {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "Digits", "individual_digits": True},
    ]
    data = table_of(listed, use_regex=True)
    ours = Tokenizer.from_spec(parse_tokenizer_json(data))
    theirs = tokenizers.Tokenizer.from_str(data.decode())
    for text in class_borders_in_context():
        assert ours.encode(text) == theirs.encode(text).ids, repr(text[:40])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"behavior": "Other"}, "behavior is 'Other', none of Isolated"),
        ({"invert": 1}, "invert is 1, not true or false"),
        ({"pattern": {"String": ""}}, "pattern.String is empty"),
        ({"pattern": {"String": 5}}, "pattern.String is no text"),
        ({"pattern": {"Regex": "a", "String": "b"}}, "a Regex or a String"),
        ({"type": "Metaspace"}, "is 'Metaspace'"),
        ({"type": "ByteLevel"}, r"\[0\] is a ByteLevel before other steps \(Falcon\)"),
    ],
)
def test_what_no_step_is_is_refused_by_name(step, message):
    split = {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": False}
    with pytest.raises(FormatError, match=message):
        parse_tokenizer_json(table_of([split | step, split], use_regex=False))


def test_steps_after_a_byte_level_split_within_characters_in_tokenizers():
    """The reason why they are refused."""
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=False)
    falcon = tokenizers.pre_tokenizers.Sequence([byte_level, digits])
    assert falcon.pre_tokenize_str("\u00f2") == [("\u00c3", (0, 1)), ("\u00b2", (0, 1))]


def test_a_behavior_needs_the_text_without_a_match():
    pattern = SplitPattern("custom", "a b", unmatched="drop", behavior="removed")
    with pytest.raises(UnknownPatternError, match="unmatched must be 'keep'"):
        resolve_pattern(pattern)
    assert resolve_pattern(SplitPattern("custom", "a b", behavior="removed")).drops
