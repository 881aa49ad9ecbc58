"""Limits and media types of request bodies, tested on the routes themselves."""

import asyncio
import itertools
import json
import logging
import math

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.requests import ClientDisconnect, Request

from tests.tokenizer_service.access.test_auth import ADMIN, READ
from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.http.clients import Client
from tests.tokenizer_service.routes.exchanges import OF_PYDANTIC, problem
from tokenizer_service.access.errors import BodyTooLargeError, OverloadedError
from tokenizer_service.http import bodies
from tokenizer_service.http.bodies import COLLECT, REQUEST_MODELS, body_windows, read_body, validate
from tokenizer_service.http.headers import accepts
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.problem_table import problem_of

WITH_TESTS_OF_THEIR_OWN = {
    ("POST", "/encode_stream"),  # routes/test_stream.py
    ("POST", "/decode_stream"),  # routes/test_stream.py
    ("PUT", "/corpora/{corpus_id}"),  # routes/test_corpora.py
    ("POST", "/train"),  # jobs/test_training_route.py
    ("POST", "/rollback"),  # takes no body
    ("POST", "/tokenizers/{name}"),  # routes/test_import.py
    ("POST", "/corpora/{corpus_id}/encode"),  # routes/test_token_files.py
}
JSON_ROUTES = sorted(
    (method, path.replace("{model:path}:", "starter:"))
    for method, path in (READ | ADMIN) - WITH_TESTS_OF_THEIR_OWN
    if method in ("POST", "PUT")
)


def request_of(client, headers=None, **scope):
    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    return Request({"type": "http", "headers": raw, "method": "POST", **scope}, client.receive)


def read(request, max_bytes=100, **options):
    return asyncio.run(read_body(request, max_bytes=max_bytes, **{"grace_seconds": 10, **options}))


def test_a_body_is_joined_and_its_bytes_are_reserved():
    reserved = []
    request = request_of(Client(b"ab", b"", b"c", then="end"))
    assert read(request, max_bytes=3, reserve=reserved.append) == b"abc"
    assert sum(reserved) == 3
    with pytest.raises(ClientDisconnect):
        read(request_of(Client(b"a", then="leave")))
    with pytest.raises(BodyTooLargeError):  # known from the header: no byte is read
        read(request_of(Client(), {"Content-Length": "4"}), max_bytes=3)


class Collected(Client):
    """Offers its chunks to `take`; those that it refuses become messages."""

    def __init__(self, *pieces, delay=0):
        super().__init__(then="end", delay=delay)
        self.pieces = list(pieces)
        self.refused = []
        self.take = None

    async def receive(self):
        await asyncio.sleep(0)
        while self.pieces:
            await asyncio.sleep(self.delay)
            piece = self.pieces.pop(0)
            if not self.take(piece):
                self.refused.append(piece)
                return {"type": "http.request", "body": piece, "more_body": bool(self.pieces)}
        return {"type": "http.request", "body": b"", "more_body": False}

    def request(self):
        length = {"Content-Length": str(sum(map(len, self.pieces)))}
        return request_of(self, length, **{COLLECT: lambda take: setattr(self, "take", take)})


def test_collected_pieces_are_joined_in_order_and_reserved():
    reserved = []

    def reserve(n_bytes):
        if sum(reserved) + n_bytes > 6:
            raise OverloadedError("use all the memory reserved for requests")
        reserved.append(n_bytes)

    client = Collected(b"ab", b"c", b"def")
    assert read(client.request(), reserve=reserve) == b"abcdef"
    assert (reserved, client.refused, client.take) == ([2, 1, 3], [], None)
    client = Collected(b"", b"g", b"h")
    with pytest.raises(OverloadedError):
        read(client.request(), reserve=reserve)
    assert (client.refused, client.take) == ([b"g"], None)  # it is a message, and the last piece


@pytest.mark.row(17)
def test_a_slow_body_is_408_and_a_fast_one_is_not(monkeypatch):
    monkeypatch.setattr(bodies, "MIN_BODY_BYTES_PER_SECOND", 20)
    for slow in (  # 10 bytes a second
        request_of(Client(*[b"a"] * 50, delay=0.1)),
        Collected(*[b"a"] * 50, delay=0.1).request(),
    ):
        with pytest.raises(Problem) as caught:
            read(slow, grace_seconds=0.2)
        assert caught.value.status == 408
    fast = Collected(*[b"abcd"] * 8, delay=0.05)  # 80, for longer than the grace time
    assert read(fast.request(), grace_seconds=0.15) == b"abcd" * 8


@pytest.mark.parametrize(
    ("accept", "takes_json", "names_octets"),
    [
        ("", True, False),
        ("*/*", True, False),
        ("application/*;q=0.5", True, False),
        ("text/html, application/json;q=0.9", True, False),
        ("application/json;q=0", False, False),
        ("text/html", False, False),
        ("application/octet-stream", False, True),
    ],
)
def test_accept(accept, takes_json, names_octets):
    assert accepts(accept, "application/json") is takes_json
    assert accepts(accept, "application/octet-stream", by_name=True) is names_octets


def windows_of(client, n_most=100, grace_seconds=10):
    async def collect():
        found = []
        request = request_of(client)
        async for window in body_windows(request, 4, grace_seconds=grace_seconds, idle_seconds=20):
            found.append(window)
            if len(found) == n_most:
                break
        return found

    return asyncio.run(collect())


def test_windows_are_the_body_and_only_the_last_is_small():
    client = Client(b"", b"ab", b"c", b"defghi", b"j", b"", then="end")
    assert windows_of(client) == [b"abcdefghi", b"j"]
    assert windows_of(Client(b"", then="end")) == []
    client = Client(b"abcd", b"efgh", b"ijkl")
    assert windows_of(client, n_most=2) == [b"abcd", b"efgh"]
    assert client.chunks == [b"ijkl"]  # each was given before more was received


def test_a_late_window_is_408_and_a_lost_client_is_an_error():
    with pytest.raises(Problem) as caught:
        windows_of(Client(b"a", delay=30), grace_seconds=0.05)
    assert caught.value.status == 408
    with pytest.raises(ClientDisconnect):
        windows_of(Client(b"abcdef", then="leave"))


def test_a_client_that_leaves_is_counted_as_499_on_every_route(own_client, caplog):
    routes = [
        ("POST", "/encode", b"application/json"),
        ("POST", "/tokenize", b"application/json"),
        ("POST", "/encode_stream", b"text/plain"),
        ("POST", "/decode_stream", b"application/x-ndjson"),
        ("PUT", "/corpora/one", b"text/plain"),
        ("POST", "/train", b"application/json"),
        ("PUT", "/tokenizers/active", b"application/json"),
    ]
    for method, path, kind in routes:
        headers = [(b"content-type", kind), (b"x-api-key", ADMIN_KEY.encode())]
        where = {"method": method, "path": path, "query_string": b""}
        gone = Client(b'{"te', then="leave")
        scope = {"type": "http", "headers": headers, **where}
        own_client.portal.call(own_client.app, scope, gone.receive, gone.send)
    lines = own_client.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("http_requests_total{")]
    counted = [line for line in counted if not line.endswith(" 0.0") and "/metrics" not in line]
    assert len(counted) == len(routes)
    assert all('status="499"' in line and line.endswith(" 1.0") for line in counted), counted
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.fixture
def send(client):
    def send(method, path, body, **headers):
        named = {"Content-Type": "application/json", "X-API-Key": ADMIN_KEY}
        named.update({name.replace("_", "-"): value for name, value in headers.items()})
        return client.request(method, path, content=body, headers=named)

    return send


@pytest.mark.row(1, 2, 4, 6, 7)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"null", 422), (b"[]", 422), (b"{}", 422), (b'{"text":"a","text":"a"}', 400),
        (b'{"text":"\\ud800"}', 422), (b'{"tokens":NaN}', 422), (b"[" * 1900, 400), (b"\xff", 400),
    ],
    ids=range(9),
)  # fmt: skip
def test_every_route_refuses_a_bad_body(send, body, status):
    for method, path in JSON_ROUTES:
        response = send(method, path, body)
        problem(response, status)
        assert response.content.isascii()
        assert len(response.content) < 2000


@pytest.mark.row(8, 20)
@pytest.mark.parametrize(
    ("header", "value", "remedy"),
    [
        ("Content_Type", "text/plain", "--json"),
        ("Content_Type", "application/x-www-form-urlencoded", "--json"),
        ("Content_Type", "multipart/form-data; boundary=x", "--json"),
        ("Content_Type", "", "--json"),
        ("Content_Type", "application/json; charset=latin-1", "UTF-8"),
        ("Content_Encoding", "gzip", "without Content-Encoding"),
    ],
)
def test_every_route_refuses_another_media_type(send, header, value, remedy):
    for method, path in JSON_ROUTES:
        response = send(method, path, b"{}", **{header: value})
        problem(response, 415)
        assert remedy in response.text
    for content_type in ('application/json; charset="UTF-8"', "application/vnd.x+json"):
        taken = send("POST", "/encode", b'{"text":"a"}', Content_Type=content_type)
        assert taken.status_code == 200


WRONG = (None, True, 1.5, -1, 1 << 70, math.inf, "", "x", "é", "9" * 5000, [], {}, {"x": 1})


def test_what_no_field_takes_is_refused_in_our_words(client):
    said = set()
    for model in REQUEST_MODELS.values():
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        needed = {name: "x" for name, field in fields.items() if field.is_required()}
        for name, value in itertools.product(fields, [*WRONG, *([value] for value in WRONG)]):
            try:
                validate({**needed, name: value}, model)
            except Problem as refused:
                said.update(refused.errors)
    for context in iter_route_contexts(client.app.routes):
        dependant = getattr(context.original_route, "dependant", None)
        fields = dependant.query_params + dependant.path_params if dependant else ()
        for field, value in itertools.product(fields, ("", "x", "-1", "1.5", "inf", "9" * 5000)):
            for given in (value, [value]):
                _, errors = field.validate(given, {}, loc=("query", field.alias))
                if errors:
                    said.update(problem_of(RequestValidationError(errors)).errors)
    assert len(said) > 200
    assert ("/return", "must be a list") in said
    assert ("/skip_special_tokens", "must be true or false") in said
    assert not [(place, text) for place, text in said if OF_PYDANTIC.search(text)]


def test_an_unknown_field_is_named(client):
    response = client.post("/encode", json={"text": "a", "alowed_special": "none"})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == "/alowed_special"
    assert "; did you mean allowed_special?; known: text, " in error["detail"]
    limited = {"documents": ["a"], "limits": {"second": 1}}
    inner = client.post("/train", json=limited, headers={"X-API-Key": ADMIN_KEY})
    [error] = inner.json()["errors"]  # the fields of the body are none of `limits`
    assert error == {"pointer": "/limits/second", "detail": "unknown field"}
    # The same in the names and shapes that OpenAI's clients read.
    assert response.json()["error"]["param"] == "/alowed_special"


def test_what_a_request_holds_is_never_echoed(client):
    secret = "s3cr3t-value"

    def refused(status, code, answer):
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert secret not in answer.text
        assert "endoftext" not in answer.text

    fields = ("allowed_special", "tokenizer", "offset_unit", "max_tokens")
    for body in ({"text": {"a": secret}}, *({"text": "a", name: secret + "é"} for name in fields)):
        refused(422, "invalid_request", client.post("/encode", json=body))
    policies = ({"allowed_special": secret}, {"disallowed_special": secret})
    for code, text, params in (
        *(("unknown_special_token", "a", policy) for policy in policies),
        ("special_token_forbidden", "a<|endoftext|>", {"disallowed_special": "all"}),
    ):
        options = {name: [value] if value == secret else value for name, value in params.items()}
        options = {"allowed_special": "none", **options}
        refused(422, code, client.post("/encode", json={"text": ["a", text], **options}))
        refused(422, code, client.post("/encode_stream", content=text, params=params))
    admin = {"X-API-Key": ADMIN_KEY}
    for name in (secret, f"{secret}@20200101T000000Z-00000000", f"{secret}/"):
        for answer in (
            client.post("/encode", json={"text": "a", "tokenizer": name}),
            client.post("/encode_stream", content=b"a", params={"tokenizer": name}),
            client.put("/tokenizers/active", json={"tokenizer": name}, headers=admin),
            client.get(f"/tokenizers/{secret}"),
        ):
            refused(404, "tokenizer_not_found", answer)


@pytest.mark.row(9)
def test_one_byte_over_the_limit_is_refused_on_every_route(make_client):
    def in_pieces(body):
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
                found = problem(answer, 413, "body_too_large")
                assert found.get("limit", 2048) in (2048, 4096), path
