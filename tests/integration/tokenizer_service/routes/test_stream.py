"""/encode_stream and /decode_stream over a real socket: turns, late errors, slow clients."""

import codecs
import contextlib
import json
import socket
import struct

import pytest

from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core.text.decode_streams import StreamingDecoder
from tokenizer_core.text.streaming import StreamingEncoder

TEXT = "The fox<|endoftext|>don't\r\n  12345 \t <|a|><|a|> héllo 中文 👩‍👧 e\u0301 \x00\ufeff<|a"
OCTETS = "Content-Type: application/octet-stream"
FRAMES = "Accept: application/octet-stream"


def packed(ids):
    return struct.pack(f"<{len(ids)}I", *ids)


def turns_of(path, tokenizer, n_bytes):
    """Chunks, and the ids or the text that each of them settles."""
    ids, encoder, decoder = tokenizer.encode(TEXT), StreamingEncoder(tokenizer), None
    data = TEXT.encode()
    if path == "/decode_stream":
        data, decoder = packed(ids), StreamingDecoder(tokenizer)
    characters = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), n_bytes):
        stop = min(start + n_bytes, len(data))
        chunk = data[start:stop]
        if decoder is None:
            yield chunk, encoder.feed(characters.decode(chunk))
        else:
            yield chunk, decoder.feed(ids[start // 4 : stop // 4])


@pytest.mark.row(15)
@pytest.mark.parametrize("n_bytes", [1, 7])
@pytest.mark.parametrize(
    ("path", "field"), [("/encode_stream", "tokens"), ("/decode_stream", "text")]
)
def test_each_chunk_is_answered_before_the_next_is_sent(
    server, small_tokenizer, path, field, n_bytes
):
    received = b""
    with RawRequest(server.host, server.port, path, OCTETS) as raw:
        for chunk, settled in turns_of(path, small_tokenizer, n_bytes):
            raw.send_chunk(chunk)
            given = settled[:0]
            while len(given) < len(settled):
                piece = raw.read_chunk()
                received += piece
                given += json.loads(piece)[field]
            assert given == settled
        raw.end()
        received += raw.read_body()
    *parts, last = [json.loads(line) for line in received.splitlines()]
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    ids = small_tokenizer.encode(TEXT)
    if field == "tokens":
        assert [id_ for part in parts for id_ in part["tokens"]] == ids
    else:
        assert "".join(part["text"] for part in parts) == TEXT
    totals = {"count": len(ids), "bytes": len(TEXT.encode())}
    assert last == {"done": True, **totals, "digest": small_tokenizer.spec.fingerprint}


@pytest.mark.row(14, 15)
@pytest.mark.parametrize("headers", [(), (FRAMES,)], ids=["lines", "frames"])
def test_an_error_after_output_is_the_last_record(server, headers):
    begin = b"the quick "
    for path, chunks, name, value in (
        ("/encode_stream", [begin, b"fox \xff"], "byte_offset", 14),
        ("/encode_stream", [begin, b"\xe4\xb8"], "byte_offset", 10),
        ("/encode_stream", [begin, b"\xe4\xb8", b"\xad", b"\x80"], "byte_offset", 13),
        ("/decode_stream", [packed([97]), packed([98, 1 << 20])], "code", "unknown_token_id"),
    ):
        with RawRequest(server.host, server.port, path, OCTETS, *headers) as raw:
            raw.send_chunk(chunks[0])
            raw.read_chunk()
            for chunk in chunks[1:]:
                raw.send_chunk(chunk)
            raw.end()
            data = raw.read_body()
        assert raw.status == 200
        last = data.splitlines()[-1]
        if headers:
            at = data.rindex(b'{"error"') - 8
            assert struct.unpack_from("<II", data, at) == (2, len(data) - at - 8)
            last = data[at + 8 :]
        error = json.loads(last)["error"]
        assert error[name] == value
        if path == "/decode_stream":
            assert error["errors"][0]["pointer"] == "/2"


@pytest.mark.row(16)
@pytest.mark.promise(12)
@pytest.mark.parametrize(
    ("path", "chunk"),
    [("/encode_stream", b"a b c d e f g h " * 2048), ("/decode_stream", packed([97] * 8192))],
    ids=["encode", "decode"],
)
def test_a_client_that_does_not_read_stops_the_sender_and_its_end_the_work(server, path, chunk):
    """The server must stop reading: this bounds what a client can send, and so the memory."""
    server.wait_for_in_flight(0)
    framed = b"%x\r\n%b\r\n" % (len(chunk), chunk)
    before = server.resident_bytes()
    with RawRequest(server.host, server.port, path, OCTETS) as raw:
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
