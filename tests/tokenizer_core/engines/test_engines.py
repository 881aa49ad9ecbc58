"""The promises of every engine, tested on each; and that the engines agree."""

import json
import pickle
import random
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tests.tokenizer_core.engines.random_specs import BYTES, random_merges, random_ranks, spec_of
from tokenizer_core.engines import (
    ARRAY,
    ARRAYS,
    COUNT,
    LIST,
    create_engine,
    json_of_ids,
    make_stop_flag,
    native_calls,
    python_engine,
    stoppable,
)
from tokenizer_core.engines.base import json_of_ids_in_python
from tokenizer_core.engines.native_calls import count_ids, split_bytes
from tokenizer_core.engines.python_engine import PythonEngine
from tokenizer_core.errors import CancelledError, UnknownTokenIdError
from tokenizer_core.reference import apply_merges, apply_ranks
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import SplitPattern


@pytest.fixture(scope="module")
def create(engine):
    return lambda spec: create_engine(spec, engine)


def test_ignore_merges_takes_a_vocabulary_entry_whole(create):
    merges = [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]
    assert len(create(spec_of(merges)).encode("abc")) == 2
    assert len(create(spec_of(merges, ignore_merges=True)).encode("abc")) == 1


def test_surrogate_valued_ids_are_symbols_like_any_other(create):
    # Symbols are chr(id); ids 0xD800.. are lone surrogates and must not join or fail.
    vocab = dict(BYTES) | {0xD800: b"ab", 0xDC00: b"cd", 0xDC01: b"abcd"}
    spec = TokenizerSpec.from_merges(vocab, [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd")])
    assert create(spec).encode("abcd") == [0xDC01]
    assert create(spec).encode("ab.cd") == [0xD800, ord("."), 0xDC00]


TOKENS = [
    (b"ab" * 8)[:15],
    b"ab" * 8,
    b"q" * 63,
    b"q" * 64,
    b"q" * 300,
    "é中".encode(),
    b"\xe4\xb8",
]


@pytest.fixture(scope="module")
def decoding(create):
    """An engine with tokens of the lengths at which decoding changes its method, an empty one at
    299, and a gap at 300."""
    vocab = dict(BYTES) | {256 + i: token for i, token in enumerate(TOKENS)}
    vocab |= {299: b"", 301: b"end"}
    return create(TokenizerSpec.from_merges(vocab, []))


def test_any_ids_decode_to_their_bytes_joined_and_to_text(decoding):
    tokens = [bytes([i]) for i in range(256)] + TOKENS
    for seed in range(45):
        rng = random.Random(seed)
        known = [*range(128), *([256] * 40), *range(256, 261)] if seed % 3 else range(len(tokens))
        ids = rng.choices(known, k=rng.choice([0, 1, 2, 7, 8, 9, 40, 3000]))
        expected = b"".join(tokens[id_] for id_ in ids)
        for form in (list, tuple, iter, lambda ids: np.array(ids, dtype=np.uint32)):
            assert decoding.decode(form(ids), None) == expected
            for errors in ("replace", "ignore", "backslashreplace"):
                text = decoding.decode(form(ids), errors)
                assert text == expected.decode("utf-8", errors)
                assert text.isascii() or not expected.isascii()
    with pytest.raises(LookupError):
        decoding.decode([0xE4], "nope")


def test_an_empty_token_decodes_to_nothing_and_is_never_made(create, decoding):
    for ids in ([299], [299, 97, 299], [256, 299] * 5000 + [97]):
        expected = b"".join(TOKENS[0] if id_ == 256 else b"a" for id_ in ids if id_ != 299)
        for form in (ids, np.array(ids)):
            assert decoding.decode(form, None) == expected
            assert decoding.decode(form) == expected.decode()
    ranks = {bytes([byte]): byte for byte in range(256)}
    for spec in (
        TokenizerSpec.from_merges(BYTES | {256: b"", 257: b"ab"}, [(b"a", b"b")]),
        TokenizerSpec.from_merges(BYTES | {256: b"", 257: b"ab"}, [(b"a", b"b")], ["<|x|>"]),
        TokenizerSpec.from_ranks(ranks | {b"": 256, b"ab": 257}, pattern="gpt2"),
    ):
        assert spec.empty_ids == (256,)
        assert pickle.loads(pickle.dumps(spec)).token_to_id == spec.token_to_id
        assert create(spec).encode("abc\n") == [257, 99, 10]
        assert create(spec).encode("") == []


UNKNOWN_IDS = [262 + 1, 300, 302, 1 << 20, (1 << 32) - 1, 1 << 32, (1 << 32) + 5, 1 << 70, -1]


def test_the_first_unknown_id_is_named_with_its_position(decoding):
    known = [97, 256, 299, 301, 258] * 1000
    at_positions = [(302, position) for position in (0, 1, 6, 7, 8, 4095, 4096, 4097)]
    for bad, position in [*at_positions, *((bad, 4) for bad in UNKNOWN_IDS)]:
        ids = known.copy()
        ids[position] = ids[position + 3] = bad
        for form in [ids] if bad >= 1 << 63 else [ids, np.array(ids)]:
            for decode in (lambda ids: decoding.decode(ids, None), decoding.decode):
                with pytest.raises(UnknownTokenIdError, match=rf"ids\[{position}\]") as caught:
                    decode(form)
                assert (caught.value.index, caught.value.token_id) == (position, bad)


def test_an_id_that_is_no_integer_is_named_with_its_type(decoding):
    assert decoding.decode([97, np.int64(98), np.uint8(99)]) == "abc"
    for bad in (1.5, True, np.True_, "a", None, [97], np.float64(97)):
        kind = re.escape(type(bad).__name__)
        for decode in (lambda ids: decoding.decode(ids, None), decoding.decode):
            with pytest.raises(TypeError, match=rf"^ids\[2\] = .* is a {kind}; "):
                decode([97, 98, bad, 99, bad])
            with pytest.raises(UnknownTokenIdError, match=r"ids\[1\] = 302"):
                decode([97, 302, bad])


@pytest.mark.parametrize("json_of", [json_of_ids, json_of_ids_in_python])
def test_the_json_of_ids_is_that_of_the_standard_library(json_of):
    rng = random.Random(1)
    ids = [10**power + add for power in range(10) for add in (-1, 0, 1)] + [(1 << 32) - 1]
    ids += [rng.randrange(1 << rng.randrange(33)) for _ in range(5000)]
    for n_ids in (0, 1, 2, 31, len(ids)):
        array = np.array(ids[:n_ids], dtype=np.uint32)
        assert json_of(array) == json.dumps(ids[:n_ids], separators=(",", ":")).encode()
        assert json.loads(json_of(array[::-2])) == ids[:n_ids][::-2]


@pytest.mark.parametrize("reason", [None, "not installed"])
def test_splitting_and_counting_equal_those_of_python(reason, monkeypatch):
    native_module()
    monkeypatch.setattr(native_calls, "unavailable_reason", lambda: reason)
    rng = random.Random(3)
    for _ in range(300):
        separator = bytes(rng.choices(b"ab", k=rng.randrange(1, 6)))
        text = bytes(rng.choices(b"ab", k=rng.randrange(200)))
        assert split_bytes(text, separator) == text.split(separator)
    ids = np.array(rng.choices([*range(9), 70_000], k=5_000))
    for dtype, all_ids in ((np.uint32, ids), (np.uint16, ids[ids < 9]), (np.int64, ids)):
        counts = np.full(70_001, 5, np.uint64)
        for part in (all_ids[:1_001], all_ids[:0], all_ids[1_001:][::-1]):
            count_ids(part.astype(dtype), counts)
        assert counts.tolist() == (5 + np.bincount(all_ids, minlength=70_001)).tolist()
        with pytest.raises(ValueError):
            count_ids(np.array([1, 9], dtype), counts[:9])


SPEC = spec_of([(b"a", b"a"), (b"aa", b"aa"), (b"b", b"c")])


def test_a_long_call_of_another_thread_is_cancelled():
    native_module()
    engine = create_engine(SPEC, "native")
    engine.encode("the first call makes tables")
    text = "abc" * (32 << 20)
    in_two = ARRAYS._replace(num_threads=2)
    for call in (engine.encode, lambda text: engine.encode_batch([text, text], None, in_two)):
        flag = make_stop_flag()
        threading.Timer(0.1, flag.cancel).start()
        with stoppable(flag), pytest.raises(CancelledError):
            call(text)


def test_a_search_of_a_foreign_expression_is_cancelled(engine):
    # Quadratic in a run of a; the lookbehind keeps it from having an automaton.
    slow = SplitPattern("custom", "(?<!x)a+b|c", "fancy-regex", "drop")
    flag, slow_engine = make_stop_flag(), create_engine(replace(SPEC, pattern=slow), engine)
    threading.Timer(0.1, flag.cancel).start()
    with stoppable(flag), pytest.raises(CancelledError):
        slow_engine.encode("a" * 1_000_000)  # its time would end after 22 s, with SplitTooSlowError


def test_only_calls_inside_the_context_are_cancelled(engine):
    engine, flag, outer = create_engine(SPEC, engine), make_stop_flag(), make_stop_flag()
    expected = engine.encode("aaa bc")
    with stoppable(outer):
        with stoppable(flag):
            assert engine.encode("aaa bc") == expected
            flag.cancel()
            for wanted in (LIST, COUNT, ARRAY):
                with pytest.raises(CancelledError):
                    engine.encode("aaa bc" * 100_000, None, wanted)
        assert (flag.is_cancelled, outer.is_cancelled) == (True, False)
        assert np.array_equal(engine.encode("aaa bc", None, ARRAY), expected)
    assert engine.encode("aaa bc") == expected


@given(st.integers(0, 10**9), st.integers(1, 30), st.text("abc", min_size=1, max_size=150))
def test_ids_equal_the_definition_also_by_heap_and_in_windows(create, seed, n_merges, text):
    merges = random_merges(random.Random(seed), b"abc", n_merges)
    ranks = random_ranks(random.Random(seed), b"abc", n_merges)
    for spec, parts in (
        (spec_of(merges), apply_merges(text.encode(), merges)),
        (TokenizerSpec.from_ranks(ranks, pattern="gpt2"), apply_ranks(text.encode(), ranks)),
    ):
        expected = [spec.token_to_id[part] for part in parts]
        assert create(spec).encode_pre_tokens([text]) == expected
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
