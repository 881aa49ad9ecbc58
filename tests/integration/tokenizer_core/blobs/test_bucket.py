"""Object storage: the tests of every storage, lost responses, ignored conditions, outages."""

import socket
import traceback

import pytest

from tests.tokenizer_core.blobs.test_storage import *  # noqa: F403 - all tests of the module
from tokenizer_core.blobs import bucket as object_storage
from tokenizer_core.blobs.addresses import open_storage
from tokenizer_core.errors import StorageError


@pytest.fixture
def place(s3_bucket):
    return f"{s3_bucket}/some/prefix"


def test_a_write_whose_answer_was_lost_is_known_again(s3_server, s3_bucket):
    storage = open_storage(s3_bucket)
    s3_server.lost_answers = 1
    assert storage.create("a", b"mine")
    found = storage.read_versioned("a", max_bytes=99)
    assert found is not None
    s3_server.lost_answers = 1
    assert storage.swap("a", b"swapped", expected=found.version)
    assert s3_server.lost_answers == 0
    assert storage.read("a", max_bytes=99) == b"swapped"
    # Equal bytes from another writer are not our own.
    assert not storage.create("a", b"swapped")
    assert not storage.swap("a", b"swapped", expected=found.version)


def test_a_write_that_conflicts_is_tried_again(s3_bucket, monkeypatch):
    storage = open_storage(s3_bucket)
    client = storage._client
    put, left = client.put_object, [2]

    def conflicting(**request):
        if left[0]:
            left[0] -= 1
            error = {"Error": {"Code": "ConditionalRequestConflict"}}
            raise client.exceptions.ClientError(error, "PutObject")
        put(**request)

    monkeypatch.setattr(client, "put_object", conflicting)
    monkeypatch.setattr(object_storage, "_CONFLICT_PAUSES_SECONDS", (0.0, 0.0))
    assert storage.create("a", b"")
    left[0] = 3
    with pytest.raises(StorageError, match="ConditionalRequestConflict"):
        storage.create("b", b"")


@pytest.mark.parametrize("header", ["HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"])
def test_a_server_that_leaves_a_condition_out_is_refused(s3_server, s3_bucket, monkeypatch, header):
    monkeypatch.setattr(s3_server, "ignored_headers", (header,))
    with pytest.raises(StorageError, match=f"{s3_bucket}/x lets two writers"):
        open_storage(f"{s3_bucket}/x")
    monkeypatch.setattr(s3_server, "ignored_headers", ())
    assert open_storage(f"{s3_bucket}/x").names() == []  # the probe leaves no object


def test_a_server_that_is_away_is_an_error_that_shows_no_secret(s3_bucket, monkeypatch):
    storage = open_storage(s3_bucket)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed_port = taken.getsockname()[1]
    endpoint = f"http://someone:a-secret-word@127.0.0.1:{closed_port}/"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StorageError, match="check the address") as caught:
        open_storage(f"{s3_bucket}/x")
    shown = "".join(traceback.format_exception(caught.value))
    assert "a-secret" not in shown
    assert storage.names() == []  # the other client still uses its old server


def test_a_silent_server_ends_in_an_error(s3_server, s3_bucket, monkeypatch):
    monkeypatch.setattr(object_storage, "_SILENT_SECONDS", 0.2)
    storage = open_storage(s3_bucket, read_only=True)
    s3_server.is_silent.set()
    try:
        with pytest.raises(StorageError, match=r"\(ReadTimeoutError\); check the address"):
            storage.create("a", b"")
    finally:
        s3_server.is_silent.clear()


def test_a_large_file_goes_in_parts(s3_server, s3_bucket, tmp_path):
    storage = open_storage(s3_bucket)
    path = tmp_path / "large"
    path.write_bytes(bytes(8 << 20) + b"somewhere" + bytes(8 << 20))
    s3_server.requests.clear()
    storage.put("large", path)
    assert sum(request.startswith("PUT") for request in s3_server.requests) == 3
    storage.fetch("large", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_a_body_that_breaks_off_is_requested_once_more(s3_server, s3_bucket):
    storage = open_storage(s3_bucket)
    storage.put("a", b"whole")
    s3_server.broken_bodies = 1
    assert storage.read("a", max_bytes=9) == b"whole"
    s3_server.broken_bodies = 2
    with pytest.raises(StorageError, match=r"\(\w+\); check the address"):
        storage.read("a", max_bytes=9)
