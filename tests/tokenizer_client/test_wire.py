"""Batches, streams and events: read at any cut; incomplete and malformed ones are refused."""

import io
import struct

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_client.conftest import problem
from tokenizer_client import (
    ClientError,
    ConnectionLostError,
    ProblemError,
    StreamCutOffError,
    UnexpectedResponseError,
)
from tokenizer_client.wire import (
    Event,
    EventReader,
    FrameReader,
    parse_batch,
    parse_id_bytes,
    render_batch,
    render_ids,
)


def frame(kind, payload):
    return struct.pack("<II", kind, len(payload)) + payload


def streamed(*frames):
    headers = {"Content-Type": "application/octet-stream", "Tokenizer-Digest": "d"}
    return httpx.Response(200, content=b"".join(frames), headers=headers)


IDS = frame(0, struct.pack("<2I", 5, 6))
END = frame(1, b'{"done":true,"count":2,"bytes":3,"digest":"d"}')


ERROR = b'{"error":{"status":503,"code":"shutting_down","detail":"d","byte_offset":7}}'
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
    ((IDS, frame(2, ERROR)), ProblemError),
]


def test_an_incomplete_stream_is_an_error_and_is_not_repeated(play, clock):
    for answer, kind in INCOMPLETE:
        client, service = play(streamed(*answer))
        with pytest.raises(kind) as told:
            list(client.encode_stream(b"abc"))
        assert len(service.requests) == 1
    assert clock.slept == []
    error = told.value  # of the last, an error frame
    assert (error.status, error.code, error.byte_offset) == (503, "shutting_down", 7)


def test_a_stream_is_repeated_only_if_its_source_can_be_read_again(play, tmp_path):
    path = tmp_path / "a"
    path.write_text("abc")
    answer = streamed(IDS, IDS[:4], IDS[4:], frame(1, END[8:].replace(b"2", b"4")))
    for source in (path, b"abc"):
        client, service = play(problem(503), httpx.ReadError("reset"), answer)
        assert [ids.tolist() for ids in client.encode_stream(source)] == [[5, 6, 5, 6]]
        assert [request.content for request in service.requests] == [b"abc"] * 3
    for source in (iter([b"abc"]), io.BytesIO(b"abc")):
        client, service = play(httpx.ReadError("reset"))
        with pytest.raises(ConnectionLostError):
            list(client.encode_stream(source))
    with path.open() as file, pytest.raises(TypeError, match="mode 'rb'"):
        list(client.encode_stream(file))


def test_ids_to_decode_are_lists_arrays_or_bytes(play):
    end = b'{"done":true,"count":2,"bytes":2,"digest":"d"}'
    for source in ([np.array([5, 6])], [[5, 6]], bytearray(b"\5\0\0\0\6\0\0\0")):
        client, service = play(streamed(frame(0, b"ab"), frame(1, end)))
        assert "".join(client.decode_stream(source)) == "ab"
        assert service.requests[0].content == struct.pack("<2I", 5, 6)


def test_frames_are_read_at_any_cut():
    sent = frame(0, b"abc") + frame(0, b"") + frame(0, b"de") + frame(1, b'{"done":true}')
    for cut in range(len(sent) + 1):
        reader = FrameReader()
        assert reader.feed(sent[:cut]) + reader.feed(sent[cut:]) == b"abcde"
        assert reader.finish() == {"done": True}
        reader = FrameReader()
        reader.feed(sent[:cut])
        if cut < len(sent):
            with pytest.raises(StreamCutOffError):
                reader.finish()


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=20))), st.binary(max_size=30))
def test_any_bytes_are_read_or_refused_with_an_error_of_the_client(records, rest):
    reader = FrameReader()
    try:
        reader.feed(b"".join(frame(*record) for record in records) + rest)
        reader.finish()
    except ClientError:
        return
    assert not rest
    assert [kind for kind, _ in records].count(1) == 1


def test_events_are_read_at_any_cut():
    sent = b'retry: 2000\n\nid: 1\ndata: {"a":1}\n\n:\n\nid: 2\ndata: {"b":"\xc3\xa9"}\n\n'
    events = [Event("1", b'{"a":1}'), Event("2", b'{"b":"\xc3\xa9"}')]
    for cut in range(len(sent) + 1):
        reader = EventReader()
        assert reader.feed(sent[:cut]) + reader.feed(sent[cut:]) == events
    assert EventReader().feed(sent[:-1]) == events[:1]


def test_a_batch_is_read_as_it_was_written():
    packed, offsets = parse_batch(bytearray(render_batch([[1, 2], [], np.array([3])])), 4, 3)
    assert parse_id_bytes(packed).tolist() == [1, 2, 3]
    assert offsets.tolist() == [0, 2, 2, 3]
    assert parse_batch(bytearray(render_batch([])), 4, 0)[1].tolist() == [0]
    assert render_ids([1, 65535], "u16") == struct.pack("<2H", 1, 65535)


def test_a_malformed_batch_is_refused():
    whole = render_batch([[1, 2], [3]])
    wraps_around = struct.pack("<I2Q", 2, (1 << 64) - 1, 2) + b"\0" * 4
    for body, n_texts, reason in (
        *((whole, n_texts, f"no batch of {n_texts}: it has 2") for n_texts in (0, 1, 3)),
        *((whole[:n_bytes], 2, None) for n_bytes in range(len(whole))),
        (wraps_around, 2, "add up"),
    ):
        with pytest.raises(UnexpectedResponseError, match=reason):
            parse_batch(bytearray(body), 4, n_texts)
    with pytest.raises(UnexpectedResponseError):
        parse_id_bytes(bytearray(5))
    with pytest.raises(ValueError, match="0 to 65535"):
        render_ids([65536], "u16")
