"""What a request may cost: work ends with its client, and memory stays within its budget."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server_process import Server, publish_bytes, serve, wait_until
from tests.reliability.socket_client import connect, exchange, head, read_answer, send

BODY_LIMIT = 4 << 20
MEMORY_LIMIT = 32 << 20
JSON = "Content-Type: application/json"
LIVEZ = head("GET /livez HTTP/1.1")
N_CLIENTS = 12
OVERLOADED = 'tokenizer_rejected_total{reason="overloaded"}'


def post(path: str, body: Any, *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(f"POST {path} HTTP/1.1", JSON, f"Content-Length: {len(data)}", *headers) + data


def long_work(n_bytes: int = 0) -> bytes:
    """Many seconds: 58,000 chunks of 10 kB. N_CLIENTS of it take minutes, if none stops."""
    body = {"text": "x" * 60_000, "max_tokens": 2000, "overlap_tokens": 1999}
    return post("/chunk", json.dumps(body).encode().ljust(n_bytes))


LONG_WORK = long_work()


@pytest.fixture(scope="module")
def artifacts_(tmp_path_factory: pytest.TempPathFactory) -> Path:
    artifacts = tmp_path_factory.mktemp("server") / "artifacts"
    publish_bytes(artifacts, "starter")
    return artifacts


@contextlib.contextmanager
def quiet_server(artifacts: Path, **settings: str) -> Iterator[Server]:
    """A server that must not report a defect."""
    with serve(artifacts, threads="1", **settings) as server:
        yield server
        assert server.process.poll() is None
        assert "Traceback" not in server.output


@pytest.fixture(scope="module")
def server(artifacts_: Path) -> Iterator[Server]:
    """A server with much memory for responses, so that work is long."""
    with quiet_server(artifacts_, max_response_bytes=str(1 << 30)) as server:
        yield server


@pytest.fixture(scope="module")
def small_server(artifacts_: Path) -> Iterator[Server]:
    """A server with little memory."""
    limits = {"max_body_bytes": str(BODY_LIMIT), "request_memory_bytes": str(MEMORY_LIMIT)}
    with quiet_server(artifacts_, **limits) as server:
        yield server


def is_idle(server: Server) -> bool:
    """No request is in progress but this one, and no memory is held."""
    return (
        server.metric("tokenizer_inflight ") == 1
        and server.metric("tokenizer_queue_depth ") == 0
        and server.metric("tokenizer_request_memory_bytes ") == 0
    )


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.row(16)
@pytest.mark.parametrize(
    ("n_bytes", "after", "leave"),
    [(0, b"", reset), (0, LIVEZ * 3, socket.socket.close), (600_000, b"", socket.socket.close)],
    ids=["reset", "with requests sent ahead", "with a large body"],
)
def test_work_ends_with_its_client(
    server: Server, n_bytes: int, after: bytes, leave: Callable[[socket.socket], None]
) -> None:
    connections = [connect(server.port) for _ in range(N_CLIENTS)]
    for connection in connections:
        send(connection, long_work(n_bytes))
    server.wait_for_in_flight(N_CLIENTS)
    for connection in connections:
        send(connection, after)
    for connection in connections:
        leave(connection)
    wait_until(lambda: is_idle(server))
    assert server.metric('http_requests_total{handler="/chunk",method="POST",status="499"}') > 0
    assert server.metric('http_requests_total{handler="/chunk",method="POST",status="500') == 0


def sizes_of_responses(data: bytes) -> list[int]:
    """The sizes of the bodies in `data`; fails if one is cut off."""
    sizes = []
    while data:
        lines, _, data = data.partition(b"\r\n\r\n")
        (size,) = re.findall(rb"(?i)\r\ncontent-length: (\d+)", lines)
        assert len(data) >= int(size), "a response is cut off"
        sizes.append(int(size))
        data = data[int(size) :]
    return sizes


ENCODE = post("/encode", {"text": "a b " * 300_000})


@pytest.mark.parametrize(
    ("request_", "n_responses"),
    [
        (LIVEZ * 5, 5),
        (post("/encode", b"no JSON"), 1),
        (ENCODE + LIVEZ, 2),
        (ENCODE + LIVEZ[:20], 1),
    ],
    ids=["pipelined", "refused", "large and small", "half a head"],
)
def test_a_client_that_sends_no_more_gets_its_responses(
    server: Server, request_: bytes, n_responses: int
) -> None:
    """A FIN after whole requests: `nc -N` and many scripts send it."""
    for delay in (0.0, 0.0, 0.001, 0.01):
        with connect(server.port) as connection:
            send(connection, request_)
            time.sleep(delay)
            connection.shutdown(socket.SHUT_WR)
            data = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        assert len(sizes_of_responses(data)) == n_responses


def test_work_after_a_fin_is_given_up(server: Server) -> None:
    with connect(server.port) as connection:
        send(connection, LONG_WORK)
        connection.shutdown(socket.SHUT_WR)
        answer = read_answer(connection)
        assert (answer.data, answer.end) == (b"", "reset")
    wait_until(lambda: is_idle(server))


def test_work_for_nobody_does_not_delay_the_end(artifacts_: Path) -> None:
    with serve(artifacts_, threads="2") as server, contextlib.ExitStack() as held:
        for _ in range(N_CLIENTS):
            send(held.enter_context(connect(server.port)), LONG_WORK)
        server.wait_for_in_flight(N_CLIENTS)
        server.terminate()


@pytest.mark.row(14)
def test_repeated_overlaps_are_refused_before_they_are_made(small_server: Server) -> None:
    exchange(small_server.port, post("/encode", {"text": "a" * 100_000}, "Connection: close"))
    before = small_server.resident_bytes()
    answer = exchange(
        small_server.port, LONG_WORK.replace(b"Host", b"Connection: close\r\nHost", 1)
    )
    assert (answer.status, answer.problem()["code"]) == (413, "chunks_too_large")
    assert answer.problem()["actual"] == pytest.approx(580e6, rel=0.05)
    assert small_server.resident_bytes() - before < 64_000_000


@pytest.mark.row(16)
def test_responses_that_nobody_reads_are_within_the_budget(small_server: Server) -> None:
    """Each is 12 MB, of a body of 4 MB, and 32 MB are allowed: later ones are told to come back."""
    ids = b"\7\0" * (BODY_LIMIT // 2)  # in JSON, six bytes each
    request = head(
        "POST /decode HTTP/1.1",
        "Content-Type: application/octet-stream; dtype=u16",
        f"Content-Length: {len(ids)}",
    )
    statuses = []
    with contextlib.ExitStack() as held:
        for _ in range(N_CLIENTS):
            connection = held.enter_context(connect(small_server.port, receive_buffer=4096))
            send(connection, request + ids)
            statuses.append(connection.recv(100).split()[1])
        assert statuses[0] == b"200"
        assert b"503" in statuses
        assert set(statuses) == {b"200", b"503"}
        assert 0 < small_server.metric("tokenizer_request_memory_bytes ") <= MEMORY_LIMIT
    wait_until(lambda: is_idle(small_server))


@pytest.mark.row(16)
def test_what_streams_hold_back_is_within_the_budget(small_server: Server) -> None:
    """A text without a split is held until it ends."""
    refused = small_server.metric(OVERLOADED)
    piece = b"a" * (1 << 20)
    chunk = b"%x\r\n%b\r\n" % (len(piece), piece)
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(connect(small_server.port)) for _ in range(N_CLIENTS)]
        for connection in connections:
            send(connection, head("POST /encode_stream HTTP/1.1", "Transfer-Encoding: chunked"))
        for _ in range(4):
            for connection in connections:
                with contextlib.suppress(TimeoutError):
                    connection.settimeout(1)
                    send(connection, chunk)
        wait_until(lambda: small_server.metric(OVERLOADED) > refused)
        assert 0 < small_server.metric("tokenizer_request_memory_bytes ") <= MEMORY_LIMIT
    wait_until(lambda: is_idle(small_server))


@pytest.mark.row(16)
def test_large_work_does_not_delay_small_batches(server: Server) -> None:
    with connect(server.port) as busy:
        send(busy, LONG_WORK)
        server.wait_for_in_flight(1)
        small = post("/encode", {"text": ["a b"] * 200, "return": ["pieces"]}, "Connection: close")
        assert exchange(server.port, small).status == 200
        server.wait_for_in_flight(1)  # the large request has not ended
        reset(busy)
    wait_until(lambda: is_idle(server))
