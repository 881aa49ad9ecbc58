"""Pruned counts: what is dropped, and that the bound holds at each step of learning."""

import itertools
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tokenizer_core.engines.native import NativeCounts
from tokenizer_core.errors import CorpusError, FormatError
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.reference import Merge, join
from tokenizer_core.training import (
    CorpusSource,
    LearningRules,
    PretokenCounts,
    Pruning,
    combine_counts,
    learn_merges,
    prune_counts,
)
from tokenizer_core.training.counts import CountTable

GPT2 = PATTERNS["gpt2"]

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


def test_nothing_to_drop_and_nothing_to_keep() -> None:
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
