"""The trainer equals the reference on random corpora: any engine, chunking, workers, specials."""

import random
import tempfile

# The package exports the function `count_pretokens`; this reaches the module of that name.
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tokenizer_core import reference
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import (
    LearningRules,
    TrainingOptions,
    count_pretokens,
    learn_merges,
    train,
)
from tokenizer_core.training.learn_merges import learn_natively

T = TypeVar("T", str, bytes)

LEARNERS = {"python": learn_merges, "native": learn_natively}
COUNTING = import_module("tokenizer_core.training.count_pretokens")

TINY_WORDS = st.text(alphabet="ab", min_size=1, max_size=9) | st.text(
    alphabet=" a!é漢À", min_size=1, max_size=5
)
COUNTS = st.dictionaries(TINY_WORDS, st.integers(1, 4), min_size=1, max_size=12)

# Overlapping, nested, repeating and multi-byte special tokens, and some that are common text.
SPECIAL_SETS = st.sampled_from(
    [
        [],
        ["<e>"],
        ["<e>", "<e><e>"],
        ["aa"],
        ["aa", "aaa", "ab"],
        ["ab", "bc", "abca"],
        ["\n\n", "<e>"],
        ["é", "漢字"],
        [" a", "  "],
        ["a b", "b a", "<e>"],
        ["bc", "aabc"],
        ["bc", "abca", "aabcaa"],
        ["a  b a", "aa aa b"],
    ]
)
FRAGMENT_LIST = [
    *"abc<!/1é漢字😀\u00a0\ufeff\ufffd \n",
    *("aa", "ab", "aaa", "  ", " a", " b", "\r\n", "\n\n", "<e>", "'s", "'ll", "23", "e\u0301"),
]
FRAGMENTS = st.sampled_from(FRAGMENT_LIST)
TEXTS = st.lists(FRAGMENTS, min_size=1, max_size=60).map("".join)
CHUNK_BYTES = st.integers(1, 120)


def mix(rng: random.Random, kinds: list[T], joined: T) -> T:
    """Many times longer than the window searched for a cut, with few kinds of fragments and long
    runs, so that special tokens are close together and cross the edges."""
    filler, *others = rng.sample(kinds, rng.randint(2, min(6, len(kinds))))
    longest_run = rng.choice([0, 0, 10, 90])
    parts: list[T] = []
    while len(parts) < 1500:
        parts += [filler] * rng.randint(0, longest_run)
        parts += rng.choices(others, k=rng.randint(1, 12))
    return joined.join(parts)


def count_documents(text: str, specials: list[str]) -> int:
    return sum(bool(text) for text, _ in reference.split_at_special_tokens(text, specials))


def write_corpus(folder: str, data: str | bytes) -> Path:
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

    def may_merge(pair: tuple[bytes, bytes], count: int) -> bool:
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


@pytest.mark.promise(18)
@given(text=TEXTS, specials=SPECIAL_SETS, chunk_bytes=CHUNK_BYTES, n_merges=st.integers(0, 30))
def test_trainer_equals_oracle_for_any_chunking(engine, text, specials, chunk_bytes, n_merges):
    vocab_size = 256 + len(specials) + n_merges
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            [write_corpus(folder, text)],
            TrainingOptions(
                vocab_size=vocab_size,
                special_tokens=specials,
                chunk_bytes=chunk_bytes,
                engine=engine,
            ),
        )
    vocab, merges = reference.train(text, vocab_size, specials)
    assert result.merges == merges
    assert result.vocab == vocab
    assert (result.report.stopped_early is None) == (len(merges) == n_merges)


@given(text=TEXTS, specials=SPECIAL_SETS, chunk_bytes=CHUNK_BYTES)
@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_counts_are_the_same_for_any_chunking(engine, pattern, text, specials, chunk_bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = write_corpus(folder, text)
        rules = {"pattern": PATTERNS[pattern], "special_tokens": specials, "engine": engine}
        whole = count_pretokens([path], **rules, chunk_bytes=1 << 30)
        cut = count_pretokens([path], **rules, chunk_bytes=chunk_bytes)
    assert cut == whole
    assert cut.counts == reference.count_words(text, specials, PATTERNS[pattern].expression)
    assert cut.n_documents == count_documents(text, specials)


@given(seed=st.integers(0, 2**32), specials=SPECIAL_SETS, chunk_bytes=CHUNK_BYTES)
def test_special_tokens_across_chunks(engine, seed, specials, chunk_bytes):
    rng = random.Random(seed)
    alphabet = [*" ".join(specials), *specials, *(token[:-1] for token in specials)]
    text = mix(rng, rng.choice([FRAGMENT_LIST, [*filter(None, alphabet), "a", "x"]]), "")
    with tempfile.TemporaryDirectory() as folder:
        counts = count_pretokens(
            [write_corpus(folder, text)],
            pattern=PATTERNS["gpt2"],
            special_tokens=specials,
            chunk_bytes=chunk_bytes,
            engine=engine,
        )
    assert counts.counts == reference.count_words(text, specials)
    assert counts.n_documents == count_documents(text, specials)


INVALID_LIST = [
    b"\xff", b"\xe6\xbc", b"\xf0\x9f\x98", b"\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90"
]  # fmt: skip
SPECIALS_WITH_REPLACEMENTS = st.sampled_from(
    [["\ufffd\ufffd", "a\ufffd"], ["b a\ufffd"], ["\ufffda b"], ["bb", "abb\ufffd"]]
)


@given(
    seed=st.integers(0, 2**32),
    specials=SPECIAL_SETS | SPECIALS_WITH_REPLACEMENTS,
    chunk_bytes=CHUNK_BYTES,
)
def test_replacement_is_the_same_for_any_chunking_of_long_texts(seed, specials, chunk_bytes):
    rng = random.Random(seed)
    kinds = [*"ab ", *rng.sample(FRAGMENT_LIST, 2)]
    data = mix(rng, [*(kind.encode() for kind in kinds), *rng.sample(INVALID_LIST, 2)], b"")
    with tempfile.TemporaryDirectory() as folder:
        counts = count_pretokens(
            [write_corpus(folder, data)],
            pattern=PATTERNS["gpt2"],
            special_tokens=specials,
            errors="replace",
            chunk_bytes=chunk_bytes,
        )
    assert counts.counts == reference.count_words(data.decode("utf-8", "replace"), specials)


@pytest.mark.promise(18)
@given(
    text=TEXTS,
    specials=SPECIAL_SETS,
    chunk_bytes=st.integers(8, 60),
    num_workers=st.integers(2, 4),
)
@examples(1 / 30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trainer_equals_oracle_for_any_workers(
    monkeypatch, engine, text, specials, chunk_bytes, num_workers
):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    vocab_size = 256 + len(specials) + 20
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            [write_corpus(folder, text)],
            TrainingOptions(
                vocab_size=vocab_size,
                special_tokens=specials,
                chunk_bytes=chunk_bytes,
                num_workers=num_workers,
                engine=engine,
            ),
        )
    assert (result.vocab, result.merges) == reference.train(text, vocab_size, specials)
    assert result.report.num_workers == num_workers
    assert (result.report.engine, result.report.counting_engine) == (engine, engine)
