"""Small requests served at once: the response is the one that a task of the app gives."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from uvicorn.config import Config
from uvicorn.server import ServerState

from tokenizer_core.registry import ArtifactStore
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.access.limits import INLINE_BODY_BYTES, INLINE_ITEMS
from tokenizer_service.http.protocol import GuardedHttpProtocol
from tokenizer_service.http.request_examples import REQUEST_EXAMPLES
from tokenizer_service.main import NOW, create_app
from tokenizer_service.observability.logs import REQUEST_ID
from tokenizer_service.observability.tracing import VARIABLES
from tokenizer_service.rendering import encode as encode_rendering
from tokenizer_service.settings import Settings

TEXT = {"text": "the quick brown fox"}
JSON = "Content-Type: application/json"
EXAMPLES = {
    "/encode": "EncodeRequest",
    "/decode": "DecodeRequest",
    "/count": "CountRequest",
    "/truncate": "TruncateRequest",
    "/detokenize": "DetokenizeRequest",
    "/tokenize": "PromptRequest",
}


class Wire(asyncio.Transport):
    """Records what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write_eof(self) -> None: ...


@contextlib.contextmanager
def access_log(*, is_on: bool) -> Iterator[None]:
    """uvicorn logs each request if its logger has a handler; pytest adds some."""
    logger = logging.getLogger("uvicorn.access")
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [logging.NullHandler()] if is_on else [], False
    yield
    logger.handlers, logger.propagate = before


class Served:
    """An app behind the protocol, without a server."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.app = create_app(settings)
        self.lifespan = self.app.router.lifespan_context(self.app)
        self.state = self.runner.run(self.lifespan.__aenter__())
        self.app.middleware_stack = self.app.build_middleware_stack()
        self.n_at_once = 0
        serve_now: Callable[..., Any] = self.app.serve_now  # type: ignore[attr-defined]

        def watch(scope: Any, body: bytes) -> Any:
            response = serve_now(scope, body)
            self.n_at_once += response is not None
            return response

        self.app.serve_now = watch  # type: ignore[attr-defined]
        plain = {"access_log": False, "lifespan": "off", "log_config": None, "proxy_headers": False}
        self.config = Config(self.app, **{**plain, **options})
        self.config.load()
        self.server_state = ServerState()
        self.server_state.default_headers = [(b"date", b"now")]

    def close(self) -> None:
        self.runner.run(self.lifespan.__aexit__(None, None, None))
        self.runner.close()

    def converse(
        self, *pieces: bytes, n_responses: int = 1, is_paused: bool = False
    ) -> tuple[Wire, int]:
        """Send the pieces over one connection; return it after `n_responses`, and how many of them
        were given at once."""

        async def run() -> Wire:
            wire = Wire()
            protocol = GuardedHttpProtocol(self.config, self.server_state, dict(self.state))
            protocol.connection_made(wire)
            if is_paused:
                protocol.pause_writing()
            for piece in pieces:
                protocol.data_received(piece)
            if is_paused:
                assert not wire.sent
                protocol.resume_writing()
            async with asyncio.timeout(30):
                while len(responses_in(wire.sent)) < n_responses:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            protocol.connection_lost(None)
            return wire

        before = self.n_at_once
        with access_log(is_on=self.config.access_log):
            return self.runner.run(run()), self.n_at_once - before

    def counted(self) -> list[float]:
        """The sum over its labels of each metric of a request."""
        services = self.app.services  # type: ignore[attr-defined]
        text = services.metrics.render().decode()
        rows = [re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE) for name in COUNTED]
        return [sum(map(float, values)) for values in rows]


def request(
    path: str, body: bytes | dict[str, Any], *lines: str, start: str = "POST {} HTTP/1.1"
) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = lines if any(line.startswith("Content-Type") for line in lines) else (JSON, *lines)
    head = [start.format(path), "Host: localhost", *lines, f"Content-Length: {len(content)}"]
    return "\r\n".join([*head, "", ""]).encode() + content


def responses_in(data: bytes) -> list[tuple[str, dict[str, str], bytes]]:
    """The whole responses in `data`: status line, headers, content."""
    found = []
    while b"\r\n\r\n" in data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert len(headers) == len(lines)
        size = int(headers["content-length"])
        if len(data) < size:
            break
        content, data = data[:size], data[size:]
        found.append((status, headers, content))
    return found


def plain(wire: Wire) -> list[tuple[str, dict[str, str], str]]:
    """The responses without what differs from one request to the next."""
    found = responses_in(wire.sent)
    ids = [headers.pop("x-request-id") for _, headers, _ in found]
    assert all(re.fullmatch("[0-9a-f]{32}", id_) for id_ in ids)
    assert len(set(ids)) == len(ids)
    return [
        (status, headers, re.sub("[0-9a-f]{32}", "id", content.decode("latin-1")))
        for status, headers, content in found
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, small_spec: TokenizerSpec) -> Iterator[Served]:
    """For tests that need no settings of their own."""
    store = ArtifactStore(tmp_path_factory.mktemp("served"))
    store.publish(small_spec, name="starter")
    key = SecretStr("an-admin-key-for-the-tests")
    served = Served(Settings(artifacts_dir=store.root, admin_keys=(key,), threads=2))
    yield served
    served.close()


@pytest.fixture
def serve(settings: Settings) -> Iterator[Callable[..., Served]]:
    running: list[Served] = []

    def start(options: dict[str, Any] | None = None, **changes: Any) -> Served:
        running.append(Served(settings.model_copy(update=changes), **(options or {})))
        return running[-1]

    yield start
    for one in running:
        one.close()


def same_either_way(served: Served, sent: bytes, *, is_at_once: bool = True) -> str:
    """Compare the response at once with that to a body in two pieces; return its status line."""
    n_before = served.counted()
    whole, n_at_once = served.converse(sent)
    assert n_at_once == is_at_once
    n_between = served.counted()
    cut, n_at_once = served.converse(sent[:-1], sent[-1:])
    assert n_at_once == 0
    assert plain(whole) == plain(cut)
    n_after = served.counted()
    changes = [b - a for a, b in zip(n_before, n_between, strict=True)]
    assert changes == [b - a for a, b in zip(n_between, n_after, strict=True)]
    assert changes[0] == 1
    assert served.app.services.budget.used == 0  # type: ignore[attr-defined]
    assert whole.is_closed == cut.is_closed
    return plain(whole)[0][0]


COUNTED = (
    "http_requests_total",
    "tokenizer_encode_bytes_total",
    "tokenizer_encode_tokens_total",
    "tokenizer_decode_tokens_total",
    "http_request_duration_seconds_count",
    "tokenizer_rejected_total",
)


def test_the_response_is_the_same_either_way(served: Served) -> None:
    assert {f"/{endpoint.__name__}" for endpoint in NOW} == set(EXAMPLES)
    for path, name in EXAMPLES.items():
        examples = [example["value"] for example in REQUEST_EXAMPLES[name].values()]
        assert examples
        for prefix, body in zip(itertools.cycle(["", "/v1"]), examples, strict=False):
            assert "200" in same_either_way(served, request(prefix + path, body))


@pytest.mark.parametrize(
    ("path", "body", "lines"),
    [
        ("/encode", {"text": 'naïve 中文\n"\\ \u2028 😀 <|a|>'}, []),
        ("/encode", {"allowed_special": "none", **TEXT, "max_tokens": 1000}, []),
        ("/encode", {"text": "a <|a|>", "allowed_special": ["<|a|>"]}, []),
        ("/encode", {**TEXT, "return": ["ids", "offsets"]}, []),
        ("/encode", {**TEXT, "tokenizer": "active"}, []),
        ("/encode", TEXT, ["Accept: application/octet-stream; dtype=u16"]),
        ("/encode", TEXT, ["If-Match: *"]),
        ("/encode", TEXT, ["Connection: close"]),
        ("/encode", b' { "text" : "\\u0061\\ud83d\\ude00" } ', []),
        ("/tokenize", {"content": "a b", "with_pieces": True}, []),
        (
            "/decode?skip_special_tokens=true",
            b"\1\0\2\0",
            ["Content-Type: application/octet-stream; dtype=u16"],
        ),
        ("/decode", {"ids": [72, 105]}, []),
        ("/decode", {"tokens": [72]}, ["Accept: application/octet-stream"]),
        ("/truncate", {**TEXT, "max_tokens": 2, "side": "left"}, []),
    ],
)
def test_other_requests_that_are_served_at_once(
    served: Served, path: str, body: bytes | dict[str, Any], lines: list[str]
) -> None:
    assert "200" in same_either_way(served, request(path, body, *lines))


@pytest.mark.parametrize(
    ("path", "body", "lines", "status"),
    [
        ("/encode?tokenizer=other", TEXT, [], 422),
        ("/encode", b'{"text": "a"', [], 400),
        ("/encode", b'{"text": "a", "te\\u0078t": "b"}', [], 400),
        ("/encode", b'{"text": "\\ud800"}', [], 422),
        ("/encode", {**TEXT, "unknown": 1}, [], 422),
        ("/encode", {**TEXT, "max_tokens": 1}, [], 413),
        ("/encode", {**TEXT, "disallowed_special": ["no such token"]}, [], 422),
        ("/encode", {**TEXT, "tokenizer": "missing"}, [], 404),
        ("/encode", TEXT, ['If-Match: "another"'], 412),
        ("/encode", TEXT, ["Content-Type: text/plain"], 415),
        ("/encode", TEXT, ["Accept: text/html"], 406),
        ("/decode", {"tokens": [1 << 19]}, [], 422),
        ("/encode", {"text": ["a"] * (INLINE_ITEMS + 1)}, [], 200),
        ("/encode", {"text": "a" * INLINE_BODY_BYTES}, [], 200),
        ("/chunk", {**TEXT, "max_tokens": 2}, [], 200),
        ("/nowhere", TEXT, [], 404),
    ],
)
def test_requests_that_the_app_serves(
    served: Served, path: str, body: bytes | dict[str, Any], lines: list[str], status: int
) -> None:
    sent = request(path, body, *lines)
    assert str(status) in same_either_way(served, sent, is_at_once=False)


def test_an_empty_body_is_served_by_the_app(served: Served) -> None:
    assert "400" in plain(served.converse(request("/encode", b""))[0])[0][0]


def test_keys_and_the_limit_of_a_body_hold(serve: Callable[..., Served]) -> None:
    served = serve(read_keys=(SecretStr("a-key-that-reads"),), max_body_bytes=40)
    for lines, status, is_at_once in (
        ([], 401, False),
        (["X-API-Key: another-key"], 401, False),
        (["X-API-Key: a-key-that-reads"], 200, True),
        (["Authorization: Bearer a-key-that-reads"], 200, True),
    ):
        sent = request("/encode", TEXT, *lines)
        assert str(status) in same_either_way(served, sent, is_at_once=is_at_once)
    wire, n_at_once = served.converse(request("/encode", {"text": "a" * 40}, *lines))
    assert (n_at_once, plain(wire)[0][0].split()[1]) == (0, "413")


def test_the_response_has_the_id_of_the_request(served: Served) -> None:
    sent = request("/encode", TEXT, "X-Request-Id: r-7")
    wire, n_at_once = served.converse(sent, sent, n_responses=2)
    first, second = responses_in(wire.sent)
    assert first == second
    assert (n_at_once, first[1]["x-request-id"], first[1]["date"]) == (2, "r-7", "now")
    assert REQUEST_ID.get() == ""


def test_pipelined_requests_are_served_in_order(served: Served) -> None:
    texts = ["one", "two", "three" * 2000, "four", "five"]
    sent = b"".join(request("/count", {"text": text}) for text in texts)
    wire, _ = served.converse(sent, n_responses=len(texts))
    counts = [json.loads(content)["count"] for _, _, content in responses_in(wire.sent)]
    alone = [served.converse(request("/count", {"text": text}))[0] for text in texts]
    assert counts == [json.loads(responses_in(one.sent)[0][2])["count"] for one in alone]
    assert len(set(counts)) > 2


def test_a_connection_serves_on_after_an_error(served: Served) -> None:
    wrong = request("/encode", b'{"text": 1}')
    good = request("/encode", TEXT)
    for sent in (wrong + good, good + wrong + good):
        wire, _ = served.converse(sent, n_responses=sent.count(b"POST"))
        assert [status.split()[1] for status, _, _ in responses_in(wire.sent)] == [
            "422" if b'"text": 1' in part else "200" for part in sent.split(b"POST")[1:]
        ]
    wire, _ = served.converse(good + b"\0garbage", n_responses=1)
    assert responses_in(wire.sent)[0][0] == "HTTP/1.1 200 OK"


@pytest.mark.parametrize("start", ["POST {} HTTP/1.0", "POST {} HTTP/1.1"])
def test_a_connection_that_closes(served: Served, start: str) -> None:
    sent = request("/encode", TEXT, "Connection: close", start=start)
    wire, n_at_once = served.converse(sent)
    ((_, headers, _),) = responses_in(wire.sent)
    assert (n_at_once, wire.is_closed, headers["connection"]) == (1, True, "close")


def test_a_client_that_reads_nothing_is_waited_for(served: Served) -> None:
    wire, n_at_once = served.converse(request("/encode", TEXT), is_paused=True)
    assert n_at_once == 0
    assert responses_in(wire.sent)[0][0] == "HTTP/1.1 200 OK"


def test_both_engines_respond_the_same_at_once(
    served: Served, serve: Callable[..., Served]
) -> None:
    python = serve(engine="python")
    for text in ("", 'naïve 中文\n"\\ 😀 <|a|>'):
        for fields in ({}, {"allowed_special": "none"}):
            sent = request("/encode", {"text": text, **fields})
            contents = []
            for one in (served, python):
                wire, n_at_once = one.converse(sent)
                assert n_at_once == 1
                contents.append(json.loads(responses_in(wire.sent)[0][2]))
            assert contents[0]["tokens"] == contents[1]["tokens"]
            assert contents[0]["count"] == contents[1]["count"] == len(contents[0]["tokens"])


def test_a_defect_is_reported_by_the_app(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(encode_rendering, "utf8_length", fail)
    wire, n_at_once = served.converse(request("/encode", TEXT))
    assert (n_at_once, responses_in(wire.sent)[0][0].split()[1]) == (0, "500")
    assert caplog.text.count("POST /encode failed") == 1


@pytest.mark.parametrize(
    "options", [{"proxy_headers": True}, {"root_path": "/behind"}, {"access_log": True}]
)
def test_options_of_the_server_are_left_to_the_app(
    serve: Callable[..., Served], options: dict[str, Any]
) -> None:
    wire, n_at_once = serve(options).converse(request("/encode", TEXT))
    assert n_at_once == 0
    assert responses_in(wire.sent)


def test_tracing_sees_every_request(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[0], "http://127.0.0.1:1/v1/traces")
    wire, n_at_once = serve().converse(request("/encode", TEXT))
    assert n_at_once == 0
    assert responses_in(wire.sent)[0][0] == "HTTP/1.1 200 OK"


def test_a_version_on_the_disk_is_loaded_by_the_app(
    serve: Callable[..., Served], store: ArtifactStore, other_spec: TokenizerSpec
) -> None:
    served = serve()
    other = store.publish(other_spec, name="other")
    sent = request("/encode", {"text": "a", "tokenizer": str(other)})
    first, n_at_once = served.converse(sent)
    assert n_at_once == 0
    again, n_at_once = served.converse(sent)
    assert n_at_once == 1
    assert plain(first) == plain(again)
