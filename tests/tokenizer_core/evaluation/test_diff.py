"""Differences between two tokenizers: their specs, and their results on texts."""

import itertools
import json
from dataclasses import asdict, replace

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.property.trap_texts import KINDS, short_trap_texts, tiny_spec
from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import AddedToken, Tokenizer, TokenizerSpec
from tokenizer_core.evaluation.diff import diff_on_text, diff_specs
from tokenizer_core.evaluation.samples import SamplePiece
from tokenizer_core.evaluation.tables import render_diff
from tokenizer_core.formats.tokenizer_json.document import (
    parse_tokenizer_json,
    render_tokenizer_json,
)
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.splitting.patterns import PATTERNS, SplitPattern
from tokenizer_core.splitting.pretokenize import split

MORE = [*THE, (b"o", b"x")]


def test_a_tokenizer_does_not_differ_from_itself():
    spec = merging(THE, special=["<|end|>"]).spec
    found = diff_specs(spec, spec)
    assert found.is_same
    assert found.n_common_tokens == 259
    assert "the same: equal ids" in render_diff(("a", spec), ("b", spec), found, None, 10)


def test_tokens_merges_and_ids_that_differ_are_listed():
    found = diff_specs(merging(MORE).spec, merging(THE[:2]).spec)
    assert [(token.id, token.text) for token in found.only_in_a] == [(258, "' the'"), (259, "'ox'")]
    assert found.only_in_b == []
    assert found.merges.only_in_a == ["' ' 'the'", "'o' 'x'"]
    assert (found.merges.n_common, found.merges.first_rank) == (2, 2)
    assert not found.is_same
    found = diff_specs(merging(MORE).spec, merging([MORE[3], *THE]).spec)
    assert {t.text: (t.ids_a, t.ids_b) for t in found.other_ids} == {
        "'th'": ([256], [257]),
        "'the'": ([257], [258]),
        "' the'": ([258], [259]),
        "'ox'": ([259], [256]),
    }
    assert (found.merges.n_common, found.merges.n_in_other_order) == (4, 4)
    assert found.merges.first_rank == 0
    assert found.merges.only_in_a == found.merges.only_in_b == []
    twice = TokenizerSpec.from_merges(BYTES | {256: b"ab", 300: b"ab"}, [(b"a", b"b")])
    found = diff_specs(twice, merging([(b"a", b"b")]).spec)
    assert json.loads(json.dumps(asdict(found)))["other_ids"][0]["ids_a"] == [256, 300]


def test_changed_special_tokens_and_settings_are_listed():
    a = TokenizerSpec.from_merges(
        BYTES, [], [AddedToken("<|end|>", 256), AddedToken("<think>", 257)], pattern="llama3"
    )
    b = TokenizerSpec.from_merges(
        BYTES,
        [],
        [AddedToken("<think>", 257, special=False), AddedToken("<|new|>", 256)],
        pattern="qwen2",
        normalizer="nfc",
        ignore_merges=True,
        prefix_ids=(256,),
    )
    found = diff_specs(a, b)
    assert [(t.content, t.a, t.b) for t in found.added_tokens] == [
        ("<|end|>", "256 special", None),
        ("<think>", "257 special", "257"),
        ("<|new|>", None, "256 special"),
    ]
    assert found.n_common_tokens == 256  # added tokens are not compared as tokens
    settings = {setting.name: (setting.a, setting.b) for setting in found.settings}
    assert settings["split pattern"] == ("llama3", "qwen2")
    assert settings["normalizer"] == ("none", "nfc")
    assert settings["whole pre-tokens first"] == ("False", "True")
    assert settings["ids before a text"] == ("()", "(256,)")
    assert "Unicode tables" not in settings


def test_templates_of_pairs_are_compared():
    plain = TokenizerSpec.from_merges(
        BYTES, [], ["<s>", "</s>"], prefix_ids=(256,), suffix_ids=(257,)
    )
    ends = {"cls": ["<s>", 256], "sep": ["</s>", 257]}
    roberta = {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}
    shown = {}
    for name, stage in {"bert": {"type": "BertProcessing", **ends}, "roberta": roberta}.items():
        spec = replace(plain, post_processor=stage)
        found = diff_specs(plain, spec)
        [setting] = found.settings
        assert (setting.name, found.is_same) == ("pair of texts", False)
        said = render_diff(("a", plain), ("b", spec), found, None, 10)
        assert said.startswith("Equal ids in every single text; A and B differ in pair of texts.")
        shown |= {"each": setting.a, name: setting.b}
        pair = tokenizers.Tokenizer.from_buffer(render_tokenizer_json(spec)).encode("A", "B")
        pieces = zip(pair.tokens, pair.ids, pair.type_ids, strict=True)
        parts = [f"{token if len(token) == 1 else id_}:{kind}" for token, id_, kind in pieces]
        assert " ".join(parts) == setting.b
    assert shown == {
        "each": "256:0 A:0 257:0 256:1 B:1 257:1",
        "bert": "256:0 A:0 257:0 B:1 257:1",
        "roberta": "256:0 A:0 257:0 257:0 B:0 257:0",
    }
    again = parse_tokenizer_json(render_tokenizer_json(plain))
    assert (again.post_processor is None, diff_specs(plain, again).is_same) == (False, True)


def test_ranks_are_compared_with_merges_and_with_ranks():
    merges = merging(THE).spec
    ranks = TokenizerSpec.from_ranks(dict(merges.token_to_id), pattern="gpt2")
    found = diff_specs(merges, ranks)
    assert [setting.name for setting in found.settings] == ["kind"]
    assert (found.merges.n_common, found.merges.first_rank) == (3, None)
    assert diff_specs(ranks, ranks).merges is None
    # A token that no merge makes has none.
    whole = {**merges.token_to_id, b"xyz": max(merges.vocab) + 1}
    found = diff_specs(merges, TokenizerSpec.from_ranks(whole, pattern="gpt2"))
    assert [token.text for token in found.only_in_b] == ["'xyz'"]
    assert (found.merges.n_common, found.merges.only_in_b, found.merges.first_rank) == (3, [], None)


def piece(*texts):
    return SamplePiece(texts, 0, sum(len(text.encode()) for text in texts), is_safe=True)


def compare(a, b, text):
    """(pre-tokens, those with other boundaries, those with other ids), counted one by one."""
    found = []
    for tokenizer in (a, b):
        ids = tokenizer.encode_ordinary(text)
        ends = [0, *itertools.accumulate(len(tokenizer.spec.vocab[id_]) for id_ in ids)]
        found.append([*zip(ends, ends[1:], ids, strict=False)])
    place = n_all = recut = renumbered = 0
    for pre_token in split(text, a.spec.pattern):
        end = place + len(pre_token.encode())
        ids = [[token for token in of if token[0] < end and token[1] > place] for of in found]
        bounds = [
            {edge for start, stop, _ in of for edge in (start, stop) if place <= edge <= end}
            for of in found
        ]
        n_all += 1
        recut += bounds[0] != bounds[1]
        renumbered += ids[0] != ids[1]
        place = end
    return n_all, recut, renumbered


def test_differences_on_two_texts_equal_worked_values(engine):
    a = merging(THE, engine=engine)  # the| the| |o|x
    b = merging([*THE[:2], (b"o", b"x")], engine=engine)  # the| |the| |ox
    found = diff_on_text(a, b, [piece("the the ox", "12")])
    assert (found.n_texts, found.n_texts_other_boundaries, found.n_texts_other_ids) == (2, 1, 1)
    assert (found.n_pre_tokens, found.n_pre_tokens_other_boundaries) == (4, 2)
    assert (found.n_tokens_a, found.n_tokens_b) == (5 + 2, 5 + 2)
    by_text = {example.pre_token: example for example in found.examples}
    assert by_text["' the'"].tokens_a == ["' the'"]
    assert by_text["' the'"].tokens_b == ["' '", "'the'"]
    assert by_text["' ox'"].tokens_b == ["' '", "'ox'"]
    assert by_text["' ox'"].ids_a == [32, 111, 120]
    json.dumps(asdict(found))
    a, b = merging([], engine=engine), merging([(b"a", b"a")], engine=engine)
    text = "aa aaa aa aa\n" * 3
    found = diff_on_text(a, b, [piece(text)], n_examples=2)
    assert [(e.pre_token, e.count) for e in found.examples] == [("' aa'", 6), ("'aa'", 3)]
    assert diff_on_text(a, b, [piece(text)], n_examples=0).examples == []


def with_content(content, id_=300, merges=(), **options):
    vocab = BYTES | {256 + i: left + right for i, (left, right) in enumerate(merges)}
    added = [AddedToken(content, id_, special=False)]
    spec = TokenizerSpec.from_merges(vocab, list(merges), added, **options)
    return Tokenizer.from_spec(spec)


NFC = {"normalizer": "nfc"}
AB = {"merges": [(b"a", b"b")]}
DROPS = {"pattern": SplitPattern("custom", r"\p{L}+|\s", "oniguruma", "drop")}


@pytest.mark.parametrize(
    ("a", "b", "text", "n_pre_tokens", "recut"),
    [
        # A content token ends the normalized part before it, and begins another.
        (NFC, NFC | AB, "[E\u0301 ab cd", 4, ["' ab'"]),
        (NFC, NFC | AB, "[E\u0301 ab", 3, ["' ab'"]),
        # The pattern of A drops what it does not match, but not the content token.
        (DROPS, AB | {"content": "<u>"}, "x[Eab cd", 5, ["'[E'", "'ab'"]),
        (DROPS, {"content": "<u>"}, "x[Ey", 3, ["'[E'"]),
        ({}, {"id_": 301}, "x [E y", 4, []),
    ],
)
def test_a_content_token_is_counted_as_a_pre_token(a, b, text, n_pre_tokens, recut):
    a, b = (with_content(**{"content": "[E"} | fields) for fields in (a, b))
    found = diff_on_text(a, b, [piece(text)])
    assert (found.n_texts_not_aligned, found.n_pre_tokens) == (0, n_pre_tokens)
    assert found.n_pre_tokens_other_boundaries == len(recut)
    assert found.n_pre_tokens_other_ids == max(len(recut), 1)
    assert sorted(e.pre_token for e in found.examples) == (sorted(recut) or ["'[E'"])


@examples(1 / 5)
@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.sampled_from(list(PATTERNS)),
    st.sampled_from(list(PATTERNS)),
    st.sampled_from(["none", "nfc"]),
    st.lists(short_trap_texts.filter(bool), min_size=1, max_size=4),
)
def test_the_counts_are_those_of_a_comparison_byte_by_byte(
    seed, other_seed, kind, other_kind, pattern, other_pattern, normalizer, texts
):
    a = Tokenizer.from_spec(tiny_spec(seed, kind, pattern, normalizer))
    b = Tokenizer.from_spec(tiny_spec(other_seed, other_kind, other_pattern, normalizer))
    found = diff_on_text(a, b, [piece(*texts)])
    is_nfc = "nfc" in (a.spec.normalizer.name, b.spec.normalizer.name)
    if a.spec.normalizer != b.spec.normalizer and any(
        normalize_nfc(text) != text for text in texts
    ):
        assert found.n_texts_not_aligned
        return
    expected = [compare(a, b, normalize_nfc(text) if is_nfc else text) for text in texts]
    totals = tuple(map(sum, zip(*expected, strict=True)))
    assert totals == (
        found.n_pre_tokens,
        found.n_pre_tokens_other_boundaries,
        found.n_pre_tokens_other_ids,
    )
    assert found.n_texts_other_boundaries == sum(recut > 0 for _, recut, _ in expected)
    assert found.n_texts_other_ids == sum(
        a.encode_ordinary(text) != b.encode_ordinary(text) for text in texts
    )


def test_a_diff_is_shown():
    plain = merging(THE, pattern="qwen2", special=["<|x|>"])
    nfc = merging(THE[:2], pattern="qwen2", normalizer="nfc")
    found = diff_on_text(plain, nfc, [piece("e\u0301 is not in NFC", "the the")])
    assert (found.n_texts, found.n_texts_not_aligned, found.n_texts_other_ids) == (2, 1, 2)
    named = ("a", plain.spec), ("b", nfc.spec)
    shown = render_diff(*named, diff_specs(plain.spec, nfc.spec), found, 10)
    for words in (
        "<|x|>",
        "2 in both, 0 of them in another order; 1 only in A, 0 only in B",
        "the first that differs has rank 2",
        "only one of the two normalizes them or they are not encoded in full: 1",
    ):
        assert words in shown
    a, b = merging(THE), merging(THE, extra=[b"zz"])
    found, on_text = diff_specs(a.spec, b.spec), diff_on_text(a, b, [piece("the")])
    shown = render_diff(("a", a.spec), ("b", b.spec), found, on_text, 10)
    assert "the first that differs" not in shown
    assert "1 (100.0%)" not in shown
