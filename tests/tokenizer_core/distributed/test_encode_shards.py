"""Cutting a corpus into shards that have every document once, and encoding a shard."""

import hashlib
import itertools
import os
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE
from tokenizer_core.blobs import open_storage
from tokenizer_core.corpus import CorpusFormat, TokenFilesPlan, plan_token_files
from tokenizer_core.corpus.batch_encoding import BatchEncoder, DocumentIds
from tokenizer_core.distributed import Attempt, encode_shards
from tokenizer_core.distributed.corpus_sources import SourceFile
from tokenizer_core.distributed.encode_shards import (
    CorpusShard,
    EncodedShardWriter,
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


@pytest.mark.parametrize("is_part", [False, True])
def test_bytes_that_are_not_utf8_are_reported_with_their_offset(tmp_path, attempt, is_part):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xff\n")
    match = r"a.txt from byte 4' is not UTF-8: .* byte 2;" if is_part else r"a.txt' is .* byte 6;"
    with pytest.raises(CorpusError, match=match):
        encode_shard(encoding(), shard_of(path, 1 if is_part else 0), attempt)


@pytest.mark.parametrize(("start", "place"), [(0, "document 2"), (2, "document 1 from byte 2 on")])
def test_a_forbidden_token_is_reported_with_its_document(tmp_path, attempt, start, place):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree <|end|>")
    plan = plan_token_files(NARROW, allowed_special="none", disallowed_special="all")
    with pytest.raises(CorpusError, match=rf"a.txt', {place}: the text holds .*<\|end\|>"):
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


NARROW_ID = np.dtype("<u2")

# Each document as parts, which are appended one by one: their ids, and the size of their text in
# bytes.
a_part = st.tuples(st.lists(st.integers(0, 65_535), max_size=9), st.integers(0, 50))
shard_of_parts = st.lists(st.lists(a_part, min_size=1, max_size=4), max_size=12)


def write(folder: Path, documents: list[list[tuple[list[int], int]]]) -> EncodedShardWriter:
    """Whole documents together, the parts of a longer one separately."""
    folder.mkdir(exist_ok=True)
    with EncodedShardWriter(folder, NARROW_ID) as writer:
        for is_long, group in itertools.groupby(documents, lambda parts: len(parts) > 1):
            listed = list(group)
            if is_long:
                for parts in listed:
                    for number, part in enumerate(parts):
                        writer.append(joined([part]), is_open=number < len(parts) - 1)
            else:
                writer.append(joined([parts[0] for parts in listed]), is_open=False)
    return writer


def joined(parts: list[tuple[list[int], int]]) -> DocumentIds:
    ids = np.array([id_ for part, _ in parts for id_ in part], np.uint16)
    offsets = np.cumsum([0, *(len(part) for part, _ in parts)])
    return DocumentIds(ids, offsets, np.array([size for _, size in parts], np.uint64))


def read(folder: Path, start: ShardPosition = ShardPosition()) -> list[tuple[int, list[int], int]]:  # noqa: B008
    """The documents from a position on: number, ids, bytes; each batch gives the next position."""
    found: list[tuple[int, list[int], int]] = []
    goes_on = bool(start.n_open_tokens)
    for batch in read_encoded_shard(folder, NARROW_ID, start):
        ids, offsets, n_bytes = batch.documents
        for index, size in enumerate(n_bytes.tolist()):
            part = ids[offsets[index] : offsets[index + 1]].tolist()
            if goes_on and found:
                number, before, before_size = found.pop()
                found.append((number, before + part, before_size + size))
            else:
                found.append((batch.first_document + index, part, size))
            goes_on = False
        goes_on = batch.is_open
    assert not goes_on
    return found


@examples(1 / 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shard_of_parts, st.integers(1, 30), st.integers(1, 5))
def test_any_documents_are_read_back_from_any_position(
    tmp_path_factory, monkeypatch, documents, batch_tokens, batch_documents
):
    folder = tmp_path_factory.mktemp("shard")
    monkeypatch.setattr(encode_shards, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(encode_shards, "_BATCH_DOCUMENTS", batch_documents)
    writer = write(folder, documents)
    expected = [
        (number, [id_ for ids, _ in parts for id_ in ids], sum(size for _, size in parts))
        for number, parts in enumerate(documents)
    ]
    assert read(folder) == expected
    assert (writer.n_documents, writer.n_tokens, writer.n_bytes) == (
        len(expected),
        sum(len(ids) for _, ids, _ in expected),
        sum(size for _, _, size in expected),
    )
    places = [batch.position for batch in read_encoded_shard(folder, NARROW_ID, ShardPosition())]
    # A reader that resumes may use another batch size.
    monkeypatch.setattr(encode_shards, "BATCH_TOKENS", 2 * batch_tokens)
    for place in [ShardPosition(), *places]:
        rest = expected[place.n_documents :]
        if place.n_open_tokens:
            number, ids, _ = rest[0]
            rest = [(number, ids[place.n_open_tokens :], 0), *rest[1:]]
        assert read(folder, place) == rest


def test_files_that_do_not_match_are_refused(tmp_path):
    for name, change in (("ids", b"\0\0"), ("documents", b"\1" + bytes(15))):
        folder = tmp_path / name
        write(folder, [[([1, 2], 5)], [([3], 1)]])
        whole = (folder / name).read_bytes()
        for data in (whole + change, whole[: -len(change)]):
            (folder / name).write_bytes(data)
            with pytest.raises(RunError, match="do not belong together; remove the run's storage"):
                read(folder)


def test_ids_are_as_wide_as_the_plan_says():
    assert ids_dtype(plan_token_files(NARROW)) == "<u2"
    for layout in ("raw", "megatron"):
        assert ids_dtype(plan_token_files(WIDE, layout=layout)) == "<u4"
