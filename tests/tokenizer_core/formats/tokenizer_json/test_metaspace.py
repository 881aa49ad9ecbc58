"""Vocabularies of characters with byte fallback (SentencePiece), held against `tokenizers`."""

import copy
import dataclasses
import json
import random
from contextlib import nullcontext
from functools import cache
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.every_way import check_parts
from tests.tokenizer_core.formats.model_folders import template
from tests.tokenizer_core.formats.small_specs import (
    added_token,
    bpe_file,
    changed,
    check_against_tokenizers,
    check_refusal,
    check_round_trips,
    pair_of,
)
from tokenizer_core import StreamingEncoder, Tokenizer
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.errors import InvalidSpecError, PreTokenTooLongError, UnknownPatternError
from tokenizer_core.evaluation.unreachable import unreachable_tokens
from tokenizer_core.formats.manifest_fields import build_spec, render_spec_fields
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.spec import Alphabet
from tokenizer_core.spec.alphabet import pattern_of_characters
from tokenizer_core.splitting.patterns import (
    METASPACE,
    SplitPattern,
    metaspace_pattern,
    resolve_pattern,
)
from tokenizer_core.splitting.pretokenize import (
    find_last_safe_cut,
    find_safe_cut,
    split,
    split_in_windows,
)
from tokenizer_core.text.decode_streams import BytesDecoder, StreamingDecoder
from tokenizer_core.text.merge_trees import MergeTrees
from tokenizer_core.text.round_trips import check_text

MERGES = [
    ("▁", "a"), ("a", "b"), ("▁a", "b"), ("▁", "▁"), ("▁▁", "▁▁"), ("é", "b"), ("中", "文"),
    ("🙂", "🙂"), ("b", "中"), ("b中", "文"), ("▁", "中文"), ("x", "\n"),
]  # fmt: skip
CHARACTERS = ["▁", "a", "b", "é", "中", "文", "🙂", "x", "\n", "Ā", "𠀀"]
SPECIALS = ["<unk>", "<s>", "</s>"]
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
DECODERS = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


METASPACE_STEP = {"type": "Metaspace", "replacement": "▁", "split": False}
SPLIT_AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "invert": False}
RULES = {
    "metaspace-prepend": ({"type": "Sequence", "normalizers": [PREPEND, REPLACE]}, None),
    "metaspace": (REPLACE, {**SPLIT_AT_SPACES, "behavior": "MergedWithPrevious"}),
    "metaspace-first": (None, METASPACE_STEP | {"prepend_scheme": "first"}),
    "metaspace-always": (None, METASPACE_STEP | {"prepend_scheme": "always"}),
}


def table_of(rule):
    """A small file with the normalizer and pre-tokenizer of a rule."""
    texts = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *CHARACTERS]
    texts += dict.fromkeys(left + right for left, right in MERGES)
    normalizer, pre_tokenizer = RULES[rule]
    decoders = DECODERS if rule == "metaspace" else [*DECODERS, STRIP]
    added = [{"id": id_, **added_token(content)} for id_, content in enumerate(SPECIALS)]
    return bpe_file(
        {text: id_ for id_, text in enumerate(texts)},
        MERGES,
        {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        added_tokens=added,
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        post_processor=template(("<s>", 1)),
        decoder={"type": "Sequence", "decoders": decoders},
    )


def read(table):
    return parse_tokenizer_json(json.dumps(table).encode())


def joining_words(rule, merges):
    """A file in which merges join a word to the space after it, or have tokens of several words."""
    table = table_of(rule)
    entries = table["model"]["vocab"]
    for left, right in merges:
        for text in (left, right, left + right):
            entries.setdefault(text, len(entries))
        table["model"]["merges"].append([left, right])
    return table


def with_content_tokens(rule):
    """A file like Gemma's, whose runs of spaces and newlines are added tokens and model entries."""
    table = joining_words(rule, [("\n", "\n"), ("\n\n", "\n"), ("\n", "▁")])
    for content in ["\n", "\n\n", "▁▁", "▁▁▁▁", "x", "x ab", "\t", "b b", "é"]:
        id_ = table["model"]["vocab"].setdefault(content, len(table["model"]["vocab"]))
        added = {**table["added_tokens"][0], "id": id_, "content": content, "special": False}
        table["added_tokens"].append(added)
    return table


SOME = [("x", "▁a"), ("中", "▁"), ("中▁", "a"), ("x▁a", "x"), ("x▁ax", "▁a"), ("b", "b")]
ALL = [*SOME, *((chr(code), "▁a") for code in (0x61, 0x62, 0xE9, *range(0x4E00, 0x4E00 + 1001)))]
# As transformers 5 converts a tokenizer.model with add_dummy_prefix.
DOUBLE_FIRST = {"type": "Replace", "pattern": {"Regex": r"\A▁"}, "content": "▁▁"}
CONVERTED = table_of("metaspace-always") | {
    "normalizer": {"type": "Sequence", "normalizers": [REPLACE, DOUBLE_FIRST]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [RULES["metaspace-always"][1]]},
}
TABLES = {rule: table_of(rule) for rule in RULES}
TABLES |= {
    "metaspace, some join": joining_words("metaspace", SOME),
    "metaspace-prepend, all join": joining_words("metaspace-prepend", ALL),
    "metaspace, all join": joining_words("metaspace", ALL),
    "metaspace, content tokens": with_content_tokens("metaspace"),
    "metaspace-first, content tokens": with_content_tokens("metaspace-first"),
}
SPECS = {rule: read(table) for rule, table in TABLES.items()}
pair = cache(lambda rule: pair_of(TABLES[rule]))


every_rule = pytest.mark.parametrize("rule", RULES)
every_table = pytest.mark.parametrize("rule", TABLES)
texts = st.lists(
    st.sampled_from(
        [*CHARACTERS, *SPECIALS, " ", "  ", "ab", "中文", "z", "é", "\u3000", "<0x41>", "\x00"]
    )
).map("".join)
ids_of_anything = st.lists(st.integers(0, max(SPECS["metaspace"].vocab)))


@every_table
@given(text=texts, n_tokens=st.integers(3, 6))
def test_ids_offsets_streams_and_parts_equal_tokenizers(rule, text, n_tokens):
    theirs, ours = pair(rule)
    check_against_tokenizers(theirs, ours, text)
    check_parts(ours[0], text, n_tokens)
    assert check_text(ours[0], text).first_difference is None


@every_table
@given(ids=ids_of_anything, size=st.integers(1, 4))
def test_texts_of_any_ids_equal_tokenizers(rule, ids, size):
    reference, both = pair(rule)
    expected = reference.decode(ids, skip_special_tokens=False)
    for ours in both:
        assert ours.decode(ids) == expected
        assert ours.decode(ids, skip_special_tokens=True) == reference.decode(ids)
        stream, raw = StreamingDecoder(ours), BytesDecoder(ours)
        found, data = "", b""
        for start in range(0, len(ids), size):
            found += stream.feed(ids[start : start + size])
            data += raw.feed(ids[start : start + size])
        assert found + stream.flush() == expected
        assert data == ours.decode_bytes(ids)


@pytest.mark.parametrize("rule", [*RULES, "metaspace, some join"])
def test_long_texts_have_the_ids_of_tokenizers(rule):
    """A space is put only where a part begins, not where a window does."""
    parts = ["ab ", "x ", " ", "▁", "▁a", "中文 ", "b", "\n", "é ", "</s>", "a b x "]
    rng = random.Random(4)
    joined = ["".join(rng.choices(chosen, k=30_000)) for chosen in (parts, ["ab ", "x ", " ", "b"])]
    reference, both = pair(rule)
    for text in [*joined, "中文b🙂z\u0301é" * 5000]:
        expected = reference.encode(text, add_special_tokens=False).ids
        assert [ours.encode(text) for ours in both] == [expected] * len(both)
        assert both[0].encode_to_numpy(text, num_threads=3).tolist() == expected
        assert both[0].count(text) == len(expected)
    stream = StreamingEncoder(both[-1])
    assert stream.feed("ab ab " * 1000)
    if rule in RULES:
        assert stream.bytes_settled > 5900


def test_texts_are_cut_where_no_merge_joins_two_words():
    some, every = SPECS["metaspace, some join"].pattern, SPECS["metaspace, all join"].pattern
    assert SPECS["metaspace"].pattern == METASPACE
    assert SPECS["metaspace, content tokens"].pattern == metaspace_pattern("\n")
    text = "ab x a中 b ab  x中"
    assert split(text, some) == ["ab", " x a中 b", " ab", "  x中"]
    assert (split(text, every), split("   ", every)) == ([text], ["   "])
    assert (find_safe_cut(text, 1, some), find_safe_cut(text, 3, some)) == (2, 9)
    assert find_last_safe_cut("ab x a中 b", some) == 2
    assert (find_last_safe_cut(text, every), find_safe_cut(text, 1, every)) == (None, None)


@given(text=texts, joined=st.sets(st.sampled_from("abx中\n])^-\\")), size=st.integers(1, 9))
def test_any_cut_leaves_the_pre_tokens(text, joined, size):
    pattern = metaspace_pattern(joined)
    pre_tokens = split(text, pattern)
    assert "".join(pre_tokens) == text
    pairs = pairwise(pre_tokens)
    assert all(after[0] == " " and before[-1] not in {" ", *joined} for before, after in pairs)
    for word in (pre_token.strip(" ") for pre_token in pre_tokens):
        assert all(a in {" ", *joined} for a, b in pairwise(word) if b == " ")
    assert [p for part in split_in_windows(text, pattern, size) for p in part] == pre_tokens


@pytest.mark.parametrize("name", ["metaspace, content tokens", "metaspace-first, content tokens"])
def test_added_tokens_taken_as_text_start_from_their_characters(name):
    table = copy.deepcopy(TABLES[name])
    for token in table["added_tokens"]:
        token["special"] = True
    reference, both = pair_of(table)
    reference.encode_special_tokens = True
    texts = ["\n", "\t", "x\n\n\nx", "a▁▁▁ab  \n", "b b x ab<s>\t\t", " x", "z\tx\n x", "aéb é"]
    for text in [*texts, "ééb"]:
        expected = reference.encode(text, add_special_tokens=False).ids
        for ours in both:
            assert ours.encode(text, allowed_special="none") == expected
            assert ours.encode_ordinary(text) == expected


def test_a_stream_of_words_that_join_has_a_limit():
    for name, joins_all in (("metaspace, all join", True), ("metaspace, some join", False)):
        stream = StreamingEncoder(pair(name)[1][0], max_pending_chars=100)
        told = pytest.raises(PreTokenTooLongError, match=r"join words.*encode the text whole")
        with told if joins_all else nullcontext():
            assert stream.feed("ab " * 100)


def test_only_the_pattern_of_the_merges_is_accepted():
    spec = SPECS["metaspace, some join"]
    for pattern in (METASPACE, metaspace_pattern("q"), SPECS["metaspace, all join"].pattern):
        with pytest.raises(InvalidSpecError, match="split pattern metaspace of its merges"):
            dataclasses.replace(spec, pattern=pattern).check()
    for expression in ("(a+)+", metaspace_pattern("q").expression.replace("71", "7g")):
        with pytest.raises(UnknownPatternError, match="is not that of 'metaspace'"):
            resolve_pattern(SplitPattern("metaspace", expression))
    fields = render_spec_fields(SPECS["metaspace"])
    del fields["alphabet"]
    with pytest.raises(InvalidSpecError, match="belongs to a vocabulary of characters"):
        build_spec(fields, SPECS["metaspace"].vocab, SPECS["metaspace"].merges)
    with pytest.raises(InvalidSpecError, match="joins a part of a character to a space"):
        pattern_of_characters([(b"\xc3", b" a")])


def test_tokens_are_characters_and_only_needless_bytes_may_be_missing():
    spec = SPECS["metaspace"]
    id_ = spec.largest_id + 1
    for token in (b"\xff", b"a\xe4\xb8", b"\xad", "中".encode()[:2]):
        wrong = dataclasses.replace(spec, vocab={**spec.vocab, id_: token})
        with pytest.raises(InvalidSpecError, match=rf"the token of id {id_}, .*, is not UTF-8"):
            wrong.check()
    dataclasses.replace(spec, vocab={**spec.vocab, id_: "中".encode()}).check()
    for byte in (0x41, 0x80):
        ids, vocab = list(spec.alphabet.byte_ids), dict(spec.vocab)
        del vocab[ids[byte]]
        ids[byte] = -1
        with pytest.raises(InvalidSpecError, match=r"byte_ids must be|has no token for 1 of the"):
            dataclasses.replace(spec, vocab=vocab, alphabet=Alphabet(tuple(ids))).check()


@every_table
def test_a_spec_is_read_back_from_its_file_and_its_manifest(rule):
    spec = SPECS[rule]
    data = check_round_trips(spec)
    assert json.loads(data)["post_processor"]["type"] == "TemplateProcessing"
    reference = tokenizers.Tokenizer.from_str(data.decode())
    for text in (" ab 中文b", "é<s> x\n z", "▁▁ a"):
        assert reference.encode(text).ids == pair(rule)[0].encode(text).ids
    assert [name for name in SPECS if SPECS[name].fingerprint == spec.fingerprint] == [rule]


@every_rule
def test_a_document_is_cut_only_where_no_space_is_put_before_a_part(rule):
    tokenizer = pair(rule)[1][0]
    cuts = DocumentCuts(plan_token_files(tokenizer, end_of_document=""), tokenizer.spec)
    found = cuts.find_last("ab ab ab"), cuts.find_last_in_utf8(b"ab ab ab")
    assert found == ((5, 5) if rule == "metaspace" else (None, None))


@every_rule
def test_merge_trees_and_unreachable_tokens_keep_characters_whole(rule):
    spec = SPECS[rule]
    trees = MergeTrees(spec)
    id_of = TABLES["metaspace"]["model"]["vocab"]
    assert trees.parts(id_of["b中文"]) == (id_of["b中"], id_of["文"])
    assert trees.parts(id_of["é"]) is None
    found = {token.id: token.reason for token in unreachable_tokens(Tokenizer.from_spec(spec))}
    # `中文` is made before `b中`, so that neither is made where all three meet.
    assert found.pop(id_of["b中文"]) == "merges"
    assert found[id_of["<0x61>"]] == "same_bytes"
    assert {found[id_] for id_ in found} <= {"bytes", "same_bytes", "not_found"}


def test_a_character_may_stand_for_its_byte():
    """As in Gemma, where it has the place of its byte; a byte of no text is missing."""
    table = copy.deepcopy(TABLES["metaspace"])
    texts = ["\t" if text == "<0x09>" else text for text in table["model"]["vocab"]]
    texts.remove("<0xFF>")
    table["model"]["vocab"] = {text: id_ for id_, text in enumerate([*texts, "\t\t"])}
    table["model"]["merges"].append(["\t", "\t"])
    tab = table["model"]["vocab"]["\t"]
    reference, both = pair_of(table)
    spec = both[0].spec
    assert [byte for byte, id_ in enumerate(spec.alphabet.byte_ids) if id_ < 0] == [9, 255]
    check_round_trips(spec)
    # The tab ends a run of bytes, and is no byte that becomes U+FFFD with them.
    runs = [[spec.alphabet.byte_ids[byte] for byte in "中".encode()[:size]] for size in (2, 3)]
    for ours in both:
        for text in ["a\tb", "\t\t\t é\tß", "ß\t"]:
            expected = reference.encode(text, add_special_tokens=False).ids
            assert ours.encode(text) == expected
            assert ours.decode(expected) == reference.decode(expected) == text
        for ids in ([*run, tab, spec.alphabet.byte_ids[0x80]] for run in runs):
            assert ours.decode(ids) == reference.decode(ids)
            assert ours.decode_batch([ids]) == [reference.decode(ids)]
            stream = StreamingDecoder(ours)
            assert "".join(stream.feed([id_]) for id_ in ids) + stream.flush() == ours.decode(ids)


def with_entry(*texts):
    table = copy.deepcopy(TABLES["metaspace"])
    for text in texts:
        table["model"]["vocab"][text] = len(table["model"]["vocab"])
    return table


def renamed(text, other):
    table = copy.deepcopy(TABLES["metaspace"])
    table["model"]["vocab"][other] = table["model"]["vocab"].pop(text)
    return table


ADDED = TABLES["metaspace"]["added_tokens"][0]


def with_added(table, content, **flags):
    """The file with this added token, which may be an entry of the model."""
    entries = table["model"]["vocab"]
    n_new = sum(token["content"] not in entries for token in table["added_tokens"])
    id_ = entries.get(content, len(entries) + n_new)
    added = [*table["added_tokens"], ADDED | {"content": content, "id": id_, **flags}]
    return {**table, "added_tokens": added}


PLAIN = TABLES["metaspace"]
FIRST, PREPENDED = TABLES["metaspace-first"], TABLES["metaspace-prepend"]
NEVER = changed(PLAIN, "normalizer", None)
NEVER["pre_tokenizer"] = METASPACE_STEP | {"prepend_scheme": "never"}
RIGHT = ADDED | {"normalized": True, "rstrip": True}
NEVER = with_added(with_added(NEVER, "a▁b", normalized=True), "b x", normalized=True)


def test_spaces_of_the_pre_tokenizer_make_no_added_token():
    theirs, ours = pair_of(NEVER)
    for text in ("a b", "a▁b", "b x", "b▁x", " a▁b x<s>a b"):
        check_against_tokenizers(theirs, ours, text)
    assert ours[0].encode("a b") == [ours[0].encode(part)[0] for part in ("a", " ", "b")]


def test_a_converted_model_puts_a_space_before_every_text():
    theirs, ours = pair_of(CONVERTED)
    assert ours[0].spec == SPECS["metaspace-prepend"]
    for text in ("", "ab", " ab", "▁ a", "  ", "a<s> a</s>b"):
        check_against_tokenizers(theirs, ours, text)


REFUSED = [
    (with_added(NEVER, "x<", normalized=False), r"added_tokens\[3\] has a space or U\+2581"),
    (with_added(PREPENDED, "x", normalized=True), "is also the token 'x' .* give it normalized: f"),
    (changed(PLAIN, "added_tokens.0", RIGHT), r"\[0\].rstrip of a token with normalized: true"),
    (changed(PLAIN, "decoder.decoders", [*DECODERS, STRIP]), "Replace, ByteFallback, Fuse;"),
    (changed(CONVERTED, "added_tokens.0.normalized", True), r"doubles the first U\+2581, and"),
    (changed(FIRST, "pre_tokenizer.split", True), "pre_tokenizer.split is True"),
    (changed(FIRST, "pre_tokenizer.replacement", "_"), "replacement is '_'"),
    (changed(PREPENDED, "normalizer", {"type": "NFKC"}), "by Prepend and Replace or by"),
    (changed(PREPENDED, "normalizer", None), "by Prepend and Replace or by"),
    (changed(PREPENDED, "model.ignore_merges", True), "ignore_merges is True"),
    (changed(PREPENDED, "model.merges.0", ["<0x41>", "a"]), "the side '<0x41>'"),
    (changed(PREPENDED, "model.merges.0", ["a ", "b"]), "the side 'a '"),
    (changed(PREPENDED, "model.merges.0", ["", "a"]), "the side ''"),
    (changed(PREPENDED, "model.merges.0", "a b c"), r"merges\[0\]"),
    (changed(PREPENDED, "model.merges.0", ["文", "b"]), "merge 0 .*needs the token"),
    (changed(PREPENDED, "model.merges.0", ["一一", "a"]), "merge 0 .*needs the token"),
    (changed(PREPENDED, "model.merges.1", list(MERGES[0])), "stands twice"),
    (changed(with_entry("41>", "<0x"), "model.merges.0", ["<0x", "41>"]), "the token b'<0x41>'"),
    (renamed("<0x7F>", "other"), "no token <0x7F>"),
    (renamed("▁", "other"), r"model.vocab has no U\+2581"),
    (with_entry("a b"), "the entry 'a b' of model.vocab holds a space"),
    (with_entry(""), "the entry '' of model.vocab holds a space or nothing"),
    (changed(PLAIN, "model.vocab.x", 5), "id 5 stands for two tokens"),
    (changed(PLAIN, "model.vocab.x", 1_048_576), "has the id 1048576, no integer"),
    (with_added(PLAIN, "\t"), r"model\.vocab lacks the added token '\\t'"),
    (with_added(with_entry("  "), "  "), r"differ in U\+2581 and a space alone"),
]


@pytest.mark.parametrize(("table", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_file_that_cannot_be_read_exactly_is_refused_by_name(table, message):
    check_refusal(table, message)
