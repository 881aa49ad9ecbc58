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
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tokenizer_core.engines.native import NativeCounts
from tokenizer_core.errors import CorpusError, FormatError
from tokenizer_core.patterns import PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.reference import Merge, count_words, join
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

COUNTS = PretokenCounts(
    counts={" low": 3, "low": 1, "漢字": 1 << 40, "😀": 2, "\x00": 7, "é": 1},
    pattern=PATTERNS["gpt2"],
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
def saved(tmp_path: Path) -> Path:
    COUNTS.save(tmp_path / "counts")
    return tmp_path / "counts"


def test_saved_counts_are_loaded_alike(load, saved, tmp_path):
    assert load(saved) == COUNTS
    loaded = load(saved, pattern="gpt2", special_tokens=COUNTS.special_tokens)
    assert loaded.n_pre_tokens == COUNTS.n_pre_tokens == 14 + (1 << 40)
    assert "weights" not in header_of(saved)
    empty = PretokenCounts({}, resolve_pattern(r"\w+|\W+"))
    for counts in (replace(COUNTS, weights=(3,)), empty):
        counts.save(tmp_path / "other")
        assert load(tmp_path / "other") == counts


def test_the_dialect_of_the_pattern_is_kept(load, tmp_path):
    pattern = SplitPattern("custom", r"[a-c[x-z]]+", "fancy-regex", "drop")
    PretokenCounts({"ab": 1}, pattern).save(tmp_path / "counts")
    assert load(tmp_path / "counts", pattern=pattern).pattern == pattern
    with pytest.raises(CorpusError, match="counted with the split pattern"):
        load(tmp_path / "counts", pattern=pattern.expression)


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


def seal(header: dict[str, object], numbers: bytes, text: bytes) -> bytes:
    """A file with a valid hash and any content."""
    rendered = json.dumps(header).encode()
    body = MAGIC + len(rendered).to_bytes(8, "little") + rendered + numbers + text
    return body + hashlib.sha256(body).digest()


def header_of(path: Path) -> dict[str, object]:
    data = path.read_bytes()[len(MAGIC) :]
    header: dict[str, object] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header


def little(numbers: list[int], size: int) -> bytes:
    return b"".join(number.to_bytes(size, "little") for number in numbers)


WRONG: list[tuple[dict[str, Any], list[int], list[int], bytes]] = [
    ({}, [1, 2], [1, 2], b"ab"),  # lengths beyond the text
    ({}, [1, 1], [1, 2], b"abc"),  # text beyond the lengths
    ({}, [1, 1], [1, 2], b"ab\xc3"),  # half a character
    ({"n_pre_tokens": 1}, [1, 1], [1, 0], b"ab"),  # a count of zero
    ({"n_pre_tokens": 2}, [1, 1], [1, 2], b"aa"),  # the same twice
    ({}, [0, 2], [1, 2], b"ab"),  # an empty pre-token
    ({}, [1, 1], [1, 2], b"a\xff"),  # not UTF-8
    *(
        (header, [1, 1], [1, 2], b"ab")
        for header in (
            {"n_pre_tokens": 4},
            {"n_distinct": 1 << 60},
            {"n_distinct": -1},
            {"text_bytes": 1 << 60},
            {"n_bytes": "many"},
            {"n_bytes": -1},
            {"n_documents": -1},
            {"n_bytes": float("inf")},
            {"sources": [{"path": 3, "size_bytes": 1, "sha256": ""}]},
            {"sources": [{"path": "x", "size_bytes": "1", "sha256": ""}]},
            {"sources": [{"path": "x", "size_bytes": 1, "sha256": []}]},
            {"sources": [{"path": "x"}]},
            {"pattern": None},
            {"weights": [1, 2]},  # of one source
            {"weights": [0]},
            {"weights": [1.5]},
            {"weights": 7},
        )
    ),
]


def test_invalid_content_with_a_valid_hash_is_refused(load, saved):
    original = header_of(saved)
    for changes, lengths, counts, text in WRONG:
        header = original | {"n_distinct": 2, "n_pre_tokens": 3, "text_bytes": len(text)}
        if len(text) == 2:
            saved.write_bytes(seal(header, little([1, 1], 4) + little([1, 2], 8), b"ab"))
            assert load(saved).counts == {"a": 1, "b": 2}
        saved.write_bytes(seal(header | changes, little(lengths, 4) + little(counts, 8), text))
        with pytest.raises(FormatError, match="damaged"):
            load(saved)


def test_a_sum_beyond_64_bits_is_refused(load, saved):
    most = (1 << 64) - 1
    header = header_of(saved) | {"n_distinct": 1, "n_pre_tokens": most}
    numbers = little([1], 4) + little([most], 8)
    saved.write_bytes(seal(header | {"text_bytes": 1}, numbers, b"a"))
    assert load(saved).n_pre_token_bytes == most
    saved.write_bytes(seal(header | {"text_bytes": 2}, numbers, "é".encode()))
    with pytest.raises(FormatError, match="64 bits"):
        load(saved)


def test_counts_made_by_other_rules_are_refused(load, saved, tmp_path):
    with pytest.raises(CorpusError, match="split pattern 'gpt2', not 'cl100k'"):
        load(saved, pattern="cl100k")
    with pytest.raises(CorpusError, match="special tokens"):
        load(saved, special_tokens=["<|endoftext|>"])
    replace(COUNTS, unicode_tables="regex 2030.1.1").save(tmp_path / "other")
    with pytest.raises(CorpusError, match=r"Unicode tables of regex 2030\.1\.1"):
        load(tmp_path / "other")


def test_counts_on_disk_are_read_in_order_and_pruned_alike(tmp_path, monkeypatch):
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
    assert prune_counts(read, min_count=3) == prune_counts(whole, min_count=3)
    read.save(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "counts").read_bytes()


def test_a_path_that_is_no_file_of_counts_is_refused(load, tmp_path):
    (tmp_path / "other").write_text("some text")
    with pytest.raises(FormatError, match="not a file of pre-token counts"):
        load(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    for path, said in ((tmp_path / "pipe", "not a regular file"), (tmp_path, "is a folder")):
        with pytest.raises(FormatError, match=said):
            PretokenCounts.load(path, on_disk=True)


COUNTING = import_module("tokenizer_core.training.count_pretokens")
SPECIAL = "<|e|>"


def make_text(n_words: int) -> str:
    rng = random.Random(11)
    letters = "abcdeé漢😀 \n"
    words = ["".join(rng.choices(letters, k=rng.randint(1, 24))) for _ in range(n_words)]
    return f" {SPECIAL}".join(map(" ".join, (words[i : i + 50] for i in range(0, n_words, 50))))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(make_text(1500), encoding="utf-8")
    return path


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_a_table_is_read_back_from_the_disk(scratch):
    table, expected = CountTable(2_000, scratch), CountTable()
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
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_ceiling_changes_no_count(engine, corpus, scratch, tmp_path, monkeypatch, num_workers):
    monkeypatch.setattr(COUNTING, "SMALLEST_CEILING_BYTES", 1)
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    rules = {"pattern": PATTERNS["gpt2"], "special_tokens": [SPECIAL], "engine": engine}
    plain = count_pretokens([corpus], **rules)
    assert plain.n_spills == 0
    for ceiling in (20_000, 10_000_000)[: 2 if num_workers == 1 else 1]:
        counts = count_pretokens(
            [corpus],
            **rules,
            num_workers=num_workers,
            chunk_bytes=4_000,
            max_memory_bytes=ceiling,
            scratch_folder=scratch,
        )
        assert (counts.n_spills > 0) == (ceiling < 10_000_000)
        assert counts == plain
        assert counts.counts == count_words(corpus.read_text("utf-8"), [SPECIAL])
        pre_tokens = list(counts.counts)
        assert counts.n_spills == 0 or all(a < b for a, b in pairwise(pre_tokens)), "sorted"
        counts.save(tmp_path / "spilled")
        plain.save(tmp_path / "plain")
        assert (tmp_path / "spilled").read_bytes() == (tmp_path / "plain").read_bytes()
        merges = train_from_counts(counts, 400, engine=engine).merges
        assert merges == train_from_counts(plain, 400, engine=engine).merges
        assert list(scratch.iterdir()) == []


def test_a_too_small_ceiling_and_a_missing_folder_are_refused(engine, corpus, monkeypatch):
    rules = {"pattern": PATTERNS["gpt2"], "engine": engine}
    with pytest.raises(ValueError, match="at least 16777216, not 1000"):
        count_pretokens([corpus], **rules, max_memory_bytes=1000)
    monkeypatch.setattr(COUNTING, "SMALLEST_CEILING_BYTES", 1)
    with pytest.raises(OSError, match="No such file"):
        count_pretokens(
            [corpus],
            **rules,
            max_memory_bytes=1,
            scratch_folder=corpus.parent / "none",
            chunk_bytes=2_000,
        )


TEXTS = {"a": "low low lower<|e|>newest 漢字", "b": "widest widest low\n", "c": "é é lower " * 3}
GPT2 = PATTERNS["gpt2"]


def count(folder: Path, names: str, engine: str = "python") -> PretokenCounts:
    for name in names:
        (folder / name).write_text(TEXTS[name], encoding="utf-8")
    paths = [folder / name for name in names]
    return count_pretokens(paths, pattern=GPT2, special_tokens=["<|e|>"], engine=engine)


def test_merged_counts_are_those_of_the_files_together(tmp_path, engine):
    apart = [(count(tmp_path, name, engine), 1) for name in "abc"]
    together = count(tmp_path, "abc", engine)
    assert combine_counts(apart) == together
    combine_counts(apart).save(tmp_path / "apart")
    together.save(tmp_path / "together")
    assert (tmp_path / "apart").read_bytes() == (tmp_path / "together").read_bytes()
    grown = combine_counts([(combine_counts(apart[:2]), 1), apart[2]])  # one more file
    assert grown == together


def test_a_weight_is_so_many_copies_of_the_files(tmp_path, engine):
    a, b, c = (count(tmp_path, name, engine) for name in "abc")
    weighted = combine_counts([(a, Fraction(1, 2)), (b, Fraction("0.75")), (c, 2)])  # 2 : 3 : 8
    copies = [tmp_path / name for name in "aabbbcccccccc"]
    copied = count_pretokens(copies, pattern=GPT2, special_tokens=["<|e|>"], engine=engine)
    assert weighted.counts == copied.counts
    for figure in ("n_bytes", "n_documents", "n_pre_tokens", "n_pre_token_bytes"):
        assert getattr(weighted, figure) == getattr(copied, figure)
    assert weighted.weights == weighted.source_weights == (2, 3, 8)
    again = train_from_counts(weighted, 280, engine=engine)
    assert again.spec == train_from_counts(copied, 280, engine=engine).spec


def test_weights_are_kept_in_the_file_and_multiplied(tmp_path):
    a, b, c = (count(tmp_path, name) for name in "abc")
    assert combine_counts([(a, 4), (b, 4)]) == combine_counts([(a, 1), (b, 1)])
    assert combine_counts([(a, Fraction(1, 3))]) == a
    two = combine_counts([(a, 2), (b, 3)])
    two.save(tmp_path / "two")
    loaded = PretokenCounts.load(tmp_path / "two")
    assert loaded == two
    three = combine_counts([(loaded, 5), (c, 7)])
    assert three.weights == (10, 15, 7)
    assert three.n_bytes == sum(
        weight * source.size_bytes
        for weight, source in zip(three.weights, three.sources, strict=True)
    )


def test_numbers_beyond_what_floats_hold_are_exact():
    one = PretokenCounts({"ab": (1 << 53) + 1}, GPT2)
    two = PretokenCounts({"ab": 1, "cd": 1}, GPT2)
    summed = combine_counts([(one, Fraction(3, 7)), (two, Fraction(1, 7))])
    assert summed.counts == {"ab": 3 * (1 << 53) + 4, "cd": 1}
    large = (1 << 55) + 1
    assert combine_counts([(two, large), (two, Fraction(1, 3))]).counts["cd"] == 3 * large + 1


def test_sums_beyond_64_bits_are_refused(engine):
    most = ((1 << 64) - 1) // 5
    part = PretokenCounts({"abcde": most // 3, "a": 1}, GPT2)
    other = PretokenCounts({"b": 1}, GPT2)
    fits = combine_counts([(part, 2), (other, 1)])
    assert train_from_counts(fits, 260, engine=engine).report.n_tokens == most // 3 * 2 + 3
    assert combine_counts([(PretokenCounts({"a": (1 << 64) - 2}, GPT2), 1), (other, 1)])
    for counts in (part, PretokenCounts({"a": (1 << 64) - 1}, GPT2)):
        with pytest.raises(CorpusError, match="64 bits hold; give weights with smaller"):
            combine_counts([(counts, 4), (other, 1)])


def test_invalid_weights_and_no_counts_are_refused():
    for weight in (0, Fraction(-1, 2), 0.5, "2"):
        with pytest.raises(CorpusError, match="whole number or a fraction above 0"):
            combine_counts([(PretokenCounts({"a": 1}, GPT2), weight)])
    with pytest.raises(ValueError, match="no counts"):
        combine_counts([])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pattern": PATTERNS["cl100k"]}, "split pattern: 'gpt2' and 'cl100k'"),
        ({"special_tokens": ("<|e|>",)}, "special tokens"),
        ({"unicode_tables": "regex 2030.1.1"}, r"Unicode tables: .* and 'regex 2030.1.1'"),
    ],
)
def test_counts_of_other_rules_are_not_combined(changes, said):
    counts = PretokenCounts({"a": 1}, GPT2)
    with pytest.raises(CorpusError, match=f"different {said}.*count one of the corpora again"):
        combine_counts([(counts, 1), (replace(counts, **changes), 1)])


def test_one_file_in_two_counts_is_refused_unless_it_is_empty(tmp_path):
    with pytest.raises(CorpusError, match=r"b is in two of these counts .*leave one of them out"):
        combine_counts([(count(tmp_path, "ab"), 1), (count(tmp_path, "b"), 1)])
    empty = CorpusSource("empty", 0, "ab" * 32)
    counts = PretokenCounts({"a": 1}, GPT2, sources=(empty,))
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


def pair_counts(counts: dict[str, int], merges: list[Merge]) -> Counter[Merge]:
    """How often each pair occurs in these pre-tokens after the merges, by definition."""
    found: Counter[Merge] = Counter()
    for pre_token, count in counts.items():
        word = [bytes([byte]) for byte in pre_token.encode()]
        for merge in merges:
            word = join(word, merge)
        for pair in itertools.pairwise(word):
            found[pair] += count
    return found


def kept_and_dropped(
    counts: dict[str, int], min_count: int
) -> tuple[PretokenCounts, dict[str, int]]:
    """Pruned, with one more pre-token that is always kept."""
    counts |= {"ba": 20}
    pruned = prune_counts(PretokenCounts(counts, GPT2), min_count=min_count)
    return pruned, {word: count for word, count in counts.items() if count < min_count}


@given(some_counts, st.integers(2, 8), some_rules)
def test_each_merge_is_within_the_bound_of_the_best(
    counts: dict[str, int], min_count: int, rules: LearningRules
) -> None:
    pruned, dropped = kept_and_dropped(counts, min_count)
    assert pruned.pruning is not None
    assert dict(pruned.counts) | dropped == counts
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


@given(some_counts, st.integers(2, 8))
def test_dropped_counts_and_the_bound_are_recorded(counts: dict[str, int], min_count: int) -> None:
    pruned, dropped = kept_and_dropped(counts, min_count)
    assert pruned.pruning == Pruning(
        min_count=min_count,
        n_distinct=len(dropped),
        n_pre_tokens=sum(dropped.values()),
        n_bytes=sum(count * len(word.encode()) for word, count in dropped.items()),
        bound=max(pair_counts(dropped, []).values(), default=0),
    )


def test_counts_on_the_disk_and_in_the_compiled_module_are_pruned_alike(tmp_path: Path) -> None:
    counts = {f"{i * 7919:x}é": 1 + i % 5 for i in range(3000)}
    expected = prune_counts(PretokenCounts(counts, GPT2), min_count=3)
    table = CountTable(20_000, tmp_path)
    table.add(counts)
    stored = table.finish()
    assert table.n_spills
    assert prune_counts(PretokenCounts(stored, GPT2), min_count=3) == expected
    if native_module() is not None:
        packed = NativeCounts.of(counts)
        assert prune_counts(PretokenCounts(packed, GPT2), min_count=3) == expected
        assert packed._entries is None, "a dict was made of everything"


def test_pruning_that_would_drop_everything_is_refused() -> None:
    pruned = prune_counts(PretokenCounts({"ab": 5}, GPT2), min_count=5)
    assert pruned.pruning == Pruning(5, 0, 0, 0, 0)
    with pytest.raises(CorpusError, match=r"no pre-token occurs 6 times"):
        prune_counts(PretokenCounts({"ab": 5}, GPT2), min_count=6)
    with pytest.raises(ValueError, match="64 bits"):
        prune_counts(PretokenCounts({"x" * 9: 1 << 61, "y": 1 << 63}, GPT2), min_count=1 << 62)
    with pytest.raises(ValueError, match="min_count must be at least 2, not 1"):
        prune_counts(PretokenCounts({"ab": 5}, GPT2), min_count=1)


def test_pruning_is_saved_and_an_invalid_record_is_refused(tmp_path: Path) -> None:
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
        wrong: Any = bound
        replace(pruned, pruning=Pruning(2, 1, 1, 1, wrong)).save(path)
        with pytest.raises(FormatError):
            PretokenCounts.load(path)
    with pytest.raises((ValueError, TypeError)):
        Pruning.parse(asdict(Pruning(2, 1, 1, 1, 0)) | {"more": 1})
