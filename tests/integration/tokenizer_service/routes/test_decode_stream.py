"""/decode_stream over a real socket: duplex, at every cut, with slow and vanishing clients."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from typing import Any

import httpx
import pytest

from tests.integration.server_process import Server
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core import Tokenizer
from tokenizer_core.decode_streams import StreamingDecoder

OCTETS = "Content-Type: application/octet-stream"
RAW = {"Content-Type": "application/octet-stream"}
TEXT = "The quick fox<|endoftext|>don't\r\n  12345 \t <|a|><|a|> héllo 中文 👩‍👧 e\u0301 \x00<|a"


def packed(ids: list[int], letter: str = "I") -> bytes:
    return struct.pack(f"<{len(ids)}{letter}", *ids)


def text_of(body: bytes) -> tuple[str, dict[str, Any]]:
    """The joined text and the last record; checks what every stream promises."""
    *parts, last = [json.loads(line) for line in body.splitlines()]
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    ends = [part["ids_end"] for part in parts]
    assert ends == sorted(ends)
    return "".join(part["text"] for part in parts), last


@pytest.mark.parametrize("size", [1, 7])
def test_two_way_client_gets_every_chunk_answered(
    server: Server, small_tokenizer: Tokenizer, size: int
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
def test_every_single_cut(server: Server, small_tokenizer: Tokenizer) -> None:
    data = packed(small_tokenizer.encode(TEXT), "H")
    headers = {"Content-Type": "application/octet-stream; dtype=u16"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        for cut in range(len(data) + 1):
            response = client.post("/decode_stream", content=iter([data[:cut], data[cut:]]))
            assert text_of(response.content)[0] == TEXT, cut


def test_the_output_of_encode_stream_is_decoded(server: Server, small_tokenizer: Tokenizer) -> None:
    text = TEXT * 200
    with (
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", "/v1/encode_stream", content=text.encode()) as encoded,
    ):
        headers = {"Content-Type": encoded.headers["content-type"]}
        answer = httpx.post(
            f"{server.url}/v1/decode_stream", content=encoded.iter_raw(), headers=headers
        )
    assert answer.headers["Tokenizer-Digest"] == small_tokenizer.spec.fingerprint
    assert text_of(answer.content)[0] == text


def test_frames(server: Server, small_tokenizer: Tokenizer) -> None:
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
    server: Server, small_tokenizer: Tokenizer, is_framed: bool
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


@pytest.mark.row(16)
@pytest.mark.promise(12)
def test_a_client_that_does_not_read_stops_the_sender_and_its_end_the_work(server: Server) -> None:
    """The server must stop reading: this bounds what a client can send, and so the memory."""
    server.wait_for_in_flight(0)
    chunk = packed([97] * 8192)
    framed = b"%x\r\n%b\r\n" % (len(chunk), chunk)
    before = server.resident_bytes()
    with RawRequest(server.host, server.port, "/decode_stream", OCTETS) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        raw.socket.settimeout(1.5)
        pushed = 0
        with contextlib.suppress(TimeoutError):
            while pushed < 200_000_000:
                pushed += raw.socket.send(framed)
        assert pushed < 60_000_000
        assert server.resident_bytes() - before < 32_000_000
        # It continues as soon as the client reads.
        raw.socket.settimeout(60)
        assert json.loads(raw.read_chunk())["seq"] == 0
        server.wait_for_in_flight(1)
    server.wait_for_in_flight(0)
