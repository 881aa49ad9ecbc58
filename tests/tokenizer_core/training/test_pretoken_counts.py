"""Counts on disk: reading gives the same counts, or a clear refusal."""

import hashlib
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tokenizer_core.errors import CorpusError, FormatError
from tokenizer_core.patterns import PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.training import CorpusSource, PretokenCounts, prune_counts
from tokenizer_core.training import counts as counts_module

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


def test_a_file_cut_or_extended_is_refused(load, saved):
    data = saved.read_bytes()
    for changed in (*(data[:size] for size in range(0, len(data), 3)), data + b"\0", b"words"):
        saved.write_bytes(changed)
        with pytest.raises(FormatError):
            load(saved)


def test_one_changed_bit_is_refused(load, saved):
    data = saved.read_bytes()
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= 4
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
