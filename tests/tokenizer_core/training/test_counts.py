"""Counting under a memory ceiling: the same counts, with intermediate files on the disk."""

import pickle
import random
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from tokenizer_core.patterns import PATTERNS
from tokenizer_core.reference import count_words
from tokenizer_core.training import count_pretokens, train_from_counts
from tokenizer_core.training.counts import MAX_RUNS, CountTable, FileCounts

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
