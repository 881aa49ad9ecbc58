"""/encode_stream over a real socket: duplex, at every cut, with slow and vanishing clients."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
from typing import Any

import httpx
import pytest

from tests.integration.server_process import Server
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core import Tokenizer
from tokenizer_core.streaming import StreamingEncoder

TEXT = (
    "The quick brown fox<|endoftext|>don't\r\n\r\n  we'll 12345   \n\t x <|a|><|a|><|a|> "
    "héllo 中文字符 👩‍👩‍👧 e\u0301 \x00\ufeff<|a"
)


def lines_of(body: bytes) -> tuple[list[int], list[dict[str, Any]], dict[str, Any]]:
    """All ids, the records, the last record; checks what every stream promises."""
    *parts, last = [json.loads(line) for line in body.splitlines()]
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    ends = [part["byte_end"] for part in parts]
    assert ends == sorted(ends)
    return [id_ for part in parts for id_ in part["tokens"]], parts, last


def send_in_turns(
    server: Server, tokenizer: Tokenizer, chunks: list[bytes]
) -> tuple[list[int], dict[str, Any]]:
    """Send a chunk, wait for the ids it settles, send the next: what a slow duplex client does."""
    reference = StreamingEncoder(tokenizer)
    given: list[int] = []
    sent = b""
    with RawRequest(server.host, server.port, "/encode_stream", "Content-Type: text/plain") as raw:
        received = b""
        for chunk in chunks:
            raw.send_chunk(chunk)
            before = len(sent.decode(errors="ignore"))
            sent += chunk
            settled = reference.feed(sent.decode(errors="ignore")[before:])
            expected: list[int] = []
            while len(expected) < len(settled):
                piece = raw.read_chunk()
                received += piece
                expected += json.loads(piece)["tokens"]
            assert expected == settled
            given += expected
        raw.end()
        received += raw.read_body()
    ids, _, last = lines_of(received)
    assert ids[: len(given)] == given
    return ids, last


def test_two_way_client_gets_every_chunk_answered(
    server: Server, small_tokenizer: Tokenizer
) -> None:
    words = [word.encode() for word in re.findall("[^ ]* |[^ ]+", TEXT)]
    for _ in range(2):
        ids, last = send_in_turns(server, small_tokenizer, words)
        assert ids == small_tokenizer.encode(TEXT)
        assert last == {
            "done": True,
            "count": len(ids),
            "bytes": len(TEXT.encode()),
            "digest": small_tokenizer.spec.fingerprint,
        }


@pytest.mark.parametrize("size", [1, 7])
def test_chunks_of_a_few_bytes(server: Server, small_tokenizer: Tokenizer, size: int) -> None:
    data = TEXT.encode()
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    ids, _ = send_in_turns(server, small_tokenizer, chunks)
    assert ids == small_tokenizer.encode(TEXT)


@pytest.mark.row(15)
def test_every_single_cut(server: Server, small_tokenizer: Tokenizer) -> None:
    data = TEXT.encode()
    expected = small_tokenizer.encode(TEXT)
    with httpx.Client(base_url=server.url) as client:
        for cut in range(len(data) + 1):
            response = client.post("/encode_stream", content=iter([data[:cut], data[cut:]]))
            assert lines_of(response.content)[0] == expected, cut


def test_byte_end_is_what_the_ids_cover(server: Server, small_tokenizer: Tokenizer) -> None:
    response = httpx.post(f"{server.url}/encode_stream", content=TEXT.encode())
    _, parts, _ = lines_of(response.content)
    covered = b""
    for part in parts:
        covered += small_tokenizer.decode_bytes(part["tokens"])
        assert part["byte_end"] == len(covered)
    assert covered == TEXT.encode()


def test_frames(server: Server, small_tokenizer: Tokenizer) -> None:
    response = httpx.post(
        f"{server.url}/encode_stream",
        content=TEXT.encode(),
        headers={"Accept": "application/octet-stream"},
    )
    assert response.headers["content-type"] == "application/octet-stream"
    ids, kinds, data = [], [], response.content
    while data:
        kind, length = struct.unpack_from("<II", data)
        payload, data = data[8 : 8 + length], data[8 + length :]
        kinds.append(kind)
        if kind == 0:
            ids += struct.unpack(f"<{length // 4}I", payload)
        else:
            end = json.loads(payload)
    assert kinds[-1] == 1
    assert 1 not in kinds[:-1]
    assert ids == small_tokenizer.encode(TEXT)
    assert end["count"] == len(ids)


@pytest.mark.row(15)
@pytest.mark.parametrize(
    ("chunks", "offset"),
    [
        ([b"the quick brown ", b"fox \xff and more"], 20),
        ([b"the quick brown ", "中".encode()[:2]], 16),
        ([b"the quick brown ", "中".encode()[:2], "中".encode()[2:], b"\x80"], 19),
    ],
)
def test_invalid_utf8_after_output_is_the_last_record(
    server: Server, chunks: list[bytes], offset: int
) -> None:
    with RawRequest(server.host, server.port, "/encode_stream") as raw:
        raw.send_chunk(chunks[0])
        first = raw.read_chunk()  # some ids are out
        for chunk in chunks[1:]:
            raw.send_chunk(chunk)
        raw.end()
        _, _, last = lines_of(first + raw.read_body())
    assert raw.status == 200
    assert last["error"]["byte_offset"] == offset
    assert last["error"]["code"] == "invalid_utf8"


@pytest.mark.row(15)
def test_error_frame(server: Server) -> None:
    accept = "Accept: application/octet-stream"
    with RawRequest(server.host, server.port, "/encode_stream", accept) as raw:
        raw.send_chunk(b"the quick ")
        raw.read_chunk()
        raw.send_chunk(b"\xff")
        raw.end()
        data = raw.read_body()
    kind, length = struct.unpack_from("<II", data)
    assert kind == 2
    assert json.loads(data[8 : 8 + length])["error"]["byte_offset"] == 10


@pytest.mark.row(16)
@pytest.mark.promise(12)
def test_a_client_that_does_not_read_stops_the_sender_and_its_end_the_work(server: Server) -> None:
    """The server must stop reading: this bounds what a client can send, and so the memory."""
    server.wait_for_in_flight(0)
    chunk = b"a b c d e f g h " * 2048
    framed = b"%x\r\n%b\r\n" % (len(chunk), chunk)
    before = server.resident_bytes()
    with RawRequest(server.host, server.port, "/encode_stream") as raw:
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
