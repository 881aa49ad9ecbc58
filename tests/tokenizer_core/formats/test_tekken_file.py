"""Mistral's `tekken.json`: compared with tiktoken, which mistral-common encodes with."""

import base64
import json

import pytest
import tiktoken

from tests.adversarial import adversarial_texts
from tests.parity.vocabularies import TEKKEN_SPECIALS
from tests.tokenizer_core.formats.small_specs import DROP, changed, small_tekken, wild_texts
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats.tekken_file import parse_tekken
from tokenizer_core.spec.checks import MAX_TOKEN_ID

LISTED = ["<unk>", "<s>", "</s>", "[THINK]"]


def parse(table):
    return parse_tekken(json.dumps(table).encode())


@pytest.mark.parametrize("pattern", [None, r"\p{L}+|\p{N}"])
def test_ids_are_those_of_tiktoken_after_the_special_tokens(pattern, engine):
    """Text that the expression does not match is dropped, as there."""
    table = small_tekken(LISTED, n_special=7, seed=1)
    table["config"]["pattern"] = pattern or table["config"]["pattern"]
    config = table["config"]
    # As in mistral-common: the kept ranks, not moved by the special tokens.
    kept = table["vocab"][: config["default_vocab_size"] - config["default_num_special_tokens"]]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in kept}
    theirs = tiktoken.Encoding(
        "tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}
    )
    ours = Tokenizer.from_spec(parse(table), engine=engine)
    for text in [*wild_texts(1), *adversarial_texts(longest=80), "<s>[THINK]<SPECIAL_5>", " "]:
        expected = [id_ + 7 for id_ in theirs.encode_ordinary(text)]
        assert ours.encode(text, allowed_special="none") == expected, repr(text)
        assert ours.encode_ordinary(text) == expected, repr(text)


def test_special_tokens_in_a_text_are_matched_unless_they_are_not_allowed(engine):
    ours = Tokenizer.from_spec(parse(small_tekken(LISTED, n_special=7)), engine=engine)
    text = "<s>[THINK]<SPECIAL_4><SPECIAL_6><SPECIAL_7>"
    plain = [byte + 7 for byte in b"<SPECIAL_7>"]
    assert ours.encode(text) == [1, 3, 4, 6, *plain]
    assert ours.encode(text, allowed_special="none") == [byte + 7 for byte in text.encode()]
    assert ours.decode([1, 3, 6, 7 + 65]) == "<s>[THINK]<SPECIAL_6>A"
    assert ours.decode([1, 3, 6, 7 + 65], skip_special_tokens=True) == "A"
    assert ours.encode("A", add_special_tokens=True) == [7 + 65]


def test_old_versions_without_a_list_have_twenty_fixed_tokens():
    for version in ("v1", "v2", "v3", "v7"):
        for absent in ({}, {"special_tokens": None}):
            spec = parse(small_tekken(None, n_special=22, version=version) | absent)
            contents = [*TEKKEN_SPECIALS, "<SPECIAL_20>", "<SPECIAL_21>"]
            assert spec.special_tokens == {content: id_ for id_, content in enumerate(contents)}
            assert all(token.special for token in spec.added_tokens)
    for version in ("v11", "v13", "v15"):
        with pytest.raises(FormatError, match=f"special_tokens is missing.* version {version}"):
            parse(small_tekken(None, n_special=22, version=version))


@pytest.mark.parametrize(
    ("version", "listed", "n_fillers"),
    [
        ("v7", LISTED, 2),
        ("v15", [*LISTED, "<SPECIAL_5>", "<SPECIAL_4>"], 2),
        ("v15", [], 0),
        ("v3", LISTED, 65_532),
    ],
)
def test_a_list_has_the_first_ids_and_fillers_the_others(version, listed, n_fillers):
    n_special = len(listed) + n_fillers
    spec = parse(small_tekken(listed, n_special=n_special, version=version))
    contents = [*listed, *(f"<SPECIAL_{id_}>" for id_ in range(len(listed), n_special))]
    assert spec.special_tokens == {content: id_ for id_, content in enumerate(contents)}
    assert len(spec.added_tokens) == n_special
    assert spec.vocab[n_special + 65] == b"A"


def test_only_the_first_ranks_count():
    table = small_tekken(LISTED, n_special=7, n_cut=3)
    n_ranks = len(table["vocab"]) - 3
    cut = [base64.b64decode(entry["token_bytes"]) for entry in table["vocab"][n_ranks:]]
    spec = parse(table)
    assert (spec.largest_id, len(spec.vocab)) == (n_ranks + 6, n_ranks + 7)
    assert not set(cut) & set(spec.vocab.values())
    table["vocab"][n_ranks:] = ["not", "looked", "at"]
    assert parse(table) == spec
    table["config"]["default_vocab_size"] += 1
    with pytest.raises(FormatError, match=rf"vocab\[{n_ranks}\] is 'not'"):
        parse(table)


TABLE = small_tekken(LISTED, n_special=7)


def with_config(**fields):
    return {**TABLE, "config": {**TABLE["config"], **fields}}


def test_fields_without_effect_on_ids_change_nothing():
    more = {"image": {"image_patch_size": 16}, "audio": {}, "type": "x", "version": 2}
    assert parse(with_config(num_vocab_tokens=3, new=1) | more) == parse(TABLE)


def with_entry(index, **fields):
    return changed(TABLE, f"vocab.{index}", TABLE["vocab"][index] | fields)


def with_specials(*values):
    return {**TABLE, "special_tokens": list(values)}


REFUSED = [
    (with_config(version="v16"), r"config\.version is 'v16'; only v1, v2"),
    (with_config(pattern="gpt2"), r"config\.pattern is 'gpt2'; it must be a regular expression"),
    (with_config(pattern="("), r"config\.pattern: "),
    (with_config(pattern=r"(\w)\1"), r"config\.pattern: .* translated exactly from fancy-regex"),
    (with_config(default_num_special_tokens=-1), r"default_num_special_tokens is -1; .* in 0\.\."),
    (with_config(default_num_special_tokens=True), "default_num_special_tokens is True"),
    (with_config(default_num_special_tokens=65_537), r"tokens is 65537; .* integer in 0\.\.65536"),
    (with_config(default_vocab_size=MAX_TOKEN_ID + 2), "default_vocab_size is 1048577"),
    (with_config(default_vocab_size=262), "is 255, the number of ranks; it must be between 256"),
    (with_config(default_vocab_size=324), "is 317, .* and the number of entries of vocab, 316"),
    # Four tokens are listed.
    (with_config(default_num_special_tokens=3, default_vocab_size=260), "are 4 special tokens"),
    (with_entry(260, rank=261), r"vocab\[260\]\.rank is 261; it must be 260"),
    (with_entry(260, token_bytes=""), r"vocab\[260\]\.token_bytes is ''"),
    (with_entry(260, token_bytes="YW I"), r"vocab\[260\]\.token_bytes is 'YW I'"),
    (with_entry(260, token_bytes="YQ==YQ=="), r"vocab\[260\]\.token_bytes is 'YQ==YQ=='"),
    (with_entry(260, token_bytes=7), r"vocab\[260\]\.token_bytes is 7"),
    (with_entry(260, token_bytes="YQ=="), r"vocab\[260\].* b'a', which is vocab\[97\] already"),
    (with_entry(97, token_bytes="Yg=="), r"vocab\[97\].* b'b'; the first 256 entries must be"),
    (with_entry(255, token_bytes="YWFhYWFhYWE="), r"vocab\[255\].* the single bytes 0 to 255"),
    (with_entry(0, more=1), r"vocab\[0\] is .*; it must be an object with rank, token_bytes and"),
    *(
        (changed(TABLE, f"vocab.260.{field}", DROP), r"vocab\[260\] is .*; it must be an object")
        for field in ("rank", "token_bytes", "token_str")
    ),
    (TABLE | {"special_tokens": {}}, "special_tokens is {}; it must be a list"),
    (with_specials("<s>"), r"special_tokens\[0\] is '<s>'; it must be an object"),
    (with_specials({"rank": 0, "token_str": ""}), r"special_tokens\[0\] is .* not empty"),
    (with_specials({"rank": 1, "token_str": "<s>"}), r"tokens\[0\]\.rank is 1; it must be 0"),
    (with_specials({"rank": False, "token_str": "<s>"}), r"tokens\[0\]\.rank is False"),
    (with_specials(*({"rank": i, "token_str": "A>"} for i in (0, 1))), "'A>' has two ids, 0 and 1"),
    (with_specials({"rank": 0, "token_str": "<SPECIAL_5>"}), "_5>' has two ids, 0 and 5"),
    (small_tekken(["<s>", "A"], n_special=7), "'A' is a rank as well"),
    ({}, r"this is no tekken\.json"),
    ({"config": [], "vocab": []}, r"this is no tekken\.json"),
]


@pytest.mark.parametrize(("table", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_wrong_file_is_refused_with_the_place(table, message):
    with pytest.raises((FormatError, InvalidSpecError), match=message):
        parse(table)
