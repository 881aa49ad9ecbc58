"""Bad inputs below HTTP's surface, by the rows of the design: 16 to 21, over real sockets."""

import contextlib
import resource
import socket
import time

import psutil
import pytest

from tests.integration.server_process import publish_bytes, serve, wait_until
from tests.reliability.socket_client import connect, exchange, head, read_answer, read_one, send
from tokenizer_service.http.protocol import MAX_HEADER_BYTES, MAX_HEADERS

BODY_LIMIT = 1 << 20
HEADER_SECONDS = 2.0
CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
LIVEZ = head("GET /livez HTTP/1.1")
LIVEZ_LAST = head("GET /livez HTTP/1.1", CLOSE)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server whose deadlines are short; shared, because no test here may change it."""
    artifacts = tmp_path_factory.mktemp("server") / "artifacts"
    publish_bytes(artifacts, "starter")
    with serve(
        artifacts,
        header_seconds=str(HEADER_SECONDS),
        send_seconds="1",
        stream_idle_seconds="2",
        max_body_bytes=str(BODY_LIMIT),
    ) as server:
        yield server
        assert server.process.poll() is None
        assert "Traceback" not in server.output
        assert "ASGI callable returned" not in server.output
        # One line of warning, however many requests were refused.
        assert server.output.count("a connection was refused") <= 2


def connections(server):
    """Open connections of the server."""
    held = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(connection.status != psutil.CONN_LISTEN for connection in held)


def wait_until_it_left(server):
    wait_until(lambda: connections(server) == 0)
    server.wait_for_in_flight(0)


def rejected(server, reason):
    return server.metric(f'tokenizer_rejected_total{{reason="{reason}"}} ')


@pytest.mark.row(16)
@pytest.mark.parametrize(
    "sent",
    [
        head("POST /encode_stream HTTP/1.1", "Content-Length: 100000000") + b"x y " * (1 << 22),
        head("GET /openapi.json HTTP/1.1") * 300,  # no request remains that has a deadline
    ],
    ids=["a stream", "small answers"],
)
def test_a_client_that_only_sends_is_disconnected(server, sent):
    with connect(server.port, receive_buffer=4096) as connection:
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            send(connection, sent)
        wait_until_it_left(server)


@pytest.mark.row(17)
def test_headers_that_do_not_arrive_are_408(server):
    silent = exchange(server.port)
    assert (silent.data, silent.end) == (b"", "closed")
    with contextlib.ExitStack() as held:
        waiting = [held.enter_context(connect(server.port)) for _ in range(4)]
        started = [b"G", b"GET /livez HTTP/1.1\r\nHost: te", LIVEZ[:-1], b"\r\n\r\n"]
        for connection, sent in zip(waiting, started, strict=True):
            connection.sendall(sent)
        for connection in waiting:
            answer = read_answer(connection)
            assert (answer.status, answer.end) == (408, "closed")
            assert answer.problem()["code"] == "headers_too_slow"
            assert answer.headers["connection"] == "close"


@pytest.mark.row(17)
def test_single_bytes_do_not_extend_the_time_limit(server):
    with connect(server.port) as connection:
        for byte in head("GET /livez HTTP/1.1", *["A: b"] * 20):
            if not send(connection, bytes([byte])):
                break
            connection.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                assert connection.recv(4, socket.MSG_PEEK) == b"HTTP"
                break
        answer = read_answer(connection)
    assert (answer.status, answer.problem()["code"]) == (408, "headers_too_slow")


@pytest.mark.row(17)
def test_a_keep_alive_connection_is_not_hurried(server):
    with connect(server.port) as connection:
        connection.sendall(LIVEZ)
        assert read_one(connection).status == 200
        time.sleep(HEADER_SECONDS * 1.5)
        connection.sendall(LIVEZ)
        assert read_one(connection).status == 200


@pytest.mark.row(17)
@pytest.mark.parametrize(
    ("status", "line", "kind"),
    [
        (415, "POST /encode HTTP/1.1", "Content-Type: text/html"),
        (413, "POST /encode HTTP/1.1", JSON),
        (200, "GET /livez HTTP/1.1", JSON),
    ],
)
def test_an_early_answer_reaches_a_client_that_sends_first(server, status, line, kind):
    n_bytes = BODY_LIMIT + 1
    with connect(server.port) as connection:
        connection.sendall(head(line, kind, f"Content-Length: {n_bytes}"))
        time.sleep(0.05)  # the response starts before the body ends
        assert send(connection, b"x" * (n_bytes - 1000)) == n_bytes - 1000
        answer = read_answer(connection)
    assert (answer.status, answer.end) == (status, "closed")
    assert answer.headers["connection"] == "close"
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.row(17)
def test_nothing_is_read_without_end_after_an_early_answer(server):
    request = head("GET /info HTTP/1.1", "Content-Length: 1000000000")
    with connect(server.port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        connection.sendall(request)
        sent = send(connection, b"x" * 100_000_000)
    assert sent < 40_000_000  # a body's limit, and the capacity of two kernel buffers
    with connect(server.port) as connection:
        connection.sendall(request)
        wait_until(lambda: not send(connection, b"x"))
    wait_until_it_left(server)


@pytest.mark.row(18)
@pytest.mark.parametrize(
    ("code", "request_head"),
    [
        ("headers_too_large", head("GET /livez HTTP/1.1", "A: " + "a" * (1 << 16))),
        ("headers_too_large", b"GET /livez HTTP/1.1\r\n" + b"a" * 20_000_000),
        ("headers_too_large", head("GET /livez?" + "a" * 70_000 + " HTTP/1.1")),
        ("headers_too_large", head("GET /livez HTTP/1.1", *["A: " + "a" * 400] * 90)),
        ("headers_too_large", b"\r\n" * 100_000),
        ("too_many_headers", head("GET /livez HTTP/1.1", *["A: b"] * MAX_HEADERS)),
    ],
    ids=["64 kB", "20 MB name", "target", "sum", "empty lines", "101 headers"],
)
def test_headers_over_the_limit_are_431(server, code, request_head):
    before = rejected(server, "headers_too_large")
    answers = [exchange(server.port, request_head)]
    with connect(server.port) as connection:  # which has served before
        connection.sendall(LIVEZ)
        assert read_one(connection).status == 200
        send(connection, request_head)
        answers.append(read_answer(connection))
    for answer in answers:
        assert (answer.status, answer.problem()["code"]) == (431, code)
        assert answer.headers["connection"] == "close"
    assert rejected(server, "headers_too_large") == before + 2


@pytest.mark.row(18)
def test_headers_within_the_limits_are_accepted(server):
    spare = MAX_HEADER_BYTES - 1000
    for request in (
        head("GET /livez HTTP/1.1", CLOSE, "A: " + "a" * spare),
        head("GET /livez?" + "a" * spare + " HTTP/1.1", CLOSE),
        head("GET /livez HTTP/1.1", CLOSE, *["A: b"] * (MAX_HEADERS - 2)),
    ):
        assert exchange(server.port, request).status == 200
        # However the bytes are cut.
        assert exchange(server.port, request[:1000], request[1000:]).status == 200


@pytest.mark.row(18)
def test_trailers_count_against_the_limit(server):
    before = server.resident_bytes()
    request = head("POST /encode_stream HTTP/1.1", "Transfer-Encoding: chunked")
    answer = exchange(server.port, request, b"0\r\n" + b"A: b\r\n" * 3_000_000)
    assert answer.status in (400, 431)
    assert server.resident_bytes() < before + 16_000_000


POST = "POST /encode_stream HTTP/1.1"
CHUNKED = "Transfer-Encoding: chunked"
AMBIGUOUS = {
    "both lengths": (400, head(POST, "Content-Length: 3", CHUNKED) + b"0\r\n\r\n"),
    "two lengths": (400, head(POST, "Content-Length: 3", "Content-Length: 3") + b"abc"),
    "negative length": (400, head(POST, "Content-Length: -3") + b"abc"),
    "chunk size too large": (400, head(POST, CHUNKED) + b"f" * 17 + b"\r\nabc\r\n"),
    "chunk longer than said": (400, head(POST, CHUNKED) + b"3\r\nabcd\r\n0\r\n\r\n"),
    "bare LF in the head": (400, b"GET /livez HTTP/1.1\nHost: test\n\n"),
    "bare LF after a chunk": (400, head(POST, CHUNKED) + b"3\nabc\n0\n\n"),
    "NUL": (400, head("GET /livez HTTP/1.1", "A: b\0c")),
    "folded line": (400, head("GET /livez HTTP/1.1", "A: b", " c")),
    "space before the colon": (400, head("GET /livez HTTP/1.1", "A : b")),
    "not ASCII in the target": (400, b"GET /livez\xff HTTP/1.1\r\nHost: test\r\n\r\n"),
    "no Host": (400, head("GET /livez HTTP/1.1", host="")),
    "two Hosts": (400, head("GET /livez HTTP/1.1", "Host: test")),
    "Host with a space": (400, head("GET /livez HTTP/1.1", host="Host: a b")),
    "coding before chunked": (501, head(POST, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n"),
    "chunked twice": (400, head(POST, "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n"),
    "chunked, HTTP/1.0": (400, head("POST /encode_stream HTTP/1.0", CHUNKED) + b"0\r\n\r\n"),
}  # fmt: skip


@pytest.mark.row(19)
@pytest.mark.parametrize(("status", "sent"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_an_ambiguous_request_is_refused(server, status, sent):
    answer = exchange(server.port, sent + LIVEZ)  # the server must not respond to what follows
    assert (answer.status, answer.end) == (status, "closed")
    assert answer.problem()["code"] in ("bad_http", "host_invalid", "transfer_coding_unsupported")
    assert answer.headers["connection"] == "close"
    assert answer.body.count(b"HTTP/1.1") == answer.body.count(b"well-formed HTTP/1.1")


@pytest.mark.row(19)
def test_an_unambiguous_request_is_served(server):
    hosts = ("a_b.example", "127.0.0.1:80", "[::1]:8000", "A.ORG:")
    for sent in (
        *(head("GET /livez HTTP/1.1", CLOSE, host=f"Host: {host}") for host in hosts),
        head("GET /livez HTTP/1.0", host=""),
        head("GET /livez HTTP/1.1", CLOSE, "Transfer-Encoding: Chunked") + b"0\r\n\r\n",
        b"\r\n" + LIVEZ_LAST,
    ):
        assert exchange(server.port, sent).status == 200, sent


@pytest.mark.row(19)
def test_a_bad_chunk_ends_a_stream_that_has_begun(server):
    with connect(server.port) as connection:
        connection.sendall(head(POST, CHUNKED) + b"8\r\nab cd ef\r\n")
        begun = connection.recv(1 << 16)
        assert begun.startswith(b"HTTP/1.1 200")
        connection.sendall(b"zz\r\n")
        rest = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                rest += piece
    assert b'"done"' not in begun + rest
    assert b"HTTP/1.1" not in rest
    assert not rest.endswith(b"0\r\n\r\n")  # which would mark the response as complete


@contextlib.contextmanager
def held_connections(port, n):
    """This many connections, each of which has sent half a head."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(n):
            connection = held.enter_context(connect(port))
            send(connection, b"GET /encode HTTP/1.1\r\nHost: ")
        yield


@pytest.mark.row(21)
@pytest.mark.parametrize(
    ("limit", "n_clients"), [(20, 300), pytest.param(5000, 10_000, marks=pytest.mark.slow)]
)
def test_beyond_the_limit_of_connections_503_and_health_answers(tmp_path, limit, n_clients):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < n_clients + 2000:
        pytest.skip(f"needs {n_clients + 2000:,} open files; the system allows {hard}")
    publish_bytes(tmp_path / "artifacts", "starter")
    settings = {"max_connections": str(limit), "header_seconds": "600"}
    with serve(tmp_path / "artifacts", **settings) as server:
        with held_connections(server.port, n_clients):
            for _ in range(3):
                answer = exchange(server.port, head("GET /info HTTP/1.1"))
                assert (answer.status, answer.end) == (503, "closed")
                assert answer.problem()["code"] == "too_many_connections"
                assert answer.problem()["limit"] == limit
                assert int(answer.headers["retry-after"]) >= 1
                for path in ("/livez", "/readyz", "/health"):
                    health = exchange(server.port, head(f"GET {path} HTTP/1.1"))
                    assert (health.status, health.end) == (200, "closed")
            held = connections(server)
            assert limit <= held <= limit + 64 + 4  # the reserve, and connections that are closing
        info = head("GET /info HTTP/1.1", CLOSE)
        wait_until(lambda: exchange(server.port, info).status == 200)
        assert rejected(server, "too_many_connections") >= 3
