"""The Python engine by scan and by heap, and its caches; test_engines compares it by scan."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.engines.random_specs import random_merges, spec_of
from tokenizer_core.engines import python_engine
from tokenizer_core.engines.python_engine import PythonEngine
from tokenizer_core.reference import apply_merges, apply_ranks
from tokenizer_core.spec import TokenizerSpec


@given(st.integers(0, 10**9), st.integers(1, 30), st.text("abc", min_size=1, max_size=60))
def test_ids_equal_the_definition_by_heap_and_in_windows(seed, n_merges, text):
    merges = random_merges(random.Random(seed), b"abc", n_merges)
    products = dict.fromkeys(left + right for left, right in merges)
    ranks = {bytes([i]): i for i in range(256)}
    ranks |= {product: 256 + i for i, product in enumerate(products)}
    for spec, parts in (
        (spec_of(merges), apply_merges(text.encode(), merges)),
        (TokenizerSpec.from_ranks(ranks, pattern="gpt2"), apply_ranks(text.encode(), ranks)),
    ):
        expected = [spec.token_to_id[part] for part in parts]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(python_engine, "HEAP_FROM_SYMBOLS", 0)
            for window_bytes in (python_engine.WINDOW_BYTES, 1, 5, 20):
                patch.setattr(python_engine, "WINDOW_BYTES", window_bytes)
                assert PythonEngine(spec).encode_pre_tokens([text]) == expected


@pytest.mark.row(35)
def test_long_pre_tokens_are_not_cached_and_the_cache_is_bounded():
    engine = PythonEngine(spec_of([]))
    for i in range(50):
        engine.encode("x" * (1000 + i))
    assert engine.cache_statistics().entries == 0
    letters = str.maketrans("0123456789", "abcdefghij")  # digits would be pre-tokens of their own
    engine.encode(" ".join(map(str, range(python_engine.CACHE_ENTRIES * 2))).translate(letters))
    statistics = engine.cache_statistics()
    assert statistics.misses > python_engine.CACHE_ENTRIES
    assert statistics.entries <= python_engine.CACHE_ENTRIES


@pytest.mark.row(10)
@pytest.mark.parametrize("unit", ["a", "\u0301", "ab"])
def test_work_on_a_long_pre_token_grows_with_its_length(unit):
    # Counted, not timed: every merge looks up two ranks, for any length.
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
