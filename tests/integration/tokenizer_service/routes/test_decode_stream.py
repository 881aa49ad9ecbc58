"""/decode_stream over a real socket: duplex, at every cut, with slow and vanishing clients."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.integration.running_server import RunningServer
from tests.integration.server_watch import resident_bytes, wait_for_in_flight
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core.decode_streams import StreamingDecoder

if TYPE_CHECKING:
    from tokenizer_core import Tokenizer
from tests.tokenizer_service.routes.test_decode_stream import RAW, TEXT, packed, text_of

OCTETS = "Content-Type: application/octet-stream"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 33])
def test_two_way_client_gets_every_chunk_answered(
    server: RunningServer, small_tokenizer: Tokenizer, size: int
) -> None:
    ids = small_tokenizer.encode(TEXT)
    data = packed(ids)
    reference = StreamingDecoder(small_tokenizer)
    received = b""
    with RawRequest(server.host, server.port, "/decode_stream", OCTETS) as raw:
        for start in range(0, len(data), size):
            raw.send_chunk(data[start : start + size])
            settled = reference.feed(ids[start // 4 : min(start + size, len(data)) // 4])
            if settled:
                piece = raw.read_chunk()
                received += piece
                assert json.loads(piece)["text"] == settled
        raw.end()
        received += raw.read_body()
    text, last = text_of(received)
    assert text == TEXT
    assert last == {
        "done": True,
        "count": len(ids),
        "bytes": len(TEXT.encode()),
        "digest": small_tokenizer.spec.fingerprint,
    }


@pytest.mark.row(15)
def test_every_single_cut(server: RunningServer, small_tokenizer: Tokenizer) -> None:
    data = packed(small_tokenizer.encode(TEXT), "H")
    headers = {"Content-Type": "application/octet-stream; dtype=u16"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        for cut in range(len(data) + 1):
            response = client.post("/decode_stream", content=iter([data[:cut], data[cut:]]))
            assert text_of(response.content)[0] == TEXT, cut


@pytest.mark.row(15)
def test_random_cuts_of_many_ids(server: RunningServer, small_tokenizer: Tokenizer) -> None:
    ids = small_tokenizer.encode(TEXT * 900)
    data = packed(ids)
    with httpx.Client(base_url=server.url, headers=RAW, timeout=60) as client:
        assert client.post("/decode", content=data).json()["text"] == TEXT * 900
        for seed in range(3):
            cuts = sorted(random.Random(seed).sample(range(len(data)), 40))
            pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
            text, last = text_of(client.post("/decode_stream", content=iter(pieces)).content)
            assert text == TEXT * 900
            assert last["count"] == len(ids)


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_what_encode_stream_answers_comes_back(
    server: RunningServer, small_tokenizer: Tokenizer, prefix: str
) -> None:
    text = TEXT * 200
    with (
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", f"{prefix}/encode_stream", content=text.encode()) as encoded,
    ):
        headers = {"Content-Type": encoded.headers["content-type"]}
        answer = httpx.post(
            f"{server.url}{prefix}/decode_stream", content=encoded.iter_raw(), headers=headers
        )
    assert answer.headers["Tokenizer-Digest"] == small_tokenizer.spec.fingerprint
    assert text_of(answer.content)[0] == text


def test_frames(server: RunningServer, small_tokenizer: Tokenizer) -> None:
    response = httpx.post(
        f"{server.url}/decode_stream",
        content=packed(small_tokenizer.encode(TEXT)),
        headers={**RAW, "Accept": "application/octet-stream"},
    )
    assert response.headers["content-type"] == "application/octet-stream"
    text, kinds, data = b"", [], response.content
    while data:
        kind, length = struct.unpack_from("<II", data)
        payload, data = data[8 : 8 + length], data[8 + length :]
        kinds.append(kind)
        if kind == 0:
            text += payload
        else:
            end = json.loads(payload)
    assert kinds[-1] == 1
    assert 1 not in kinds[:-1]
    assert text == TEXT.encode()
    assert end["bytes"] == len(text)


@pytest.mark.row(14, 15)
@pytest.mark.parametrize("is_framed", [False, True])
def test_an_error_after_output_is_the_last_record(
    server: RunningServer, small_tokenizer: Tokenizer, is_framed: bool
) -> None:
    accept = ["Accept: application/octet-stream"] if is_framed else []
    ids = small_tokenizer.encode("the quick")
    bad = small_tokenizer.spec.largest_id + 1
    with RawRequest(server.host, server.port, "/decode_stream", OCTETS, *accept) as raw:
        raw.send_chunk(packed(ids))
        raw.read_chunk()
        raw.send_chunk(packed([97, bad]))
        raw.end()
        data = raw.read_body()
    assert raw.status == 200
    if is_framed:
        assert struct.unpack_from("<II", data) == (2, len(data) - 8)
        data = data[8:]
    error = json.loads(data)["error"]
    assert error["code"] == "unknown_token_id"
    assert error["errors"][0]["pointer"] == f"/{len(ids) + 1}"


@pytest.mark.promise(12)
def test_a_client_that_does_not_read_stops_the_sender(server: RunningServer) -> None:
    """The server must stop reading: this bounds what a client can send, and so the memory."""
    chunk = packed([97] * 8192)
    framed = b"%x\r\n%b\r\n" % (len(chunk), chunk)
    before = resident_bytes(server)
    with RawRequest(server.host, server.port, "/decode_stream", OCTETS) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        raw.socket.settimeout(1.5)
        pushed = 0
        with contextlib.suppress(TimeoutError):
            while pushed < 200_000_000:
                pushed += raw.socket.send(framed)
        assert pushed < 60_000_000
        assert resident_bytes(server) - before < 32_000_000
        # It continues as soon as the client reads.
        raw.socket.settimeout(20)
        assert json.loads(raw.read_chunk())["seq"] == 0


@pytest.mark.row(16)
@pytest.mark.parametrize("is_stalled", [False, True])
def test_work_stops_when_the_client_goes(server: RunningServer, is_stalled: bool) -> None:
    wait_for_in_flight(server, 1)  # this request itself
    with RawRequest(server.host, server.port, "/decode_stream", OCTETS) as raw:
        raw.send_chunk(packed([97]))
        raw.read_chunk()
        wait_for_in_flight(server, 2)
        if is_stalled:
            raw.socket.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                while True:
                    raw.send_chunk(packed([97] * 4096))
    wait_for_in_flight(server, 1)
