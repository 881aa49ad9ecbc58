"""/decode_stream in process: lines of ids, invalid bytes, options, body types, errors."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.tokenizer_service.no_ids import NO_IDS
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
