"""How two tokenizers differ before any text is seen."""

import json

from tests.tokenizer_core.evaluation.small_tokenizers import BYTES, THE, merging
from tokenizer_core import AddedToken, TokenizerSpec
from tokenizer_core.evaluation.diff_table import render_diff
from tokenizer_core.evaluation.spec_diff import diff_specs

MORE = [*THE, (b"o", b"x")]


def test_a_tokenizer_does_not_differ_from_itself():
    spec = merging(THE, special=["<|end|>"]).spec
    found = diff_specs(spec, spec)
    assert found.is_same
    assert found.n_common_tokens == 259
    lists = found.only_in_a, found.only_in_b, found.other_ids, found.added_tokens, found.settings
    assert lists == ([], [], [], [], [])
    assert found.merges.first_rank is None
    assert "the same" in render_diff(("a", spec), ("b", spec), found, None, 10)


def test_tokens_and_merges_only_on_one_side():
    found = diff_specs(merging(MORE).spec, merging(THE[:2]).spec)
    assert [(token.id, token.text) for token in found.only_in_a] == [(258, "' the'"), (259, "'ox'")]
    assert found.only_in_b == []
    assert found.merges.only_in_a == ["' ' 'the'", "'o' 'x'"]
    assert (found.merges.n_common, found.merges.first_rank) == (2, 2)
    assert not found.is_same


def test_other_ids_and_another_order():
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


def test_special_tokens_and_settings():
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
    shown = render_diff(("a", a), ("b", b), found, None, 10)
    assert "257 special" in shown
    assert "qwen2" in shown


def test_ranks_beside_merges_and_beside_ranks():
    merges = merging(THE).spec
    ranks = TokenizerSpec.from_ranks(dict(merges.token_to_id), pattern="gpt2")
    found = diff_specs(merges, ranks)
    assert [setting.name for setting in found.settings] == ["kind"]
    assert (found.merges.n_common, found.merges.first_rank) == (3, None)
    assert diff_specs(ranks, ranks).merges is None


def test_the_second_id_of_the_same_bytes_is_a_difference():
    spec = TokenizerSpec.from_merges(BYTES | {256: b"ab", 300: b"ab"}, [(b"a", b"b")])
    found = diff_specs(spec, merging([(b"a", b"b")]).spec)
    assert [(t.ids_a, t.ids_b) for t in found.other_ids] == [([256, 300], [256])]
    json.dumps(found.to_dict())
