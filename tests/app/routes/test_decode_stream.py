"""/decode_stream against a real server: two-way, at every cut, under slow and vanishing clients."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.app.conftest import RunningServer
from tests.app.no_ids import NO_IDS
from tests.app.raw_http import RawRequest
from tests.app.server_watch import resident_bytes, wait_for_in_flight
from tokenizer_core.streaming import StreamingDecoder

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tokenizer_core import Tokenizer

TEXT = (
    "The quick brown fox<|endoftext|>don't\r\n\r\n  we'll 12345   \n\t x <|a|><|a|><|a|> "
    "héllo 中文字符 👩‍👩‍👧 e\u0301 \x00\ufeff\u2028\x85<|a"
)
OCTETS = "Content-Type: application/octet-stream"
RAW = {"Content-Type": "application/octet-stream"}
LINES = {"Content-Type": "application/x-ndjson"}


def packed(ids: list[int], letter: str = "I") -> bytes:
    return struct.pack(f"<{len(ids)}{letter}", *ids)


def text_of(body: bytes) -> tuple[str, dict[str, Any]]:
    """The text joined and the last record; checks what every stream promises."""
    *parts, last = [json.loads(line) for line in body.splitlines()]
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    ends = [part["ids_end"] for part in parts]
    assert ends == sorted(ends)
    return "".join(part["text"] for part in parts), last


@pytest.mark.row(1, 2, 3, 4, 5)
@pytest.mark.parametrize(
    "line",
    [
        *(line for line, _ in NO_IDS),
        "[NaN]",
        "[-Infinity]",
        '["\\ud800"]',
        '{"\\ud800": [1]}',
        "[" * 900 + "]" * 900,
        "[" * 20_000,
        json.dumps([1, *[True] * 20_000]),
    ],
    ids=range(len(NO_IDS) + 7),
)
def test_what_is_no_line_of_ids(client: TestClient, line: str) -> None:
    response = client.post("/decode_stream", content=line.encode(), headers=LINES)
    assert response.status_code == (400 if line == "[" * 20_000 else 422)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.content.isascii()
    assert len(response.content) < 2000


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


def test_records_that_were_cut_off_end_with_an_error(client: TestClient) -> None:
    whole = client.post("/encode_stream", content=TEXT.encode()).content
    assert text_of(client.post("/decode_stream", content=whole, headers=LINES).content)[0] == TEXT
    lines = whole.splitlines(keepends=True)
    codes = [
        (b"".join(lines[:-1]), "source_cut_off"),
        (whole[:-5], "malformed_json"),
        (b"".join([*lines[:-2], lines[-1]]), "invalid_record"),
        (b"".join([*lines[:-1], b'{"error":{"code":"shutting_down"}}']), "source_failed"),
    ]
    for body, code in codes:
        _, last = text_of(client.post("/decode_stream", content=body, headers=LINES).content)
        assert last["error"]["code"] == code


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
def test_an_error_before_any_output_is_the_answer(
    client: TestClient, small_tokenizer: Tokenizer
) -> None:
    largest = small_tokenizer.spec.largest_id
    ids = packed([97, largest + 1])
    lines = b"[97,%d]\n" % (largest + 1)
    for content, headers in ((ids, RAW), (lines, LINES)):
        response = client.post("/decode_stream", content=content, headers=headers)
        assert response.status_code == 422
        problem = response.json()
        assert problem["code"] == "unknown_token_id"
        assert problem["errors"][0]["pointer"] == "/1"
        assert str(largest) in problem["detail"]
        assert response.headers["Tokenizer-Digest"] == small_tokenizer.spec.fingerprint
    cut = client.post("/decode_stream", content=b"a\0\0", headers=RAW)
    assert (cut.status_code, cut.json()["code"]) == (400, "malformed_ids")


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


@pytest.mark.row(14, 15)
def test_bytes_that_are_not_utf8(client: TestClient, small_tokenizer: Tokenizer) -> None:
    by_byte = {token: id_ for id_, token in small_tokenizer.spec.vocab.items() if len(token) == 1}
    ids = [by_byte[bytes([byte])] for byte in b"ab\xe4\xb8c"]
    replaced = client.post("/decode_stream", content=packed(ids), headers=RAW)
    assert text_of(replaced.content)[0] == "ab\ufffdc"
    strict = client.post("/decode_stream?errors=strict", content=packed(ids), headers=RAW)
    assert strict.status_code == 422
    assert strict.json()["code"] == "not_utf8"
    assert strict.json()["byte_offset"] == 2


def test_options(client: TestClient, small_tokenizer: Tokenizer) -> None:
    content = packed(small_tokenizer.encode("a<|a|>b"))
    skipped = client.post(
        "/decode_stream?skip_special_tokens=true&tokenizer=starter", content=content, headers=RAW
    )
    assert text_of(skipped.content)[0] == "ab"
    for wrong in ("errors=ignore", "error=strict", "skip_special_tokens=2", "tokenizer=../x"):
        refused = client.post(f"/decode_stream?{wrong}", content=content, headers=RAW)
        assert refused.status_code == 422, wrong
    unknown = client.post("/decode_stream?tokenizer=nope", content=content, headers=RAW)
    assert unknown.status_code == 404
    pinned = client.post("/decode_stream", content=content, headers={**RAW, "If-Match": '"x"'})
    assert pinned.status_code == 412


@pytest.mark.row(8, 20)
def test_what_the_body_may_be(client: TestClient) -> None:
    def status(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post("/decode_stream", content=b"[97]    ", headers=named).status_code

    assert status() == 415
    assert status(Content_Type="text/plain") == 415
    assert status(Content_Type="application/json") == 415
    assert status(Content_Type="application/x-npy") == 415
    assert status(Content_Type="application/octet-stream; layout=batch") == 415
    assert status(Content_Type="application/octet-stream; dtype=u8") == 415
    for kind in (
        "application/x-ndjson",
        "application/jsonl",
        "Application/X-NDJSON; charset=utf-8",
    ):
        assert status(Content_Type=kind) == 200
    assert status(Content_Type="application/x-ndjson; charset=latin-1") == 415
    assert status(Content_Type="application/x-ndjson", Content_Encoding="gzip") == 415
    assert status(Content_Type="application/x-ndjson", Accept="text/plain") == 406
    empty = client.post("/decode_stream", content=b"", headers=RAW)
    assert [json.loads(line)["count"] for line in empty.text.splitlines()] == [0]


@pytest.mark.promise(12)
def test_a_client_that_does_not_read_stops_the_sender(server: RunningServer) -> None:
    """The server must stop reading: what a client can push in is bounded, and so is its memory."""
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
        # It goes on as soon as the client reads.
        raw.socket.settimeout(20)
        assert json.loads(raw.read_chunk())["seq"] == 0


@pytest.mark.row(16)
@pytest.mark.parametrize("is_stalled", [False, True])
def test_work_stops_when_the_client_goes(server: RunningServer, is_stalled: bool) -> None:
    wait_for_in_flight(server, 1)  # the question itself
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


def test_a_defect_after_output_ends_the_stream_with_an_error_record(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: StreamingDecoder) -> str:
        raise RuntimeError("a secret in the message")

    monkeypatch.setattr(StreamingDecoder, "flush", fail)
    response = client.post("/decode_stream", content=packed([97]), headers=RAW)
    text, last = text_of(response.content)
    assert text
    assert last["error"]["code"] == "internal_error"
    assert "secret" not in response.text


def test_ids_are_counted(client: TestClient) -> None:
    def counted() -> float:
        text = client.get("/metrics").text
        return float(text.split("\ntokenizer_decode_tokens_total ")[1].split()[0])

    before = counted()
    client.post("/decode_stream", content=packed([97] * 5), headers=RAW)
    assert counted() - before == 5
