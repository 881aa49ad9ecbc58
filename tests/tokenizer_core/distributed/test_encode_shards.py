"""Cutting a corpus into shards that have every document once, and encoding a shard."""

import hashlib
import os
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE
from tokenizer_core.blobs import open_storage
from tokenizer_core.corpus import CorpusFormat, TokenFilesPlan, plan_token_files
from tokenizer_core.corpus.batch_encoding import BatchEncoder
from tokenizer_core.distributed import Attempt
from tokenizer_core.distributed.corpus_sources import SourceFile
from tokenizer_core.distributed.encode_shards import (
    CorpusShard,
    ShardEncoding,
    ShardPosition,
    cut_corpus,
    encode_shard,
    hash_source,
    ids_dtype,
    read_encoded_shard,
)
from tokenizer_core.errors import CorpusError, RunError

LINES = CorpusFormat(separator="\n")


def encoding(plan: TokenFilesPlan | None = None) -> ShardEncoding:
    plan = plan or plan_token_files(NARROW)
    return ShardEncoding(BatchEncoder(NARROW, plan), plan, LINES)


@pytest.fixture
def attempt(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Attempt(open_storage(tmp_path / "run"), "some-run", "encode", 0, scratch)


def shard_of(path: Path, start: int = 0, stop: int | None = None) -> CorpusShard:
    source = SourceFile.examine(str(path))
    return CorpusShard(source, start, source.size_bytes if stop is None else stop)


def test_only_files_that_can_be_entered_are_cut():
    files = [
        SourceFile(name, name, 25, "") for name in ("a.txt", "b.txt.gz", "c.parquet", "d.jsonl")
    ]
    found = [(s.source.path, s.start, s.stop) for s in cut_corpus(files, LINES, 10)]
    cut = [(0, 10), (10, 20), (20, 25)]
    whole = [("b.txt.gz", 0, 25), ("c.parquet", 0, 25)]
    assert found == [
        *(("a.txt", *stretch) for stretch in cut),
        *whole,
        *(("d.jsonl", *stretch) for stretch in cut),
    ]
    assert len(list(cut_corpus(files[:1], CorpusFormat(), 10))) == 1
    (empty,) = cut_corpus([SourceFile("a.txt", "a.txt", 0, "")], LINES, 10)
    assert (empty.start, empty.stop, empty.is_whole) == (0, 0, True)


def test_a_shard_is_its_documents(tmp_path, attempt):
    path = tmp_path / "a.txt"
    path.write_bytes(b"ab\nxyz\n\nlast")
    figures = encode_shard(encoding(), shard_of(path, 2, 8), attempt)
    assert figures == {"n_documents": 2, "n_tokens": 3, "n_bytes": 3, "sha256": None}
    assert np.fromfile(attempt.scratch / "ids", "<u2").tolist() == list(b"xyz")
    assert np.fromfile(attempt.scratch / "documents", "<u8").tolist() == [3, 3, 0, 0]
    assert sorted(attempt.commit(figures).files) == ["documents", "ids"]


def test_a_file_is_hashed_in_its_only_shard_or_separately(tmp_path, attempt):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo")
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert encode_shard(encoding(), shard_of(path), attempt)["sha256"] == expected
    assert hash_source(encoding(), SourceFile.examine(str(path)), attempt) == {"sha256": expected}


FORBIDDEN = r"the text holds .*<\|end\|>"


@pytest.mark.parametrize(
    ("data", "start", "message"),
    [
        (b"one\ntw\xff\n", 0, r"a.txt' is .* byte 6;"),
        (b"one\ntw\xff\n", 1, r"a.txt from byte 4' is not UTF-8: .* byte 2;"),
        (b"one\ntwo\nthree <|end|>", 0, rf"a.txt', document 2: {FORBIDDEN}"),
        (b"one\ntwo\nthree <|end|>", 2, rf"a.txt', document 1 from byte 2 on: {FORBIDDEN}"),
    ],
)
def test_a_bad_document_is_reported_with_its_place(tmp_path, attempt, data, start, message):
    (tmp_path / "a.txt").write_bytes(data)
    plan = plan_token_files(NARROW, allowed_special="none", disallowed_special="all")
    with pytest.raises(CorpusError, match=message):
        encode_shard(encoding(plan), shard_of(tmp_path / "a.txt", start), attempt)


def test_a_file_that_has_changed_is_refused(tmp_path, attempt):
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    shard = shard_of(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(CorpusError, match=r"a.txt' changed while it was read"):
        encode_shard(encoding(), shard, attempt)
    with pytest.raises(CorpusError, match=r"a.txt' changed while it was read"):
        hash_source(encoding(), shard.source, attempt)


def test_a_store_that_does_not_respond_is_a_retryable_error(attempt):
    store = fsspec.filesystem("memory")
    store.pipe("/some/a.txt", b"one")
    shard = CorpusShard(SourceFile.examine("memory://some/a.txt"), 0, 3)
    store.rm("/some", recursive=True)
    with pytest.raises(RunError, match="cannot be opened"):
        encode_shard(encoding(), shard, attempt)


def test_an_encoder_is_made_once_in_a_process():
    data = pickle.dumps(encoding())
    first, second = pickle.loads(data), pickle.loads(data)
    assert first is second
    assert first.plan == plan_token_files(NARROW)


def test_files_of_a_shard_that_do_not_match_are_refused(tmp_path, attempt):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    encode_shard(encoding(), shard_of(tmp_path / "a.txt"), attempt)
    (batch,) = read_encoded_shard(attempt.scratch, np.dtype("<u2"), ShardPosition())
    assert batch.documents.ids.tolist() == list(b"onetwo")
    for name, change in (("ids", b"\0\0"), ("documents", b"\1" + bytes(15))):
        path = attempt.scratch / name
        whole = path.read_bytes()
        for data in (whole + change, whole[: -len(change)]):
            path.write_bytes(data)
            with pytest.raises(RunError, match="do not belong together; remove the run's storage"):
                list(read_encoded_shard(attempt.scratch, np.dtype("<u2"), ShardPosition()))
        path.write_bytes(whole)


def test_ids_are_as_wide_as_the_plan_says():
    assert ids_dtype(plan_token_files(NARROW)) == "<u2"
    for layout in ("raw", "megatron"):
        assert ids_dtype(plan_token_files(WIDE, layout=layout)) == "<u4"
