"""Counts on disk: reading gives the same counts, or a clear refusal."""

import hashlib
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tokenizer_core.errors import CorpusError, FormatError
from tokenizer_core.patterns import PATTERNS, SplitPattern, resolve_pattern
from tokenizer_core.training import (
    CorpusSource,
    PretokenCounts,
    prune_counts,
    train_from_counts,
)
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


def test_saved_and_loaded_is_the_same(load, saved):
    assert load(saved) == COUNTS
    loaded = load(saved, pattern="gpt2", special_tokens=COUNTS.special_tokens)
    assert loaded.n_pre_tokens == COUNTS.n_pre_tokens == 14 + (1 << 40)


def test_weights_are_kept_and_only_where_there_are_some(load, saved, tmp_path):
    assert "weights" not in header_of(saved)
    weighted = replace(COUNTS, weights=(3,))
    weighted.save(tmp_path / "weighted")
    assert load(tmp_path / "weighted") == weighted


def test_empty_counts(load, tmp_path):
    empty = PretokenCounts({}, resolve_pattern(r"\w+|\W+"))
    empty.save(tmp_path / "counts")
    assert load(tmp_path / "counts") == empty


def test_the_dialect_of_the_pattern_is_kept(load, tmp_path):
    pattern = SplitPattern("custom", r"[a-c[x-z]]+", "fancy-regex", "drop")
    PretokenCounts({"ab": 1}, pattern).save(tmp_path / "counts")
    assert load(tmp_path / "counts", pattern=pattern).pattern == pattern
    with pytest.raises(CorpusError, match="counted with the split pattern"):
        load(tmp_path / "counts", pattern=pattern.expression)


def test_equal_counts_give_equal_files(saved, tmp_path):
    backwards = dict(reversed(COUNTS.counts.items()))
    replace(COUNTS, counts=backwards).save(tmp_path / "again")
    assert saved.read_bytes() == (tmp_path / "again").read_bytes()


def test_a_failed_save_leaves_the_old_file_and_nothing_else(saved, tmp_path, monkeypatch):
    before = saved.read_bytes()

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        replace(COUNTS, n_bytes=99).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["counts"]


def test_cut_short_anywhere(load, saved):
    data = saved.read_bytes()
    for size in range(len(data)):
        saved.write_bytes(data[:size])
        with pytest.raises(FormatError):
            load(saved)


def test_one_bit_anywhere(load, saved):
    data = saved.read_bytes()
    for place in range(len(data)):
        saved.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(FormatError):
            load(saved)


def test_something_appended(load, saved):
    saved.write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(FormatError, match="damaged"):
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


@pytest.mark.parametrize(
    ("changes", "lengths", "counts", "text"),
    [
        ({}, [1, 2], [1, 2], b"ab"),  # lengths beyond the text
        ({}, [1, 1], [1, 2], b"abc"),  # text beyond the lengths
        ({}, [1, 1], [1, 2], b"ab\xc3"),  # half a character
        ({"n_pre_tokens": 1}, [1, 1], [1, 0], b"ab"),  # a count of zero
        ({"n_pre_tokens": 2}, [1, 1], [1, 2], b"aa"),  # the same twice
        ({}, [0, 2], [1, 2], b"ab"),  # an empty pre-token
        ({}, [1, 1], [1, 2], b"a\xff"),  # not UTF-8
        ({"n_pre_tokens": 4}, [1, 1], [1, 2], b"ab"),
        ({"n_distinct": 1 << 60}, [1, 1], [1, 2], b"ab"),
        ({"n_distinct": -1}, [1, 1], [1, 2], b"ab"),
        ({"text_bytes": 1 << 60}, [1, 1], [1, 2], b"ab"),
        ({"n_bytes": "many"}, [1, 1], [1, 2], b"ab"),
        ({"n_bytes": -1}, [1, 1], [1, 2], b"ab"),
        ({"n_documents": -1}, [1, 1], [1, 2], b"ab"),
        ({"n_bytes": float("inf")}, [1, 1], [1, 2], b"ab"),
        ({"sources": [{"path": 3, "size_bytes": 1, "sha256": ""}]}, [1, 1], [1, 2], b"ab"),
        ({"sources": [{"path": "x", "size_bytes": "1", "sha256": ""}]}, [1, 1], [1, 2], b"ab"),
        ({"sources": [{"path": "x", "size_bytes": 1, "sha256": []}]}, [1, 1], [1, 2], b"ab"),
        ({"sources": [{"path": "x"}]}, [1, 1], [1, 2], b"ab"),
        ({"pattern": None}, [1, 1], [1, 2], b"ab"),
        ({"weights": [1, 2]}, [1, 1], [1, 2], b"ab"),  # of one source
        ({"weights": [0]}, [1, 1], [1, 2], b"ab"),
        ({"weights": [1.5]}, [1, 1], [1, 2], b"ab"),
        ({"weights": 7}, [1, 1], [1, 2], b"ab"),
    ],
)
def test_wrong_inside_a_right_hash(load, saved, changes, lengths, counts, text):
    header = header_of(saved) | {"n_distinct": 2, "n_pre_tokens": 3, "text_bytes": len(text)}
    good = seal(header, little([1, 1], 4) + little([1, 2], 8), b"ab")
    if len(text) == 2:
        saved.write_bytes(good)
        assert load(saved).counts == {"a": 1, "b": 2}
    saved.write_bytes(seal(header | changes, little(lengths, 4) + little(counts, 8), text))
    with pytest.raises(FormatError, match="damaged"):
        load(saved)


def test_a_header_nested_beyond_reading(load, saved):
    body = MAGIC + (200_000).to_bytes(8, "little") + b"[" * 200_000
    saved.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(FormatError, match="damaged"):
        load(saved)


def test_counts_that_no_learner_can_add_up(load, saved):
    most = (1 << 64) - 1
    header = header_of(saved) | {"n_distinct": 1, "n_pre_tokens": most}
    numbers = little([1], 4) + little([most], 8)
    saved.write_bytes(seal(header | {"text_bytes": 1}, numbers, b"a"))
    assert load(saved).n_pre_token_bytes == most
    saved.write_bytes(seal(header | {"text_bytes": 2}, numbers, "é".encode()))
    with pytest.raises(FormatError, match="more bytes than 64 bits hold"):
        load(saved)


def test_another_kind_of_file(load, tmp_path):
    (tmp_path / "text").write_text("words")
    with pytest.raises(FormatError, match="is not a file of pre-token counts"):
        load(tmp_path / "text")


def test_counts_made_otherwise_are_refused(load, saved, tmp_path):
    with pytest.raises(CorpusError, match="split pattern 'gpt2', not 'cl100k'"):
        load(saved, pattern="cl100k")
    with pytest.raises(CorpusError, match="special tokens"):
        load(saved, special_tokens=["<|endoftext|>"])
    replace(COUNTS, unicode_tables="regex 2030.1.1").save(tmp_path / "other")
    with pytest.raises(CorpusError, match=r"Unicode tables of regex 2030\.1\.1"):
        load(tmp_path / "other")


def test_train_two_sizes_from_saved_counts(load, saved):
    counts = load(saved)
    small, large = train_from_counts(counts, 259), train_from_counts(counts, 263)
    assert len(small.merges) == 1
    assert large.merges[:1] == small.merges
    assert small.vocab[256] == b"<|endoftext|>"
    assert large.report.seconds_counting == 0


def test_on_the_disk_are_all_entries_in_order_and_any_file_is_pruned_alike(tmp_path, monkeypatch):
    """Reads a few at a time, in pieces that cut characters."""
    monkeypatch.setattr(counts_module, "_BATCH", 7)
    monkeypatch.setattr(counts_module, "_TEXT_BYTES", 13)
    counts = {f"{'é漢😀a'[i % 4]}{i * 7919:x}": 1 + i % 4 for i in range(1000)}
    whole = replace(COUNTS, counts=counts)
    whole.save(tmp_path / "counts")
    read = PretokenCounts.load(tmp_path / "counts", on_disk=True)
    assert list(read.counts.items()) == sorted(counts.items())
    assert list(read.counts.values()) == [counts[word] for word in sorted(counts)]
    assert read == whole
    assert prune_counts(read, min_count=3) == prune_counts(whole, min_count=3)
    read.save(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "counts").read_bytes()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="not a regular file"):
        PretokenCounts.load(tmp_path / "pipe", on_disk=True)
    with pytest.raises(FormatError, match="is a folder; give the path of a file"):
        PretokenCounts.load(tmp_path, on_disk=True)
    (tmp_path / "other").write_text("some text")
    with pytest.raises(FormatError, match="not a file of pre-token counts"):
        PretokenCounts.load(tmp_path / "other", on_disk=True)
