"""Mistral's `tekken.json`: compared with tiktoken, which mistral-common encodes with."""

import base64
import json

import pytest
import tiktoken

from tests.adversarial import adversarial_texts
from tests.parity.vocabularies import SPECIALS, TEKKEN_SPECIALS
from tests.tokenizer_core.formats.small_specs import small_tekken, wild_texts
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.formats import (
    detect_format,
    load_spec,
    load_tekken,
    load_vocab_and_merges,
    save_gpt2_files,
)
from tokenizer_core.formats.tekken_file import parse_tekken
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import MAX_TOKEN_ID, TokenizerSpec

LISTED = ["<unk>", "<s>", "</s>", "[THINK]"]


def parse(table: object) -> TokenizerSpec:
    return parse_tekken(json.dumps(table).encode())


def in_tiktoken(table: dict) -> tiktoken.Encoding:
    """As in mistral-common: the kept ranks, not moved by the special tokens."""
    config = table["config"]
    kept = table["vocab"][: config["default_vocab_size"] - config["default_num_special_tokens"]]
    return tiktoken.Encoding(
        "tekken",
        pat_str=config["pattern"],
        mergeable_ranks={base64.b64decode(e["token_bytes"]): e["rank"] for e in kept},
        special_tokens={},
    )


@pytest.mark.parametrize("seed", range(4))
def test_ids_are_those_of_tiktoken_after_the_special_tokens(seed, engine):
    table = small_tekken(LISTED, n_special=7, seed=seed)
    theirs = in_tiktoken(table)
    ours = Tokenizer.from_spec(parse(table), engine=engine)
    for text in [*wild_texts(seed), *adversarial_texts(longest=80), "<s>[THINK]<SPECIAL_5>"]:
        expected = [id_ + 7 for id_ in theirs.encode_ordinary(text)]
        assert ours.encode(text, allowed_special="none") == expected, repr(text)
        assert ours.encode_ordinary(text) == expected, repr(text)


def test_text_that_the_expression_does_not_match_is_dropped_as_in_tiktoken(engine):
    table = small_tekken(LISTED, n_special=7)
    table["config"]["pattern"] = r"\p{L}+|\p{N}"
    ours, theirs = Tokenizer.from_spec(parse(table), engine=engine), in_tiktoken(table)
    for text in ["ab, c 12!", " ", *wild_texts(1)]:
        expected = [id_ + 7 for id_ in theirs.encode_ordinary(text)]
        assert ours.encode(text, allowed_special="none") == expected, repr(text)
    assert ours.encode(" ") == []


def test_special_tokens_in_a_text_are_matched_unless_they_are_not_allowed(engine):
    ours = Tokenizer.from_spec(parse(small_tekken(LISTED, n_special=7)), engine=engine)
    text = "<s>[THINK]<SPECIAL_4><SPECIAL_6><SPECIAL_7>"
    plain = [byte + 7 for byte in b"<SPECIAL_7>"]
    assert ours.encode(text) == [1, 3, 4, 6, *plain]
    assert ours.encode(text, allowed_special="none") == [byte + 7 for byte in text.encode()]
    assert ours.decode([1, 3, 6, 7 + 65]) == "<s>[THINK]<SPECIAL_6>A"
    assert ours.decode([1, 3, 6, 7 + 65], skip_special_tokens=True) == "A"
    assert ours.encode("A", add_special_tokens=True) == [7 + 65]


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "v7"])
def test_old_versions_without_a_list_have_twenty_fixed_tokens(version):
    for absent in ({}, {"special_tokens": None}):
        spec = parse(small_tekken(None, n_special=22, version=version) | absent)
        contents = [*TEKKEN_SPECIALS, "<SPECIAL_20>", "<SPECIAL_21>"]
        assert spec.special_tokens == {content: id_ for id_, content in enumerate(contents)}
        assert all(token.special for token in spec.added_tokens)


@pytest.mark.parametrize("version", ["v1", "v7", "v11", "v13", "v15"])
@pytest.mark.parametrize("listed", [[], LISTED, [*LISTED, "<SPECIAL_5>", "<SPECIAL_4>"]])
def test_a_list_has_the_first_ids_and_fillers_the_others(version, listed):
    n_special = len(listed) + 2
    spec = parse(small_tekken(listed, n_special=n_special, version=version))
    contents = [*listed, f"<SPECIAL_{len(listed)}>", f"<SPECIAL_{len(listed) + 1}>"]
    assert spec.special_tokens == {content: id_ for id_, content in enumerate(contents)}
    assert spec.vocab[n_special + 65] == b"A"


def test_no_special_tokens_at_all():
    spec = parse(small_tekken([], n_special=0))
    assert not spec.added_tokens
    assert spec.vocab[65] == b"A"


def test_many_special_tokens():
    spec = parse(small_tekken(LISTED, n_special=65_536))
    assert len(spec.added_tokens) == 65_536
    assert spec.vocab[65_535] == b"<SPECIAL_65535>"
    assert spec.vocab[65_536 + 65] == b"A"


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


def test_fields_without_effect_on_ids_change_nothing():
    table = small_tekken(LISTED, n_special=7)
    spec = parse(table)
    table["config"] |= {"num_vocab_tokens": 3, "new": 1}
    more = {"image": {"image_patch_size": 16}, "audio": {}, "type": "x", "version": 2}
    assert parse(table | more) == spec


CONFIG = [
    ({"version": "v16"}, r"config\.version is 'v16'; only v1, v2"),
    ({"version": 3}, r"config\.version is 3"),
    ({"version": None}, r"config\.version is None"),
    ({"pattern": None}, r"config\.pattern is None"),
    ({"pattern": "gpt2"}, r"config\.pattern is 'gpt2'; it must be a regular expression"),
    ({"pattern": "qwen3"}, r"config\.pattern is 'qwen3'; it must be a regular expression"),
    ({"pattern": "("}, r"config\.pattern: "),
    ({"pattern": r"(\w)\1"}, r"config\.pattern: .* cannot be translated exactly from fancy-regex"),
    ({"default_num_special_tokens": -1}, r"default_num_special_tokens is -1; .* integer in 0\.\."),
    ({"default_num_special_tokens": True}, "default_num_special_tokens is True"),
    ({"default_num_special_tokens": 7.0}, r"default_num_special_tokens is 7\.0"),
    ({"default_num_special_tokens": None}, "default_num_special_tokens is None"),
    ({"default_num_special_tokens": 65_537}, r"special_tokens is 65537; .* integer in 0\.\.65536"),
    ({"default_vocab_size": "300"}, "default_vocab_size is '300'"),
    ({"default_vocab_size": True}, "default_vocab_size is True"),
    ({"default_vocab_size": MAX_TOKEN_ID + 2}, "default_vocab_size is 1048577"),
    ({"default_vocab_size": 262}, "is 255, the number of ranks; it must be between 256 and"),
    ({"default_vocab_size": 324}, "is 317, .* and the number of entries of vocab, 316"),
    ({"default_vocab_size": 400}, "is 393, the number of ranks; it must be between 256 and"),
    # Four tokens are listed.
    ({"default_num_special_tokens": 3, "default_vocab_size": 260}, "are 4 special tokens, more "),
]


@pytest.mark.parametrize(("fields", "message"), CONFIG)
def test_settings_that_are_wrong_are_refused_by_name(fields, message):
    table = small_tekken(LISTED, n_special=7)
    table["config"] |= fields
    with pytest.raises(FormatError, match=message):
        parse(table)


@pytest.mark.parametrize("field", ["version", "pattern", "default_vocab_size"])
def test_a_missing_setting_is_refused_by_name(field):
    table = small_tekken(LISTED, n_special=7)
    del table["config"][field]
    with pytest.raises(FormatError, match=rf"config\.{field} is None"):
        parse(table)


VOCAB = [
    (260, {"rank": 261}, r"vocab\[260\]\.rank is 261; it must be 260"),
    (260, {"rank": 259}, r"vocab\[260\]\.rank is 259; it must be 260"),
    (1, {"rank": True}, r"vocab\[1\]\.rank is True; it must be 1"),
    (2, {"rank": 2.0}, r"vocab\[2\]\.rank is 2\.0; it must be 2"),
    (2, {"rank": "2"}, r"vocab\[2\]\.rank is '2'"),
    (260, {"token_bytes": ""}, r"vocab\[260\]\.token_bytes is ''"),
    (260, {"token_bytes": "YW"}, r"vocab\[260\]\.token_bytes is 'YW'"),
    (260, {"token_bytes": "YW I"}, r"vocab\[260\]\.token_bytes is 'YW I'"),
    (260, {"token_bytes": "YQ==YQ=="}, r"vocab\[260\]\.token_bytes is 'YQ==YQ=='"),
    (260, {"token_bytes": "é"}, r"vocab\[260\]\.token_bytes is '\\xe9'"),
    (260, {"token_bytes": 7}, r"vocab\[260\]\.token_bytes is 7"),
    (260, {"token_bytes": "YQ=="}, r"vocab\[260\].* b'a', which is vocab\[97\] already"),
    (97, {"token_bytes": "Yg=="}, r"vocab\[97\].* b'b'; the first 256 entries must be"),
    (0, {"more": 1}, r"vocab\[0\] is .*; it must be an object with rank, token_bytes and"),
]


@pytest.mark.parametrize(("index", "fields", "message"), VOCAB)
def test_entries_that_are_wrong_are_refused_by_index(index, fields, message):
    table = small_tekken(LISTED, n_special=7)
    table["vocab"][index] |= fields
    with pytest.raises(FormatError, match=message):
        parse(table)


@pytest.mark.parametrize("field", ["rank", "token_bytes", "token_str"])
def test_an_entry_without_a_field_is_refused(field):
    table = small_tekken(LISTED, n_special=7)
    del table["vocab"][260][field]
    with pytest.raises(FormatError, match=r"vocab\[260\] is .*; it must be an object"):
        parse(table)


def test_gaps_and_missing_bytes_are_refused():
    gap = small_tekken(LISTED, n_special=7)
    del gap["vocab"][258]
    gap["config"]["default_vocab_size"] -= 1
    with pytest.raises(FormatError, match=r"vocab\[258\]\.rank is 259; it must be 258"):
        parse(gap)
    no_byte = small_tekken(LISTED, n_special=7)
    no_byte["vocab"][255]["token_bytes"] = "YWFhYWFhYWE="
    with pytest.raises(FormatError, match=r"vocab\[255\].* the single bytes 0 to 255"):
        parse(no_byte)


BAD_SPECIALS = [
    ({}, "special_tokens is {}; it must be a list"),
    ("<s>", "special_tokens is '<s>'; it must be a list"),
    (["<s>"], r"special_tokens\[0\] is '<s>'; it must be an object"),
    ([{"rank": 0}], r"special_tokens\[0\] is {'rank': 0}; it must be an object"),
    ([{"rank": 0, "token_str": ""}], r"special_tokens\[0\] is .* not empty"),
    ([{"rank": 0, "token_str": 5}], r"special_tokens\[0\] is "),
    ([{"rank": 1, "token_str": "<s>"}], r"special_tokens\[0\]\.rank is 1; it must be 0"),
    ([{"rank": False, "token_str": "<s>"}], r"special_tokens\[0\]\.rank is False"),
    ([{"token_str": "<s>"}], r"special_tokens\[0\]\.rank is None"),
    ([{"rank": n, "token_str": "<s>"} for n in (0, 1)], "'<s>' has two ids, 0 and 1"),
    ([{"rank": n, "token_str": f"<{n}>"} for n in (1, 0)], r"special_tokens\[0\]\.rank is 1"),
    ([{"rank": 9, "token_str": "<s>"}], r"special_tokens\[0\]\.rank is 9; it must be 0"),
    ([{"rank": 0, "token_str": "<SPECIAL_5>"}], "'<SPECIAL_5>' has two ids, 0 and 5"),
]


@pytest.mark.parametrize(("value", "message"), BAD_SPECIALS)
def test_special_tokens_that_are_wrong_are_refused(value, message):
    with pytest.raises(FormatError, match=message):
        parse(small_tekken(None, n_special=7) | {"special_tokens": value})


@pytest.mark.parametrize("version", ["v11", "v13", "v15"])
def test_new_versions_need_a_list(version):
    with pytest.raises(FormatError, match=f"special_tokens is missing.* version {version}"):
        parse(small_tekken(None, n_special=22, version=version))


def test_a_special_token_that_is_a_rank_is_refused():
    with pytest.raises(InvalidSpecError, match="'A' is a rank as well"):
        parse(small_tekken(["<s>", "A"], n_special=7))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "this is no tekken.json"),
        (b"{}", "this is no tekken.json"),
        (b'{"config": {}, "vocab": {}}', "this is no tekken.json"),
        (b'{"config": [], "vocab": []}', "this is no tekken.json"),
        (b'{"config": {}, "config": {}, "vocab": []}', "tekken.json gives the key 'config' twice"),
        (b'{"config"', "tekken.json is not JSON"),
    ],
)
def test_other_documents_are_refused(data, message):
    with pytest.raises(FormatError, match=message):
        parse_tekken(data)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "no_name"
    path.write_text(json.dumps(small_tekken(LISTED, n_special=7)))
    return path


def test_the_file_is_detected_and_read_like_every_format(path, engine):
    assert detect_format(path) == "tekken"
    spec = load_spec([path])
    assert spec == load_tekken(path) == Tokenizer.from_tekken(path, engine=engine).spec
    assert Tokenizer.from_tekken(path, engine=engine).engine_name == engine


def test_the_file_is_complete(path):
    for given in ({"pattern": "gpt2"}, {"special_tokens": ["<s>"]}, {"special_tokens": {"<s>": 1}}):
        with pytest.raises(FormatError, match=r"tekken\.json says itself how text is split"):
            load_spec([path], **given)
    with pytest.raises(FormatError, match="tekken needs no second file"):
        load_spec([path, path])
    with pytest.raises(FormatError, match="tekken, which is one file alone"):
        load_vocab_and_merges(path, path)


def test_a_vocabulary_with_the_words_config_and_vocab_is_gpt2(tmp_path):
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"config", 257: b"vocab"}
    save_gpt2_files(TokenizerSpec.from_merges(vocab, []), tmp_path / "v", tmp_path / "m")
    assert detect_format(tmp_path / "v") == "gpt2"


def test_a_published_tokenizer_is_the_same(path, tmp_path):
    spec = load_tekken(path)
    store = ArtifactStore(tmp_path / "artifacts")
    again = store.open(store.publish(spec, name="tekken"))
    assert again == spec
    assert (again.pattern.dialect, again.pattern.unmatched) == ("fancy-regex", "drop")
    text = "<s>abc cab<SPECIAL_6>"
    assert Tokenizer.from_spec(again).encode(text) == Tokenizer.from_spec(spec).encode(text)


@pytest.mark.shared_data
def test_the_public_file(shared_data, tmp_path):
    path = shared_data / "vocab_open" / "tekken_240911.json"
    if not path.is_file():
        pytest.skip(f"there is no {path.name} in the shared data")
    assert detect_format(path) == "tekken"
    spec = load_tekken(path)
    assert (len(spec.vocab), spec.largest_id, len(spec.added_tokens)) == (131072, 131071, 1000)
    assert (spec.prefix_ids, spec.suffix_ids, spec.normalizer) == ((), (), "none")
    assert spec.special_tokens == SPECIALS["tekken"]
    store = ArtifactStore(tmp_path)
    assert store.open(store.publish(spec, name="tekken")) == spec
    ours, theirs = Tokenizer.from_spec(spec), in_tiktoken(json.loads(path.read_bytes()))
    for text in adversarial_texts(longest=300):
        expected = [id_ + 1000 for id_ in theirs.encode_ordinary(text)]
        assert ours.encode(text, allowed_special="none") == expected, repr(text[:60])
