"""Targets that read request heads and addresses: each takes any bytes, see `targets`."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httptools
import uvicorn
from starlette.requests import Request
from uvicorn.server import ServerState

from tokenizer_core.registry import ArtifactRef
from tokenizer_service.access.auth import AccessKeys, _holds
from tokenizer_service.egress import CorpusUrl, ListedHost
from tokenizer_service.http.bodies import (
    accepts,
    content_type_of,
    declared_length,
    require_acceptable,
    require_json,
    require_text,
)
from tokenizer_service.http.headers import header_of
from tokenizer_service.http.id_formats import choose_ids_form, ids_form_of, wants_bytes
from tokenizer_service.http.problem import Problem, request_id_of
from tokenizer_service.http.protocol import (
    GuardedHttpProtocol,
    check_framing,
    check_size,
    check_source,
)
from tokenizer_service.http.responses import requested_span
from tokenizer_service.ingress import EVERY_HOST, LOOPBACK, AllowedHosts
from tokenizer_service.observability.tracing import Tracing
from tokenizer_service.rendering.preconditions import not_modified, require_match

DIGEST = "0123456789abcdef" * 4
REF = ArtifactRef("news", "20261121T041500Z-01234567", DIGEST)
_TURNS = 8
"""The event loop in which the server responds."""


def request_headers(data: bytes) -> None:
    """Headers, as lines of `name: value`, that routes read: a response or a Problem."""
    request = _request_of(data)
    accept, kind = header_of(request, b"accept"), header_of(request, b"content-type")
    looks: list[Any] = [
        lambda: require_json(request),
        lambda: require_text(request, ""),
        lambda: require_acceptable(request, "application/json"),
        lambda: choose_ids_form(accept),
        lambda: wants_bytes(accept),
        lambda: check_size(b"/", request.scope["headers"], len(data)),
    ]
    for look in looks:
        _answer_or_problem(look)
    host = _answer_or_problem(lambda: check_framing(request.scope["headers"], "1.1"))
    if host is not None and AllowedHosts(LOOPBACK).allows(host):
        name = (urlsplit(f"//{host.decode()}").hostname or "").removesuffix(".")
        assert re.fullmatch(r"(.*\.)?localhost", name) or _is_loopback(name)
    form = _answer_or_problem(lambda: ids_form_of(kind))
    assert form is None or ids_form_of(form.media_type) == form
    accepts(request, "application/json", by_name=True)
    content_type_of(request)
    assert (declared_length(request) or 0) >= 0
    assert re.fullmatch(r"[!-~]+", request_id_of(request.scope))
    assert not _holds(request, AccessKeys.of(["a key that no input has"]).admin)
    _check_preconditions(request)
    span = _answer_or_problem(lambda: requested_span(request, len(data), f'"{DIGEST}"'))
    assert span is None or 0 <= span[0] < span[1] <= len(data) or span == (0, len(data))


def _is_loopback(name: str) -> bool:
    address = ipaddress.ip_address(name)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _check_preconditions(request: Request) -> None:
    """Only a request that names the digest, or accepts any, passes."""
    wanted = header_of(request, b"if-match")
    is_there = any(name == b"if-match" for name, _ in request.scope["headers"])
    passes = _answer_or_problem(lambda: require_match(request, REF) or True)
    assert not passes or not is_there or DIGEST in wanted or "*" in wanted
    assert passes or f'"{DIGEST}"' not in [part.strip() for part in wanted.split(",")]
    answer = not_modified(request, f'"{DIGEST}"', {})
    assert answer is None or f'"{DIGEST}"' in header_of(request, b"if-none-match")


def trace_headers(data: bytes) -> None:
    """The service ignores a trace header that it cannot read, and responds."""
    from opentelemetry.trace import NoOpTracer

    reached = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    asyncio.run(Tracing(app, NoOpTracer())(_request_of(data).scope, None, None))  # type: ignore[arg-type]
    assert reached


def http_connection(data: bytes) -> None:
    """However the bytes are cut, the server reads the same requests and responds in HTTP."""
    size, sent = (data[0] % 32 + 1, data[1:]) if data else (1, b"")
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    whole, cut = asyncio.run(_converse([sent])), asyncio.run(_converse(pieces))
    assert whole == cut
    expected = _Heads.of(sent)
    assert whole == expected[: len(whole)]  # not all: one may close the connection
    assert whole or not expected


async def _converse(pieces: list[bytes]) -> list[tuple[Any, ...]]:
    """The heads of the requests that reach the service when these pieces arrive."""
    heard: list[tuple[Any, ...]] = []
    wire = _Wire()
    protocol = GuardedHttpProtocol(_config(), ServerState(), {"heard": heard})
    protocol.connection_made(wire)
    for piece in pieces:
        if not wire.is_closing():
            protocol.data_received(piece)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    protocol.connection_lost(None)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    assert re.match(rb"HTTP/1\.1 [1-5][0-9][0-9] |\Z", wire.written)
    return heard


@cache
def _config() -> uvicorn.Config:
    """A server that records the heads, reads the body and sends an empty response."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        head = (scope["raw_path"], scope["http_version"], scope["headers"])
        scope["state"]["heard"].append(head)
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            pass
        if message["type"] == "http.request":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(app, http=GuardedHttpProtocol, lifespan="off", log_config=None)
    config.load()
    return config


class _Heads:
    """The heads that the parser alone finds, up to the first that must be refused."""

    def __init__(self) -> None:
        self.found: list[tuple[Any, ...]] = []
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser = httptools.HttpRequestParser(self)

    @classmethod
    def of(cls, data: bytes) -> list[tuple[Any, ...]]:
        heads = cls()
        with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
            heads._parser.feed_data(data)
        return heads.found

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        version = self._parser.get_http_version()
        host = check_framing(self._headers, version)
        method = self._parser.get_method()
        check_source(self._url, method, self._headers, host, AllowedHosts([EVERY_HOST]))
        path = httptools.parse_url(self._url).path
        path.decode("ascii")
        self.found.append((path, version, self._headers))
        self._headers = []  # trailers follow


class _Wire(asyncio.Transport):
    """Discards what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    abort = close

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def corpus_url(data: bytes) -> None:
    """A line of the operator's list, then a URL: the standard library reads every accepted URL, and
    reads the same after it was written."""
    entry, _, url = data.decode("latin-1").partition("\n")
    listed = ListedHost.parse(entry)
    if listed.network is None:
        for inner in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"):
            assert not listed.allows(ipaddress.ip_address(inner))
    taken = CorpusUrl.parse(url, [listed])
    again = CorpusUrl.parse(f"{taken.scheme}://{taken.origin}{taken.target}", [listed])
    assert again == taken
    parts = urlsplit(url)
    assert (parts.scheme, parts.username, parts.fragment) == (taken.scheme, None, "")
    host = parts.hostname or ""
    assert ListedHost.parse(f"[{host}]" if ":" in host else host).host == taken.host
    assert (parts.port or {"http": 80, "https": 443}[taken.scheme]) == taken.port


def _answer_or_problem(look: Any) -> Any:
    try:
        return look()
    except Problem:
        return None


def _request_of(data: bytes) -> Request:
    lines = [line.partition(b":") for line in data.split(b"\n")]
    headers = [(name.strip().lower(), value.strip()) for name, colon, value in lines if colon]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers})
