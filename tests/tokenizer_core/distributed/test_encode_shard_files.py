"""The files of a shard are read back as written, from any position, in batches of any size."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.corpus.small_corpora import NARROW, WIDE
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.corpus.batch_encoding import DocumentIds
from tokenizer_core.distributed import encode_shards
from tokenizer_core.distributed.encode_shards import (
    EncodedShardWriter,
    ShardPosition,
    ids_dtype,
    read_encoded_shard,
)
from tokenizer_core.errors import RunError

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
