"""Bodies that are read in pieces, uploads that start again, and downloads that resume."""

import asyncio
import hashlib
import io

import httpx
import pytest

from tests.tokenizer_client.conftest import problem
from tokenizer_client import ConnectionLostError, RetryPolicy, UnexpectedResponseError
from tokenizer_client.local_files import PIECE_BYTES, PartialFile, Source, render_text

DATA = bytes(range(256)) * 10


def token_files(files):
    tokenizer = {
        "name": "n", "version": "v", "fingerprint": "f", "vocab_size": 3, "largest_id": 2,
    }  # fmt: skip
    listed = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    view = {
        "id": "t", "written_at": "", "bytes": 1, "layout": "raw", "dtype": "uint16",
        "tokenizer": tokenizer, "splits": {}, "tokens_per_shard": None,
        "begin_of_document_id": None, "end_of_document_id": None, "end_of_document": None,
        "end_reason": "", "not_added": [], "seed": None, "corpora": [], "files": listed,
        "bad_documents": {"reasons": {}, "first": []},
    }  # fmt: skip
    return httpx.Response(200, json=view)


def test_an_upload_is_repeated_only_if_its_source_can_be_read_again(play, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    sizes = []
    stored = {"id": "c", "bytes": 3, "sha256": "", "format": "txt", "uploaded_at": ""}
    lost = httpx.ReadError("reset")
    client, service = play(lost, problem(503), httpx.Response(201, json=stored))
    client.corpora.upload("c", path, on_progress=lambda *told: sizes.append(told))
    assert [request.content for request in service.requests] == [b"abc"] * 3
    assert {request.headers["Content-Length"] for request in service.requests} == {"3"}
    assert sizes == [(3, 3)] * 3
    # With replace=False the upload may exist: a second attempt would get an error that says so.
    for source, replace in ((iter([b"abc"]), True), (path, False)):
        client, service = play(lost)
        with pytest.raises(ConnectionLostError):
            client.corpora.upload("c", source, replace=replace)
        assert service.requests[0].headers.get("If-None-Match") == (None if replace else "*")


FILES = {"manifest.json": b"{}", "train.bin": DATA}


def test_a_failed_download_keeps_its_partial_file_and_resumes(play, tmp_path):
    client, _ = play(
        token_files(FILES),
        httpx.Response(200, content=DATA[:100]),
        httpx.Response(206, content=DATA[100:200]),
        httpx.ReadError("reset"),
        httpx.ReadError("reset"),
        retries=RetryPolicy(max_attempts=2),
    )
    with pytest.raises(ConnectionLostError):
        client.token_files.download("t", tmp_path)
    (left,) = tmp_path.iterdir()
    assert (left.name, left.read_bytes()) == ("train.bin.partial", DATA[:200])
    client, service = play(
        token_files(FILES),
        httpx.ConnectError("refused"),
        httpx.Response(206, content=DATA[200:]),
        httpx.Response(200, content=b"{}"),
    )
    told = []
    client.token_files.download("t", tmp_path, on_progress=lambda *sizes: told.append(sizes))
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == FILES
    ranges = [request.headers.get("Range") for request in service.requests]
    assert ranges == [None, "bytes=200-", "bytes=200-", None]
    tag = f'"{hashlib.sha256(DATA).hexdigest()}"'
    assert service.requests[1].headers["If-Range"] == tag
    assert told[-1] == (len(DATA) + 2, len(DATA) + 2)
    # A second time: the client keeps the files that are complete.
    client, service = play(token_files(FILES))
    client.token_files.download("t", tmp_path)
    assert len(service.requests) == 1


def test_a_partial_file_of_another_file_is_dropped(play, tmp_path):
    whole = httpx.Response(200, content=DATA)
    for left, answers in (
        (b"other text that was left", [httpx.Response(206, content=DATA[24:]), whole]),
        (DATA[:5], [whole]),  # the service ignores the range and sends the whole file
        (DATA * 2, [whole]),  # more bytes than expected: no range is requested
    ):
        (tmp_path / "a.partial").write_bytes(left)
        client, service = play(token_files({"a": DATA}), *answers)
        client.token_files.download("t", tmp_path)
        assert ("Range" in service.requests[1].headers) is (left != DATA * 2)
        assert (tmp_path / "a").read_bytes() == DATA
        (tmp_path / "a").unlink()


def test_a_file_with_a_wrong_hash_or_a_path_as_name_is_not_kept(play, tmp_path):
    client, _ = play(token_files({"a": DATA}), httpx.Response(200, content=DATA[:-1] + b"x"))
    with pytest.raises(UnexpectedResponseError, match="wrong sha256"):
        client.token_files.download("t", tmp_path)
    for name in ("../a", "a/b", "..", ".", ""):
        client, service = play(token_files({name: DATA}))
        with pytest.raises(UnexpectedResponseError, match="a path"):
            client.token_files.download("t", tmp_path / "new")
        assert len(service.requests) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]


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


def test_a_partial_file_is_written_by_one_and_resumed_later(tmp_path):
    path = tmp_path / "train.bin"
    first = PartialFile(path)
    first.write(b"half")
    PartialFile(path).close()  # no later attempt would find it: it is removed
    second = PartialFile(path)  # a call in another thread or process
    assert second.n_bytes == 0
    second.write(b"second")
    second.publish()
    assert path.read_bytes() == b"second"
    first.close()
    assert {each.name for each in tmp_path.iterdir()} == {"train.bin", "train.bin.partial"}
    again = PartialFile(path)
    assert (again.n_bytes, again.sha256) == (4, hashlib.sha256(b"half").hexdigest())
    again.write(b", whole")
    again.publish()
    assert path.read_bytes() == b"half, whole"
    for left in (b"", b"x"):
        dropped = PartialFile(path)
        dropped.write(left)
        dropped.discard()
    assert [each.name for each in tmp_path.iterdir()] == ["train.bin"]
