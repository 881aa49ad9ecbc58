"""/encode_stream in process: invalid UTF-8, special tokens, body types, limits, errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tokenizer_core.streaming import StreamingEncoder

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tokenizer_core import Tokenizer


def lines_of(body: bytes) -> tuple[list[int], list[dict[str, Any]], dict[str, Any]]:
    """All ids, the records, the last record; checks what every stream promises."""
    records = [json.loads(line) for line in body.splitlines()]
    *parts, last = records
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    ends = [part["byte_end"] for part in parts]
    assert ends == sorted(ends)
    return [id_ for part in parts for id_ in part["tokens"]], parts, last


@pytest.mark.row(15)
def test_invalid_utf8_before_any_output_is_400(client: TestClient) -> None:
    response = client.post("/encode_stream", content=b"the \xff quick brown fox ")
    assert response.status_code == 400
    assert response.json()["byte_offset"] == 4
    assert response.json()["code"] == "invalid_utf8"
    cut = client.post("/encode_stream", content="é".encode()[:1])
    assert cut.status_code == 400
    assert cut.json()["byte_offset"] == 0


@pytest.mark.row(13)
def test_special_token_policy(client: TestClient, small_tokenizer: Tokenizer) -> None:
    text = "the <|a|> x"

    def ids(query: str) -> list[int]:
        response = client.post(f"/encode_stream?{query}", content=text.encode())
        return lines_of(response.content)[0]

    assert ids("") == small_tokenizer.encode(text)
    assert ids("allowed_special=none") == small_tokenizer.encode(text, allowed_special="none")
    named = small_tokenizer.encode(text, allowed_special={"<|a|>"})
    assert ids("allowed_special=<|a|>&allowed_special=<|endoftext|>") == named
    forbidden = client.post("/encode_stream?disallowed_special=<|a|>", content=text.encode())
    assert forbidden.status_code == 422
    assert forbidden.json()["code"] == "special_token_forbidden"
    unknown = client.post("/encode_stream?allowed_special=nope", content=b"a")
    assert unknown.status_code == 422
    twice = "tokenizer=starter&tokenizer=starter"
    for wrong in ("allowed_special=", "alowed_special=all", "tokenizer=../x", twice):
        assert client.post(f"/encode_stream?{wrong}", content=b"a").status_code == 422, wrong


@pytest.mark.row(8, 20)
def test_headers_of_the_body_and_of_the_response(client: TestClient) -> None:
    for status, headers in (
        (200, {}),
        (200, {"Content-Type": "text/plain; charset=UTF-8"}),
        (200, {"Content-Type": "application/octet-stream"}),
        (415, {"Content-Type": "application/x-www-form-urlencoded"}),
        (415, {"Content-Type": "text/plain; charset=latin-1"}),
        (415, {"Content-Encoding": "gzip"}),
        (406, {"Accept": "text/*"}),
        (200, {"Accept": "application/json"}),
        (412, {"If-Match": '"x"'}),
    ):
        response = client.post("/encode_stream", content=b"a b", headers=headers)
        assert response.status_code == status, headers


@pytest.mark.row(12)
def test_empty_text(client: TestClient) -> None:
    response = client.post("/encode_stream", content=b"")
    assert response.status_code == 200
    assert [json.loads(line)["count"] for line in response.text.splitlines()] == [0]


@pytest.mark.row(15)
def test_a_pre_token_over_the_cap_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = StreamingEncoder.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "max_pending_chars", 1000)
    refused = client.post("/encode_stream", content=b"a" * 2000)
    assert refused.status_code == 413
    assert refused.json()["code"] == "pre_token_too_long"
    later = client.post("/encode_stream", content=b"the quick " + b"a" * 70_000)
    assert lines_of(later.content)[2]["error"]["code"] == "pre_token_too_long"


def test_a_defect_after_output_ends_the_stream_with_an_error_record(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: StreamingEncoder) -> list[int]:
        raise RuntimeError("a secret in the message")

    monkeypatch.setattr(StreamingEncoder, "finish", fail)
    response = client.post("/encode_stream", content=b"the quick brown ")
    ids, _, last = lines_of(response.content)
    assert ids
    assert last["error"]["code"] == "internal_error"
    assert "secret" not in response.text
