"""/decode_stream in process: lines of ids, invalid bytes, options, body types, errors."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from tokenizer_core.decode_streams import StreamingDecoder

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tokenizer_core import Tokenizer

TEXT = (
    "The quick brown fox<|endoftext|>don't\r\n\r\n  we'll 12345   \n\t x <|a|><|a|><|a|> "
    "héllo 中文字符 👩‍👩‍👧 e\u0301 \x00\ufeff\u2028\x85<|a"
)
RAW = {"Content-Type": "application/octet-stream"}
LINES = {"Content-Type": "application/x-ndjson"}


def packed(ids: list[int], letter: str = "I") -> bytes:
    return struct.pack(f"<{len(ids)}{letter}", *ids)


def text_of(body: bytes) -> tuple[str, dict[str, Any]]:
    """The joined text and the last record; checks what every stream promises."""
    *parts, last = [json.loads(line) for line in body.splitlines()]
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    ends = [part["ids_end"] for part in parts]
    assert ends == sorted(ends)
    return "".join(part["text"] for part in parts), last


@pytest.mark.row(1, 2, 3, 4, 5)
def test_a_line_that_holds_no_ids_is_refused(client: TestClient) -> None:
    for line, status in (
        ("[true]", 422),
        ("[NaN]", 422),
        ('["\\ud800"]', 422),
        ('{"\\ud800": [1]}', 422),
        ("[" * 900 + "]" * 900, 422),
        ("[" * 20_000, 400),
        (json.dumps([1, *[True] * 20_000]), 422),
    ):
        response = client.post("/decode_stream", content=line.encode(), headers=LINES)
        assert response.status_code == status, line[:50]
        assert response.headers["content-type"] == "application/problem+json"
        assert response.content.isascii()
        assert len(response.content) < 2000


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


def test_options(client: TestClient, small_tokenizer: Tokenizer) -> None:
    content = packed(small_tokenizer.encode("a<|a|>b"))
    skipped = client.post(
        "/decode_stream?skip_special_tokens=true&tokenizer=starter", content=content, headers=RAW
    )
    assert text_of(skipped.content)[0] == "ab"
    not_utf8 = packed([97, 255])
    strict = client.post("/decode_stream?errors=strict", content=not_utf8, headers=RAW)
    assert (strict.status_code, strict.json()["code"]) == (422, "not_utf8")
    assert strict.json()["byte_offset"] == 1
    for wrong in ("errors=ignore", "error=strict", "skip_special_tokens=2", "tokenizer=../x"):
        refused = client.post(f"/decode_stream?{wrong}", content=content, headers=RAW)
        assert refused.status_code == 422, wrong
    unknown = client.post("/decode_stream?tokenizer=nope", content=content, headers=RAW)
    assert unknown.status_code == 404
    pinned = client.post("/decode_stream", content=content, headers={**RAW, "If-Match": '"x"'})
    assert pinned.status_code == 412


@pytest.mark.row(8, 20)
def test_headers_of_the_body_and_of_the_response(client: TestClient) -> None:
    for status, headers in (
        (415, {}),
        (415, {"Content-Type": "text/plain"}),
        (415, {"Content-Type": "application/x-npy"}),
        (415, {"Content-Type": "application/octet-stream; layout=batch"}),
        (415, {"Content-Type": "application/octet-stream; dtype=u8"}),
        (200, {"Content-Type": "application/x-ndjson"}),
        (200, {"Content-Type": "application/jsonl"}),
        (200, {"Content-Type": "Application/X-NDJSON; charset=utf-8"}),
        (415, {"Content-Type": "application/x-ndjson; charset=latin-1"}),
        (415, {**LINES, "Content-Encoding": "gzip"}),
        (406, {**LINES, "Accept": "text/plain"}),
    ):
        response = client.post("/decode_stream", content=b"[97]    ", headers=headers)
        assert response.status_code == status, headers
    empty = client.post("/decode_stream", content=b"", headers=RAW)
    assert [json.loads(line)["count"] for line in empty.text.splitlines()] == [0]


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
