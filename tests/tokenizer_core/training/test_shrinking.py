"""A shrunk tokenizer gives the same tokens on its text, under new ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.formats.small_specs import BYTES, wild_ranks, wild_texts
from tests.tokenizer_core.training.small_bases import BASES, TEXT, wild_merges
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.spec import Alphabet
from tokenizer_core.text.merge_trees import MAX_TREE_TOKEN_BYTES
from tokenizer_core.training import shrink, used_ids


@pytest.fixture(autouse=True)
def use_engine(monkeypatch, engine):
    """Every test here runs on each engine."""
    monkeypatch.setenv("TOKENIZER_ENGINE", engine)


def check_shrunk(base, text, **options):
    """Shrink to the text; the spec."""
    before = Tokenizer.from_spec(base)
    ids = before.encode(text, **options)
    used = used_ids(before, [(text[:9], False), (text[9:], True)])
    assert used == sorted({*before.encode(text)})
    spec, (new_ids, parts) = shrink(base, used)
    assert Tokenizer.from_spec(spec).encode(text, **options) == new_ids[ids].tolist()
    assert [*spec.vocab] == [*range(len(spec.vocab))]
    assert new_ids.shape == (base.largest_id + 1,)
    assert new_ids[parts[:, 1]].tolist() == parts[:, 0].tolist() == [*spec.vocab]
    assert all(spec.vocab[new] == base.vocab[old] for new, old in parts.tolist())
    return spec


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("part", [slice(None), slice(40, 90), slice(0)])
def test_the_tokens_of_the_text_are_the_same(name, part):
    base = BASES[name]
    spec = check_shrunk(base, TEXT[part], add_special_tokens=True)
    assert spec.added_ids.keys() == base.added_ids.keys()
    assert spec.chat == base.chat
    in_model = [base.vocab[id_] for id_ in base.model_added_ids]
    assert [spec.vocab[id_] for id_ in spec.model_added_ids] == in_model
    assert len(spec.vocab) <= len(base.vocab)


@given(seed=st.integers(0, 1 << 30))
@examples(0.5)
def test_merges_in_any_order_give_the_same(seed):
    ranks = TokenizerSpec.from_ranks(wild_ranks(seed), pattern="gpt2")
    for base in (wild_merges(seed), wild_merges(seed, ignore_merges=True), ranks):
        for text in wild_texts(seed, 4):
            check_shrunk(base, text)


def test_only_what_the_text_needs_is_kept():
    vocab = BYTES | {300: b"ab", 301: b"cd", 302: b"abc", 303: b"<e>", 304: b"bc"}
    merges = [(b"b", b"c"), (b"a", b"b"), (b"c", b"d"), (b"ab", b"c"), (b"a", b"bc")]
    base = TokenizerSpec.from_merges(vocab, merges, ["<e>"])
    spec = check_shrunk(base, "abc<e>xab")
    assert [token for id_, token in spec.vocab.items() if id_ >= 256] == (
        [b"ab", b"abc", b"<e>", b"bc"]
    )
    assert spec.merges == ((b"b", b"c"), (b"a", b"b"), (b"a", b"bc"))


def test_arguments_of_other_types_are_refused():
    tokenizer = Tokenizer.from_preset("gpt2")
    with pytest.raises(TypeError, match="the `spec` of a Tokenizer"):
        shrink(tokenizer, [0])
    for texts in (["a text"], "a text"):
        with pytest.raises(TypeError, match="pieces are pairs"):
            used_ids(tokenizer, texts)


def test_a_long_token_of_several_merges_is_kept():
    prefixes = [b"x" + b"a" * n for n in range(1, MAX_TREE_TOKEN_BYTES)]
    whole = prefixes[-1] + b"y"
    merges = [(prefix[:-1], b"a") for prefix in prefixes]
    rest = whole[2:]  # no merge makes it, so that the first merge never applies
    merges = [(b"xa", rest), *merges, (prefixes[-1], b"y")]
    vocab = BYTES | dict(enumerate([*prefixes, rest, whole], 256))
    spec = check_shrunk(TokenizerSpec.from_merges(vocab, merges), whole.decode())
    assert Tokenizer.from_spec(spec).encode(whole.decode()) == [spec.largest_id]


def test_ids_in_settings_are_new_ones():
    padding = {"pad_id": 300, "pad_token": "<pad>"}

    def post_processor(pad_id, joined_id):
        text = {"Sequence": {"id": "A", "type_id": 0}}
        of_pairs = {"single": [text], "pair": [{"SpecialToken": {"id": "x", "type_id": 0}}, text]}
        of_pairs["special_tokens"] = {"x": {"id": "x", "ids": [joined_id], "tokens": ["x"]}}
        ends = {"type": "BertProcessing", "cls": ["<pad>", pad_id], "sep": ["<pad>", pad_id]}
        steps = [ends, {"type": "TemplateProcessing", **of_pairs}]
        return {"type": "Sequence", "processors": steps}

    base = TokenizerSpec.from_merges(
        BYTES | {300: b"<pad>", 301: b"ab", 302: "é".encode()},
        [(b"a", b"b")],
        prefix_ids=(300,),
        suffix_ids=(300,),
        post_processor=post_processor(300, 301),
        batch_settings={"padding": padding},
        alphabet=Alphabet(idle_ids=(302,)),
    )
    spec, _ = shrink(base, [])
    assert spec.batch_settings == {"padding": padding | {"pad_id": 256}}
    assert spec.post_processor == post_processor(256, 257)
    assert (spec.vocab[256], spec.vocab[257]) == (b"<pad>", b"ab")
    assert spec.alphabet == Alphabet()
    assert shrink(base, [302])[0].alphabet == Alphabet(idle_ids=(258,))
    with pytest.raises(InvalidSpecError, match="id 299 of the tokens to keep"):
        shrink(base, [299, 303])
