"""Streams: the ids of the whole text for any cut, and an error for an incomplete response."""

import io
import struct

import httpx
import numpy as np
import pytest

from tests.tokenizer_client.both_clients import problem
from tokenizer_client import (
    ConnectionLostError,
    ProblemError,
    StreamCutOffError,
    UnexpectedResponseError,
)


def frame(kind, payload):
    return struct.pack("<II", kind, len(payload)) + payload


HEADERS = {"Content-Type": "application/octet-stream", "Tokenizer-Digest": "d"}


def streamed(*frames):
    return httpx.Response(200, content=b"".join(frames), headers=HEADERS)


IDS = frame(0, struct.pack("<2I", 5, 6))
END = frame(1, b'{"done":true,"count":2,"bytes":3,"digest":"d"}')


def test_frames_become_arrays_of_ids(play):
    client, _ = play(streamed(IDS, IDS[:4], IDS[4:], frame(1, END[8:].replace(b"2", b"4"))))
    assert [ids.tolist() for ids in client.encode_stream(b"abc")] == [[5, 6, 5, 6]]


INCOMPLETE = [
    ((), StreamCutOffError),
    ((IDS, END[:-1]), StreamCutOffError),
    ((IDS, END, IDS[:3]), StreamCutOffError),
    ((IDS, END.replace(b"2", b"3")), StreamCutOffError),
    ((IDS, END.replace(b'"bytes":3', b'"bytes":4')), StreamCutOffError),
    ((IDS, END.replace(b'"d"', b'"e"')), StreamCutOffError),
    ((IDS, END, IDS), UnexpectedResponseError),
    ((frame(7, b""),), UnexpectedResponseError),
    ((frame(1, b"[]"),), UnexpectedResponseError),
    ((IDS, frame(2, b'{"error":{"status":503,"code":"shutting_down"}}')), ProblemError),
]


def test_an_incomplete_stream_is_an_error_and_is_not_repeated(play, clock):
    for answer, kind in INCOMPLETE:
        client, service = play(streamed(*answer))
        parts = client.encode_stream(b"abc")
        with pytest.raises(kind):
            list(parts)
        assert len(service.requests) == 1
    assert clock.slept == []


def test_a_stream_is_repeated_only_if_its_source_can_be_read_again(play, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    for source in (path, b"abc"):
        client, service = play(problem(503), httpx.ReadError("reset"), streamed(IDS, END))
        assert [ids.tolist() for ids in client.encode_stream(source)] == [[5, 6]]
        assert [request.content for request in service.requests] == [b"abc"] * 3
    for source in (iter([b"abc"]), io.BytesIO(b"abc")):
        client, service = play(httpx.ReadError("reset"))
        with pytest.raises(ConnectionLostError):
            list(client.encode_stream(source))


def test_ids_to_decode_are_lists_arrays_or_bytes(play):
    end = b'{"done":true,"count":2,"bytes":2,"digest":"d"}'
    for source in ([np.array([5, 6])], [[5, 6]], bytearray(b"\5\0\0\0\6\0\0\0")):
        client, service = play(streamed(frame(0, b"ab"), frame(1, end)))
        assert "".join(client.decode_stream(source)) == "ab"
        assert service.requests[0].content == struct.pack("<2I", 5, 6)


def test_a_file_of_text_is_refused(play, tmp_path):
    (tmp_path / "a").write_text("abc")
    client, _ = play(streamed(IDS, END))
    with (tmp_path / "a").open() as file, pytest.raises(TypeError, match="mode 'rb'"):
        list(client.encode_stream(file))
