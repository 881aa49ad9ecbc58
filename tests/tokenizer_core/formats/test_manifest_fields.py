"""The manifest's seal, and the fields that together with two pickles form a spec."""

import dataclasses
import json

import pytest

from tests.tokenizer_core.formats.small_specs import trained_spec, wild_ranks
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.manifest_fields import MANIFEST, build_spec, render_spec_fields
from tokenizer_core.formats.sealed_json import SealedFormat
from tokenizer_core.spec import AddedToken, TokenizerSpec
from tokenizer_core.splitting.patterns import SplitPattern

SPEC = trained_spec(30, special_tokens=[AddedToken("<|a|>", 400), AddedToken("<é>", 401, False)])
FIELDS = render_spec_fields(SPEC)


def test_fields_are_read_back():
    data = MANIFEST.render(FIELDS)
    assert MANIFEST.parse(data) == json.loads(json.dumps(FIELDS))
    assert build_spec(FIELDS, SPEC.vocab, SPEC.merges) == SPEC
    for pattern in (
        SplitPattern("custom", r"\s+|\S+", unmatched="drop"),
        SplitPattern("custom", r"[\w&&\D]+", "fancy-regex", "drop"),
        SplitPattern("custom", r"\h+$|.", "oniguruma"),
    ):
        spec = trained_spec(30, pattern=pattern)
        data = MANIFEST.render(render_spec_fields(spec))
        assert build_spec(MANIFEST.parse(data), spec.vocab, spec.merges) == spec
    spec = TokenizerSpec.from_ranks(wild_ranks(1), pattern="cl100k")
    fields = render_spec_fields(spec)
    assert fields["merging"] == "by rank: merges.pkl holds an empty list"
    assert build_spec(fields, spec.vocab, []) == spec
    pair = next((t[:1], t[1:]) for t in spec.token_to_id if len(t) == 2)
    with pytest.raises(FormatError, match="there are merges"):
        build_spec(fields, spec.vocab, [pair])


def test_a_manifest_cut_short_changed_or_reformatted_is_refused():
    data = MANIFEST.render(FIELDS)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        for damaged in (data[:place], bytes(changed)):
            with pytest.raises(FormatError):
                MANIFEST.parse(damaged)
    others = [data + b"\n", data.replace(b": ", b":"), json.dumps(json.loads(data)).encode()]
    for value in ("1e999", '"\\ud800"', "[" * 400 + "]" * 400):
        others.append(MANIFEST.render({"x": 0}).replace(b'"x": 0', f'"x": {value}'.encode()))
    for other in others:
        with pytest.raises(FormatError, match=r"changed or damaged|too large|lone surrogate"):
            MANIFEST.parse(other)


SEALED = SealedFormat("example", 3, "an example", 200)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (dataclasses.replace(SEALED, version=2), "has format version 3; this release reads ver"),
        (dataclasses.replace(SEALED, version=4), "has format version 3; this release reads ver"),
        (dataclasses.replace(SEALED, name="other", described="another"), "not that of another"),
        (dataclasses.replace(SEALED, max_bytes=20), "larger than 20 bytes"),
    ],
)
def test_a_manifest_of_another_kind_or_version_is_refused(other, message):
    data = SEALED.render({"a": [1, None], "b": "é"})
    assert json.loads(data)["format_version"] == 3
    sound = dataclasses.replace(SEALED, max_bytes=len(data)).parse(data)
    assert sound == {"a": [1, None], "b": "é"}
    with pytest.raises(FormatError, match=message):
        other.parse(data)
    for value in (float("nan"), b"", "\ud800"):
        with pytest.raises(FormatError, match="cannot be written as JSON"):
            SEALED.render({"a": value})


ADDED = {"content": "<|a|>", "id": 400, "special": True}
WRONG_TOKENS = [{"id": 300}, {"id": True}, {"special": "yes"}]
WRONG_TOKENS += [{"flags": wrong} for wrong in (["lstrip"], ["special"], ["glow"], 1)]
WRONG = {
    "kind": ["other", None],
    "pattern": [
        None,
        {},
        {"name": "gpt2", "expression": "x"},
        {"name": "custom", "expression": "("},
        {"name": "custom", "expression": "x", "dialect": "perl"},
        {"name": "custom", "expression": "x", "unmatched": "burn"},
    ],
    "unicode_tables": [None, "regex 1999.1.1"],
    "normalizer": ["nfkc", None, []],
    "ignore_merges": [None, 1],
    "added_tokens": [None, [], *([ADDED | wrong] for wrong in WRONG_TOKENS)],
    "prefix_ids": [None, ["a"], [999], [True]],
    "suffix_ids": [[400]],
    "gaps": [None, [], [[1]], [[286, 398]], [[286, 399], [500, 501]], [["a", "b"]]],
    "fingerprint": [None, "0" * 64],
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_or_missing_field_is_refused(key):
    for value in WRONG[key]:
        with pytest.raises((FormatError, InvalidSpecError)):
            build_spec({**FIELDS, key: value}, SPEC.vocab, SPEC.merges)
    with pytest.raises(FormatError):
        build_spec({k: v for k, v in FIELDS.items() if k != key}, SPEC.vocab, SPEC.merges)
    other = dataclasses.replace(SPEC, unicode_tables="regex 2031.1.1")
    with pytest.raises(FormatError, match=r"regex 2031.1.1.*release that wrote it"):
        build_spec(render_spec_fields(other), other.vocab, other.merges)


def test_rare_fields_are_kept_and_unknown_ones_refused():
    steps = (SplitPattern("custom", "[0-9]"),)
    spec = trained_spec(30, pattern=SplitPattern("custom", r"\s+|\S+", before=steps))
    fields = render_spec_fields(spec)
    step = {"name": "custom", "expression": "[0-9]"}
    assert fields["pattern"]["before"] == [step]
    assert build_spec(fields, spec.vocab, spec.merges).pattern == spec.pattern
    assert not {"alphabet", "normalizer_steps", "post_processor"} & fields.keys()
    many = {"pattern": {**fields["pattern"], "before": [step] * 64}}
    with pytest.raises(FormatError, match="65 steps, more than 64"):
        build_spec(fields | many, spec.vocab, spec.merges)
    with pytest.raises(FormatError, match="Alphabet has no field 'glow'"):
        build_spec(fields | {"alphabet": {"glow": 1}}, spec.vocab, spec.merges)
