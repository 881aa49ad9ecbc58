"""Counts of pre-tokens: saved and loaded, under a memory ceiling, combined, and pruned."""

import hashlib
import itertools
import json
import os
import pickle
import random
from collections import Counter
from dataclasses import asdict, replace
from fractions import Fraction
from functools import partial
from importlib import import_module
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tokenizer_core.engines.native_training import NativeCounts
from tokenizer_core.errors import CorpusError, FormatError
from tokenizer_core.reference import count_words, join
from tokenizer_core.splitting.patterns import PATTERNS, SplitPattern
from tokenizer_core.training import (
    CorpusSource,
    LearningRules,
    PretokenCounts,
    Pruning,
    combine_counts,
    count_pretokens,
    learn_merges,
    prune_counts,
    train_from_counts,
)
from tokenizer_core.training import counts as counts_module
from tokenizer_core.training.counts import MAX_RUNS, CountTable, FileCounts

GPT2 = PATTERNS["gpt2"]
COUNTS = PretokenCounts(
    counts={" low": 3, "low": 1, "漢字": 1 << 40, "😀": 2, "\x00": 7, "é": 1},
    pattern=GPT2,
    special_tokens=("<|endoftext|>", "<|漢|>"),
    sources=(CorpusSource("folder/corpus.txt", 12, "ab" * 32),),
    n_bytes=12,
    n_documents=2,
)


@pytest.fixture(params=[False, True], ids=["in memory", "on the disk"])
def load(request):
    """Both ways to read a file, which must accept and refuse the same."""
    return partial(PretokenCounts.load, on_disk=request.param)


@pytest.fixture
def saved(tmp_path):
    COUNTS.save(tmp_path / "counts")
    return tmp_path / "counts"


def test_saved_counts_are_loaded_alike_by_the_same_rules_only(load, saved, tmp_path):
    assert load(saved) == COUNTS
    loaded = load(saved, pattern="gpt2", special_tokens=COUNTS.special_tokens)
    assert loaded.n_pre_tokens == COUNTS.n_pre_tokens == 14 + (1 << 40)
    assert "weights" not in header_of(saved)
    other = tmp_path / "other"
    empty = PretokenCounts({}, SplitPattern("custom", r"[a-c[x-z]]+", "fancy-regex", "drop"))
    for counts in (replace(COUNTS, weights=(3,)), empty):
        counts.save(other)
        assert load(other) == counts
    with pytest.raises(CorpusError, match="counted with the split pattern"):
        load(other, pattern=empty.pattern.expression)
    with pytest.raises(CorpusError, match="split pattern 'gpt2', not 'cl100k'"):
        load(saved, pattern="cl100k")
    with pytest.raises(CorpusError, match="special tokens"):
        load(saved, special_tokens=["<|endoftext|>"])
    replace(COUNTS, unicode_tables="regex 2030.1.1").save(other)
    with pytest.raises(CorpusError, match=r"Unicode tables of regex 2030\.1\.1"):
        load(other)
    other.write_text("some text")
    with pytest.raises(FormatError, match="not a file of pre-token counts"):
        load(other)
    os.mkfifo(tmp_path / "pipe")
    for path, said in ((tmp_path / "pipe", "not a regular file"), (tmp_path, "is a folder")):
        with pytest.raises(FormatError, match=said):
            PretokenCounts.load(path, on_disk=True)


def test_a_file_cut_extended_or_changed_by_one_bit_is_refused(load, saved):
    data = saved.read_bytes()
    damaged = [*(data[:size] for size in range(0, len(data), 3)), data + b"\0", b"words"]
    for place in range(0, len(data), 3):
        damaged.append(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
    for changed in damaged:
        saved.write_bytes(changed)
        with pytest.raises(FormatError):
            load(saved)


MAGIC = b"tokenizer-pretoken-counts-1\n"


def seal(header, numbers, text):
    """A file with a valid hash and any content."""
    rendered = json.dumps(header).encode()
    body = MAGIC + len(rendered).to_bytes(8, "little") + rendered + numbers + text
    return body + hashlib.sha256(body).digest()


def header_of(path):
    data = path.read_bytes()[len(MAGIC) :]
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def little(numbers, size):
    return b"".join(number.to_bytes(size, "little") for number in numbers)


MOST = (1 << 64) - 1
WRONG = [
    ({}, [1, 2], [1, 2], b"ab"),  # lengths beyond the text
    ({}, [1, 1], [1, 2], b"abc"),  # text beyond the lengths
    ({}, [1, 1], [1, 2], b"ab\xc3"),  # half a character
    ({"n_pre_tokens": 1}, [1, 1], [1, 0], b"ab"),  # a count of zero
    ({"n_pre_tokens": 2}, [1, 1], [1, 2], b"aa"),  # the same twice
    ({}, [0, 2], [1, 2], b"ab"),  # an empty pre-token
    ({}, [1, 1], [1, 2], b"a\xff"),  # not UTF-8
    ({"n_distinct": 1, "n_pre_tokens": MOST}, [2], [MOST], b"ab"),  # a sum beyond 64 bits
    *(
        ({name: value}, [1, 1], [1, 2], b"ab")
        for name, values in {
            "n_pre_tokens": [4],
            "n_distinct": [1 << 60, -1],
            "text_bytes": [1 << 60],
            "n_bytes": ["many", -1, float("inf")],
            "n_documents": [-1],
            "sources": [
                [{"path": 3, "size_bytes": 1, "sha256": ""}],
                [{"path": "x", "size_bytes": "1", "sha256": ""}],
                [{"path": "x", "size_bytes": 1, "sha256": []}],
                [{"path": "x"}],
            ],
            "pattern": [None],
            "weights": [[1, 2], [0], [1.5], 7],  # of one source
        }.items()
        for value in values
    ),
]


def test_invalid_content_with_a_valid_hash_is_refused(load, saved):
    original = header_of(saved) | {"n_distinct": 2, "n_pre_tokens": 3, "text_bytes": 2}
    saved.write_bytes(seal(original, little([1, 1], 4) + little([1, 2], 8), b"ab"))
    assert load(saved).counts == {"a": 1, "b": 2}
    one = original | {"n_distinct": 1, "n_pre_tokens": MOST, "text_bytes": 1}
    saved.write_bytes(seal(one, little([1], 4) + little([MOST], 8), b"a"))
    assert load(saved).n_pre_token_bytes == MOST
    for changes, lengths, counts, text in WRONG:
        header = original | {"text_bytes": len(text)} | changes
        saved.write_bytes(seal(header, little(lengths, 4) + little(counts, 8), text))
        with pytest.raises(FormatError, match=r"damaged|64 bits"):
            load(saved)


def test_all_forms_of_counts_are_read_in_order_and_pruned_alike(tmp_path, monkeypatch):
    """Reads a few at a time, in pieces that cut characters."""
    monkeypatch.setattr(counts_module, "_BATCH", 7)
    monkeypatch.setattr(counts_module, "_TEXT_BYTES", 13)
    counts = {f"{'é漢😀a'[i % 4]}{i * 7919:x}": 1 + i % 4 for i in range(300)}
    whole = replace(COUNTS, counts=counts)
    whole.save(tmp_path / "counts")
    read = PretokenCounts.load(tmp_path / "counts", on_disk=True)
    assert list(read.counts.items()) == sorted(counts.items())
    assert list(read.counts.values()) == [counts[word] for word in sorted(counts)]
    assert read == whole
    pruned = prune_counts(whole, min_count=3)
    assert prune_counts(read, min_count=3) == pruned
    read.save(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "counts").read_bytes()
    native_module()
    packed = NativeCounts.of(counts)
    assert prune_counts(replace(whole, counts=packed), min_count=3) == pruned
    assert "_dict" not in vars(packed), "a dict was made of everything"


COUNTING = import_module("tokenizer_core.training.count_pretokens")
SPECIAL = "<|e|>"


def make_text(n_words):
    rng = random.Random(11)
    letters = "abcdeé漢😀 \n"
    words = ["".join(rng.choices(letters, k=rng.randint(1, 24))) for _ in range(n_words)]
    return f" {SPECIAL}".join(map(" ".join, (words[i : i + 50] for i in range(0, n_words, 50))))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(make_text(1500), encoding="utf-8")
    return path


def test_a_table_is_read_back_from_the_disk(tmp_path):
    table, expected = CountTable(2_000, tmp_path), CountTable()
    rng = random.Random(5)
    for _ in range(300):
        counts = {f"{rng.randint(0, 900)}é\x00": rng.choice([1, 7, 1 << 50]) for _ in range(9)}
        table.add(counts)
        expected.add(counts)
    assert table.n_spills > 2 * MAX_RUNS
    stored, plain = table.finish(), expected.finish()
    assert isinstance(stored, FileCounts)
    assert list(stored.items()) == sorted(plain.items())
    assert list(stored) == sorted(plain)
    assert sum(stored.values()) == sum(plain.values())
    assert stored.text_bytes == sum(len(pre_token.encode()) for pre_token in plain)
    assert len(stored) == len(plain)
    assert stored == plain
    assert pickle.loads(pickle.dumps(stored)) == plain
    assert all(a == b for a, b in zip(stored.items(), stored.items(), strict=True)), "two readers"
    assert list(tmp_path.iterdir()) == []
    pruned = prune_counts(PretokenCounts(stored, GPT2), min_count=3)
    assert pruned == prune_counts(PretokenCounts(plain, GPT2), min_count=3)


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_ceiling_changes_no_count(engine, corpus, tmp_path, monkeypatch, num_workers):
    scratch = tmp_path / "scratch"
    rules = {"pattern": GPT2, "special_tokens": [SPECIAL], "engine": engine}
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    plain = count_pretokens([corpus], **rules)
    assert plain.n_spills == 0
    with pytest.raises(ValueError, match="at least 16777216, not 1000"):
        count_pretokens([corpus], **rules, max_memory_bytes=1000)
    monkeypatch.setattr(COUNTING, "SMALLEST_CEILING_BYTES", 1)
    rules |= {"num_workers": num_workers, "chunk_bytes": 4_000, "scratch_folder": scratch}
    with pytest.raises(OSError, match="No such file"):
        count_pretokens([corpus], **rules, max_memory_bytes=1)
    scratch.mkdir()
    assert count_pretokens([corpus], **rules, max_memory_bytes=10_000_000) == plain
    counts = count_pretokens([corpus], **rules, max_memory_bytes=20_000)
    assert counts.n_spills > 0
    assert counts == plain
    assert counts.counts == count_words(corpus.read_text("utf-8"), [SPECIAL])
    assert all(a < b for a, b in pairwise(counts.counts)), "sorted"
    counts.save(tmp_path / "spilled")
    plain.save(tmp_path / "plain")
    assert (tmp_path / "spilled").read_bytes() == (tmp_path / "plain").read_bytes()
    merges = train_from_counts(counts, 400, engine=engine).merges
    assert merges == train_from_counts(plain, 400, engine=engine).merges
    assert list(scratch.iterdir()) == []


TEXTS = {"a": "low low lower<|e|>newest 漢字", "b": "widest widest low\n", "c": "é é lower " * 3}


def count(folder, names, engine="python"):
    for name in names:
        (folder / name).write_text(TEXTS[name], encoding="utf-8")
    paths = [folder / name for name in names]
    return count_pretokens(paths, pattern=GPT2, special_tokens=[SPECIAL], engine=engine)


def test_combined_counts_are_those_of_the_files_together(tmp_path, engine):
    apart = [(count(tmp_path, name, engine), 1) for name in "abc"]
    together = count(tmp_path, "abc", engine)
    combine_counts(apart).save(tmp_path / "apart")
    together.save(tmp_path / "together")
    assert (tmp_path / "apart").read_bytes() == (tmp_path / "together").read_bytes()
    assert combine_counts([(combine_counts(apart[:2]), 1), apart[2]]) == together  # one more file


def test_a_weight_is_so_many_copies_of_the_files(tmp_path):
    a, b, c = (count(tmp_path, name) for name in "abc")
    weighted = combine_counts([(a, Fraction(1, 2)), (b, Fraction("0.75")), (c, 2)])  # 2 : 3 : 8
    copied = count(tmp_path, "aabbbcccccccc")
    assert weighted.counts == copied.counts
    for figure in ("n_bytes", "n_documents", "n_pre_tokens", "n_pre_token_bytes"):
        assert getattr(weighted, figure) == getattr(copied, figure)
    assert weighted.weights == weighted.source_weights == (2, 3, 8)
    assert combine_counts([(a, 4), (b, 4)]) == combine_counts([(a, 1), (b, 1)])
    assert combine_counts([(a, Fraction(1, 3))]) == a
    two = combine_counts([(a, 2), (b, 3)])
    two.save(tmp_path / "two")
    loaded = PretokenCounts.load(tmp_path / "two")
    assert loaded == two
    assert combine_counts([(loaded, 5), (c, 7)]).weights == (10, 15, 7)


def test_sums_are_exact_up_to_64_bits():
    one = PretokenCounts({"ab": (1 << 53) + 1}, GPT2)
    two = PretokenCounts({"ab": 1, "cd": 1}, GPT2)
    summed = combine_counts([(one, Fraction(3, 7)), (two, Fraction(1, 7))])
    assert summed.counts == {"ab": 3 * (1 << 53) + 4, "cd": 1}
    large = (1 << 55) + 1
    assert combine_counts([(two, large), (two, Fraction(1, 3))]).counts["cd"] == 3 * large + 1
    part = PretokenCounts({"abcde": MOST // 15, "a": 1}, GPT2)
    other = PretokenCounts({"b": 1}, GPT2)
    assert combine_counts([(part, 2), (other, 1)]).counts["abcde"] == MOST // 15 * 2
    assert combine_counts([(PretokenCounts({"a": MOST - 1}, GPT2), 1), (other, 1)])
    for counts in (part, PretokenCounts({"a": MOST}, GPT2)):
        with pytest.raises(CorpusError, match="64 bits hold; give weights with smaller"):
            combine_counts([(counts, 4), (other, 1)])


def test_counts_that_cannot_be_combined_are_refused(tmp_path):
    counts = PretokenCounts({"a": 1}, GPT2)
    for weight in (0, Fraction(-1, 2), 0.5, "2"):
        with pytest.raises(CorpusError, match="whole number or a fraction above 0"):
            combine_counts([(counts, weight)])
    with pytest.raises(ValueError, match="no counts"):
        combine_counts([])
    for changes, said in (
        ({"pattern": PATTERNS["cl100k"]}, "split pattern: 'gpt2' and 'cl100k'"),
        ({"special_tokens": ("<|e|>",)}, "special tokens"),
        ({"unicode_tables": "regex 2030.1.1"}, r"Unicode tables: .* and 'regex 2030.1.1'"),
    ):
        with pytest.raises(CorpusError, match=f"different {said}.*count one of the corpora again"):
            combine_counts([(counts, 1), (replace(counts, **changes), 1)])
    with pytest.raises(CorpusError, match=r"b is in two of these counts .*leave one of them out"):
        combine_counts([(count(tmp_path, "ab"), 1), (count(tmp_path, "b"), 1)])
    empty = CorpusSource("empty", 0, "ab" * 32)
    counts = replace(counts, sources=(empty,))
    assert combine_counts([(counts, 1), (counts, 1)]).sources == (empty, empty)


some_counts = st.dictionaries(
    st.one_of(st.text("ab", min_size=1, max_size=9), st.text("aé漢b", min_size=1, max_size=5)),
    st.integers(1, 12),
    min_size=1,
    max_size=24,
)
some_rules = st.builds(
    LearningRules,
    min_frequency=st.integers(1, 6),
    max_token_length=st.one_of(st.none(), st.integers(2, 5)),
    first_merges=st.sampled_from([(), ((b"a", b"b"),), ((b"b", b"b"), (b"bb", b"a"))]),
)


def pair_counts(counts, merges):
    """How often each pair occurs in these pre-tokens after the merges, by definition."""
    found = Counter()
    for pre_token, count in counts.items():
        word = [bytes([byte]) for byte in pre_token.encode()]
        for merge in merges:
            word = join(word, merge)
        for pair in itertools.pairwise(word):
            found[pair] += count
    return found


@given(some_counts, st.integers(2, 8), some_rules)
def test_each_merge_is_within_the_bound_of_the_best(counts, min_count, rules):
    counts |= {"ba": 20}  # which is always kept
    pruned = prune_counts(PretokenCounts(counts, GPT2), min_count=min_count)
    dropped = {word: count for word, count in counts.items() if count < min_count}
    assert dict(pruned.counts) | dropped == counts
    assert pruned.pruning == Pruning(
        min_count=min_count,
        n_distinct=len(dropped),
        n_pre_tokens=sum(dropped.values()),
        n_bytes=sum(count * len(word.encode()) for word, count in dropped.items()),
        bound=max(pair_counts(dropped, []).values(), default=0),
    )
    learned = learn_merges(pruned.counts, 12, rules=rules)
    for n_before in range(len(rules.first_merges), len(learned.merges) + 1):
        state = learned.merges[:n_before]
        truth = pair_counts(counts, state)
        for pair, lost in pair_counts(dropped, state).items():
            assert lost <= pruned.pruning.bound, pair
        longest = rules.max_token_length or 1000
        best = max((n for pair, n in truth.items() if len(b"".join(pair)) <= longest), default=0)
        if n_before < len(learned.merges):
            taken = truth[learned.merges[n_before]]
            assert best - taken <= pruned.pruning.bound
            assert taken >= rules.min_frequency
        elif learned.no_pair_left:
            assert best < rules.min_frequency + pruned.pruning.bound


def test_pruning_that_would_drop_everything_is_refused():
    pruned = prune_counts(PretokenCounts({"ab": 5}, GPT2), min_count=5)
    assert pruned.pruning == Pruning(5, 0, 0, 0, 0)
    with pytest.raises(CorpusError, match=r"no pre-token occurs 6 times"):
        prune_counts(PretokenCounts({"ab": 5}, GPT2), min_count=6)
    with pytest.raises(ValueError, match="64 bits"):
        prune_counts(PretokenCounts({"x" * 9: 1 << 61, "y": 1 << 63}, GPT2), min_count=1 << 62)
    with pytest.raises(ValueError, match="min_count must be at least 2, not 1"):
        prune_counts(PretokenCounts({"ab": 5}, GPT2), min_count=1)


def test_pruning_is_saved_and_an_invalid_record_is_refused(tmp_path):
    source = CorpusSource("news.txt", 4, "ab" * 32)
    counts = PretokenCounts({"ab": 5, "c": 1}, GPT2, sources=(source,), n_bytes=11)
    assert combine_counts([(counts, 1)]).pruning is None
    pruned = prune_counts(counts, min_count=2)
    assert combine_counts([(pruned, 1)]) == pruned
    path = tmp_path / "counts"
    counts.save(path)
    assert PretokenCounts.load(path).pruning is None
    pruned.save(path)
    assert PretokenCounts.load(path) == pruned
    for bound in (-1, 1.5, None):
        wrong = bound
        replace(pruned, pruning=Pruning(2, 1, 1, 1, wrong)).save(path)
        with pytest.raises(FormatError):
            PretokenCounts.load(path)
    with pytest.raises((ValueError, TypeError)):
        Pruning.parse(asdict(Pruning(2, 1, 1, 1, 0)) | {"more": 1})
