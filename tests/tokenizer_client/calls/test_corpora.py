"""Uploads that start again, and downloads that resume."""

import hashlib

import httpx
import pytest

from tests.tokenizer_client.both_clients import problem
from tokenizer_client import (
    ConnectionLostError,
    RetryPolicy,
    UnexpectedResponseError,
)

CORPUS = {"id": "c", "bytes": 3, "sha256": "", "format": "txt", "uploaded_at": ""}
DATA = bytes(range(256)) * 10


def stored(**fields):
    return httpx.Response(201, json=CORPUS | fields)


def token_files(**files):
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
        "begin_of_document_id": None, "end_of_document_id": None, "seed": None, "corpora": [],
        "files": listed,
    }  # fmt: skip
    return httpx.Response(200, json=view)


def test_an_upload_is_repeated_only_if_its_source_can_be_read_again(play, tmp_path, clock):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    sizes = []
    client, service = play(httpx.ReadError("reset"), problem(503), stored())
    client.corpora.upload("c", path, on_progress=lambda *told: sizes.append(told))
    assert [request.content for request in service.requests] == [b"abc"] * 3
    assert {request.headers["Content-Length"] for request in service.requests} == {"3"}
    assert sizes == [(3, 3)] * 3
    client, service = play(httpx.ReadError("reset"))
    with pytest.raises(ConnectionLostError):
        client.corpora.upload("c", iter([b"abc"]))
    # The upload may exist: a second attempt would get an error that says so.
    client, service = play(httpx.ReadError("reset"))
    with pytest.raises(ConnectionLostError):
        client.corpora.upload("c", path, replace=False)
    assert service.requests[0].headers["If-None-Match"] == "*"


def test_a_download_resumes(play, clock, tmp_path):
    def part(start):
        headers = {"Content-Range": f"bytes {start}-{len(DATA) - 1}/{len(DATA)}"}
        return httpx.Response(206, content=DATA[start:], headers=headers)

    (tmp_path / "train.bin.partial").write_bytes(DATA[:1000])
    client, service = play(
        token_files(**{"manifest.json": b"{}", "train.bin": DATA}),
        httpx.ConnectError("refused"),
        part(1000),
        httpx.Response(200, content=b"{}"),
    )
    told = []
    client.token_files.download("t", tmp_path, on_progress=lambda *sizes: told.append(sizes))
    assert (tmp_path / "train.bin").read_bytes() == DATA
    assert (tmp_path / "manifest.json").read_bytes() == b"{}"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["manifest.json", "train.bin"]
    ranges = [request.headers.get("Range") for request in service.requests]
    assert ranges == [None, "bytes=1000-", "bytes=1000-", None]
    tag = f'"{hashlib.sha256(DATA).hexdigest()}"'
    assert service.requests[1].headers["If-Range"] == tag
    assert told[-1] == (len(DATA) + 2, len(DATA) + 2)
    # A second time: the client keeps the files that are complete.
    client, service = play(token_files(**{"manifest.json": b"{}", "train.bin": DATA}))
    client.token_files.download("t", tmp_path)
    assert len(service.requests) == 1


def test_a_partial_file_of_another_file_is_dropped(play, tmp_path):
    (tmp_path / "a.partial").write_bytes(b"other text that was left")
    client, service = play(
        token_files(a=DATA),
        httpx.Response(206, content=DATA[24:]),
        httpx.Response(200, content=DATA),
    )
    client.token_files.download("t", tmp_path)
    assert (tmp_path / "a").read_bytes() == DATA
    (tmp_path / "a").unlink()
    # A service that ignores the range and sends the whole file.
    (tmp_path / "a.partial").write_bytes(DATA[:5])
    client, service = play(token_files(a=DATA), httpx.Response(200, content=DATA))
    client.token_files.download("t", tmp_path)
    assert (tmp_path / "a").read_bytes() == DATA
    # More bytes than expected.
    (tmp_path / "b.partial").write_bytes(DATA * 2)
    client, service = play(token_files(b=DATA), httpx.Response(200, content=DATA))
    client.token_files.download("t", tmp_path)
    assert "Range" not in service.requests[1].headers


def test_a_failed_download_keeps_its_partial_file(play, tmp_path):
    client, _ = play(
        token_files(a=DATA),
        httpx.Response(200, content=DATA[:100]),
        httpx.Response(206, content=DATA[100:200]),
        httpx.ReadError("reset"),
        httpx.ReadError("reset"),
        retries=RetryPolicy(max_attempts=2),
    )
    with pytest.raises(ConnectionLostError):
        client.token_files.download("t", tmp_path)
    (left,) = tmp_path.iterdir()
    assert (left.name, left.read_bytes()) == ("a.partial", DATA[:200])


def test_a_file_with_a_wrong_hash_or_a_path_as_name_is_not_kept(play, tmp_path):
    client, _ = play(token_files(a=DATA), httpx.Response(200, content=DATA[:-1] + b"x"))
    with pytest.raises(UnexpectedResponseError, match="wrong sha256"):
        client.token_files.download("t", tmp_path)
    client, _ = play(token_files(**{"../a": DATA}))
    with pytest.raises(UnexpectedResponseError, match="a path"):
        client.token_files.download("t", tmp_path)
    assert list(tmp_path.iterdir()) == []
