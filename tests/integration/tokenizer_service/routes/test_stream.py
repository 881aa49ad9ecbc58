"""/encode_stream over a real socket: duplex, at every cut, with slow and vanishing clients."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.integration.running_server import RunningServer
from tests.integration.server_watch import resident_bytes, wait_for_in_flight
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core.streaming import StreamingEncoder

if TYPE_CHECKING:
    from tokenizer_core import Tokenizer
from tests.tokenizer_service.routes.test_stream import lines_of

TEXT = (
    "The quick brown fox<|endoftext|>don't\r\n\r\n  we'll 12345   \n\t x <|a|><|a|><|a|> "
    "héllo 中文字符 👩‍👩‍👧 e\u0301 \x00\ufeff<|a"
)


def send_in_turns(
    server: RunningServer, tokenizer: Tokenizer, chunks: list[bytes]
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
    server: RunningServer, small_tokenizer: Tokenizer
) -> None:
    words = [word.encode() for word in re.findall("[^ ]* |[^ ]+", TEXT)]
    for _ in range(10):
        ids, last = send_in_turns(server, small_tokenizer, words)
        assert ids == small_tokenizer.encode(TEXT)
        assert last["done"]
        assert last["bytes"] == len(TEXT.encode())
        assert last["count"] == len(ids)
        assert last["digest"] == small_tokenizer.spec.fingerprint


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_chunks_of_a_few_bytes(
    server: RunningServer, small_tokenizer: Tokenizer, size: int
) -> None:
    data = TEXT.encode()
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    ids, _ = send_in_turns(server, small_tokenizer, chunks)
    assert ids == small_tokenizer.encode(TEXT)


@pytest.mark.row(15)
def test_every_single_cut(server: RunningServer, small_tokenizer: Tokenizer) -> None:
    data = TEXT.encode()
    expected = small_tokenizer.encode(TEXT)
    with httpx.Client(base_url=server.url) as client:
        for cut in range(len(data) + 1):
            response = client.post("/encode_stream", content=iter([data[:cut], data[cut:]]))
            assert lines_of(response.content)[0] == expected, cut


@pytest.mark.row(15)
def test_random_cuts_of_a_long_text(server: RunningServer, small_tokenizer: Tokenizer) -> None:
    data = (TEXT * 900).encode()
    expected = small_tokenizer.encode(TEXT * 900)
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for seed in range(5):
            cuts = sorted(random.Random(seed).sample(range(len(data)), 40))
            pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
            response = client.post("/encode_stream", content=iter(pieces))
            ids, _, last = lines_of(response.content)
            assert ids == expected
            assert last["count"] == len(expected)


@pytest.mark.row(15)
def test_one_byte_chunks_cost_time_linear_in_the_text(
    server: RunningServer, small_tokenizer: Tokenizer
) -> None:
    def seconds(n_bytes: int) -> float:
        data = (TEXT * 300).encode()[:n_bytes]
        frame = b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n"
        started = time.perf_counter()
        with RawRequest(server.host, server.port, "/encode_stream") as raw:
            raw.socket.sendall(frame)
            ids, _, last = lines_of(raw.read_body())
        if "error" not in last:
            assert ids == small_tokenizer.encode(data.decode())
        return time.perf_counter() - started

    seconds(2000)
    # Quadratic work would take 16 times as long. Other processes may lengthen one of the two
    # measurements, but hardly in every repetition.
    ratios = (
        min(seconds(40_000) for _ in range(2)) / min(seconds(10_000) for _ in range(3))
        for _ in range(6)
    )
    assert any(ratio < 4 * 2.6 for ratio in ratios)


def test_byte_end_says_what_the_ids_cover(
    server: RunningServer, small_tokenizer: Tokenizer
) -> None:
    response = httpx.post(f"{server.url}/encode_stream", content=TEXT.encode())
    _, parts, _ = lines_of(response.content)
    covered = b""
    for part in parts:
        covered += small_tokenizer.decode_bytes(part["tokens"])
        assert part["byte_end"] == len(covered)
    assert covered == TEXT.encode()


def test_frames(server: RunningServer, small_tokenizer: Tokenizer) -> None:
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
        ([b"the quick brown ", "é".encode()[:1], b"a"], 16),
        ([b"the quick brown ", "中".encode()[:2]], 16),
        ([b"the quick brown ", "中".encode()[:2], "中".encode()[2:], b"\x80"], 19),
        ([b"the quick brown ", b"\xed\xa0\x80"], 16),
    ],
)
def test_invalid_utf8_after_output_is_the_last_record(
    server: RunningServer, chunks: list[bytes], offset: int
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
def test_error_frame(server: RunningServer) -> None:
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
def test_a_client_that_does_not_read_stops_the_sender(server: RunningServer) -> None:
    """The server must stop reading: this bounds what a client can send, and so the memory."""
    chunk = b"a b c d e f g h " * 2048
    framed = b"%x\r\n%b\r\n" % (len(chunk), chunk)
    before = resident_bytes(server)
    with RawRequest(server.host, server.port, "/encode_stream") as raw:
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
    with RawRequest(server.host, server.port, "/encode_stream") as raw:
        raw.send_chunk(b"the quick ")
        raw.read_chunk()
        wait_for_in_flight(server, 2)
        if is_stalled:
            raw.socket.settimeout(0.5)
            with contextlib.suppress(TimeoutError):
                while True:
                    raw.send_chunk(b"a b c d " * 4096)
    wait_for_in_flight(server, 1)
