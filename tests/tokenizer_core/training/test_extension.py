"""An extended tokenizer keeps all ids, and joins tokens of the tokenizer that it extends."""

from dataclasses import replace
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tests.profiles import examples
from tests.tokenizer_core.formats.small_specs import BYTES, wild_ranks, wild_texts
from tests.tokenizer_core.training.small_bases import BASES, TEXT, wild_merges
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.errors import InvalidSpecError, VocabSizeError
from tokenizer_core.spec import Alphabet, MissingBytes
from tokenizer_core.training import (
    IdMap,
    TrainingOptions,
    VocabularyOptions,
    train,
    train_from_counts,
    train_from_iterator,
)

COUNTING = import_module("tokenizer_core.training.count_pretokens")


@pytest.fixture(autouse=True)
def use_engine(monkeypatch, engine):
    """Every test here runs on each engine."""
    monkeypatch.setenv("TOKENIZER_ENGINE", engine)


def extend(spec, text, n_more=20, **options):
    options = TrainingOptions(len(spec.vocab) + n_more, extend=spec, **options)
    return train_from_iterator([text], options)


def old_ids(result, base, ids):
    """The ids with each new token as the tokens that it joins."""
    first = base.largest_id + 1
    products = {left + right: first + i for i, (left, right) in enumerate(result.merges)}

    def parts_of(token):
        if token not in products:
            return [base.token_to_id.get(token)]
        left, right = result.merges[products[token] - first]
        return parts_of(left) + parts_of(right)

    return [
        part
        for id_ in ids
        for part in (parts_of(result.spec.vocab[id_]) if id_ >= first else [id_])
    ]


def test_both_engines_learn_the_same():
    """The native learner learns where encoding is nothing but merges of bytes."""
    native_module()
    natively = {"merges", "NFC", "steps", "flags", "ranks of merges"}
    merges = BASES["merges"]
    tokens = merges.token_to_id.items() - {(t.encode(), id_) for t, id_ in merges.added_ids.items()}
    more = {
        "ranks of merges": TokenizerSpec.from_ranks(
            dict(tokens), merges.added_ids, pattern=merges.pattern
        ),
        "a token without merge": TokenizerSpec.from_merges(BYTES | {256: b"ab"}, [], []),
    }
    for name, base in {**BASES, **more}.items():
        python, native = (extend(base, TEXT, engine=engine) for engine in ("python", "native"))
        assert (native.merges, native.learned) == (python.merges, python.learned), name
        assert (native.report.engine == "native") == (name in natively), name


@pytest.mark.parametrize("name", BASES)
def test_all_ids_are_kept_and_new_ones_join_old_ones(name):
    base = BASES[name]
    result = extend(base, TEXT)
    spec = result.spec
    first = base.largest_id + 1
    assert len(result.merges) == 20
    assert dict(base.vocab.items()) == {i: t for i, t in spec.vocab.items() if i < first}
    assert [spec.vocab[first + i] for i in range(20)] == [a + b for a, b in result.merges]
    assert len(set(spec.vocab.values())) == len(set(base.vocab.values())) + 20
    kept = {"kind", "pattern", "added_tokens", "normalizer", "alphabet", "ignore_merges"}
    for field in kept | {"prefix_ids", "suffix_ids", "chat"}:
        assert getattr(spec, field) == getattr(base, field)
    before, after = Tokenizer.from_spec(base), result.tokenizer
    for text in (TEXT, TEXT.upper(), "zyx", ""):
        ids = after.encode(text)
        assert old_ids(result, base, ids) == before.encode(text)
    plain = TEXT.replace("<|endoftext|>", "").replace("<mask>", "").replace("think", "")
    counted = extend(base, plain)
    assert counted.report.n_tokens == counted.tokenizer.count(plain) < before.count(plain)
    assert counted.report.extends == base.fingerprint


@given(seed=st.integers(0, 1 << 30))
@examples(0.5)
def test_the_learned_tokens_are_those_of_the_result(seed):
    text = " ".join(wild_texts(seed, 8))
    for base in (
        wild_merges(seed),
        wild_merges(seed, ignore_merges=True),
        TokenizerSpec.from_ranks(wild_ranks(seed), pattern="gpt2"),
    ):
        result = extend(base, text, n_more=60)
        ids = result.tokenizer.encode(text)
        assert result.report.n_tokens == len(ids)
        assert old_ids(result, base, ids) == Tokenizer.from_spec(base).encode(text)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_files_counts_and_sizes_give_the_same(tmp_path, monkeypatch, num_workers):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT)
    for base in (BASES["merges"], BASES["NFC"]):
        options = TrainingOptions(len(base.vocab) + 20, extend=base, num_workers=num_workers)
        result = train(path, replace(options, chunk_bytes=50))
        assert result.spec == extend(base, TEXT).spec
        assert result.at_size(len(base.vocab) + 5).spec == extend(base, TEXT, 5).spec
        assert result.counts.sources[0].path == str(path)
    base = BASES["merges"]
    counts = train(path, replace(options, extend=base)).counts
    assert train_from_counts(counts, len(base.vocab) + 20, extend=base).spec == (
        extend(base, TEXT).spec
    )
    for other in (BASES["flags"], BASES["ranks"]):
        with pytest.raises(InvalidSpecError, match="another split pattern or other special"):
            train_from_counts(counts, 900, extend=other)
    with pytest.raises(InvalidSpecError, match=r"normalizes a text \(prefix-space\)"):
        train_from_counts(counts, 900, extend=replace(base, normalizer="prefix-space"))


def test_reserved_tokens_follow_the_new_ones():
    base = BASES["flags"]
    vocabulary = VocabularyOptions(n_reserved=2, pad_to_multiple=8, max_token_length=4)
    result = extend(base, TEXT, 10, vocabulary=vocabulary)
    names = {token.content: token.id for token in result.spec.added_tokens[2:]}
    first = base.largest_id + 1 + 8
    assert names == {f"<|reserved_special_token_{i}|>": first + i for i in range(len(names))}
    assert (result.spec.largest_id + 1) % 8 == 0
    assert result.report.n_reserved == len(names) == 7
    assert max(len(left + right) for left, right in result.merges) <= 4


@pytest.mark.parametrize("name", BASES)
def test_parts_are_what_new_tokens_were_before(name):
    base = BASES[name]
    result = extend(base, TEXT, 10, vocabulary=VocabularyOptions(n_reserved=1))
    id_map = IdMap.of_extension(base, result.spec, result.merges)
    assert {i: new for i, new in enumerate(id_map.new_ids.tolist()) if new >= 0} == {
        i: i for i in base.vocab
    }
    expected = [(id_, old) for id_ in result.spec.vocab for old in old_ids(result, base, [id_])]
    reserved = result.spec.largest_id
    before = Tokenizer.from_spec(base).encode("<|reserved_special_token_0|>")
    expected = [pair for pair in expected if pair[0] != reserved]
    expected += [(reserved, id_) for id_ in before]
    assert list(map(tuple, id_map.parts.tolist())) == sorted(expected, key=lambda pair: pair[0])


def test_ties_of_huggingface_take_the_smallest_ids():
    base = TokenizerSpec.from_merges(BYTES | {300: b"ab", 301: b"aa"}, [(b"a", b"b")])
    assert extend(base, "xz.yab", 1).merges == [(b"y", b"ab")]
    assert extend(base, "xz.yab", 1, tie_break="huggingface").merges == [(b"x", b"z")]


def test_options_that_an_extension_does_not_take_are_refused():
    base = BASES["merges"]
    for options in ({"special_tokens": ["<e>"]}, {"pattern": "gpt2"}):
        with pytest.raises(InvalidSpecError, match="leave out special_tokens and pattern"):
            extend(base, "text", **options)
    with pytest.raises(InvalidSpecError, match="seed_tokens come before"):
        extend(base, "text", vocabulary=VocabularyOptions(seed_tokens=("ing",)))
    with pytest.raises(VocabSizeError, match="the 297 entries of the tokenizer to extend"):
        extend(base, "text", -1)
    with pytest.raises(VocabSizeError, match="adds nothing to the 297 entries"):
        extend(base, "text", 0)
    missing = MissingBytes((ord("w"),), ends=(ord("a"),))
    falcon = replace(BASES["missing bytes"], alphabet=Alphabet(missing=missing))
    with pytest.raises(InvalidSpecError, match="train a tokenizer of its own"):
        extend(falcon, "text")
