"""Body sources: large chunks of a file, and immediate ones of a source that waits."""

import asyncio
import hashlib
import io

import pytest

from tokenizer_client.calls.local_files import PIECE_BYTES, PartialFile, Source, render_text


def collect(source):
    async def pieces():
        return [piece async for piece in source.pieces_async()]

    return asyncio.run(pieces())


@pytest.mark.parametrize("read", [lambda source: list(source.pieces()), collect])
def test_small_items_are_joined_and_large_ones_are_cut(read):
    source = Source(["a" * (PIECE_BYTES // 4), b"b" * (PIECE_BYTES // 4)] * 4, render_text)
    pieces = read(source)
    assert [len(piece) for piece in pieces] == [PIECE_BYTES, PIECE_BYTES]
    joined = b"a" * (PIECE_BYTES // 4) + b"b" * (PIECE_BYTES // 4)
    assert b"".join(pieces) == joined * 4
    assert source.n_bytes == 2 * PIECE_BYTES
    large = Source(io.BytesIO(bytes(PIECE_BYTES + 1)), render_text)
    assert [len(piece) for piece in read(large)] == [PIECE_BYTES, 1]


def test_awaited_items_are_sent_as_they_come():
    async def arriving():
        for item in ("a", "", b"b"):
            yield item

    assert collect(Source(arriving(), render_text)) == [b"a", b"b"]
    with pytest.raises(TypeError, match="AsyncClient"):
        list(Source(arriving(), render_text).pieces())


def test_files_and_bytes_can_be_read_again(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    for given in (path, b"abc"):
        source = Source(given, render_text)
        assert list(source.pieces()) == list(source.pieces()) == [b"abc"]
        assert (source.is_repeatable, source.size_bytes, source.n_bytes) == (True, 3, 3)
    for given in (io.BytesIO(b"abc"), iter([b"abc"])):
        source = Source(given, render_text)
        assert source.is_repeatable
        assert list(source.pieces()) == [b"abc"]
        assert not source.is_repeatable
        assert source.size_bytes is None


def test_a_partial_file_is_written_by_one(tmp_path):
    path = tmp_path / "train.bin"
    first = PartialFile(path)
    first.write(b"first, ")
    second = PartialFile(path)  # a call in another thread or process
    second.write(b"second")
    second.publish()
    assert path.read_bytes() == b"second"
    first.write(b"whole")
    first.publish()
    assert path.read_bytes() == b"first, whole"
    assert [each.name for each in tmp_path.iterdir()] == ["train.bin"]


def test_a_partial_file_is_resumed_unless_another_writes_it(tmp_path):
    path = tmp_path / "train.bin"
    first = PartialFile(path)
    first.write(b"half")
    other = PartialFile(path, resume=True)
    assert other.n_bytes == 0
    other.close()
    first.close()
    assert [each.name for each in tmp_path.iterdir()] == ["train.bin.partial"]
    again = PartialFile(path, resume=True)
    assert (again.n_bytes, again.sha256) == (4, hashlib.sha256(b"half").hexdigest())
    again.discard()
    assert not list(tmp_path.iterdir())
    PartialFile(path).discard()
