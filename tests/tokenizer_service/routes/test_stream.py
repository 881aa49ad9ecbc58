"""/encode_stream and /decode_stream in process: options, bodies, forms, errors."""

import json
import struct

import pytest

from tests.tokenizer_service.routes.exchanges import metrics, pointer, problem
from tokenizer_core.text.decode_streams import StreamingDecoder
from tokenizer_core.text.streaming import StreamingEncoder

TEXT = "The <|endoftext|>don't\r\n\r\n \n\t <|a|><|a|> héllo 中文 👩‍👧 e\u0301 \x00\ufeff\u2028<|a"
RAW = {"Content-Type": "application/octet-stream"}
LINES = {"Content-Type": "application/x-ndjson"}
FRAMES = {**RAW, "Accept": "application/octet-stream"}


def packed(ids):
    return struct.pack(f"<{len(ids)}I", *ids)


def records_of(body):
    """The records of ids or text, and the last one."""
    *parts, last = [json.loads(line) for line in body.splitlines()]
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    return parts, last


def frames_of(body):
    """The joined payload of the frames, and the last record."""
    payload = b""
    while body:
        kind, length = struct.unpack_from("<II", body)
        part, body = body[8 : 8 + length], body[8 + length :]
        assert kind == (0 if body else 1)
        payload += part if body else b""
    last = json.loads(part)
    return payload, last


def test_records_and_frames_cover_the_text(client, small_tokenizer):
    ids, data = small_tokenizer.encode(TEXT), TEXT.encode()
    for path, body, payload in (
        ("/encode_stream", data, packed(ids)),
        ("/decode_stream", packed(ids), data),
    ):
        parts, last = records_of(client.post(path, content=body, headers=RAW).content)
        covered = b""
        for part in parts:
            if "tokens" in part:
                covered += small_tokenizer.decode_bytes(part["tokens"])
                assert part["byte_end"] == len(covered)
            else:
                covered += part["text"].encode()
                assert small_tokenizer.decode_bytes(ids[: part["ids_end"]]).startswith(covered)
        assert covered == data
        framed = client.post(path, content=body, headers=FRAMES)
        assert framed.headers["content-type"] == "application/octet-stream"
        assert frames_of(framed.content) == (payload, last)
        assert (last["count"], last["bytes"]) == (len(ids), len(data))


@pytest.mark.row(13)
def test_options_of_encoding(client, small_tokenizer):
    def send(query):
        return client.post(f"/encode_stream?{query}", content=b"the <|a|> x")

    def ids(query):
        return [id_ for part in records_of(send(query).content)[0] for id_ in part["tokens"]]

    policies = {
        "": "all",
        "allowed_special=none": "none",
        "allowed_special=<|a|>&allowed_special=<|endoftext|>": {"<|a|>"},
    }
    for query, allowed in policies.items():
        assert ids(query) == small_tokenizer.encode("the <|a|> x", allowed_special=allowed)
    problem(send("disallowed_special=<|a|>"), 422, "special_token_forbidden")
    for wrong in (
        "allowed_special=nope",
        "allowed_special=",
        "alowed_special=all",
        "tokenizer=é",
        "tokenizer=starter&tokenizer=starter",
    ):
        assert send(wrong).status_code == 422, wrong


def test_options_of_decoding(client, small_tokenizer):
    def send(query, ids, **headers):
        sent = {**RAW, **headers}
        return client.post(f"/decode_stream?{query}", content=packed(ids), headers=sent)

    ids = small_tokenizer.encode("a<|a|>b")
    skipped, _ = records_of(send("skip_special_tokens=true&tokenizer=starter", ids).content)
    assert "".join(part["text"] for part in skipped) == "ab"
    strict = problem(send("errors=strict", [97, 255]), 422, "not_utf8")
    assert strict["byte_offset"] == 1
    for wrong in ("errors=ignore", "error=strict", "skip_special_tokens=2", "tokenizer=é"):
        assert send(wrong, ids).status_code == 422, wrong
    assert send("tokenizer=nope", ids).status_code == 404
    assert send("", ids, **{"If-Match": '"x"'}).status_code == 412
    before = metrics(client, "decode_tokens_total")
    send("", [97] * 5)
    assert metrics(client, "decode_tokens_total") == [before[0] + 5]


@pytest.mark.row(1, 2, 3, 4, 5, 14, 15)
def test_an_error_before_any_output_is_a_problem(client, small_tokenizer):
    for line, status in (
        ("[true]", 422), ("[NaN]", 422), ('["\\ud800"]', 422), ('{"\\ud800": [1]}', 422),
        ("[" * 900 + "]" * 900, 422), ("[" * 20_000, 400), (json.dumps([1, *[True] * 20_000]), 422),
    ):  # fmt: skip
        response = client.post("/decode_stream", content=line.encode(), headers=LINES)
        assert response.content.isascii()
        problem(response, status)
    largest = small_tokenizer.spec.largest_id
    unknown = client.post("/decode_stream", content=packed([97, largest + 1]), headers=RAW)
    assert pointer(problem(unknown, 422, "unknown_token_id")) == "/1"
    assert unknown.headers["Tokenizer-Digest"] == small_tokenizer.spec.fingerprint
    for body, offset in ((b"the \xff quick brown fox ", 4), ("é".encode()[:1], 0)):
        found = problem(client.post("/encode_stream", content=body), 400, "invalid_utf8")
        assert found["byte_offset"] == offset


@pytest.mark.row(8, 12, 20)
def test_headers_of_the_body_and_of_the_response(client):
    octets = RAW["Content-Type"]
    for path, status, headers in (
        ("/encode_stream", 200, {}),
        ("/encode_stream", 200, {"Accept": "application/json"}),
        ("/encode_stream", 415, {"Content-Type": "application/x-www-form-urlencoded"}),
        ("/encode_stream", 406, {"Accept": "text/*"}),
        ("/encode_stream", 412, {"If-Match": '"x"'}),
        ("/decode_stream", 200, {"Content-Type": "Application/X-NDJSON; charset=utf-8"}),
        ("/decode_stream", 415, {}),
        ("/decode_stream", 415, {"Content-Type": f"{octets}; layout=batch"}),
        ("/decode_stream", 415, {"Content-Type": "application/x-ndjson; charset=latin-1"}),
        ("/decode_stream", 415, {**LINES, "Content-Encoding": "gzip"}),
        ("/decode_stream", 406, {**LINES, "Accept": "text/plain"}),
    ):
        response = client.post(path, content=b"[97]    ", headers=headers)
        assert response.status_code == status, (path, headers)
    for path in ("/encode_stream", "/decode_stream"):
        empty = client.post(path, content=b"", headers=RAW)
        assert [json.loads(line)["count"] for line in empty.text.splitlines()] == [0]


@pytest.mark.row(15)
def test_a_pre_token_over_the_cap_is_refused(client, monkeypatch):
    defaults = StreamingEncoder.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "max_pending_chars", 1000)
    refused = client.post("/encode_stream", content=b"a" * 2000)
    problem(refused, 413, "pre_token_too_long")


def test_a_defect_after_output_ends_the_stream_with_an_error_record(client, monkeypatch):
    def fail(self):
        raise RuntimeError("a secret in the message")

    monkeypatch.setattr(StreamingEncoder, "finish", fail)
    monkeypatch.setattr(StreamingDecoder, "flush", fail)
    for path, content in (
        ("/encode_stream", b"the quick brown "),
        ("/decode_stream", packed([97])),
    ):
        response = client.post(path, content=content, headers=RAW)
        assert response.status_code == 200
        parts, last = records_of(response.content)
        assert parts
        assert last["error"]["code"] == "internal_error"
        assert "secret" not in response.text
