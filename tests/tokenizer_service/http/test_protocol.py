"""The parts of uvicorn that the protocol uses; its behaviour is in `tests/integration/reliability`.

An update of uvicorn may move any name below: then a test fails, where a limit would silently stop
working.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import re
import socket
from contextvars import ContextVar
from typing import Any

import httptools
import pytest
import uvicorn
import uvloop
from starlette.requests import ClientDisconnect, Request
from tokenizer_service.access.deadlines import send_within, within
from tokenizer_service.access.errors import OverloadedError
from tokenizer_service.commands import serving
from tokenizer_service.http.bodies import COLLECT, WHOLE_BODY, read_body
from tokenizer_service.http.connections import STATE_KEY, ClosingTransport, ConnectionGuard
from tokenizer_service.http.protocol import GuardedHttpProtocol
from tokenizer_service.settings import Settings
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

REQUEST = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
OVERRIDDEN = {
    "__init__": ["config", "server_state", "app_state", "_loop"],
    "connection_made": ["transport"],
    "connection_lost": ["exc"],
    "eof_received": [],
    "data_received": ["data"],
    "on_message_begin": [],
    "on_header": ["name", "value"],
    "on_headers_complete": [],
    "on_body": ["body"],
    "on_message_complete": [],
    "_start_asgi_task": ["cycle", "app"],
    "on_response_complete": [],
    "pause_writing": [],
    "resume_writing": [],
}


def test_this_is_the_uvicorn_it_was_written_for() -> None:
    series = uvicorn.__version__.rpartition(".")[0]
    assert series in ("0.53", "0.54"), (
        "compare tokenizer_service.http.protocol with the new one, then add it"
    )


@pytest.mark.parametrize(("name", "parameters"), OVERRIDDEN.items())
def test_what_is_overridden_exists_and_is_called_so(name: str, parameters: list[str]) -> None:
    theirs = inspect.signature(getattr(HttpToolsProtocol, name))
    assert list(theirs.parameters) == ["self", *parameters]


def test_nothing_else_of_uvicorn_is_overridden() -> None:
    both = set(vars(GuardedHttpProtocol)) & set(vars(HttpToolsProtocol))
    # Python adds its own attributes to every class: names, and from 3.13 on a line and a list.
    assert {name for name in both if callable(vars(HttpToolsProtocol)[name])} == set(OVERRIDDEN)


def test_uvicorn_asks_no_more_of_a_transport_than_this_one_has() -> None:
    """All writes and closes of uvicorn go through `ClosingTransport`."""
    source = "".join(map(inspect.getsource, (HttpToolsProtocol, RequestResponseCycle, FlowControl)))
    used = set(re.findall(r"transport\.(\w+)\(", source)) - {"set_protocol"}  # for WebSockets
    assert used <= set(vars(ClosingTransport))


def test_the_cycle_has_what_is_set_on_it() -> None:
    source = inspect.getsource(RequestResponseCycle)
    for line in (
        "if not self.keep_alive and not has_connection_close:",
        "if self.disconnected:\n            return",
        "self.message_event.set()",
        "self.more_body = True",
        "elif not self.response_complete and not self.disconnected:",
        "if not self.keep_alive:\n                    self.transport.close()",
        "self.response_started = True\n            self.waiting_for_100_continue = False",
        "self.expected_content_length = int(value.decode())\n"
        "                    self.chunked_encoding = False",
        "headers = self.default_headers + list(message.get(",
        "content = [STATUS_LINE[status_code]]",
        "if self.chunked_encoding is None and self.scope",
        "if self.expected_content_length != 0:",
    ):
        assert line in source
    assert "self.cycle.more_body = False" in inspect.getsource(HttpToolsProtocol)


def test_an_error_in_a_callback_stops_the_parser_and_is_its_context() -> None:
    class Calls:
        def on_header(self, name: bytes, value: bytes) -> None:
            raise KeyError(name)

    parser = httptools.HttpRequestParser(Calls())
    with pytest.raises(httptools.HttpParserError) as caught:
        parser.feed_data(b"GET / HTTP/1.1\r\nA: b\r\nC: d\r\n\r\n")
    assert isinstance(caught.value.__context__, KeyError)
    assert caught.value.__context__.args == (b"A",)


def test_the_command_serves_with_it() -> None:
    config = serving._configure(Settings())
    assert config.http is GuardedHttpProtocol
    config.load()
    assert config.http_protocol_class is GuardedHttpProtocol
    assert config.ws_protocol_class is None


class SlowApp:
    """Responds after a delay and records errors."""

    def __init__(self, guard: ConnectionGuard) -> None:
        self.guard = guard
        self.errors: list[Exception] = []
        self.n_answered = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            scope["state"][STATE_KEY] = self.guard
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await self.answer(scope, receive, send)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)
        headers = [(b"content-length", b"2")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"ok"})
            self.n_answered += 1
        except Exception as error:
            self.errors.append(error)


def converse(
    guard: ConnectionGuard, *sent: bytes, read: bool, kind: type[SlowApp] = SlowApp
) -> tuple[SlowApp, bytes]:
    """Send to a server in this process, then read until it closes or disconnect at once."""
    app = kind(guard)

    async def run() -> bytes:
        config = uvicorn.Config(
            app, port=0, http=GuardedHttpProtocol, lifespan="on", log_level="critical"
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        async with asyncio.timeout(20):
            while not server.started:  # noqa: ASYNC110 - it has no event for it
                await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in sent:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.1)
        data = await reader.read() if read else b""
        writer.close()
        await asyncio.sleep(0 if read else 1.5)
        server.should_exit = True
        await serving
        return data

    return app, uvloop.run(run())


def test_a_head_sent_ahead_has_its_time_when_its_turn_has_come() -> None:
    app, data = converse(ConnectionGuard(header_seconds=0.2), REQUEST + REQUEST[:-1], read=True)
    assert app.n_answered == 1
    assert data.index(b"HTTP/1.1 200 ") < data.index(b"HTTP/1.1 408 ")


def test_requests_sent_ahead_by_a_client_that_left_are_no_errors() -> None:
    app, _ = converse(ConnectionGuard(), REQUEST * 3, read=False)
    assert app.errors == []


NUMBER: ContextVar[int] = ContextVar("number")
SHORT = b"POST /short HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\n"
LAST = SHORT.replace(b"Host", b"Connection: close\r\nHost")


class ShortApp(SlowApp):
    """Responds with the body it received; waits only if the body says so."""

    def __init__(self, guard: ConnectionGuard) -> None:
        super().__init__(guard)
        self.whole_bodies: list[bytes | None] = []
        self.n_bytes = 1

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        NUMBER.set(len(self.whole_bodies))
        number = NUMBER.get()
        whole = scope.get(WHOLE_BODY)
        self.whole_bodies.append(whole if whole is None else bytes(whole))
        body = (await within(5, receive()))["body"]
        if body == b"sle":
            await asyncio.sleep(0.01)
        assert NUMBER.get() == number
        response = body * self.n_bytes
        headers = [(b"content-length", b"%d" % len(response))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        half = len(response) // 2
        for part, more in ((response[:half], True), (response[half:], False)):
            message = {"type": "http.response.body", "body": part, "more_body": more}
            await send_within(5, scope, send, message)
        self.n_answered += 1


class LongApp(ShortApp):
    """Responds with more than a connection's buffers hold."""

    def __init__(self, guard: ConnectionGuard) -> None:
        super().__init__(guard)
        self.n_bytes = 10_000_000


def bodies(data: bytes) -> list[bytes]:
    return [part.partition(b"\r\n\r\n")[2] for part in data.split(b"HTTP/1.1 200 OK")[1:]]


def test_the_app_gets_the_whole_body_of_each_small_request() -> None:
    sent = SHORT + b"abc" + SHORT + b"sle" + SHORT + b"ghi"
    app, data = converse(ConnectionGuard(), sent + LAST + b"def", read=True, kind=ShortApp)
    assert bodies(data) == [b"abc", b"sle", b"ghi", b"def"]
    assert isinstance(app, ShortApp)
    assert app.whole_bodies == [b"abc", b"sle", b"ghi", b"def"]


def test_the_app_gets_no_whole_body_while_the_rest_is_on_its_way() -> None:
    app, data = converse(ConnectionGuard(), LAST + b"a", b"bc", read=True, kind=ShortApp)
    assert bodies(data) == [b"abc"] or bodies(data) == [b"a"]  # as received
    assert isinstance(app, ShortApp)
    assert app.whole_bodies == [None]


def test_a_long_response_waits_for_its_reader() -> None:
    _, data = converse(ConnectionGuard(), LAST + b"abc", read=True, kind=LongApp)
    (body,) = bodies(data)
    assert body == b"abc" * 10_000_000


def test_a_client_that_left_is_no_error() -> None:
    app, _ = converse(ConnectionGuard(), (SHORT + b"abc") * 3, read=False, kind=ShortApp)
    assert app.n_answered == 3


class CollectingApp(SlowApp):
    """Responds with the body that it collects, of at most 600,000 bytes."""

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        assert COLLECT in scope or WHOLE_BODY in scope
        try:
            body = await read_body(request, max_bytes=600_000, reserve=self.reserve)
        except OverloadedError:
            body = b"refused"
        except ClientDisconnect:
            self.n_answered += 1
            raise
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def reserve(self, n_bytes: int) -> None:
        """Memory for everything."""


class FullApp(CollectingApp):
    """Has no memory for the third piece, and later for the others."""

    n_pieces = 0

    def reserve(self, n_bytes: int) -> None:
        self.n_pieces += 1
        if self.n_pieces == 3:
            raise OverloadedError("use all the memory reserved for requests")


def upload(body: bytes, *headers: bytes) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n" % len(body)
    return head + b"".join(line + b"\r\n" for line in headers) + b"\r\n" + body


def parts_of(data: bytes, n_bytes: int) -> list[bytes]:
    return [data[start : start + n_bytes] for start in range(0, len(data), n_bytes)]


@pytest.mark.parametrize("kind", [CollectingApp, FullApp])
@pytest.mark.parametrize("n_bytes", [70_000, 130_000, 1_000_000])
def test_pieces_of_a_long_body_arrive_whole_and_in_order(
    kind: type[CollectingApp], n_bytes: int
) -> None:
    first, second = (random.Random(seed).randbytes(500_000) for seed in (1, 2))
    sent = upload(first) + upload(b"short") + upload(second, b"Connection: close")
    _, data = converse(ConnectionGuard(), *parts_of(sent, n_bytes), read=True, kind=kind)
    assert bodies(data) == [first, b"short", second]


async def open_protocol(app: Any) -> tuple[GuardedHttpProtocol, socket.socket]:
    """A connection to `app` without a server, and the client's end of it."""
    config = uvicorn.Config(app, log_config=None)
    config.load()
    protocol = GuardedHttpProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, ours)
    return protocol, theirs


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n%b\r\n3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize("n_bytes", [1, 7, 1000])
def test_an_offer_of_another_protocol_changes_nothing(n_bytes: int) -> None:
    """Read with its body, alone and among others, however the bytes are cut."""
    with_offer, without = [
        b"".join(
            [
                upload(b"first", *offer.splitlines()),
                upload(b"", *offer.splitlines()),
                CHUNKED % offer,
                upload(b"no offer"),
                b"GET / HTTP/1.0\r\nHost: a\r\n" + offer + b"\r\n",
            ]
        )
        for offer in (OFFER, b"")
    ]

    async def run(sent: bytes) -> list[Any]:
        served: list[Any] = []
        all_served = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            body = await read_body(Request(scope, receive), max_bytes=10, reserve=lambda _: None)
            offered = {b"connection", b"upgrade", b"http2-settings"}
            names = [name for name, _ in scope["headers"] if name not in offered]
            served.append((scope["method"], scope["http_version"], names, body))
            headers = [(b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body"})
            if len(served) == 5:
                all_served.set()

        protocol, client = await open_protocol(app)
        for part in parts_of(sent, n_bytes):
            protocol.data_received(part)
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await all_served.wait()
        client.close()
        return served

    served = uvloop.run(run(with_offer))
    assert [request[-1] for request in served] == [b"first", b"", b"abc", b"no offer", b""]
    assert served == uvloop.run(run(without))


def test_a_request_with_an_offer_is_refused_for_its_reason() -> None:
    several_hosts = upload(b"abc", b"Host: other", *OFFER.splitlines())
    _, data = converse(ConnectionGuard(), several_hosts, read=True, kind=CollectingApp)
    assert b'"code":"host_invalid"' in data
    many = upload(b"abc", b"Connection: upgrade", *[b"Upgrade: a"] * 100)
    _, data = converse(ConnectionGuard(), many, read=True, kind=CollectingApp)
    assert b'"code":"too_many_headers"' in data


def test_a_tunnel_is_no_offer() -> None:
    sent = b"CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\n" + upload(b"abc")
    _, data = converse(ConnectionGuard(), sent, read=True, kind=CollectingApp)
    assert data.count(b"HTTP/1.1 ") == 1


def test_a_piece_behind_one_that_was_not_collected_waits_for_it() -> None:
    found: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        def reserve(n_bytes: int) -> None:
            n_calls.append(n_bytes)
            if len(n_calls) == 2:
                raise OverloadedError("use all the memory reserved for requests")

        n_calls: list[int] = []
        found.append(await read_body(Request(scope, receive), max_bytes=10, reserve=reserve))

    async def run() -> None:
        protocol, client = await open_protocol(app)
        protocol.data_received(upload(b"abcdef")[:-4])
        await asyncio.sleep(0.05)
        for piece in (b"c", b"d", b"ef"):  # within one iteration of the event loop
            protocol.data_received(piece)
        await asyncio.sleep(0.05)
        client.close()

    uvloop.run(run())
    assert found == [b"abcdef"]


def test_nothing_is_collected_for_a_body_that_was_refused() -> None:
    wanted: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        def reserve(n_bytes: int) -> None:
            wanted.append(n_bytes)
            if n_bytes == 2:
                raise OverloadedError("use all the memory reserved for requests")

        with pytest.raises(OverloadedError):
            await read_body(Request(scope, receive), max_bytes=10, reserve=reserve)
        await asyncio.sleep(0.2)

    async def run() -> None:
        protocol, client = await open_protocol(app)
        protocol.data_received(upload(b"abcdef")[:-5])
        for piece in (b"bc", b"def"):
            await asyncio.sleep(0.05)
            protocol.data_received(piece)
        await asyncio.sleep(0.3)
        client.close()

    uvloop.run(run())
    assert wanted == [1, 2, 2]  # the second piece as a piece and as a message


def test_a_client_that_leaves_within_a_collected_body_is_noticed() -> None:
    sent = upload(bytes(500_000))[:-1]
    app, _ = converse(ConnectionGuard(), sent, read=False, kind=CollectingApp)
    assert app.n_answered == 1


def test_a_client_that_waits_to_send_a_collected_body_is_asked_for_it() -> None:
    body = bytes(300_000)
    sent = upload(body, b"Expect: 100-continue", b"Connection: close")
    head = len(sent) - len(body)
    _, data = converse(ConnectionGuard(), sent[:head], sent[head:], read=True, kind=CollectingApp)
    assert data.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert bodies(data) == [body]


class EndlessApp(SlowApp):
    """Sends a part of a response and waits."""

    n_bytes = 1

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        part = {"type": "http.response.body", "body": bytes(self.n_bytes), "more_body": True}
        await send(part)
        self.n_answered += 1
        await asyncio.Event().wait()


class EndlessLongApp(EndlessApp):
    """Sends more than a connection's buffers hold."""

    n_bytes = 50_000_000


@pytest.mark.parametrize("kind", [EndlessApp, EndlessLongApp])
def test_a_response_that_the_end_of_the_server_cuts_off_is_one_line_in_the_log(
    kind: type[EndlessApp], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = kind(ConnectionGuard())
    # Whatever another test has configured, each record of uvicorn is seen once.
    uvicorn_log = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(uvicorn_log, "propagate", False)
    monkeypatch.setattr(uvicorn_log, "disabled", False)
    monkeypatch.setattr(uvicorn_log, "handlers", [caplog.handler])
    caplog.set_level(logging.WARNING, logger="uvicorn.error")

    async def run() -> None:
        config = uvicorn.Config(
            app, port=0, http=GuardedHttpProtocol, lifespan="on", log_config=None,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        async with asyncio.timeout(30):
            while not server.started:  # noqa: ASYNC110 - it has no event for it
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            assert await reader.read(1)
            server.should_exit = True
            await serving
            writer.close()

    uvloop.run(run())
    logged = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [(r.name, r.getMessage()) for r in logged] == [
        ("uvicorn.error", "Cancel 1 running task(s), timeout graceful shutdown exceeded"),
        ("tokenizer_service.http", "a response is cut off: the server ends"),
    ]
    assert not any(r.exc_info for r in logged)
