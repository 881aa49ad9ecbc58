"""tokenizer.json: Hugging Face's tokenizers give the same ids for our files, and our reader either
understands a file completely or refuses it by name."""

import copy
import dataclasses
import json
import pickle
from itertools import product

import pytest
import tokenizers

from tests.adversarial import adversarial_texts
from tests.tokenizer_core.formats.small_specs import (
    BYTES,
    DROP,
    TRAINING_TEXT,
    added_token,
    changed,
    check_against_tokenizers,
    check_refusal,
    pair_of,
    trained_spec,
    wild_ranks,
    wild_texts,
)
from tokenizer_core import Tokenizer
from tokenizer_core.errors import FormatError, InvalidSpecError
from tokenizer_core.evaluation.unreachable import unreachable_tokens
from tokenizer_core.formats.any_format import write_files
from tokenizer_core.formats.gpt2_files import render_token
from tokenizer_core.formats.manifest_fields import build_spec, render_spec_fields
from tokenizer_core.formats.tokenizer_json.added_tokens import assign_added_ids
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.presets import load_preset_spec
from tokenizer_core.spec import AddedToken, Alphabet, TokenizerSpec
from tokenizer_core.splitting.patterns import PATTERNS

TEXTS = [TRAINING_TEXT, *adversarial_texts()]
SPECIALS = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<|im_start|>"]
TRUNCATION = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": {"Fixed": 9},
    "direction": "Left",
    "pad_to_multiple_of": None,
    "pad_id": 7,
    "pad_type_id": 0,
    "pad_token": "<pad>",
}


def in_hugging_face(spec):
    return tokenizers.Tokenizer.from_str(render_tokenizer_json(spec).decode())


def table_of(spec):
    return json.loads(render_tokenizer_json(spec))


def parse(table):
    return parse_tokenizer_json(json.dumps(table).encode())


def assert_same_ids(spec, texts=TEXTS):
    ours, theirs = Tokenizer.from_spec(spec), in_hugging_face(spec)
    for text in texts:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text[:80]
        assert ours.encode(text, add_special_tokens=True) == theirs.encode(text).ids


_TRAINED = trained_spec(special_tokens=SPECIALS)
SPECS = {
    **{name: trained_spec(pattern=name, special_tokens=SPECIALS) for name in PATTERNS},
    "nfc": trained_spec(pattern="qwen2", normalizer="nfc", special_tokens=SPECIALS),
    "whole pre-tokens": trained_spec(ignore_merges=True),
    "learned special tokens": trained_spec(
        special_tokens=[AddedToken("t", 116), AddedToken("the", 258)]
    ),
    "content": trained_spec(
        special_tokens=[AddedToken("<think>", 356, special=False), AddedToken("<|end|>", 357)]
    ),
    "ends": trained_spec(special_tokens=SPECIALS, prefix_ids=(358, 65), suffix_ids=(356, 356)),
    # tokenizers numbers added tokens itself; the vocabulary must list ids after a gap.
    "gaps": trained_spec(special_tokens=[AddedToken("<中>", 500), AddedToken("<|b c|>", 400)]),
    "an empty token": TokenizerSpec.from_merges(
        {**_TRAINED.vocab, 400: b""}, _TRAINED.merges, _TRAINED.added_tokens
    ),
    # "\n" is "Ċ" in the byte alphabet: the file has both.
    "two spellings": trained_spec(special_tokens=[AddedToken("\n", 10), AddedToken("<x>", 900)]),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_written_file_gives_the_ids_of_tokenizers_and_the_spec(name):
    spec = SPECS[name]
    assert_same_ids(spec, [*TEXTS, "x<|a|><|b c|><中>y", "a\n<x>\n", "low<think>er<|end|> the"])
    assert parse(table_of(spec)) == spec
    theirs, ours = in_hugging_face(spec), Tokenizer.from_spec(spec)
    for ids in ([97, 356, spec.largest_id, 10, 97], [400, 97, 400]):
        for skips in (False, True):
            known = [id_ for id_ in ids if id_ in spec.vocab]
            expected = theirs.decode(known, skip_special_tokens=skips)
            assert ours.decode(known, skip_special_tokens=skips) == expected


def test_any_ranks_give_the_ids_of_tokenizers():
    for seed in range(6):
        spec = TokenizerSpec.from_ranks(wild_ranks(seed), {"<|x|>": 999}, pattern="gpt2")
        assert_same_ids(spec, [*wild_texts(seed, n_texts=30), "ab<|x|>c"])


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_an_entry_outside_the_alphabet_is_given_by_no_text(ignore_merges):
    """Cohere's files have emoji as such entries, some of which merges make too."""
    table = table_of(trained_spec(special_tokens=SPECIALS, ignore_merges=ignore_merges))
    vocab = table["model"]["vocab"]
    spelt = render_token("ꙮ".encode())
    table["model"]["merges"] += [[spelt[0], spelt[1]], [spelt[:2], spelt[2]]]
    # The first id is before those of the same bytes.
    idle = ["ꙮ", "中文", "▁the", "é中"]
    # A merge of such entries never applies.
    table["model"]["merges"].insert(5, ["é中", "▁the"])
    names = [*vocab, *idle, "é中▁the", spelt[:2], spelt]
    table["model"]["vocab"] = {name: id_ for id_, name in enumerate(names)}
    for id_, token in enumerate(table["added_tokens"], len(names)):
        token["id"] = id_
    theirs, both = pair_of(table)
    ours, spec = both[0], both[0].spec
    first = names.index("ꙮ")
    assert spec.alphabet.idle_ids == tuple(range(first, first + 5))
    for text in [*TEXTS, "ꙮ", " ꙮꙮ", "中文", "▁the é中"]:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert [each.encode(text) for each in both] == [ids] * len(both)
    for id_ in range(len(names)):
        assert {each.decode([id_]) for each in both} == {theirs.decode([id_])}
    # The file and the artifact keep what is idle, and say so in the second format.
    assert parse(table_of(spec)) == spec
    assert_same_ids(spec, ["ꙮ", "中文"])
    fields = render_spec_fields(spec)
    assert fields["alphabet"]["idle_ids"] == list(spec.alphabet.idle_ids)
    assert build_spec(fields, spec.vocab, spec.merges) == spec
    reasons = {token.id: token.reason for token in unreachable_tokens(ours)}
    assert reasons[first] == "same_bytes"
    assert reasons[first + 2] == "merges"  # of U+2581
    with pytest.raises(InvalidSpecError, match="the idle id 128 has no text"):
        dataclasses.replace(
            spec, alphabet=Alphabet(idle_ids=(128, *spec.alphabet.idle_ids))
        ).check()


@pytest.mark.parametrize("ids", [[5, 7, 8], [300, 301, 302]])
def test_the_ids_of_added_tokens_are_those_of_tokenizers(ids):
    """`assign_added_ids` follows the rule of the installed release."""
    table = table_of(trained_spec(20))
    table["added_tokens"] = [added(content, id_) for content, id_ in zip("<>€", ids, strict=True)]
    theirs = tokenizers.Tokenizer.from_str(json.dumps(table))
    found = [theirs.token_to_id(content) for content in "<>€"]
    assert found == assign_added_ids(table["model"]["vocab"], ["<", ">", "€"])


def test_files_that_tokenizers_wrote_are_read():
    spec = trained_spec(pattern="llama3", special_tokens=SPECIALS, prefix_ids=(356,))
    assert parse_tokenizer_json(in_hugging_face(spec).to_str(pretty=True).encode()) == spec
    theirs = tokenizers.ByteLevelBPETokenizer()
    theirs.train_from_iterator([TRAINING_TEXT], vocab_size=330, special_tokens=["<|endoftext|>"])
    ours = Tokenizer.from_spec(parse_tokenizer_json(theirs.to_str().encode()))
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (trained_spec(pattern="llama3", normalizer="prefix-space"), "puts a space before each pre"),
        # Hugging Face would take the added token for the learned one of the same spelling
        (TokenizerSpec.from_merges(BYTES, [], [AddedToken("a", 400)]), "spelt like"),
        (TokenizerSpec.from_merges(BYTES, [], [AddedToken("éé", 400)]), "spelt like the bytes"),
    ],
)
def test_a_spec_that_the_format_cannot_hold_is_refused(spec, message, tmp_path):
    with pytest.raises(FormatError, match=message):
        write_files("tokenizer.json", spec, tmp_path / "tokenizer.json")
    assert list(tmp_path.iterdir()) == []


def added(content, id_, **flags):
    return {"id": id_, **added_token(content, **flags)}


LLAMA3 = table_of(trained_spec(pattern="llama3", prefix_ids=(356,)))
GPT2 = table_of(trained_spec())
QWEN = table_of(trained_spec(pattern="qwen2", normalizer="nfc"))
PLAIN = table_of(trained_spec(special_tokens=[]))
SPELT_TWICE = table_of(SPECS["two spellings"])
SIDES = {**PLAIN, "added_tokens": [added("<中>", 356)]}
ENDS = {"type": "BertProcessing", "cls": ["<|endoftext|>", 356], "sep": ["the", 258]}
AS_TEXTS = [" ".join(pair) for pair in GPT2["model"]["merges"]]
SPLIT = "pre_tokenizer.pretokenizers.0"
TEMPLATE = "post_processor.processors.1"
NAMED = f"{TEMPLATE}.special_tokens.<|endoftext|>"


def piece(name, type_id=0):
    kind = "Sequence" if name in ("A", "B") else "SpecialToken"
    return {kind: {"id": name, "type_id": type_id}}


REFUSED = [
    # base, path to the field, value, words of the message
    (GPT2, "version", "2.0", "version"),
    (GPT2, "a\nb\x1f", None, r"tokenizer\.a\\nb\\x1f is not known"),
    (GPT2, "model.type", "WordPiece", "its model is WordPiece, .* byte-level and"),
    (GPT2, "model.type", "Wordpiece", "model.type is 'Wordpiece'"),
    (GPT2, "model", {"vocab": [["a", -1.0]], "unk_id": 0}, "its model is Unigram"),
    (GPT2, "model", {"vocab": {"a": 0}, "max_input_chars_per_word": 9}, "its model is WordPiece"),
    (GPT2, "model", {"vocab": {"a": 0}, "unk_token": "a"}, "its model is WordLevel"),
    (GPT2, "model.dropout", 0.1, "model.dropout is 0.1, .* set it to null"),
    (GPT2, "model.continuing_subword_prefix", "##", "continuing_subword_prefix"),
    (GPT2, "model.end_of_word_suffix", "</w>", "end_of_word_suffix"),
    (GPT2, "model.ignore_merges", 1, "ignore_merges"),
    (GPT2, "model.vocab", DROP, "vocab"),
    (GPT2, "model.merges.3", "a b c", r"merges\[3\]"),
    (GPT2, "model.merges.3", ["a", 5], r"merges\[3\]"),
    (GPT2, "model.merges.3", ["a", ""], r"merges\[3\]"),
    (GPT2, "model.merges.3", ["z", "q"], "merge 3 .*needs the token b'zq'"),
    (GPT2, "model.merges.3", GPT2["model"]["merges"][0], "merge 3.* stands twice"),
    (GPT2, "model.vocab.zz", 5, "id 5 stands for two tokens"),
    (GPT2, "model.vocab.zz", 900_000, "says id 356 for the added token"),
    *(
        (GPT2, "model.merges", [*AS_TEXTS[:3], *wrong], r"merges\[3\] is '" + wrong[0])
        for wrong in (["a b c"], ["ab", "a b c"], ["a b c", "ab"], [" b"], ["a  b"], ["a 中"])
    ),
    (GPT2, "model.vocab.a", 1 << 20, "no integer in"),
    (GPT2, "model", DROP, "model"),
    (GPT2, "model", None, "model"),
    (GPT2, "model.vocab", [], "model.vocab is no object"),
    (GPT2, "model.merges", {}, "model.merges is no list"),
    (GPT2, "added_tokens", {}, "added_tokens is no list"),
    (GPT2, "decoder", None, "decoder is null, .* write"),
    (GPT2, "normalizer", {"type": "Sequence", "normalizers": [{"type": "Nmt"}]}, "rs.0..type"),
    (GPT2, "normalizer", {"type": "Prepend"}, "normalizer.prepend"),
    (GPT2, "pre_tokenizer", None, "pre_tokenizer"),
    (GPT2, "pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer"),
    (GPT2, "pre_tokenizer.add_prefix_space", DROP, "add_prefix_space"),
    (LLAMA3, f"{SPLIT}.type", "Digits", "pattern is not known"),
    (LLAMA3, f"{SPLIT}.invert", "no", "invert"),
    (LLAMA3, f"{SPLIT}.pattern", {"Regex": r"(a)\1"}, r"the escape `.1` at offset 3"),
    (LLAMA3, f"{SPLIT}.pattern", {"Regex": 7}, "Regex is no text"),
    (LLAMA3, "pre_tokenizer.pretokenizers.1.add_prefix_space", True, "add_prefix_space"),
    (LLAMA3, "pre_tokenizer.pretokenizers.1", DROP, "must be Splits or Digits"),
    (LLAMA3, "post_processor", {"type": "ByteFallback"}, "post_processor.type"),
    (LLAMA3, "post_processor", {"type": "RobertaProcessing"}, "post_processor.cls is missing"),
    (LLAMA3, "post_processor", {**ENDS, "type": "RobertaProcessing"}, "trim_offsets is missing"),
    (LLAMA3, "post_processor", {**ENDS, "sep": "the"}, "post_processor.sep is 'the'"),
    (LLAMA3, "post_processor", {**ENDS, "sep": ["the", "7"]}, "'the' has the id '7'"),
    (LLAMA3, "post_processor.processors.0", ENDS, "more than one step that adds tokens"),
    (LLAMA3, f"{TEMPLATE}.single", [], "sequence A once"),
    (LLAMA3, f"{TEMPLATE}.single.0.SpecialToken.id", "<x>", "single holds"),
    (LLAMA3, f"{TEMPLATE}.single.1.Sequence.id", "B", "single holds"),
    (LLAMA3, f"{TEMPLATE}.single.1.Sequence.type_id", True, "single holds"),
    (LLAMA3, f"{TEMPLATE}.pair", piece("A"), "pair is no list"),
    (LLAMA3, f"{TEMPLATE}.pair.0.SpecialToken.id", "<x>", "pair holds"),
    (LLAMA3, f"{TEMPLATE}.pair.1.Sequence.type_id", 1 << 32, "pair holds"),
    (LLAMA3, f"{TEMPLATE}.pair.1.Sequence.type_id", DROP, "pair holds"),
    (LLAMA3, f"{TEMPLATE}.special_tokens", [], "special_tokens is malformed"),
    (LLAMA3, f"{NAMED}.ids", 5, "no lists of ids and tokens"),
    (LLAMA3, f"{NAMED}.tokens", DROP, "tokens is missing"),
    (LLAMA3, f"{NAMED}.tokens", [5], "a token that is no text"),
    (LLAMA3, "post_processor.processors.0", {"type": "Sequence", "processors": []}, "nests"),
    (GPT2, "added_tokens.0.lstrip", 1, r"added_tokens\[0\].lstrip"),
    (GPT2, "added_tokens.0.single_word", DROP, r"added_tokens\[0\].single_word"),
    (GPT2, "added_tokens.0.content", "", "content"),
    (GPT2, "added_tokens.0.content", "\ud800", "lone surrogate"),
    (GPT2, "added_tokens.0.id", "5", "no integer"),
    (GPT2, "added_tokens.0.id", 5, "Hugging Face's tokenizers gives it 356"),
    (GPT2, "added_tokens", [added("<m>", 356, rstrip=True), added(" \n", 357)], "is white space"),
    (SPELT_TWICE, "added_tokens", [], "stands for two tokens"),
    (SPELT_TWICE, "added_tokens.0.content", "\\r", "stands for two tokens"),
    (SIDES, "model.merges", ["a <中>", *AS_TEXTS], r"model\.merges\[0\]"),
    (SIDES, "model.merges.0", ["<中>", "a"], r"model\.merges\[0\]"),
    (GPT2, "model.byte_fallback", 5, "byte_fallback"),
    (GPT2, "truncation", 5, "truncation is no object"),
    (GPT2, "padding", {**PADDING, "x": 1}, r"padding\.x is not known"),
    (GPT2, "padding", {**PADDING, "pad_token": "x" * 1025}, r"padding\.pad_token"),
]


@pytest.mark.parametrize(
    "content", ["|||IP_ADDRESS|||", "<|a=b|", "\t", "<|x|>", "word", "K|", "a;|", "`|", "é|", "=="]
)
def test_tokens_beside_nfc_are_found_as_in_tokenizers(content):
    """NFC makes "K" of U+212A and joins a mark to "=", so it may make or change some tokens."""
    token = QWEN["added_tokens"][0] | {"content": content, "normalized": True}
    theirs, both = pair_of({**QWEN, "added_tokens": [token]})
    assert bool(both[0].spec.normalizer.steps) == (
        content not in ("|||IP_ADDRESS|||", "<|a=b|", "\t")
    )
    for mark in ("", "\u0301", "\u0338", "\u0327\u0301"):
        for made in (content, content.replace("K", "\u212a").replace("é", "e\u0301")):
            text = f"A\u030a{made}{mark} b{made}{made}"
            expected = theirs.encode(text, add_special_tokens=False).ids
            assert [ours.encode(text) for ours in both] == [expected] * len(both), text


def test_bytes_that_text_never_has_may_be_missing():
    table = copy.deepcopy(GPT2)
    vocab = table["model"]["vocab"]
    for byte in (0xC0, 0xC1, 0xF5, 0xFF):
        vocab[f"<filler-{byte}>"] = vocab.pop(render_token(bytes([byte])))
    theirs, both = pair_of(table)
    for text in ("the ÿÀ text\n", "\U0010ffff\u07ff\u0800", "中文<|endoftext|>é"):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert [ours.encode(text) for ours in both] == [expected] * len(both)


@pytest.mark.parametrize(("base", "path", "value", "message"), REFUSED, ids=lambda x: str(x)[:40])
def test_a_setting_that_changes_ids_is_refused_by_name(base, path, value, message):
    parse(base)
    check_refusal(changed(base, path, value), message)


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_bpe_of_characters_is_refused_by_its_kind(byte_fallback):
    table = changed(GPT2, "model.byte_fallback", byte_fallback) | {"decoder": None}
    with pytest.raises(FormatError, match="is BPE of characters, without the bytes"):
        parse({**table, "pre_tokenizer": {"type": "Metaspace"}})


ACCEPTED = [
    (GPT2, "model.type", DROP),  # as in GPT-2's own file
    (GPT2, "model.continuing_subword_prefix", ""),
    (GPT2, "model.dropout", 0.0),
    (GPT2, "pre_tokenizer.use_regex", DROP),
    (GPT2, "pre_tokenizer.trim_offsets", True),
    (GPT2, "post_processor", None),
    (GPT2, "added_tokens.0.normalized", True),
    (GPT2, "model.unk_token", "<unk>"),
    (GPT2, "model.byte_fallback", True),
    (GPT2, "normalizer", {"type": "Sequence", "normalizers": []}),
    (GPT2, "pre_tokenizer", {"type": "Sequence", "pretokenizers": [GPT2["pre_tokenizer"]]}),
    (QWEN, "normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}]}),
    (GPT2, "model.merges", AS_TEXTS),
]


@pytest.mark.parametrize(("base", "path", "value"), ACCEPTED, ids=lambda x: str(x)[:40])
def test_a_setting_that_changes_no_id_is_read(base, path, value):
    assert parse(changed(base, path, value)).fingerprint == parse(base).fingerprint


def test_saved_truncation_and_padding_are_written_again():
    spec = parse({**GPT2, "truncation": TRUNCATION, "padding": PADDING})
    assert spec == parse(GPT2)
    assert spec.fingerprint == parse(GPT2).fingerprint
    fields = render_spec_fields(spec)
    restored = build_spec(json.loads(json.dumps(fields)), spec.vocab, spec.merges)
    for again in (spec, restored, pickle.loads(pickle.dumps(spec))):
        table = table_of(again)
        assert (table["truncation"], table["padding"]) == (TRUNCATION, PADDING)
    theirs = in_hugging_face(spec)
    assert theirs.truncation["max_length"] == 5
    assert theirs.encode("low").ids == [7] * 8 + Tokenizer.from_spec(spec).encode("low")
    assert (table_of(parse(GPT2))["truncation"], table_of(parse(GPT2))["padding"]) == (None, None)
    assert "batch_settings" not in render_spec_fields(parse(GPT2))
    wrong = {"truncation": {**TRUNCATION, "stride": -1}}
    with pytest.raises(FormatError, match="stride"):
        build_spec({**fields, "batch_settings": wrong}, spec.vocab, spec.merges)


def test_added_tokens_are_entries_of_the_model_where_those_of_the_source_are():
    outside = trained_spec(special_tokens=["<a>", "<b>"])
    n_learned = outside.added_tokens[0].id
    table = table_of(outside)
    assert "<a>" not in table["model"]["vocab"]
    table["model"]["vocab"]["<a>"] = n_learned
    spec = parse(table)
    assert spec.fingerprint == outside.fingerprint
    fields = json.loads(json.dumps(render_spec_fields(spec)))
    restored = build_spec(fields, spec.vocab, spec.merges)
    for again in (spec, restored, pickle.loads(pickle.dumps(spec))):
        theirs = in_hugging_face(again)
        assert theirs.get_vocab_size(with_added_tokens=False) == n_learned + 1
        assert theirs.get_vocab_size() == n_learned + 2
    published = in_hugging_face(load_preset_spec("gpt2"))
    assert published.get_vocab_size(with_added_tokens=False) == 50257
    # As an entry of the model, <é> would be the bytes of another text.
    unlike = TokenizerSpec.from_merges(BYTES | {256: "<é>".encode()}, [], ["<é>"])
    assert in_hugging_face(unlike).get_vocab_size(with_added_tokens=False) == 256


@pytest.mark.parametrize(
    ("base", "field", "value"),
    [
        *((TRUNCATION, field, DROP) for field in ("max_length", "strategy", "stride")),
        *((TRUNCATION, "max_length", value) for value in (-1, 1 << 64, True, "5")),
        (TRUNCATION, "direction", "Up"),
        (TRUNCATION, "strategy", ["LongestFirst"]),
        *((PADDING, field, DROP) for field in ("direction", "pad_id", "pad_token")),
        *((PADDING, "strategy", value) for value in ("Fixed", {"Fixed": -1}, {})),
        (PADDING, "pad_id", 1 << 32),
        (PADDING, "pad_to_multiple_of", 0.5),
    ],
)
def test_truncation_and_padding_that_tokenizers_does_not_load_are_refused(base, field, value):
    name = "truncation" if base is TRUNCATION else "padding"
    table = {**GPT2, name: changed(base, field, value)}
    with pytest.raises(FormatError, match=rf"{name}\.{field}"):
        parse(table)
    with pytest.raises(Exception, match=r"line \d+ column \d+"):
        tokenizers.Tokenizer.from_str(json.dumps(table))


def test_normalized_is_kept_only_where_it_matters():
    """`<b>` is matched first, though it begins after `a<b`."""
    table = copy.deepcopy(GPT2)
    table["added_tokens"] = [added("a<b", 356, normalized=True), added("<|x", 357)]
    assert not parse(table).has_flags
    table["added_tokens"][1]["content"] = "<b>"
    assert [token.flags for token in parse(table).added_tokens] == [["normalized"], []]
    assert table_of(parse(table))["added_tokens"] == table["added_tokens"]
    assert Tokenizer.from_spec(parse(table)).encode("xa<b>") == [120, 97, 357]
    table["added_tokens"][1] |= {"content": "<|x", "lstrip": True}
    assert [token.flags for token in parse(table).added_tokens] == [["normalized"], ["lstrip"]]
    # Matched in what the first token leaves; white space that is not normalized is refused.
    table["added_tokens"] = [added("<m>", 356, rstrip=True), added(" \n", 357, normalized=True)]
    assert parse(table).added_tokens[0].flags == ["rstrip"]


ROBERTA = {**ENDS, "type": "RobertaProcessing", "trim_offsets": True, "add_prefix_space": True}
IN_SEQUENCE = {"type": "Sequence", "processors": [GPT2["post_processor"], ROBERTA]}


TWICE = {
    "type": "TemplateProcessing",
    "single": [piece("two", 2), piece("A", 1), piece("the", 3)],
    "pair": [piece("B", 1), piece("the", 4), piece("two"), piece("A")],
    "special_tokens": {
        "two": {"id": "two", "ids": [356, 300], "tokens": ["one", "other"]},
        "the": {"id": "the", "ids": [258], "tokens": ["the"]},
    },
}
IDLE = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}  # in Cohere's files
OF_PAIRS = {**TWICE, "single": [piece("A")], **IDLE}


@pytest.mark.parametrize(
    ("step", "around"),
    [
        (ENDS, ((356,), (258,))),
        (IN_SEQUENCE, ((356,), (258,))),
        (TWICE, ((356, 300), (258,))),
        ({"type": "Sequence", "processors": [OF_PAIRS, ENDS]}, ((356,), (258,))),
        (OF_PAIRS, ((), ())),
    ],
    ids=["bert", "roberta", "template", "two steps", "pairs alone"],
)
def test_a_post_processor_gives_the_same_for_one_text_and_for_two(step, around):
    theirs, (ours, *_) = pair_of({**GPT2, "post_processor": step})
    assert (ours.spec.prefix_ids, ours.spec.suffix_ids) == around
    fields = json.loads(json.dumps(render_spec_fields(ours.spec)))
    restored = build_spec(fields, ours.spec.vocab, ours.spec.merges)
    for again in (ours.spec, restored, pickle.loads(pickle.dumps(ours.spec))):
        written = in_hugging_face(again)
        for texts, adds in product([("",), ("low the",), ("low", "the")], (True, False)):
            expected, found = (t.encode(*texts, add_special_tokens=adds) for t in (theirs, written))
            for name in ("ids", "type_ids", "special_tokens_mask", "tokens", "offsets"):
                assert getattr(found, name) == getattr(expected, name)
            if len(texts) == 1:
                assert ours.encode(*texts, add_special_tokens=adds) == expected.ids
        assert parse(table_of(again)) == ours.spec
    with pytest.raises(FormatError, match="puts other ids around a text"):
        render_tokenizer_json(dataclasses.replace(ours.spec, prefix_ids=(1,)))
    with pytest.raises(FormatError, match="puts other ids around a text"):
        build_spec({**fields, "prefix_ids": [1]}, restored.vocab, restored.merges)


@pytest.mark.parametrize(
    "normalizer",
    [
        None,
        {"type": "Strip", "strip_left": True, "strip_right": False},
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    ],
    ids=lambda table: table["type"] if table else "none",
)
def test_a_prefix_space_is_put_before_each_part_after_the_normalizer(normalizer):
    table = changed(GPT2, "pre_tokenizer.add_prefix_space", True) | {"normalizer": normalizer}
    theirs, ours = pair_of(table)
    spec = ours[0].spec
    parts = ["low<|endoftext|>low", "  low", "\nlow", "\u2581 \u2581", "\xa0a", " \u0301a"]
    for text in [*parts, "\u2002a<|endoftext|> <|endoftext|>  b"]:
        check_against_tokenizers(theirs, ours, text)
        ids = theirs.encode(text).ids
        assert in_hugging_face(spec).encode(text).ids == ids
        assert ours[0].decode(ids) == theirs.decode(ids, skip_special_tokens=False)
    assert parse(table_of(spec)) == spec
    if normalizer is None:
        assert spec.normalizer.name == "prefix-space"
        assert table_of(spec)["pre_tokenizer"] == table["pre_tokenizer"]
        return
    with pytest.raises(FormatError, match=r"added_tokens\[0\].normalized is True; only one"):
        parse(changed(table, "added_tokens.0.normalized", True))
