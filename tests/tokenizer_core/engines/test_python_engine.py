"""The Python engine against BPE by its definition: both kinds, scan and heap, caches."""

import gc
import random
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.naive_bpe import merge_by_ranks, merge_pre_token
from tokenizer_core.engines import python_engine
from tokenizer_core.engines.python_engine import PythonEngine
from tokenizer_core.errors import UnknownTokenIdError
from tokenizer_core.spec import TokenizerSpec

BYTES = {i: bytes([i]) for i in range(256)}


def random_merges(rng: random.Random, alphabet: bytes, n: int) -> list[tuple[bytes, bytes]]:
    """Merges over a tiny alphabet, so that they overlap, repeat and contradict each other."""
    tokens = [bytes([b]) for b in alphabet]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(n):
        pair = (rng.choice(tokens), rng.choice(tokens))
        if pair not in merges and len(pair[0] + pair[1]) <= 12:
            merges.append(pair)
            if pair[0] + pair[1] not in tokens:
                tokens.append(pair[0] + pair[1])
    return merges


def spec_of(merges: list[tuple[bytes, bytes]], **options) -> TokenizerSpec:
    products = dict.fromkeys(left + right for left, right in merges)
    return TokenizerSpec.from_merges(
        BYTES | {256 + i: product for i, product in enumerate(products)}, merges, **options
    )


@given(st.integers(0, 10**9), st.integers(1, 30), st.text("ab", min_size=1, max_size=60))
@settings(max_examples=300, deadline=None)
def test_merges_equal_the_definition_by_scan_and_by_heap(seed, n_merges, text):
    merges = random_merges(random.Random(seed), b"ab", n_merges)
    spec = spec_of(merges)
    expected = [spec.token_to_id[part] for part in merge_pre_token(text.encode(), merges)]
    assert PythonEngine(spec).encode_pre_tokens([text]) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_engine, "HEAP_FROM_SYMBOLS", 0)
        assert PythonEngine(spec).encode_pre_tokens([text]) == expected


@given(st.integers(0, 10**9), st.integers(1, 30), st.text("abc", min_size=1, max_size=60))
@settings(max_examples=300, deadline=None)
def test_ranks_equal_the_definition_by_scan_and_by_heap(seed, n_merges, text):
    products = dict.fromkeys(a + b for a, b in random_merges(random.Random(seed), b"abc", n_merges))
    ranks = {bytes([i]): i for i in range(256)}
    ranks |= {product: 256 + i for i, product in enumerate(products)}
    spec = TokenizerSpec.from_ranks(ranks, pattern="gpt2")
    expected = [ranks[part] for part in merge_by_ranks(text.encode(), ranks)]
    assert PythonEngine(spec).encode_pre_tokens([text]) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_engine, "HEAP_FROM_SYMBOLS", 0)
        assert PythonEngine(spec).encode_pre_tokens([text]) == expected


def test_greedy_longest_match_is_not_bpe():
    engine = PythonEngine(spec_of([(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]))
    assert [engine.decode_bytes([i]) for i in engine.encode("abc")] == [b"a", b"bc"]


def test_ignore_merges_takes_a_vocabulary_entry_whole():
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert len(PythonEngine(spec_of(merges)).encode("abc")) == 2
    assert len(PythonEngine(spec_of(merges, ignore_merges=True)).encode("abc")) == 1


def test_surrogate_valued_ids_are_symbols_like_any_other():
    # Symbols are chr(id); ids 0xD800.. are lone surrogates and must not join or fail.
    vocab = dict(BYTES) | {0xD800: b"ab", 0xDC00: b"cd", 0xDC01: b"abcd"}
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd")])
    assert PythonEngine(spec).encode("abcd") == [0xDC01]
    assert PythonEngine(spec).encode("ab.cd") == [0xD800, ord("."), 0xDC00]


@pytest.mark.parametrize("text", ["a\ud800", "\udfff" * 100, "ok \ud83d\ude00"])
def test_a_lone_surrogate_is_an_error_every_time(text):
    engine = PythonEngine(spec_of([]))
    for _ in range(2):
        with pytest.raises(UnicodeEncodeError):
            engine.encode(text)


@pytest.mark.parametrize("bad", [-1, 256, 1 << 40, None, "97", 1.5, [1]])
def test_an_unknown_id_is_named_with_its_place(bad):
    with pytest.raises(UnknownTokenIdError, match=r"ids\[2\]") as caught:
        PythonEngine(spec_of([])).decode_bytes([97, 98, bad, -7])
    assert caught.value.index == 2


def test_count_stops_once_it_is_over_the_limit():
    engine = PythonEngine(spec_of([]))
    text = "ab " * 100_000
    assert engine.count(text) == 300_000
    assert 10 < engine.count(text, limit=10) < 300_000


def test_long_pre_tokens_are_not_cached_and_the_cache_is_bounded():
    engine = PythonEngine(spec_of([]))
    for i in range(50):
        engine.encode("x" * (1000 + i))
    assert engine.cache_statistics().entries == 0
    engine.encode(" ".join(f"w{i:x}" for i in range(python_engine.CACHE_ENTRIES * 2)))
    assert engine.cache_statistics().entries <= python_engine.CACHE_ENTRIES


def test_a_retired_engine_is_freed():
    engine = PythonEngine(spec_of([]))
    engine.encode("warm the cache")
    alive = weakref.ref(engine)
    del engine
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("unit", ["a", "^", " ", "\u0301", "a\u200d", "中", "ab"])
def test_work_on_a_long_pre_token_grows_with_its_length(unit):
    # Counted, not timed: every merge asks for two ranks, whatever the length.
    class CountingRanks(dict):
        asked = 0

        def get(self, *args):
            type(self).asked += 1
            return super().get(*args)

    ranks = CountingRanks({b"aa": 0, b"aaaa": 1, b"ab": 2, b"abab": 3, unit.encode()[:2]: 4})
    data = unit.encode() * 20_000
    symbols = [data[i : i + 1] for i in range(len(data))]
    merged = python_engine._merge_by_heap(symbols, ranks, {r: token for token, r in ranks.items()})
    assert b"".join(merged) == data
    assert ranks.asked <= 3 * len(data)
