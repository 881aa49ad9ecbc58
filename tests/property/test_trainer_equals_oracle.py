"""The trainer equals the reference on random corpora: any engine, chunking, workers, specials."""

import random
import tempfile

# The package exports the function `count_pretokens`; this reaches the module of that name.
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tokenizer_core import reference
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.training import (
    LearningRules,
    TrainingOptions,
    count_pretokens,
    learn_merges,
    train,
)
from tokenizer_core.training.learn_merges import learn_natively

LEARNERS = {"python": learn_merges, "native": learn_natively}
COUNTING = import_module("tokenizer_core.training.count_pretokens")

TINY_WORDS = st.text(alphabet="ab", min_size=1, max_size=9) | st.text(
    alphabet=" a!é漢À", min_size=1, max_size=5
)
COUNTS = st.dictionaries(TINY_WORDS, st.integers(1, 4), min_size=1, max_size=12)

# Overlapping, nested, repeating and multi-byte special tokens, and some that are common text.
SPECIAL_SETS = st.sampled_from(
    [
        [], ["<e>"], ["<e>", "<e><e>"], ["aa"], ["aa", "aaa", "ab"], ["ab", "bc", "abca"],
        ["\n\n", "<e>"], [" a", "  "], ["bc", "abca", "aabcaa"], ["a  b a", "aa aa b"],
    ]
)  # fmt: skip
FRAGMENT_LIST = [
    *"abc<!/1é漢字😀\u00a0\ufeff\ufffd \n",
    *("aa", "ab", "aaa", "  ", " a", " b", "\r\n", "\n\n", "<e>", "'s", "'ll", "23", "e\u0301"),
]
FRAGMENTS = st.sampled_from(FRAGMENT_LIST)
TEXTS = st.lists(FRAGMENTS, min_size=1, max_size=60).map("".join)
CHUNK_BYTES = st.integers(1, 120)


def mix(rng, kinds):
    """Many times longer than the window searched for a cut, with few kinds of fragments and long
    runs, so that special tokens are close together and cross the edges."""
    filler, *others = rng.sample(kinds, rng.randint(2, min(6, len(kinds))))
    longest_run = rng.choice([0, 0, 10, 90])
    parts = []
    while len(parts) < 1500:
        parts += [filler] * rng.randint(0, longest_run)
        parts += rng.choices(others, k=rng.randint(1, 12))
    return b"".join(parts)


def count_documents(text, specials):
    return sum(bool(text) for text, _ in reference.split_at_special_tokens(text, specials))


def write_corpus(folder, data):
    path = Path(folder, "corpus.txt")
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@given(
    counts=COUNTS,
    n_merges=st.integers(0, 25),
    min_frequency=st.sampled_from([1, 1, 2, 3, 6]),
    max_token_length=st.none() | st.integers(2, 7),
    given_words=st.lists(TINY_WORDS, max_size=2),
)
@pytest.mark.parametrize("tie_break", ["lexicographic", "huggingface"])
def test_learner_equals_oracle(
    engine, tie_break, counts, n_merges, min_frequency, max_token_length, given_words
):
    # Merges that make one token of each of these words, in the words counted or not.
    first = reference.learn(dict.fromkeys(given_words, 1), 12, "lexicographic")
    rules = LearningRules(min_frequency, max_token_length, tuple(first))
    n_merges += len(first)
    learned = LEARNERS[engine](counts, n_merges, tie_break=tie_break, rules=rules)

    def may_merge(pair, count):
        is_short = max_token_length is None or len(pair[0] + pair[1]) <= max_token_length
        return is_short and count >= min_frequency

    expected = reference.learn(
        counts, n_merges, tie_break, first_merges=rules.first_merges, may_merge=may_merge
    )
    assert learned.merges == expected
    assert learned.no_pair_left == (len(expected) < n_merges)
    for n_learned, n_tokens in enumerate(learned.token_counts):
        merges = expected[: len(first) + n_learned]
        assert n_tokens == sum(
            n * len(reference.apply_merges(t.encode(), merges)) for t, n in counts.items()
        )
    assert len(learned.token_counts) == len(expected) - len(first) + 1


def check_training(text, specials, n_merges, **options):
    vocab_size = 256 + len(specials) + n_merges
    fields = TrainingOptions(vocab_size=vocab_size, special_tokens=specials, **options)
    with tempfile.TemporaryDirectory() as folder:
        result = train([write_corpus(folder, text)], fields)
    vocab, merges = reference.train(text, vocab_size, specials)
    assert (result.vocab, result.merges) == (vocab, merges)
    assert (result.report.stopped_early is None) == (len(merges) == n_merges)
    assert result.report.num_workers == options.get("num_workers", 1)
    assert {result.report.engine, result.report.counting_engine} == {options["engine"]}


@pytest.mark.promise(18)
@given(text=TEXTS, specials=SPECIAL_SETS, chunk_bytes=CHUNK_BYTES, n_merges=st.integers(0, 30))
def test_trainer_equals_oracle_for_any_chunking(engine, text, specials, chunk_bytes, n_merges):
    check_training(text, specials, n_merges, chunk_bytes=chunk_bytes, engine=engine)


@pytest.mark.promise(18)
@given(TEXTS, SPECIAL_SETS, st.integers(8, 60), st.integers(2, 4))
@examples(1 / 30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trainer_equals_oracle_for_any_workers(
    monkeypatch, engine, text, specials, chunk_bytes, num_workers
):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    options = {"chunk_bytes": chunk_bytes, "num_workers": num_workers, "engine": engine}
    check_training(text, specials, 20, **options)


INVALID_LIST = [
    b"\xff", b"\xe6\xbc", b"\xf0\x9f\x98", b"\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90"
]  # fmt: skip
SPECIALS_WITH_REPLACEMENTS = st.sampled_from(
    [["\ufffd\ufffd", "a\ufffd"], ["b a\ufffd"], ["\ufffda b"], ["bb", "abb\ufffd"]]
)


@pytest.mark.parametrize("has_errors", [False, True])
@given(
    pattern=st.sampled_from(sorted(PATTERNS)),
    seed=st.integers(0, 2**32),
    specials=SPECIAL_SETS | SPECIALS_WITH_REPLACEMENTS,
    chunk_bytes=CHUNK_BYTES,
)
def test_counts_of_long_texts_are_the_same_for_any_chunking(
    engine, has_errors, pattern, seed, specials, chunk_bytes
):
    rng = random.Random(seed)
    alphabet = [*" ".join(specials), *specials, *(token[:-1] for token in specials)]
    kinds = rng.choice([FRAGMENT_LIST, [*filter(None, alphabet), "a", "x"]])
    if has_errors:
        kinds = [*"ab ", *rng.sample(FRAGMENT_LIST, 2)]
    invalid = rng.sample(INVALID_LIST, 2) if has_errors else []
    data = mix(rng, [*(kind.encode() for kind in kinds), *invalid])
    rules = {"pattern": PATTERNS[pattern], "special_tokens": specials, "errors": "replace"}
    with tempfile.TemporaryDirectory() as folder:
        path = write_corpus(folder, data)
        counts = count_pretokens([path], **rules, chunk_bytes=chunk_bytes, engine=engine)
    text = data.decode("utf-8", "replace")
    assert counts.counts == reference.count_words(text, specials, PATTERNS[pattern].expression)
    assert counts.n_documents == count_documents(text, specials)
