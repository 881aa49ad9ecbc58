"""Counting and learning in the compiled module, compared with Python."""

import pickle

import pytest

from tests.native_module import native_module
from tokenizer_core.engines.native_training import ChunkFailedError, NativeCounter, NativeCounts
from tokenizer_core.errors import CorpusError, SplitTooSlowError
from tokenizer_core.splitting.patterns import PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.training import (
    LearningRules,
    TrainingOptions,
    count_pretokens,
    learn_merges,
    train,
)
from tokenizer_core.training.learn_merges import learn_natively

LOOKBEHIND = r"(?<!x)\w+|\W+|x"  # has no automaton, so Python splits


@pytest.fixture(autouse=True)
def compiled():
    native_module()


@pytest.mark.parametrize("learn", [learn_natively, learn_merges])
@pytest.mark.parametrize(
    "merges", [[(b"a", b"bc")], [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc"), (b"ab", b"c")]]
)
def test_first_merges_that_cannot_be_applied_are_refused(learn, merges):
    with pytest.raises(ValueError, match="is not of two tokens into a new one"):
        learn({"abc": 1}, 9, rules=LearningRules(first_merges=tuple(merges)))


def test_counts_are_a_mapping_like_any_other(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("low low lower é漢字 é漢字", encoding="utf-8")
    counted = count_pretokens([path], pattern=PATTERNS["gpt2"], engine="native")
    counts = counted.counts
    assert isinstance(counts, NativeCounts)
    expected = {"low": 1, " low": 1, " lower": 1, " é漢字": 2}
    assert counts == expected
    assert expected == counts
    assert counts != {**expected, "low": 2}
    assert (len(counts), sorted(counts)) == (4, sorted(expected))
    assert counts[" é漢字"] == 2
    assert "lowest" not in counts
    assert (counted.n_pre_tokens, counted.n_pre_token_bytes) == (5, len(path.read_bytes()))
    copied = pickle.loads(pickle.dumps(counted))
    assert type(copied.counts) is dict
    assert copied == counted


def test_impossible_counts_are_refused_and_the_largest_are_exact():
    for counts, said in (
        ({"ab": 0}, "below 1"),
        ({"ab": -3}, "below 1"),
        ({"ab": 1 << 64}, "64 bits"),
        ({"ab": (1 << 64) - 1}, "64 bits"),
    ):
        with pytest.raises(ValueError, match=said):
            learn_natively(counts, 1)
    large = {"ab": (1 << 60) + 1, "cd": 1 << 60, "ce": 1}
    learned = learn_natively(large, 9)
    assert learned == learn_merges(large, 9)
    assert learned.merges[0] == (b"a", b"b")


@pytest.mark.parametrize("num_workers", [1, 4])
def test_invalid_utf8_is_named_by_its_offset(tmp_path, num_workers):
    path = tmp_path / "corpus.txt"
    good = "some words, é漢字 and more; ".encode() * 2000
    path.write_bytes(good + b"a \xff b" + good + b"\xc3 c" + good)
    options = {"pattern": PATTERNS["gpt2"], "chunk_bytes": 3000, "num_workers": num_workers}
    with pytest.raises(CorpusError, match=rf"at byte {len(good) + 2} \(0xff"):
        count_pretokens([path], engine="native", **options)


def test_text_that_the_module_cannot_count_is_counted_in_python(tmp_path):
    path = tmp_path / "corpus.txt"
    pattern = resolve_pattern(LOOKBEHIND)
    with pytest.raises(ValueError, match="cannot split by this pattern"):
        NativeCounter(pattern, [], 1)
    for data, options, counts in (
        (b"one two \xff two", {"errors": "replace"}, {"one": 1, " two": 2, " \ufffd": 1}),
        (b"one two two", {"pattern": pattern}, {"one": 1, " ": 2, "two": 2}),
    ):
        path.write_bytes(data)
        result = train([path], TrainingOptions(260, [], engine="native", **options))
        assert (result.report.engine, result.report.counting_engine) == ("native", "python")
        assert result.counts.counts == counts


CUSTOM = [
    resolve_pattern(r"\w+|\W+"),
    SplitPattern("custom", r"\w+", "fancy-regex", unmatched="drop"),
    SplitPattern("custom", r"\s+", "oniguruma", behavior="removed"),
    SplitPattern(
        "custom", r"\p{L}+|\s+(?!\S)", "oniguruma", before=(SplitPattern("custom", r"\d"),)
    ),
]


@pytest.mark.parametrize("pattern", CUSTOM)
def test_a_pattern_with_an_automaton_is_counted_alike_by_both_engines(tmp_path, pattern):
    path = tmp_path / "corpus.txt"
    text = "one two  three<|x|>12 caf\u00e9s \u4e2d\u6587 a<|x|> " * 50
    path.write_text(text, encoding="utf-8")
    settings = {"vocab_size": 300, "special_tokens": ["<|x|>"], "pattern": pattern}
    native, python = (
        train([path], TrainingOptions(**settings, engine=name)) for name in ("native", "python")
    )
    assert native.report.counting_engine == "native"
    assert native.counts.counts == python.counts.counts
    assert native.merges == python.merges


def test_counting_ends_where_splitting_takes_too_long(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("a" * 200_000, encoding="utf-8")
    pattern = SplitPattern("custom", "a+b|a", "fancy-regex")
    with NativeCounter(pattern, [], 1) as counter, path.open("rb") as file:
        counter.submit(file.fileno(), 0, 200_000)
        with pytest.raises(SplitTooSlowError, match="takes too long"):
            counter.finish()


def test_a_file_that_becomes_shorter_is_an_error(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("one two three " * 1000, encoding="utf-8")
    with NativeCounter(PATTERNS["gpt2"], [], 2) as counter, path.open("rb") as file:
        path.write_text("one", encoding="utf-8")
        counter.submit(file.fileno(), 0, 3)
        counter.submit(file.fileno(), 3, 14_000)
        with pytest.raises(ChunkFailedError) as failed:
            counter.finish()
    assert failed.value.number == 1
