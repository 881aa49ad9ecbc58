"""Options of a vocabulary other than its size, through the trainer on both engines."""

import random

import pytest

from tests.native_module import native_module
from tokenizer_core import reference
from tokenizer_core.errors import InvalidSpecError, VocabSizeError
from tokenizer_core.spec.checks import MAX_TOKEN_ID
from tokenizer_core.splitting.patterns import PATTERNS
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_core.training import PretokenCounts, VocabularyOptions, train_from_counts
from tokenizer_core.training.vocabulary_plan import MAX_RESERVED

SPECIALS = ("<|endoftext|>", "<|pad|>")
TIMES = ("seconds_learning", "peak_memory_bytes", "peak_own_memory_bytes", "learned_vocab_size")


def make_counts(special_tokens=SPECIALS):
    rng = random.Random(7)
    words = [
        " " * rng.randint(0, 1) + "".join(rng.choices("abcdeé", k=rng.randint(1, 9)))
        for _ in range(700)
    ]
    counts = {word: rng.randint(1, 30) for word in words}
    return PretokenCounts(counts, PATTERNS["gpt2"], tuple(special_tokens))


COUNTS = make_counts()


def learn(size, engine="python", **options):
    return train_from_counts(COUNTS, size, engine=engine, options=VocabularyOptions(**options))


def figures(result):
    return {name: value for name, value in result.report.to_dict().items() if name not in TIMES}


SOME_OPTIONS = [
    {},
    {"seed_tokens": ("cab", " dab", "zzz")},
    {"n_reserved": 3, "pad_to_multiple": 64},
    {"min_frequency": 9, "max_token_length": 5, "seed_tokens": ("dead",), "pad_to_multiple": 10},
]


@pytest.mark.parametrize("options", SOME_OPTIONS, ids=str)
def test_a_run_cut_to_a_size_equals_a_run_of_this_size(engine, options):
    run = learn(700, engine, **options)
    for size in (272, 333, 699, 700):
        alone, cut = learn(size, engine, **options), run.at_size(size)
        assert cut.spec.fingerprint == alone.spec.fingerprint
        assert (cut.vocab, cut.merges) == (alone.vocab, alone.merges)
        assert figures(cut) == figures(alone)
        assert cut.at_size(272).spec == run.at_size(272).spec
    assert run.report.learned_vocab_size == cut.report.learned_vocab_size == 700


@pytest.mark.parametrize("options", SOME_OPTIONS, ids=str)
def test_the_curve_gives_the_tokens_at_each_size(options):
    run = learn(600, **options)
    points = run.report.curve
    sizes = [point.vocab_size for point in points]
    assert sizes == sorted(set(sizes))
    n_padding = run.report.n_reserved - run.plan.options.n_reserved
    assert sizes[0] == 258 + run.plan.options.n_reserved + run.report.n_seed_merges
    assert sizes[-1] == run.report.vocab_size - n_padding
    assert 50 < len(points) <= 104
    assert (500 in sizes) == (sizes[-1] >= 500)
    for point in points[:: len(points) // 3]:
        spec = run.at_size(point.vocab_size).spec
        encode = Tokenizer.from_spec(spec, engine="python").encode
        n_tokens = sum(n * len(encode(t, allowed_special="none")) for t, n in COUNTS.counts.items())
        assert point.n_tokens == n_tokens
        assert point.bytes_per_token == round(COUNTS.n_pre_token_bytes / n_tokens, 4)
    assert points[-1].n_tokens == run.report.n_tokens


def test_learning_stops_early_by_min_frequency_and_max_token_length(engine):
    every, frequent = learn(900, engine), learn(900, engine, min_frequency=100)
    assert frequent.merges == every.merges[: len(frequent.merges)]
    assert 0 < len(frequent.merges) < len(every.merges)
    assert "at least 100 times (min_frequency)" in str(frequent.report.stopped_early)
    assert learn(260, engine, min_frequency=100).report.stopped_early is None
    padded = learn(50_000, engine, pad_to_multiple=1000)
    assert padded.report.stopped_early is not None
    assert len(padded.vocab) % 1000 == 0
    assert len(padded.vocab) - len(padded.merges) - 258 < 1000
    assert learn(600, engine, max_token_length=3).report.longest_token_bytes == 3
    stopped = learn(5000, engine, max_token_length=2).report.stopped_early
    assert "at most 2 bytes (max_token_length)" in str(stopped)
    assert learn(300, engine, max_token_length=1 << 70).merges == learn(300, engine).merges


def test_no_token_is_longer_than_a_tokenizer_may_have():
    native_module()
    counts = PretokenCounts({"a" * (1 << 21): 1}, PATTERNS["gpt2"])
    for options in (VocabularyOptions(), VocabularyOptions(max_token_length=1 << 22)):
        run = train_from_counts(counts, 300, engine="native", options=options)
        assert run.report.longest_token_bytes == 1 << 20


def test_tokens_too_large_for_files_are_refused_with_remedies():
    """All pairs occur once, so ties make each merge lengthen the same token."""
    native_module()
    generator = random.Random(4)
    text = "".join(chr(generator.randrange(0x4E00, 0x9000)) for _ in range(6000))
    counts = PretokenCounts({text: 1}, PATTERNS["gpt2"])
    with pytest.raises(InvalidSpecError, match="Set min_frequency to 2, or max_token_length"):
        train_from_counts(counts, 10_000, engine="native")


def test_seed_tokens_are_tokens_for_any_text(engine):
    seeds = ("ing", "king", "  ", "漢字", " the", "123", "cab")
    run = learn(600, engine, seed_tokens=seeds)
    tokenizer = Tokenizer.from_spec(run.spec)
    for seed in seeds:
        assert len(tokenizer.encode(seed)) == 1, seed
    first = run.merges[: run.report.n_seed_merges]
    assert first[:3] == [(b"i", b"n"), (b"in", b"g"), (b"k", b"ing")]
    assert run.learned.first(0).merges == first
    assert run.learned.first(0).n_tokens == run.learned.token_counts[0]
    assert run.merges == reference.learn(COUNTS.counts, 600 - 258, first_merges=first)
    assert sorted(run.vocab) == list(range(600))
    # Ids in their order, after those of the special tokens.
    assert [run.vocab[i] for i in range(258, 261)] == [b"in", b"ing", b"king"]
    smallest = 258 + len(first)
    assert learn(smallest, engine, seed_tokens=seeds).merges == first
    with pytest.raises(VocabSizeError, match=f"{len(first)} merges of seed tokens.* {smallest} "):
        learn(smallest - 1, engine, seed_tokens=seeds)


def test_reserved_tokens_and_padding_come_last_and_shift_no_id(engine):
    plain = learn(400 - 5, engine)
    run = learn(400, engine, n_reserved=5, pad_to_multiple=128)
    assert len(run.vocab) == run.report.vocab_size == 512
    assert sorted(run.vocab) == list(range(512))
    assert {id_: run.vocab[id_] for id_ in plain.vocab} == plain.vocab
    names = [f"<|reserved_special_token_{i}|>" for i in range(512 - 395)]
    assert [run.vocab[id_].decode() for id_ in range(395, 512)] == names
    assert list(run.spec.special_tokens) == [*SPECIALS, *names]
    assert run.report.n_reserved == 117
    assert Tokenizer.from_spec(run.spec).encode(names[0] + "cab")[0] == 395
    assert len(learn(384, engine, pad_to_multiple=128).vocab) == 384


def test_names_of_reserved_tokens_are_checked(engine):
    run = learn(300, n_reserved=2, reserved_name="[unused{}]")
    assert [run.vocab[298], run.vocab[299]] == [b"[unused0]", b"[unused1]"]
    taken = make_counts(["<|r7|>"])
    options = VocabularyOptions(n_reserved=1, reserved_name="<|r{}|>")
    with pytest.raises(InvalidSpecError, match="may be a reserved one"):
        train_from_counts(taken, 300, options=options)
    train_from_counts(make_counts(["<|reserved_special_token_0|>"]), 300)  # none is requested
    learned = PretokenCounts({"ab0": 5}, PATTERNS["gpt2"])
    options = VocabularyOptions(n_reserved=1, reserved_name="ab{}")
    with pytest.raises(InvalidSpecError, match="'ab0' is a learned token too"):
        train_from_counts(learned, 259, engine=engine, options=options)


def reserved(name, most=1):
    return {"n_reserved": most, "reserved_name": name}


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"seed_tokens": ("New York",)}, InvalidSpecError, "'New York' cannot be one token: the "),
        ({"seed_tokens": ("a",)}, InvalidSpecError, "'a' is a single byte"),
        ({"seed_tokens": ("ab", "ab")}, InvalidSpecError, "'ab' is given twice"),
        ({"seed_tokens": ("",)}, InvalidSpecError, "not empty"),
        ({"seed_tokens": ("\ud800a",)}, InvalidSpecError, "lone surrogate"),
        ({"seed_tokens": ("<|pad|>",)}, InvalidSpecError, r"holds the special token '<\|pad\|>'"),
        ({"seed_tokens": "ab"}, InvalidSpecError, "list of strings"),
        (
            {"seed_tokens": ("abcde",), "max_token_length": 4},
            InvalidSpecError,
            "5 bytes, more than",
        ),
        ({"seed_tokens": ("x" * (1 << 19), "y")}, ValueError, "have 524289 characters, more than"),
        *((reserved(n), InvalidSpecError, "where the number") for n in ("reserved", "{}", "{}{}x")),
        (reserved("x" * 1020 + "{}"), InvalidSpecError, "too long for up to 2 tokens"),
        (
            reserved("漢" * 30 + "{}", MAX_RESERVED),
            InvalidSpecError,
            f"too long for up to {MAX_RESERVED + 1} tokens",
        ),
        (reserved("x\udcff{}"), InvalidSpecError, "lone surrogate"),
        ({"min_frequency": 0}, ValueError, "min_frequency must be at least 1"),
        ({"max_token_length": 1}, ValueError, "max_token_length must be at least 2"),
        ({"n_reserved": -1}, ValueError, "n_reserved"),
        ({"n_reserved": MAX_RESERVED + 1}, ValueError, "n_reserved must be in 0..16384"),
        ({"pad_to_multiple": 0}, ValueError, "pad_to_multiple"),
        ({"pad_to_multiple": MAX_RESERVED + 1}, ValueError, "pad_to_multiple must be in 1..16384"),
    ],
)
def test_invalid_options_are_refused(options, kind, said):
    with pytest.raises(kind, match=said):
        learn(300 + MAX_RESERVED, **options)


def test_sizes_out_of_range_are_refused():
    with pytest.raises(VocabSizeError, match="2 special tokens, 9 reserved need at least 267"):
        learn(266, n_reserved=9)
    with pytest.raises(VocabSizeError, match="padded to a multiple of 1000"):
        learn(MAX_TOKEN_ID, pad_to_multiple=1000)
    with pytest.raises(VocabSizeError, match="larger than the 300 of this run"):
        learn(300).at_size(301)
    with pytest.raises(VocabSizeError, match="at least 258"):
        learn(300).at_size(257)
