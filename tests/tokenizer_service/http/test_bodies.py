"""Limits and media types of request bodies, tested on the routes themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.testclient import TestClient

from tests.tokenizer_service.access.test_auth import ADMIN, READ
from tests.tokenizer_service.conftest import ADMIN_KEY
from tokenizer_service.access.errors import OverloadedError
from tokenizer_service.http import bodies
from tokenizer_service.http.bodies import COLLECT, accepts, body_windows, read_body
from tokenizer_service.http.problem import Problem

JSON_ROUTES = [
    ("POST", "/encode"),
    ("POST", "/decode"),
    ("POST", "/count"),
    ("POST", "/truncate"),
    ("POST", "/chunk"),
    ("POST", "/verify"),
    ("POST", "/merges"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/chat/encode"),
    ("POST", "/chat/completions/render"),
    ("POST", "/messages/count_tokens"),
    ("POST", "/responses/input_tokens"),
    ("PUT", "/tokenizers/active"),
]

WITH_TESTS_OF_THEIR_OWN = [
    ("POST", "/encode_stream"),  # routes/test_stream.py
    ("POST", "/decode_stream"),  # routes/test_decode_stream.py
    ("PUT", "/corpora/{corpus_id}"),  # routes/test_corpora.py
    ("POST", "/train"),  # jobs/test_training_route.py
    ("POST", "/corpora/{corpus_id}/encode"),  # routes/test_token_files.py
]


def test_no_route_with_a_body_is_left_out() -> None:
    with_body = {route for route in READ | ADMIN if route[0] in ("POST", "PUT", "PATCH")}
    assert with_body == {*JSON_ROUTES, *WITH_TESTS_OF_THEIR_OWN}


def request_with(
    messages: list[dict[str, Any]], headers: dict[str, str] | None = None, delay: float = 0
) -> Request:
    waiting = iter(messages)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(delay)
        return next(waiting)

    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    return Request({"type": "http", "headers": raw, "method": "POST"}, receive)


def chunk(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_is_joined_and_its_bytes_are_reserved() -> None:
    reserved: list[int] = []
    request = request_with([chunk(b"ab"), chunk(b""), chunk(b"c", False)])
    body = asyncio.run(read_body(request, max_bytes=3, reserve=reserved.append))
    assert body == b"abc"
    assert sum(reserved) == 3


@pytest.mark.row(9)
def test_one_byte_over_the_limit_is_413_and_ends_the_reading() -> None:
    for messages, headers in (
        ([chunk(b"ab"), chunk(b"cd"), chunk(b"ef", False)], {}),
        ([], {"Content-Length": "4"}),  # known from the header: no byte is read
    ):
        with pytest.raises(Problem) as caught:
            asyncio.run(read_body(request_with(messages, headers), max_bytes=3))
        assert (caught.value.status, caught.value.limit, caught.value.actual) == (413, 3, 4)


@pytest.mark.row(17)
def test_a_slow_body_is_408() -> None:
    request = request_with([chunk(b"a")] * 50, delay=0.05)
    with pytest.raises(Problem) as caught:
        asyncio.run(read_body(request, max_bytes=100, grace_seconds=0.2))
    assert caught.value.status == 408


def collecting(pieces: list[bytes], delay: float = 0) -> tuple[Request, list[bytes]]:
    """A request whose pieces are offered to `take` one after the other; and those that became
    messages."""
    refused: list[bytes] = []
    taker: list[Any] = [None]

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        while pieces:
            await asyncio.sleep(delay)
            piece = pieces.pop(0)
            if not taker[0](piece):
                refused.append(piece)
                return chunk(piece, more=bool(pieces))
        return chunk(b"", more=False)

    headers = [(b"content-length", b"%d" % sum(map(len, pieces)))]
    scope = {"type": "http", "headers": headers, "method": "POST"}
    return Request({**scope, COLLECT: lambda take: taker.__setitem__(0, take)}, receive), refused


def test_collected_pieces_are_joined_in_order_and_reserved() -> None:
    reserved: list[int] = []
    request, refused = collecting([b"ab", b"c", b"def"])
    body = asyncio.run(read_body(request, max_bytes=6, reserve=reserved.append))
    assert (body, reserved, refused) == (b"abcdef", [2, 1, 3], [])


def test_a_collected_piece_without_memory_is_refused_as_a_message() -> None:
    def reserve(n_bytes: int) -> None:
        if n_bytes > 2:
            raise OverloadedError("use all the memory reserved for requests")

    request, refused = collecting([b"ab", b"cde", b"f"])
    with pytest.raises(OverloadedError):
        asyncio.run(read_body(request, max_bytes=6, reserve=reserve))
    assert refused == [b"cde"]


@pytest.mark.row(17)
def test_a_slow_collected_body_is_408_and_a_fast_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "MIN_BODY_BYTES_PER_SECOND", 20)
    request, _ = collecting([b"a"] * 50, delay=0.1)  # 10 bytes a second
    with pytest.raises(Problem) as caught:
        asyncio.run(read_body(request, max_bytes=100, grace_seconds=0.2))
    assert caught.value.status == 408
    request, _ = collecting([b"abcd"] * 8, delay=0.05)  # 80, for longer than the grace time
    body = asyncio.run(read_body(request, max_bytes=100, grace_seconds=0.15))
    assert body == b"abcd" * 8


def test_a_client_that_leaves_ends_the_reading() -> None:
    request = request_with([chunk(b"a"), {"type": "http.disconnect"}])
    with pytest.raises(ClientDisconnect):
        asyncio.run(read_body(request, max_bytes=100))


@pytest.mark.parametrize(
    ("accept", "takes_json", "names_octets"),
    [
        (None, True, False),
        ("*/*", True, False),
        ("application/*;q=0.5", True, False),
        ("text/html, application/json;q=0.9", True, False),
        ("application/json;q=0", False, False),
        ("text/html", False, False),
        ("application/octet-stream", False, True),
    ],
)
def test_accept(accept: str | None, takes_json: bool, names_octets: bool) -> None:
    request = request_with([], {} if accept is None else {"Accept": accept})
    assert accepts(request, "application/json") is takes_json
    assert accepts(request, "application/octet-stream", by_name=True) is names_octets


@pytest.fixture
def send(client: TestClient) -> Callable[..., httpx.Response]:
    def send(method: str, path: str, body: bytes, **headers: str) -> httpx.Response:
        named = {"Content-Type": "application/json", "X-API-Key": "an-admin-key-for-the-tests"}
        named.update({name.replace("_", "-"): value for name, value in headers.items()})
        return client.request(method, path, content=body, headers=named)

    return send


@pytest.mark.row(1, 2, 4, 6, 7)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"null", 422),
        (b"[]", 422),
        (b'"text"', 422),
        (b"{}", 422),
        (b'{"text":"a","text":"a"}', 400),
        (b'{"text":"\\ud800"}', 422),
        (b'{"\\ud800":"a"}', 422),
        (b'{"tokens":NaN}', 422),
        (b"[" * 900 + b"]" * 900, 422),
        (b"[" * 1900, 400),
        (b"\xff", 400),
        (b"\xef\xbb\xbf{}", 400),
    ],
    ids=range(13),
)
def test_every_route_refuses_a_bad_body(
    send: Callable[..., httpx.Response], body: bytes, status: int
) -> None:
    for method, path in JSON_ROUTES:
        response = send(method, path, body)
        assert response.status_code == status, path
        assert response.headers["content-type"] == "application/problem+json"
        assert response.content.isascii()
        assert len(response.content) < 2000
        assert response.json()["status"] == status


@pytest.mark.row(8, 20)
@pytest.mark.parametrize(
    ("header", "value", "remedy"),
    [
        ("Content_Type", "text/plain", "--json"),
        ("Content_Type", "application/x-www-form-urlencoded", "--json"),
        ("Content_Type", "multipart/form-data; boundary=x", "--json"),
        ("Content_Type", "", "--json"),
        ("Content_Type", "application/json; charset=latin-1", "UTF-8"),
        ("Content_Type", 'application/json; charset="bogus"', "UTF-8"),
        ("Content_Encoding", "gzip", "without Content-Encoding"),
    ],
)
def test_every_route_refuses_another_media_type(
    send: Callable[..., httpx.Response], header: str, value: str, remedy: str
) -> None:
    for method, path in JSON_ROUTES:
        response = send(method, path, b"{}", **{header: value})
        assert response.status_code == 415, path
        assert remedy in response.json()["detail"]


def test_charset_utf8_is_taken(send: Callable[..., httpx.Response]) -> None:
    for content_type in ('application/json; charset="UTF-8"', "application/vnd.x+json"):
        answer = send("POST", "/encode", b'{"text":"a"}', Content_Type=content_type)
        assert answer.status_code == 200


def test_an_unknown_field_is_named(client: TestClient) -> None:
    response = client.post("/encode", json={"text": "a", "alowed_special": "none"})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == "/alowed_special"
    assert "allowed_special" in error["detail"]
    # The same in the names and shapes that OpenAI's clients read.
    assert response.json()["error"]["param"] == "/alowed_special"


def test_values_are_never_echoed(client: TestClient) -> None:
    secret = "s3cr3t-value"
    fields = ("allowed_special", "tokenizer", "offset_unit", "max_tokens")
    for body in ({"text": {"a": secret}}, *({"text": "a", name: secret + "/"} for name in fields)):
        response = client.post("/encode", json=body)
        assert response.status_code == 422
        assert secret not in response.text, body


def test_names_are_never_echoed(client: TestClient) -> None:
    secret = "s3cr3t-name"
    admin = {"X-API-Key": ADMIN_KEY}
    for field in ("allowed_special", "disallowed_special"):
        for answer in (
            client.post("/encode", json={"text": "a", field: [secret]}),
            client.post("/encode_stream", content=b"a", params={field: secret}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (422, "unknown_special_token")
            assert secret not in answer.text
    for name in (secret, f"{secret}@20200101T000000Z-00000000"):
        for answer in (
            client.post("/encode", json={"text": "a", "tokenizer": name}),
            client.post("/encode_stream", content=b"a", params={"tokenizer": name}),
            client.put("/tokenizers/active", json={"tokenizer": name}, headers=admin),
            client.get(f"/tokenizers/{secret}"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (404, "tokenizer_not_found")
            assert secret not in answer.text


def test_a_forbidden_special_token_is_not_repeated(client: TestClient) -> None:
    options = {"disallowed_special": "all", "allowed_special": "none"}
    text = "a<|endoftext|>"
    for answer in (
        client.post("/encode", json={"text": ["a", text], **options}),
        client.post("/encode_stream", content=text.encode(), params=options),
    ):
        assert answer.status_code == 422
        assert answer.json()["code"] == "special_token_forbidden"
        assert "endoftext" not in answer.text
        assert "disallowed_special" in answer.json()["detail"]


@pytest.mark.row(9)
def test_one_byte_over_the_limit_is_refused_on_every_route(
    make_client: Callable[..., TestClient],
) -> None:
    def in_pieces(body: bytes) -> Iterator[bytes]:
        return (body[start : start + 100] for start in range(0, len(body), 100))

    headers = {"Content-Type": "application/json", "X-API-Key": ADMIN_KEY}
    with make_client(max_body_bytes=2048) as client:
        for size, status in ((2048, 200), (2049, 413)):
            body = json.dumps({"text": "a" * (size - len('{"text": ""}'))}).encode()
            for content in (body, in_pieces(body)):
                answer = client.post("/encode", content=content, headers=headers)
                assert answer.status_code == status
        assert answer.json()["limit"] == 2048
        assert answer.json()["actual"] >= 2049
        assert 'rejected_total{reason="body_too_large"} 2.0' in client.get("/metrics").text
        longer = b" " * 4097  # a promotion may have 4096
        for method, path in (*JSON_ROUTES, ("POST", "/train")):
            for content in (longer, in_pieces(longer)):
                answer = client.request(method, path, content=content, headers=headers)
                assert answer.status_code == 413, path
                assert answer.json()["limit"] in (2048, 4096)


def windows_of(request: Request, grace_seconds: float = 10) -> list[bytes]:
    async def collect() -> list[bytes]:
        windows = body_windows(request, 4, grace_seconds=grace_seconds, idle_seconds=20)
        return [window async for window in windows]

    return asyncio.run(collect())


def test_windows_are_the_body_and_only_the_last_is_small() -> None:
    sent = [b"", b"ab", b"c", b"defghi", b"j", b""]
    request = request_with([*map(chunk, sent[:-1]), chunk(sent[-1], False)])
    assert windows_of(request) == [b"abcdefghi", b"j"]
    assert windows_of(request_with([chunk(b"", False)])) == []


def test_a_window_is_given_before_more_is_received() -> None:
    request = request_with([chunk(b"abcd"), chunk(b"efgh")])  # a third would raise

    async def take_two() -> list[bytes]:
        windows = body_windows(request, 4, grace_seconds=10, idle_seconds=20)
        return [await anext(windows), await anext(windows)]

    assert asyncio.run(take_two()) == [b"abcd", b"efgh"]


def test_a_late_window_is_408_and_a_lost_client_is_an_error() -> None:
    with pytest.raises(Problem) as caught:
        windows_of(request_with([chunk(b"a")], delay=30), grace_seconds=0.05)
    assert caught.value.status == 408
    with pytest.raises(ClientDisconnect):
        windows_of(request_with([chunk(b"abcdef"), {"type": "http.disconnect"}]))
