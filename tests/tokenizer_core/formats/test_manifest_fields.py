"""The manifest's seal, and the fields that together with two pickles form a spec."""

import dataclasses
import json

import pytest

from tests.tokenizer_core.formats.small_specs import trained_spec, wild_ranks
from tokenizer_core.errors import FormatError, InvalidSpecError, UnknownPatternError
from tokenizer_core.formats.manifest_fields import (
    build_spec,
    parse_manifest_json,
    render_manifest_json,
    render_spec_fields,
)
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.spec import AddedToken, TokenizerSpec

SPEC = trained_spec(30, special_tokens=[AddedToken("<|a|>", 400), AddedToken("<é>", 401, False)])
FIELDS = render_spec_fields(SPEC)


def test_fields_and_back():
    assert parse_manifest_json(render_manifest_json(FIELDS)) == json.loads(json.dumps(FIELDS))
    assert build_spec(FIELDS, SPEC.vocab, SPEC.merges) == SPEC


@pytest.mark.parametrize(
    "pattern",
    [
        SplitPattern("custom", r"\s+|\S+"),
        SplitPattern("custom", r"\s+|\S+", unmatched="drop"),
        SplitPattern("custom", r"[\w&&\D]+", "fancy-regex", "drop"),
        SplitPattern("custom", r"\h+$|.", "oniguruma"),
    ],
)
def test_a_dialect_and_an_unmatched_rule_are_kept(pattern):
    spec = trained_spec(30, pattern=pattern)
    fields = render_spec_fields(spec)
    assert (
        build_spec(parse_manifest_json(render_manifest_json(fields)), spec.vocab, spec.merges)
        == spec
    )


@pytest.mark.parametrize("field", [{"dialect": "perl"}, {"unmatched": "burn"}, {"dialect": ["x"]}])
def test_an_unknown_dialect_or_rule_is_refused(field):
    fields = FIELDS | {"pattern": {"name": "custom", "expression": r"\s+|\S+"} | field}
    with pytest.raises(FormatError, match="malformed"):
        build_spec(fields, SPEC.vocab, SPEC.merges)


def test_ranks_say_that_the_merges_file_is_empty():
    spec = TokenizerSpec.from_ranks(wild_ranks(1), pattern="cl100k")
    fields = render_spec_fields(spec)
    assert fields["merging"] == "by rank: merges.pkl holds an empty list"
    assert build_spec(fields, spec.vocab, []) == spec
    pair = next((t[:1], t[1:]) for t in spec.token_to_id if len(t) == 2)
    with pytest.raises(FormatError, match="there are merges"):
        build_spec(fields, spec.vocab, [pair])


def test_every_bit_flipped_is_seen():
    data = render_manifest_json(FIELDS)
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            with pytest.raises(FormatError):
                parse_manifest_json(bytes(changed))


def test_cut_short_at_every_byte_or_reformatted():
    data = render_manifest_json(FIELDS)
    for length in range(len(data)):
        with pytest.raises(FormatError):
            parse_manifest_json(data[:length])
    for other in (data + b"\n", data.replace(b": ", b":"), json.dumps(json.loads(data)).encode()):
        with pytest.raises(FormatError, match=r"changed or damaged"):
            parse_manifest_json(other)


@pytest.mark.parametrize("value", ['"\\ud800"', "1e999", "[" * 400 + "]" * 400])
def test_json_that_is_never_written_is_damage(value):
    data = render_manifest_json({"x": 0}).replace(b'"x": 0', f'"x": {value}'.encode())
    with pytest.raises(FormatError, match=r"changed or damaged|lone surrogate|too large"):
        parse_manifest_json(data)


@pytest.mark.parametrize(
    "data", [b"{}", b"[]", b"null", b'{"format": "tokenizer-artifact"}', b'{"format": "x"}']
)
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(FormatError):
        parse_manifest_json(data)


@pytest.mark.parametrize("value", [float("nan"), b"bytes", "\ud800", {1, 2}])
def test_what_is_no_json_is_not_written(value):
    with pytest.raises(FormatError, match="cannot be written"):
        render_manifest_json({"x": value})


def added_token(content="<|a|>", id=400, special=True):  # noqa: A002
    return {"content": content, "id": id, "special": special}


WRONG = {
    "kind": ["other", None, 1],
    "pattern": [
        None,
        {},
        {"name": "gpt2", "expression": "x"},
        {"name": "new", "expression": "x"},
        {"name": "custom", "expression": "("},
    ],
    "unicode_tables": [None, "regex 1999.1.1"],
    "normalizer": ["nfkc", None, 5, []],
    "ignore_merges": [None, 1, "false"],
    "added_tokens": [
        None,
        [],
        [{}],
        [added_token(id=300)],
        [added_token(id=True)],
        [added_token(content=5)],
        [added_token(special="yes")],
        [added_token()],
    ],
    "prefix_ids": [None, ["a"], [999], [True]],
    "suffix_ids": [[400]],
    "gaps": [None, [], [[1]], [[286, 398]], [[286, 399], [500, 501]], [["a", "b"]]],
    "fingerprint": [None, "0" * 64],
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in WRONG.items() for v in values])
def test_a_wrong_field_is_refused(key, value):
    with pytest.raises((FormatError, InvalidSpecError)):
        build_spec({**FIELDS, key: value}, SPEC.vocab, SPEC.merges)


@pytest.mark.parametrize("key", WRONG)
def test_a_missing_field_is_refused(key):
    with pytest.raises(FormatError):
        build_spec({k: v for k, v in FIELDS.items() if k != key}, SPEC.vocab, SPEC.merges)


def test_missing_bytes_and_empty_tokens_are_declared():
    vocab = {id_: token for id_, token in SPEC.vocab.items() if token != b"\xc0"}
    gap = {id_: token for id_, token in vocab.items() if id_ <= 285} | {0xC0: b""}
    spec = TokenizerSpec.from_merges(gap, SPEC.merges)
    fields = render_spec_fields(spec)
    assert (fields["empty_ids"], fields["missing_bytes"]) == ([0xC0], [0xC0])
    assert build_spec(fields, spec.vocab, spec.merges) == spec
    assert not {"empty_ids", "missing_bytes"} & FIELDS.keys()
    for name in ("empty_ids", "missing_bytes"):
        for wrong in ([], [0xC1], [0xC0, 0xC1], None, {}):
            with pytest.raises(FormatError, match=f"manifest's {name}"):
                build_spec({**fields, name: wrong}, spec.vocab, spec.merges)


def test_other_unicode_tables_are_refused_with_the_remedy():
    other = dataclasses.replace(SPEC, unicode_tables="regex 2031.1.1")
    with pytest.raises(FormatError, match=r"regex 2031.1.1.*release that wrote it"):
        build_spec(render_spec_fields(other), other.vocab, other.merges)


def test_extensions_are_kept_and_unknown_ones_refused():
    steps = (SplitPattern("custom", "[0-9]"),)
    spec = trained_spec(30, pattern=SplitPattern("custom", r"\s+|\S+", before=steps))
    fields = render_spec_fields(spec)
    listed = [{"name": "custom", "expression": expression} for expression in ("[0-9]", r"\s+|\S+")]
    assert fields["extensions"] == {"split_steps": listed}
    data = render_manifest_json(fields)
    assert build_spec(parse_manifest_json(data), spec.vocab, spec.merges).pattern == spec.pattern
    without = dataclasses.replace(spec, pattern=SplitPattern("custom", r"\s+|\S+"))
    assert without.fingerprint != spec.fingerprint
    assert "extensions" not in render_spec_fields(without)
    many = {"extensions": {"split_steps": listed[:1] * 64 + listed[1:]}}
    with pytest.raises((FormatError, UnknownPatternError), match="65 steps, more than 64"):
        build_spec(fields | many, spec.vocab, spec.merges)
    with pytest.raises(FormatError, match="extension 'glow', which this release does not know"):
        build_spec(fields | {"extensions": {"glow": 1}}, spec.vocab, spec.merges)
