"""What the protocol takes from uvicorn, tested over connections of this process; their number.

The protocol overrides methods of uvicorn and sets attributes of its requests. Each test here shows
one effect of that, so that an update of uvicorn cannot silently end a limit.
"""

import asyncio
import logging
import random
import resource
import socket

import pytest
import uvicorn
from starlette.requests import ClientDisconnect, Request

from tests.tokenizer_service.http.clients import open_protocol
from tokenizer_service.access.errors import OverloadedError
from tokenizer_service.commands import serving
from tokenizer_service.http import protocol as http_protocol
from tokenizer_service.http.bodies import COLLECT, WHOLE_BODY, read_body
from tokenizer_service.http.connections import (
    STATE_KEY,
    ConnectionGuard,
    derive_max_connections,
    raise_open_files,
)
from tokenizer_service.http.problem import Problem
from tokenizer_service.http.protocol import GuardedHttpProtocol
from tokenizer_service.http.responses import ChunkedBody
from tokenizer_service.ingress import AllowedHosts
from tokenizer_service.observability.metrics import REJECT_REASONS
from tokenizer_service.responses.problem_table import problem_of
from tokenizer_service.settings import Settings

pytestmark = pytest.mark.anyio

REQUEST = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
LAST = b"Connection: close"


def test_the_command_serves_with_it():
    config = serving._configure(Settings())
    config.load()
    assert config.http_protocol_class is GuardedHttpProtocol
    assert config.ws_protocol_class is None


def upload(body, *headers):
    head = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n" % len(body)
    return head + b"".join(line + b"\r\n" for line in headers) + b"\r\n" + body


async def connect(app, guard=None):
    config = uvicorn.Config(app, log_config=None)
    config.load()
    return await open_protocol(config, {STATE_KEY: guard})


async def read(client):
    """What a client receives until the end of the connection."""
    data = b""
    while part := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
        data += part
    return data


async def exchange(app, *pieces, is_half_closed=False, guard=None, seconds=0.05):
    _, client = await connect(app, guard)
    async with asyncio.timeout(60):
        reading = asyncio.create_task(read(client))
        for piece in pieces:
            await asyncio.get_running_loop().sock_sendall(client, piece)
            await asyncio.sleep(seconds)
        if is_half_closed:
            client.shutdown(socket.SHUT_WR)
        data = await reading
    client.close()
    return data


async def respond(send, *parts, headers=()):
    await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})


SHORT_BODY = [(b"content-length", b"2")]


def slowly(seconds):
    async def app(scope, receive, send):
        await asyncio.sleep(seconds)
        await respond(send, b"ok", headers=SHORT_BODY)

    return app


say_ok = slowly(0.05)


async def test_what_is_no_http_after_a_request_ends_the_connection_with_its_response():
    data = await exchange(say_ok, REQUEST, REQUEST + b"\0")
    first, last = data.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"connection: close" not in first
    assert b"connection: close" in last
    assert last.endswith(b"ok")


async def test_a_client_that_sends_no_more_receives_its_responses():
    for n_requests in (0, 1, 3):
        data = await exchange(slowly(0.1), REQUEST * n_requests, is_half_closed=True)
        assert data.count(b"HTTP/1.1 200 OK") == data.count(b"\r\n\r\nok") == n_requests
    # Reading is paused meanwhile: nothing but a look at the socket shows that the client is there.
    data = await exchange(slowly(0.3), REQUEST * 2 + upload(b"", LAST))
    assert data.count(b"HTTP/1.1 200 OK") == 3


async def test_an_unreadable_body_ends_the_request():
    received = []

    async def app(scope, receive, send):
        received.extend([(await receive())["type"], (await receive())["type"]])
        await respond(send, b"ok", headers=SHORT_BODY)

    head = b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = await exchange(app, head + b"3\r\nabc\r\n", b"zz\r\n")
    assert received == ["http.request", "http.disconnect"]
    assert data.startswith(b"HTTP/1.1 400 ")
    assert b"200 OK" not in data


async def test_a_response_before_the_end_of_the_body():
    data = await exchange(say_ok, upload(b"abc")[:-1], b"c", seconds=0.5)
    assert b"connection: close" in data
    assert data.endswith(b"ok")

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        message = await receive()
        await send({"type": "http.response.body", "body": message["body"]})

    sent = upload(b"abc", b"Expect: 100-continue", LAST)
    data = await exchange(app, sent[:-3], sent[-3:])
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")  # and no body is asked for
    assert data.endswith(b"5\r\nfirst\r\n3\r\nabc\r\n0\r\n\r\n")


async def test_in_http_1_0_the_end_of_the_connection_ends_a_response_without_a_length():
    async def app(scope, receive, send):
        await respond(send, b"ab", b"cd")

    head, _, body = (await exchange(app, REQUEST.replace(b"1.1", b"1.0"))).partition(b"\r\n\r\n")
    assert body == b"abcd"
    assert b"transfer-encoding" not in head
    assert b"content-length" not in head
    newer = await exchange(app, REQUEST.replace(b"Host", b"Connection: close\r\nHost"))
    assert newer.endswith(b"\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")


CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n%b\r\n3\r\nabc\r\n0\r\n\r\n"


async def test_trailers_are_dropped():
    seen = []

    async def app(scope, receive, send):
        seen.append(list(scope["headers"]))
        await read_body(Request(scope, receive), max_bytes=10, grace_seconds=10)
        seen.append(list(scope["headers"]))
        await respond(send, headers=[(b"content-length", b"0")])

    sent = CHUNKED.replace(b"0\r\n\r\n", b"0\r\nHost: other\r\n\r\n") % b"A: b\r\n"
    await exchange(app, sent + sent, is_half_closed=True)
    expected = [(b"host", b"a"), (b"transfer-encoding", b"chunked"), (b"a", b"b")]
    assert seen == [expected] * 4


async def test_a_client_that_reads_nothing_is_reset():
    async def app(scope, receive, send):
        await respond(send, bytes(20_000_000))

    _, client = await connect(app, ConnectionGuard(stall_seconds=0.1))
    client.sendall(REQUEST)
    await asyncio.sleep(0.5)
    assert len(await read(client)) < 20_000_000
    client.close()


async def test_the_time_of_a_head_begins_after_the_response_before_it():
    guard = ConnectionGuard(header_seconds=0.2)
    data = await exchange(slowly(0.5), REQUEST + REQUEST[:-1], guard=guard)
    assert data.index(b"HTTP/1.1 200 ") < data.index(b"HTTP/1.1 408 ")


class Echo:
    """Responds several times with the body that it collects, of at most 600,000 bytes; refuses one
    piece as if memory were used up; waits if the body says so."""

    def __init__(self, *, n_refused=0, n_times=1):
        self.n_refused, self.n_times = n_refused, n_times
        self.whole_bodies = []
        self.n_pieces = self.n_left = self.n_responses = 0

    async def __call__(self, scope, receive, send):
        assert (COLLECT in scope) is not (WHOLE_BODY in scope)
        self.whole_bodies.append(bytes(scope[WHOLE_BODY]) if WHOLE_BODY in scope else None)
        try:
            options = {"max_bytes": 600_000, "grace_seconds": 10, "reserve": self.reserve}
            body = await read_body(Request(scope, receive), **options)
        except OverloadedError:
            body = b"refused"
        except ClientDisconnect:
            self.n_left += 1
            raise
        if body == b"sleep":
            await asyncio.sleep(0.01)
        await ChunkedBody([body] * self.n_times, idle_seconds=60)(scope, receive, send)
        self.n_responses += 1

    def reserve(self, n_bytes):
        self.n_pieces += 1
        if self.n_pieces == self.n_refused:
            raise OverloadedError("use all the memory reserved for requests")


def bodies(data):
    return [part.partition(b"\r\n\r\n")[2] for part in data.split(b"HTTP/1.1 200 OK")[1:]]


async def test_the_app_gets_the_whole_body_of_each_small_request():
    app, sent = Echo(), [b"abc", b"sleep", b"ghi", b"def"]
    pipelined = b"".join(map(upload, sent[:-1])) + upload(sent[-1], LAST)
    assert bodies(await exchange(app, pipelined)) == app.whole_bodies == sent
    app, cut = Echo(), upload(b"abc", LAST)
    assert bodies(await exchange(app, cut[:-2], cut[-2:])) == [b"abc"]
    assert app.whole_bodies == [None]  # none before its end
    long, body = Echo(n_times=2000), b"abc" * 1000
    assert bodies(await exchange(long, upload(body, LAST))) == [body * 2000]


async def leave(app, sent):
    _, client = await connect(app)
    await asyncio.get_running_loop().sock_sendall(client, sent)
    client.close()
    await asyncio.sleep(0.5)


async def test_a_client_that_left_ends_its_requests_without_errors():
    app = Echo()
    await leave(app, upload(b"sleep") * 3)
    assert app.n_responses == len(app.whole_bodies)
    await leave(app, upload(bytes(100_000))[:-1])
    assert app.n_left == 1


def parts_of(data, n_bytes):
    return [data[start : start + n_bytes] for start in range(0, len(data), n_bytes)]


@pytest.mark.parametrize("n_refused", [0, 3], ids=["enough memory", "none for a piece"])
@pytest.mark.parametrize("n_bytes", [70_000, 1_000_000])
async def test_pieces_of_a_long_body_arrive_whole_and_in_order(n_refused, n_bytes):
    first, second = (random.Random(seed).randbytes(500_000) for seed in (1, 2))
    sent = upload(first) + upload(b"short") + upload(second, LAST)
    data = await exchange(Echo(n_refused=n_refused), *parts_of(sent, n_bytes))
    assert bodies(data) == [first, b"short", second]


async def test_a_piece_after_one_that_was_not_collected_waits_for_it():
    app = Echo(n_refused=2)
    protocol, client = await connect(app)
    sent = upload(b"abcdef", LAST)
    protocol.data_received(sent[:-4])
    await asyncio.sleep(0.05)
    for piece in (b"c", b"d", b"ef"):  # within one iteration of the event loop
        protocol.data_received(piece)
    assert bodies(await read(client)) == [b"abcdef"]
    client.close()


async def test_a_client_that_waits_to_send_a_collected_body_is_asked_for_it():
    body = bytes(300_000)
    sent = upload(body, b"Expect: 100-continue", LAST)
    head = len(sent) - len(body)
    data = await exchange(Echo(), sent[:head], sent[head:])
    assert data.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert bodies(data) == [body]


OFFER = [b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"]


async def test_an_offer_of_another_protocol_changes_nothing():
    sent = upload(b"first", *OFFER) + upload(b"", *OFFER) + upload(b"last")
    for n_bytes in (1, 1000):
        data = await exchange(Echo(), *parts_of(sent, n_bytes), seconds=0, is_half_closed=True)
        assert bodies(data) == [b"first", b"", b"last"]
    several_hosts = upload(b"abc", b"Host: other", *OFFER)
    assert b'"code":"host_invalid"' in await exchange(say_ok, several_hosts, is_half_closed=True)
    many = upload(b"abc", b"Connection: upgrade", *[b"Upgrade: a"] * 100)
    assert b'"code":"too_many_headers"' in await exchange(say_ok, many, is_half_closed=True)
    tunnel = b"CONNECT other:80 HTTP/1.1\r\nHost: other\r\n\r\n" + upload(b"abc")
    assert (await exchange(say_ok, tunnel)).count(b"HTTP/1.1 ") == 1


EVIL = "http://evil.example.com"


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET / HTTP/1.1", "LOCALHOST:1", 200),
        ("GET / HTTP/1.1", "evil.example.com:8000", 421),
        ("GET /livez HTTP/1.1", "10.4.3.2", 200),
        ("GET /health?a=b HTTP/1.1", "10.4.3.2:8000", 200),
        ("GET http://localhost:80/info HTTP/1.1", "localhost", 200),
        (f"GET {EVIL}/info HTTP/1.1", "localhost", 421),
        ("GET http://localhost/info HTTP/1.1", "evil.example.com", 421),
        ("GET http://localhost@evil.example.com/info HTTP/1.1", "localhost", 400),
        ("GET http://localhost:80@evil.example.com/info HTTP/1.1", "localhost", 400),
        ("GET /info HTTP/1.0", "", 200),
        (f"GET {EVIL}/info HTTP/1.0", "", 421),
        ("OPTIONS * HTTP/1.1", "evil.example.com", 421),
    ],
)
async def test_the_host_and_the_target_must_be_allowed(line, host, status):
    counted = []
    hosts = AllowedHosts.of(("localhost", "[::1]", "*.internal"), "127.0.0.1")
    named = f"Host: {host}\r\n" if host else ""
    sent = f"{line}\r\n{named}Connection: close\r\n\r\n".encode()
    data = await exchange(say_ok, sent, guard=ConnectionGuard(hosts=hosts, count=counted.append))
    assert data.split()[1] == b"%d" % status
    if status != 200:
        head, _, body = data.partition(b"\r\n\r\n")
        assert body.endswith(b"}\n")
        assert b"\r\ncontent-length: %d\r\n" % len(body) in head
    if status == 421:
        assert counted == ["host_not_allowed"]
        assert b"TOKENIZER_ALLOWED_HOSTS" in data
        assert host.encode() not in data or EVIL in line


@pytest.mark.parametrize("n_bytes", [1, 20_000_000], ids=["read", "not read"])
async def test_a_response_that_the_end_of_the_server_cuts_off_is_one_line_in_the_log(
    n_bytes, caplog, monkeypatch
):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(n_bytes), "more_body": True})
        await asyncio.Event().wait()

    # Whatever another test has configured, each record of uvicorn is seen once.
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "disabled", False)
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "handlers", [caplog.handler])

    protocol, client = await connect(app)
    client.sendall(REQUEST)
    assert await asyncio.get_running_loop().sock_recv(client, 1)
    for task in list(protocol.tasks):  # as uvicorn, when its time is over
        task.cancel()
    await asyncio.wait(protocol.tasks)
    assert protocol.transport.is_closing()
    client.close()
    logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in logged] == ["a response is cut off: the server ends"]
    assert not logged[0].exc_info


async def test_a_kept_connection_is_told_that_the_server_ends(monkeypatch):
    """Its next response says so; it is closed before only if none is asked for in a while."""
    told, read_one = b"connection: close", asyncio.get_running_loop().sock_recv

    async def stream(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"some", "more_body": True})
        await ending.wait()
        await send({"type": "http.response.body"})

    async def wait_and_say_ok(scope, receive, send):
        began.set()
        await ending.wait()
        await respond(send, b"ok", headers=SHORT_BODY)

    async with asyncio.timeout(60):
        for app in (slowly(0), stream):
            ending = asyncio.Event()
            protocol, client = await connect(app)
            client.sendall(REQUEST)
            first = await read_one(client, 1 << 16)
            protocol.shutdown()
            ending.set()
            client.sendall(REQUEST)
            assert told not in first
            assert told in await read(client)  # to the end of the connection
            client.close()
        began, ending = asyncio.Event(), asyncio.Event()
        protocol, client = await connect(wait_and_say_ok)
        client.sendall(REQUEST)
        await began.wait()
        protocol.shutdown()
        ending.set()
        assert told in await read(client)
        client.close()
        monkeypatch.setattr(http_protocol, "ENDING_SECONDS", 0)
        for sent in (b"", REQUEST):
            protocol, client = await connect(slowly(0))
            client.sendall(sent)
            first = await read_one(client, 1 << 16) if sent else b""
            protocol.shutdown()
            assert (told in first, await read(client)) == (False, b"")
            client.close()


async def test_a_health_check_waits_for_one_of_the_requests_that_came_before():
    started, guard = [], ConnectionGuard()

    async def app(scope, receive, send):
        started.append(scope["path"])
        await respond(send, b"ok", headers=SHORT_BODY)

    paths = [*(f"/{n}" for n in range(50)), "/livez"]
    connections = [await connect(app, guard) for _ in paths]
    for (protocol, _), path in zip(connections, paths, strict=True):  # in one iteration of the loop
        protocol.data_received(REQUEST.replace(b"/ ", path.encode() + b" "))
    async with asyncio.timeout(60):
        for _, client in connections:
            await asyncio.get_running_loop().sock_recv(client, 1 << 16)
            client.close()
    assert started == [paths[0], "/livez", *paths[1:-1]]


class Waiting:
    def __init__(self):
        self.told = []

    def turn_away(self, problem):
        self.told.append(problem)


def test_the_reserve_keeps_the_newest_connections_until_one_ends():
    guard = ConnectionGuard(max_connections=3, problem_of=problem_of)
    within = [Waiting() for _ in range(3)]
    beyond = [Waiting() for _ in range(100)]
    assert all(guard.admit(connection) for connection in within)
    assert not any(guard.admit(connection) for connection in beyond)
    assert not any(connection.told for connection in within + beyond[-64:])
    for connection in beyond[:-64]:
        (problem,) = connection.told
        assert (problem.status, problem.headers["Retry-After"]) == (503, "1")
    assert guard.n_connections == 3 + 64
    first, second = within[0], beyond[-1]
    assert not guard.admit(second)  # asked again while it is full
    guard.release(first)
    assert guard.admit(second)
    assert all(guard.admit(connection) for connection in within[1:])
    for connection in [*within, *beyond, second]:
        guard.release(connection)
    assert guard.n_connections == 0


def test_each_refusal_is_counted_and_one_a_minute_logged(caplog):
    counted = []
    guard = ConnectionGuard(count=counted.append)
    for _ in range(100):
        guard.note(Problem(400, "bad_http", ""))
    assert counted == ["bad_http"] * 100
    assert len(caplog.records) == 1
    assert counted[0] in REJECT_REASONS


def test_connections_leave_files_and_the_soft_limit_of_open_files_becomes_the_hard_one():
    limits = [derive_max_connections(n) for n in (2, 4096, 8192, 20_000)]
    assert limits == [1, 2048, 5632, 10_000]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before[0]), before[1]))
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
