"""The native engine, the Python engine and, where it can load the vocabulary, tiktoken give the
same ids: any vocabulary, any text, cold and warm, cut anywhere, by any number of threads."""

import json
import random

import numpy as np
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tests.profiles import examples
from tests.property.trap_texts import KINDS, kinds, patterns, seeds, tiny_spec, trap_texts
from tests.tokenizer_core.engines.random_specs import spec_of
from tests.tokenizer_core.every_way import check_cuts
from tokenizer_core import Tokenizer
from tokenizer_core.engines import DOCUMENTS, JSON
from tokenizer_core.specials.matchers import matcher_of_strings
from tokenizer_core.specials.policy import resolve_policy
from tokenizer_core.splitting.patterns import PATTERNS


@pytest.fixture(autouse=True)
def compiled():
    native_module()


def both_of(spec):
    return Tokenizer.from_spec(spec, engine="native"), Tokenizer.from_spec(spec, engine="python")


@given(seeds, kinds, patterns, st.sampled_from(["none", "none", "nfc"]), trap_texts, st.data())
def test_every_way_to_encode(seed, kind, pattern, normalizer, text, data):
    native, python = both_of(tiny_spec(seed, kind, pattern, normalizer))
    expected = python.encode(text)
    check_cuts(native, text[:20], python.encode(text[:20]))
    for _ in range(2):
        assert native.encode(text) == expected
        assert native.encode_to_numpy(text, num_threads=2).tolist() == expected
    assert native.encode_ordinary(text) == python.encode_ordinary(text)
    allowed = data.draw(st.sets(st.sampled_from(sorted(python.spec.special_tokens))))
    assert native.encode(text, allowed_special=allowed) == python.encode(
        text, allowed_special=allowed
    )
    assert native.count(text) == len(expected)
    limit = data.draw(st.integers(0, len(expected) + 1))
    assert (native.count(text, limit=limit) > limit) == (len(expected) > limit)
    ids, offsets = native.encode_with_offsets(text)
    expected_ids, expected_offsets = python.encode_with_offsets(text)
    assert ids == expected_ids == expected
    assert np.array_equal(offsets, expected_offsets)
    assert native.decode_bytes(expected) == python.decode_bytes(expected)


@given(seeds, kinds, patterns, trap_texts, st.integers(0, 2), st.integers(0, 2), st.data())
def test_encoding_straight_to_json(seed, kind, pattern, text, n_before, n_after, data):
    both = both_of(tiny_spec(seed, kind, pattern))
    engines = [tokenizer.engine for tokenizer in both]
    added = both[0].spec.added_tokens
    recognised = [frozenset(), frozenset(token.content for token in added)]
    matcher = data.draw(st.sampled_from([None, *map(matcher_of_strings, recognised)]))
    around = {"prefix_ids": (7, 300)[:n_before], "suffix_ids": (1 << 18, (1 << 32) - 1)[:n_after]}
    for shown in (text, text * 40):
        expected = engines[1].encode(shown, matcher)
        expected = [*around["prefix_ids"], *expected, *around["suffix_ids"]]
        rendered = (json.dumps(expected, separators=(",", ":")).encode(), len(expected))
        for engine in engines:
            for _ in range(2):
                assert engine.encode(shown, matcher, JSON._replace(**around)) == rendered


@given(seeds, st.sampled_from(["gpt2", "cl100k", "o200k"]), trap_texts)
def test_ranks_in_any_order_give_the_ids_of_tiktoken(seed, pattern, text):
    # Of special tokens with a common beginning tiktoken takes any; here the longest wins.
    spec = tiny_spec(seed, "ranks", pattern, specials=["<|a|>", "  ", "中", "\n\n"])
    specials = dict(spec.special_tokens)
    reference = tiktoken.Encoding(
        "tiny",
        pat_str=PATTERNS[pattern].expression.replace(r"\Z", "$"),
        mergeable_ranks={
            token: id_ for id_, token in spec.vocab.items() if id_ not in specials.values()
        },
        special_tokens=specials,
    )
    for tokenizer in both_of(spec):
        assert tokenizer.encode(text) == reference.encode(text, allowed_special="all")
        assert tokenizer.encode_ordinary(text) == reference.encode_ordinary(text)


def many_words(n_words, seed):
    """Words of 1 to 30 characters, with hardly two equal across all seeds."""
    rng = random.Random(seed)
    units = ["as", "s'", "中", "ſ", "é", "🙂", "a\u0301"]
    return [
        f"{i:x}".replace("7", "s") + rng.choice(units) * rng.randrange(9) for i in range(n_words)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_more_words_than_the_caches_hold_and_then_the_first_again(kind):
    native, python = both_of(tiny_spec(7, kind, "gpt2"))
    batches = [" ".join(many_words(60_000, seed)) for seed in range(12)]
    expected = python.encode_to_numpy(batches[0])
    for n_seen, batch in enumerate(batches, start=1):
        assert np.array_equal(native.encode_to_numpy(batch), python.encode_to_numpy(batch))
        before = native.cache_statistics()
        assert np.array_equal(native.encode_to_numpy(batches[0]), expected)
        after = native.cache_statistics()
        if n_seen > 1 and after.misses > before.misses:
            break
    else:
        pytest.fail("the caches never overflowed; give them more words")
    words = " ".join(batches[:n_seen]).split(" ")
    again = random.Random(1).sample(words, 20_000)
    text = " ".join([*again, *again])
    assert np.array_equal(native.encode_to_numpy(text), python.encode_to_numpy(text))


def _in_one_scan(native, text, allowed_special):
    """The ids of UTF-8 by one thread, which never cuts it."""
    recognised, _ = resolve_policy(native.spec.added_tokens, allowed_special, ())
    return native.engine.encode_batch(
        [text.encode()], matcher_of_strings(recognised), DOCUMENTS
    ).ids


@given(
    seeds,
    kinds,
    patterns,
    st.lists(trap_texts.filter(bool), min_size=1, max_size=9),
    st.integers(0, 2**32),
)
@examples(1 / 10)
def test_texts_of_several_windows_with_specials_wherever_these_end(
    seed, kind, pattern, parts, order
):
    # Python's own generator: with Hypothesis's, each choice would be part of the example.
    random_ = random.Random(order)
    # Windows have 16,384 to 131,072 characters, and more where no cut is possible.
    native = Tokenizer.from_spec(tiny_spec(seed, kind, pattern), engine="native")
    n_parts = random_.randrange(300_000, 500_000) // len("".join(parts)) * len(parts)
    text = "".join(random_.choices(parts, k=n_parts)) + "🙂"
    whole = _in_one_scan(native, text, "all")
    for num_threads in (1, 2, 3):
        assert np.array_equal(native.encode_to_numpy(text, num_threads=num_threads), whole)
        texts = [text, "", text[:1_000], "plain", text]
        ids, offsets = native.encode_batch_to_numpy(texts, num_threads=num_threads)
        for place, one in enumerate(texts):
            of_one = ids[int(offsets[place]) : int(offsets[place + 1])]
            assert np.array_equal(of_one, _in_one_scan(native, one, "all")), place
    assert native.count(text) == len(whole)


_LETTERS = ["中", "中文字", "中ひー", "ひ中é", "字aÉ", "中🙂", "字\u0301", "字"]
_BETWEEN = ["。", " ", "", "\n", "1", "「", " A", "a", "'s", "\u3000", "/", "\u0301"]
runs = st.tuples(st.sampled_from(_BETWEEN), st.sampled_from(_LETTERS), st.integers(0, 300))


def _taken_whole_only(character):
    """Merges that never produce this character of three bytes, though it is a token."""
    first, second, third = (bytes([byte]) for byte in character.encode())
    return [(second, third), (first, second), (first + second, third)]


@given(patterns, st.booleans(), st.lists(runs, min_size=1, max_size=60), st.randoms())
def test_runs_of_letters_that_go_on_through_blocks_and_batches(pattern, joins, runs, random_):
    merges = _taken_whole_only("字")
    if joins:
        left, right = (bytes([byte]) for byte in "é".encode())
        merges += [(left, right), (left + right, "字".encode()[:1])]
    native, python = both_of(spec_of(merges, pattern=pattern, ignore_merges=True))
    text = "".join(
        between + "".join(random_.choices(letters, k=length)) for between, letters, length in runs
    )
    expected = python.encode_to_numpy(text)
    for _ in range(2):
        assert np.array_equal(native.encode_to_numpy(text), expected)
    # No part of a pre-token is taken whole, wherever a batch ends.
    whole, alone = python.encode("字"), python.encode("字字")
    assert (len(whole), len(alone)) == (1, 4)
    for n in range(1, 300):
        assert native.encode("字" * n) == (whole if n == 1 else alone[:2] * n)
