"""Bad inputs below HTTP's surface, by the rows of the design: 16 to 21, over real sockets."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from tokenizer_service.http.protocol import MAX_HEADER_BYTES, MAX_HEADERS

from tests.integration.server_process import Server, publish_bytes, serve
from tests.reliability.socket_client import connect, exchange, head, read_answer, read_one, send

BODY_LIMIT = 1 << 20
HEADER_SECONDS = 1.0
CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
LIVEZ = head("GET /livez HTTP/1.1")
LIVEZ_LAST = head("GET /livez HTTP/1.1", CLOSE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
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


def connections(server: Server) -> int:
    """Open connections of the server."""
    held = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(connection.status != psutil.CONN_LISTEN for connection in held)


def wait_for_connections(server: Server, at_most: int, *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while connections(server) > at_most:
        assert time.monotonic() < deadline, f"{connections(server)} connections are still held"
        time.sleep(0.05)


def wait_for_one_connection(server: Server) -> None:
    deadline = time.monotonic() + 60
    while connections(server) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_flight(server: Server) -> float:
    text = httpx.get(f"{server.url}/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith("tokenizer_inflight ")]
    return float(line.split()[1]) - 1  # this request itself


def wait_until_nothing_is_in_flight(server: Server) -> None:
    """A request ends a moment after its connection: a thread may still work on it."""
    deadline = time.monotonic() + 60
    while in_flight(server):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def rejected(server: Server, reason: str) -> float:
    name = f'tokenizer_rejected_total{{reason="{reason}"}} '
    text = httpx.get(f"{server.url}/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    return float(line.rpartition(" ")[2])


# Row 16: a client that vanishes, and one that never reads


@pytest.mark.row(16)
def test_row_16_a_client_that_never_reads_is_disconnected(server: Server) -> None:
    wait_for_connections(server, 0)
    text = b'{"text":"' + b"x" * (BODY_LIMIT - 20) + b'"}'
    request = head("POST /encode HTTP/1.1", JSON, f"Content-Length: {len(text)}")
    with connect(server.port, receive_buffer=4096) as connection:
        send(connection, request)
        wait_for_one_connection(server)
        send(connection, text)
        wait_for_connections(server, 0)
        wait_until_nothing_is_in_flight(server)
        assert read_answer(connection).end == "reset"


@pytest.mark.row(16)
def test_row_16_a_client_that_reads_none_of_its_stream_is_disconnected(server: Server) -> None:
    request = head("POST /encode_stream HTTP/1.1", "Content-Length: 100000000")
    with connect(server.port, receive_buffer=4096) as connection:
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            send(connection, request + b"x y " * (1 << 22))
        wait_for_connections(server, 0)
        wait_until_nothing_is_in_flight(server)


@pytest.mark.row(16)
def test_row_16_a_client_that_never_reads_small_answers_is_disconnected(server: Server) -> None:
    """Responses that fit the buffer: no request remains that could have a deadline."""
    request = head("GET /openapi.json HTTP/1.1")
    with connect(server.port, receive_buffer=4096) as connection:
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            send(connection, request * 300)
        wait_for_connections(server, 0)


# Row 17: slow headers, a silent connection, a slow body, a body after its response


@pytest.mark.row(17)
@pytest.mark.parametrize(
    "sent",
    [b"G", b"GET /livez HTTP/1.1\r\nHost: te", head("GET /livez HTTP/1.1")[:-1], b"\r\n\r\n"],
    ids=["one byte", "half a line", "all but the last byte", "empty lines"],
)
def test_row_17_headers_that_do_not_arrive_are_408(server: Server, sent: bytes) -> None:
    answer = exchange(server.port, sent)
    assert (answer.status, answer.end) == (408, "closed")
    assert answer.problem()["code"] == "headers_too_slow"
    assert answer.headers["connection"] == "close"
    assert HEADER_SECONDS * 0.9 <= answer.seconds < 10


@pytest.mark.row(17)
def test_row_17_a_byte_now_and_then_gains_no_time(server: Server) -> None:
    with connect(server.port) as connection:
        started = time.monotonic()
        for byte in head("GET /livez HTTP/1.1", *["A: b"] * 20):
            if not send(connection, bytes([byte])):
                break
            connection.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                assert connection.recv(4, socket.MSG_PEEK) == b"HTTP"
                break
        answer = read_answer(connection)
    assert (answer.status, answer.problem()["code"]) == (408, "headers_too_slow")
    assert time.monotonic() - started < 10


@pytest.mark.row(17)
def test_row_17_a_silent_connection_is_closed(server: Server) -> None:
    answer = exchange(server.port)
    assert (answer.data, answer.end) == (b"", "closed")
    assert answer.seconds >= HEADER_SECONDS * 0.9


@pytest.mark.row(17)
def test_row_17_the_headers_of_a_further_request_have_a_deadline_too(server: Server) -> None:
    with connect(server.port) as connection:
        connection.sendall(LIVEZ)
        assert read_one(connection).status == 200
        connection.sendall(LIVEZ[:-1])
        answer = read_answer(connection)
    assert (answer.status, answer.end) == (408, "closed")


@pytest.mark.row(17)
def test_row_17_a_keep_alive_connection_is_not_hurried(server: Server) -> None:
    with connect(server.port) as connection:
        for _ in range(2):
            connection.sendall(LIVEZ)
            assert read_one(connection).status == 200
            time.sleep(HEADER_SECONDS * 1.5)


@pytest.mark.row(17)
def test_row_17_headers_sent_ahead_wait_for_their_turn(server: Server) -> None:
    """The next request does not cut off the response in progress."""
    with connect(server.port) as connection:
        connection.sendall(
            head("POST /encode HTTP/1.1", JSON, "Content-Length: 12") + b'{"text":"a"}' + LIVEZ[:-1]
        )
        answer = read_answer(connection)
    assert answer.status == 200
    assert b"HTTP/1.1 408 " in answer.body


@pytest.mark.row(17)
@pytest.mark.parametrize("path", ["/encode", "/decode"])
def test_row_17_a_slow_json_body_is_408(server: Server, path: str) -> None:
    request = head(f"POST {path} HTTP/1.1", JSON, "Content-Length: 99")
    with connect(server.port) as connection:
        connection.sendall(request + b"{")
        answer = read_answer(connection)
    assert (answer.status, answer.end) == (408, "closed")
    assert answer.problem()["code"] == "body_too_slow"


@pytest.mark.row(17)
def test_row_17_a_trickling_stream_is_ended(server: Server) -> None:
    started = time.monotonic()
    with connect(server.port) as connection:
        connection.sendall(head("POST /encode_stream HTTP/1.1", "Transfer-Encoding: chunked"))
        connection.settimeout(0.1)
        while True:
            assert time.monotonic() < started + 15
            send(connection, b"1\r\nx\r\n")
            with contextlib.suppress(TimeoutError):
                assert connection.recv(4, socket.MSG_PEEK)
                break
        answer = read_answer(connection)
    assert (answer.status, answer.end) == (408, "closed")
    assert answer.problem()["code"] == "stream_idle"


@pytest.mark.row(17)
def test_row_17_a_stream_that_brings_enough_goes_on(server: Server) -> None:
    with connect(server.port) as connection:
        connection.sendall(head("POST /encode_stream HTTP/1.1", "Transfer-Encoding: chunked"))
        for _ in range(30):
            connection.sendall(b"80\r\n" + b"x" * 128 + b"\r\n")
            time.sleep(0.1)  # three seconds in total, and no gap that counts as idle
        connection.sendall(b"0\r\n\r\n" + LIVEZ_LAST)
        answer = read_answer(connection)
    assert answer.status == 200
    assert b'"done":true,"count":3840' in answer.body
    assert b"HTTP/1.1 200 " in answer.body


EARLY = {
    "415": (415, head("POST /encode HTTP/1.1", "Content-Type: text/html", "Content-Length: {}")),
    "404": (404, head("POST /nothing HTTP/1.1", "Content-Length: {}")),
    "405": (405, head("DELETE /encode HTTP/1.1", "Content-Length: {}")),
    "401": (401, head("POST /train HTTP/1.1", "Content-Length: {}")),
    "413": (413, head("POST /encode HTTP/1.1", JSON, "Content-Length: {}")),
    "200": (200, head("GET /livez HTTP/1.1", "Content-Length: {}")),
    "415 and close": (415, head("POST /encode HTTP/1.1", CLOSE, "Content-Length: {}")),
}  # fmt: skip


@pytest.mark.row(17)
@pytest.mark.parametrize(("status", "request_head"), EARLY.values(), ids=EARLY)
def test_row_17_an_early_answer_reaches_a_client_that_sends_first(
    server: Server, status: int, request_head: bytes
) -> None:
    """A3: it sends its whole body before it reads, and still gets the response without a reset."""
    n_bytes = BODY_LIMIT + 1
    request_head = request_head.replace(b"{}", b"%d" % n_bytes)
    with connect(server.port) as connection:
        connection.sendall(request_head)
        time.sleep(0.05)  # the response starts before the body ends
        assert send(connection, b"x" * (n_bytes - 1000)) == n_bytes - 1000
        answer = read_answer(connection)
    assert (answer.status, answer.end) == (status, "closed")
    assert answer.headers["connection"] == "close"
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.row(17)
def test_row_17_nothing_is_read_without_end_after_an_early_answer(server: Server) -> None:
    """A4: neither a large body at once nor a small one slowly."""
    request = head("GET /info HTTP/1.1", "Content-Length: 1000000000")
    with connect(server.port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        connection.sendall(request)
        connection.settimeout(15)
        sent = send(connection, b"x" * 100_000_000)
    assert sent < 40_000_000  # a body's limit, and the capacity of two kernel buffers
    started = time.monotonic()
    with connect(server.port) as connection:
        connection.sendall(request)
        while send(connection, b"x"):
            assert time.monotonic() < started + 15
            time.sleep(0.1)
    wait_for_connections(server, 0)


@pytest.mark.row(17)
def test_row_17_a_body_that_arrives_with_its_head_keeps_the_connection(server: Server) -> None:
    with connect(server.port) as connection:
        for _ in range(3):
            connection.sendall(head("POST /encode HTTP/1.1", "Content-Length: 3") + b"{}\n")
            answer = read_one(connection)
            assert answer.status == 415
            assert "connection" not in answer.headers


# Row 18: headers too large, too many


@pytest.mark.row(18)
@pytest.mark.parametrize(
    ("code", "pieces"),
    [
        ("headers_too_large", [head("GET /livez HTTP/1.1", "A: " + "a" * (1 << 16))]),
        ("headers_too_large", [b"GET /livez HTTP/1.1\r\nHost: test\r\nA: " + b"a" * 20_000_000]),
        ("headers_too_large", [b"GET /livez HTTP/1.1\r\n" + b"a" * 20_000_000]),
        ("headers_too_large", [head("GET /livez?" + "a" * 70_000 + " HTTP/1.1")]),
        ("headers_too_large", [b"GET /" + b"a" * 20_000_000]),
        ("headers_too_large", [head("GET /livez HTTP/1.1", *["A: " + "a" * 400] * 90)]),
        ("headers_too_large", [LIVEZ, head("GET /livez HTTP/1.1", "A: " + "a" * (1 << 16))]),
        ("headers_too_large", [b"\r\n" * 100_000]),
        ("too_many_headers", [head("GET /livez HTTP/1.1", *["A: b"] * MAX_HEADERS)]),
        (None, [head("GET /livez HTTP/1.1", *["A: b"] * 10_000)]),
    ],
    ids=["64 kB", "20 MB", "20 MB name", "target", "20 MB target", "sum", "the second request",
         "empty lines", "101 headers", "10,000 headers"],
)  # fmt: skip
def test_row_18_headers_over_the_limit_are_431(
    server: Server, code: str | None, pieces: list[bytes]
) -> None:
    before = rejected(server, "headers_too_large")
    if len(pieces) > 1:  # on a connection that has served before
        with connect(server.port) as connection:
            connection.sendall(pieces[0])
            assert read_one(connection).status == 200
            send(connection, pieces[1])
            answer = read_answer(connection)
    else:
        answer = exchange(server.port, *pieces)
    assert answer.status == 431
    assert code is None or answer.problem()["code"] == code
    assert answer.headers["connection"] == "close"
    assert rejected(server, "headers_too_large") == before + 1


@pytest.mark.row(18)
def test_row_18_headers_within_the_limits_are_taken(server: Server) -> None:
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
@pytest.mark.parametrize("trailer", [b"A: " + b"a" * 20_000_000, b"A: b\r\n" * 3_000_000])
def test_row_18_trailers_do_not_pass_the_limit(server: Server, trailer: bytes) -> None:
    memory = psutil.Process(server.process.pid).memory_info
    before = memory().rss
    request = head("POST /encode_stream HTTP/1.1", "Transfer-Encoding: chunked")
    answer = exchange(server.port, request, b"0\r\n" + trailer)
    assert answer.status in (400, 431)
    assert memory().rss < before + 16_000_000


@pytest.mark.row(18)
def test_row_18_trailers_are_no_headers(server: Server) -> None:
    """A trailer could bring a header that the earlier checks did not see."""
    request = head("POST /train HTTP/1.1", "Transfer-Encoding: chunked", CLOSE)
    with connect(server.port) as connection:
        connection.sendall(request + b"0\r\nX-API-Key: end-to-end-key\r\n\r\n")
        assert read_answer(connection).status == 401


# Row 19: requests that two parsers could understand differently

POST = "POST /encode_stream HTTP/1.1"
CHUNKED = "Transfer-Encoding: chunked"
AMBIGUOUS = {
    "both lengths": (400, head(POST, "Content-Length: 3", CHUNKED) + b"0\r\n\r\n"),
    "two lengths": (400, head(POST, "Content-Length: 3", "Content-Length: 3") + b"abc"),
    "two other lengths": (400, head(POST, "Content-Length: 3", "Content-Length: 4") + b"abcd"),
    "list of lengths": (400, head(POST, "Content-Length: 3, 3") + b"abc"),
    "signed length": (400, head(POST, "Content-Length: +3") + b"abc"),
    "negative length": (400, head(POST, "Content-Length: -3") + b"abc"),
    "chunk size no number": (400, head(POST, CHUNKED) + b"zz\r\nabc\r\n"),
    "chunk size 0x": (400, head(POST, CHUNKED) + b"0x3\r\nabc\r\n0\r\n\r\n"),
    "chunk size too large": (400, head(POST, CHUNKED) + b"f" * 17 + b"\r\nabc\r\n"),
    "chunk longer than said": (400, head(POST, CHUNKED) + b"3\r\nabcd\r\n0\r\n\r\n"),
    "bare LF in the head": (400, b"GET /livez HTTP/1.1\nHost: test\n\n"),
    "bare LF after a chunk": (400, head(POST, CHUNKED) + b"3\nabc\n0\n\n"),
    "bare CR": (400, b"GET /livez HTTP/1.1\r\nHost: test\rA: b\r\n\r\n"),
    "NUL": (400, head("GET /livez HTTP/1.1", "A: b\0c")),
    "folded line": (400, head("GET /livez HTTP/1.1", "A: b", " c")),
    "space before the colon": (400, head("GET /livez HTTP/1.1", "A : b")),
    "no HTTP": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "no version": (400, b"GET /livez\r\n\r\n"),
    "not ASCII in the target": (400, b"GET /livez\xff HTTP/1.1\r\nHost: test\r\n\r\n"),
    "HTTP/2 preface": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "no Host": (400, head("GET /livez HTTP/1.1", host="")),
    "empty Host": (400, head("GET /livez HTTP/1.1", host="Host:")),
    "two Hosts": (400, head("GET /livez HTTP/1.1", "Host: test")),
    "list of Hosts": (400, head("GET /livez HTTP/1.1", host="Host: a, b")),
    "Host with a space": (400, head("GET /livez HTTP/1.1", host="Host: a b")),
    "Host with a path": (400, head("GET /livez HTTP/1.1", host="Host: a/b")),
    "Host with a user": (400, head("GET /livez HTTP/1.1", host="Host: a@b")),
    "Host with a bad port": (400, head("GET /livez HTTP/1.1", host="Host: a:b")),
    "two Hosts, HTTP/1.0": (400, head("GET /livez HTTP/1.0", "Host: test")),
    "coding before chunked": (501, head(POST, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n"),
    "chunked twice": (400, head(POST, "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n"),
    "chunked in two lines": (400, head(POST, CHUNKED, CHUNKED) + b"0\r\n\r\n"),
    "chunked, HTTP/1.0": (400, head("POST /encode_stream HTTP/1.0", CHUNKED) + b"0\r\n\r\n"),
}  # fmt: skip


@pytest.mark.row(19)
@pytest.mark.parametrize(("status", "sent"), AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_row_19_an_ambiguous_request_is_refused(server: Server, status: int, sent: bytes) -> None:
    answer = exchange(server.port, sent + LIVEZ)  # the server must not respond to what follows
    assert (answer.status, answer.end) == (status, "closed")
    assert answer.problem()["code"] in ("bad_http", "host_invalid", "transfer_coding_unsupported")
    assert answer.headers["connection"] == "close"
    assert answer.body.count(b"HTTP/1.1") == answer.body.count(b"well-formed HTTP/1.1")


@pytest.mark.row(19)
@pytest.mark.parametrize(
    "request_head",
    [
        *(head("GET /livez HTTP/1.1", CLOSE, host=f"Host: {host}") for host in (
            "a", "a_b.example", "127.0.0.1:80", "[::1]:8000", "xn--bcher-kva.example:", "A.ORG"
        )),
        head("GET /livez HTTP/1.0", host=""),
        head("GET /livez HTTP/1.0"),
        head("GET /livez HTTP/1.1", CLOSE, "Transfer-Encoding: Chunked") + b"0\r\n\r\n",
        b"\r\n" + LIVEZ_LAST,
    ],
)  # fmt: skip
def test_row_19_a_clear_request_is_taken(server: Server, request_head: bytes) -> None:
    assert exchange(server.port, request_head).status == 200


@pytest.mark.row(19)
def test_row_19_what_was_asked_before_in_good_order_is_answered(server: Server) -> None:
    answer = exchange(server.port, LIVEZ + b"nonsense\r\n\r\n")
    assert (answer.status, answer.end) == (200, "closed")
    assert answer.data.count(b"HTTP/1.1") == 1
    assert answer.headers["connection"] == "close"


@pytest.mark.row(19)
def test_row_19_a_bad_chunk_ends_a_stream_that_has_begun(server: Server) -> None:
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


@pytest.mark.row(19)
@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_row_19_an_upgrade_is_not_taken_and_the_request_answered(
    server: Server, upgrade: str
) -> None:
    """With its body, as HTTP/1.1; `curl --http2` and Java's HttpClient offer h2c."""
    offer = (f"Upgrade: {upgrade}", "Connection: Upgrade, close")
    answer = exchange(server.port, head("GET /livez HTTP/1.1", *offer))
    assert (answer.status, answer.end) == (200, "closed")
    request = head("POST /encode_stream HTTP/1.1", "Content-Length: 4", *offer) + b"a b "
    answer = exchange(server.port, request)
    assert (answer.status, answer.end) == (200, "closed")
    assert b'"bytes":4,' in answer.body


@pytest.mark.row(19)
def test_row_19_a_stream_of_http_1_0_has_no_chunks(server: Server) -> None:
    request = head("POST /encode_stream HTTP/1.0", "Content-Length: 4") + b"a b "
    answer = exchange(server.port, request)
    assert (answer.status, answer.end) == (200, "closed")
    assert "transfer-encoding" not in answer.headers
    *parts, last = map(json.loads, answer.body.splitlines())
    assert [id_ for part in parts for id_ in part["tokens"]] == list(b"a b ")
    assert last["done"]


# Row 20: forms


@pytest.mark.row(20)
@pytest.mark.parametrize(
    "kind", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]
)
@pytest.mark.parametrize("path", ["/encode", "/decode", "/encode_stream", "/train"])
def test_row_20_a_flood_of_form_data_is_415_and_is_not_read(
    server: Server, path: str, kind: str
) -> None:
    request = head(
        f"POST {path} HTTP/1.1", f"Content-Type: {kind}", CHUNKED, "X-API-Key: end-to-end-key"
    )
    with connect(server.port) as connection:
        connection.sendall(request + b"10000\r\n" + b"a" * 65536 + b"\r\n")
        answer = read_answer(connection)
    assert (answer.status, answer.end) == (415, "closed")
    assert answer.headers["connection"] == "close"


# Row 21: more connections than the server holds

_HOLD = textwrap.dedent(
    """
    import resource, socket, sys
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, n, half = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
    held = []
    for _ in range(n):
        connection = socket.create_connection(("127.0.0.1", port))
        try:
            connection.sendall(half)
        except ConnectionError:
            pass
        held.append(connection)
    print("held", flush=True)
    sys.stdin.read()
    """
)


@contextlib.contextmanager
def held_connections(port: int, n: int, sent: str) -> Iterator[None]:
    """This many connections of a separate process, each of which has sent this."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(port), str(n), sent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            process.kill()


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    publish_bytes(tmp_path / "artifacts", "starter")
    return tmp_path / "artifacts"


@pytest.mark.row(21)
@pytest.mark.parametrize("sent", ["", "GET /encode HTTP/1.1\r\nHost: "], ids=["silent", "half"])
def test_row_21_beyond_the_limit_of_connections_503_and_health_answers(
    artifacts: Path, sent: str
) -> None:
    with serve(artifacts, max_connections="20", header_seconds="600") as server:
        with held_connections(server.port, 300, sent):
            for _ in range(3):
                answer = exchange(server.port, head("GET /info HTTP/1.1"))
                assert (answer.status, answer.end) == (503, "closed")
                assert answer.problem()["code"] == "too_many_connections"
                assert answer.problem()["limit"] == 20
                assert int(answer.headers["retry-after"]) >= 1
                for path in ("/livez", "/readyz", "/health", "/v1/livez"):
                    health = exchange(server.port, head(f"GET {path} HTTP/1.1"))
                    assert (health.status, health.end) == (200, "closed")
            held = connections(server)
            assert 20 <= held <= 20 + 64 + 4  # the reserve, and connections that are closing
        deadline = time.monotonic() + 60
        while exchange(server.port, head("GET /info HTTP/1.1", CLOSE)).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert rejected(server, "too_many_connections") >= 3


@pytest.mark.row(21)
def test_row_21_few_open_files_are_a_low_limit_and_break_nothing(artifacts: Path) -> None:
    shell = [
        "/bin/sh",
        "-c",
        'ulimit -n 256 && exec "$0" -m tokenizer_service.cli serve',
        sys.executable,
    ]
    with serve(artifacts, command=shell, header_seconds="600") as server:
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert limits == (256, 256)
        with held_connections(server.port, 1000, "GET /encode HTTP/1.1\r\nHost: "):
            answer = exchange(server.port, head("GET /info HTTP/1.1"))
            assert (answer.status, answer.problem()["limit"]) == (503, 128)
            for _ in range(20):
                assert exchange(server.port, LIVEZ).status == 200
        assert server.process.poll() is None


@pytest.mark.row(21)
def test_row_21_ten_thousand_connections(artifacts: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 12_000:
        pytest.skip(f"needs 12,000 open files; the system allows {hard}")
    with (
        serve(artifacts, header_seconds="600", max_connections="5000") as server,
        held_connections(server.port, 10_000, "GET /encode HTTP/1.1\r\nHost: "),
    ):
        assert exchange(server.port, head("GET /info HTTP/1.1")).status == 503
        for _ in range(20):
            assert exchange(server.port, LIVEZ).status == 200
        assert connections(server) <= 5000 + 64 + 4
