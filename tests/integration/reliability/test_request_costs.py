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

import httpx
import psutil
import pytest
from tokenizer_service.commands.serving import GRACEFUL_SECONDS
from tokenizer_service.http.protocol import AFTER_EOF_SECONDS

from tests.integration.server_process import Server, publish_bytes, serve
from tests.reliability.socket_client import connect, exchange, head, read_answer, send

BODY_LIMIT = 4 << 20
MEMORY_LIMIT = 32 << 20
JSON = "Content-Type: application/json"
LIVEZ = head("GET /livez HTTP/1.1")
N_CLIENTS = 12
SECONDS = 10
"""Far more than stopping takes; without it, the work of N_CLIENTS takes several times as long."""


def post(path: str, body: Any, *headers: str) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head(f"POST {path} HTTP/1.1", JSON, f"Content-Length: {len(data)}", *headers) + data


def long_work(n_bytes: int = 0) -> bytes:
    """A few seconds: 18,000 chunks of 10 kB, within the limit of a response below."""
    body = {"text": "x" * 20_000, "max_tokens": 2000, "overlap_tokens": 1999}
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


def metric(server: Server, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics").text
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)
    )


def wait_for(condition: Callable[[], object], what: str, *, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_idle(server: Server) -> bool:
    """No request is in progress but this one, and no memory is held."""
    return (
        metric(server, "tokenizer_inflight ") == 1
        and metric(server, "tokenizer_queue_depth ") == 0
        and metric(server, "tokenizer_request_memory_bytes ") == 0
    )


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.row(16)
@pytest.mark.parametrize(
    ("n_bytes", "after"),
    [(0, b""), (0, LIVEZ), (0, LIVEZ * 3), (0, b"\0garbage\r\n\r\n"), (600_000, b"")],
    ids=range(5),
)
@pytest.mark.parametrize("leave", [reset, socket.socket.close], ids=["reset", "closed"])
def test_work_ends_with_its_client(
    server: Server, n_bytes: int, after: bytes, leave: Callable[[socket.socket], None]
) -> None:
    """Also for a client that has sent further requests or a large body, where reading pauses."""
    before = metric(server, "http_requests_total{")
    connections = [connect(server.port) for _ in range(N_CLIENTS)]
    for connection in connections:
        send(connection, long_work(n_bytes))
    wait_for(lambda: metric(server, "tokenizer_inflight ") == N_CLIENTS + 1, "nothing has begun")
    for connection in connections:
        send(connection, after)
    time.sleep(0.2)  # the server reads it
    for connection in connections:
        leave(connection)
    wait_for(lambda: is_idle(server), "work goes on for clients that have left")
    assert metric(server, 'http_requests_total{handler="/chunk",method="POST",status="499"}') > 0
    assert metric(server, "http_requests_total{") > before
    assert metric(server, 'http_requests_total{handler="/chunk",method="POST",status="500') == 0


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
        (LIVEZ, 1),
        (LIVEZ * 5, 5),
        (post("/encode", {"text": "a b"}), 1),
        (post("/encode", b"no JSON"), 1),
        (post("/encode", {"text": "a b " * 2500}), 1),
        (post("/encode", {"text": "a b"}) * 3, 3),
        (ENCODE, 1),
        (ENCODE + LIVEZ, 2),
        (ENCODE + LIVEZ[:20], 1),
        (post("/decode", {"tokens": [97] * 300_000}), 1),
        (post("/encode", {"text": ["a"] * 100, "return": ["pieces"]}), 1),
    ],
    ids=range(11),
)
def test_a_client_that_sends_no_more_gets_its_responses(
    server: Server, request_: bytes, n_responses: int
) -> None:
    """A FIN after whole requests: `nc -N` and many scripts send it."""
    for delay in [0.0] * 10 + [0.001, 0.01]:
        with connect(server.port) as connection:
            send(connection, request_)
            time.sleep(delay)
            connection.shutdown(socket.SHUT_WR)
            data = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        assert len(sizes_of_responses(data)) == n_responses


def test_a_stream_goes_on_after_a_fin(server: Server) -> None:
    text = b"a b " * 50_000
    sent = head("POST /encode_stream HTTP/1.1", f"Content-Length: {len(text)}")
    with connect(server.port) as connection:
        send(connection, sent + text)
        connection.shutdown(socket.SHUT_WR)
        answer = read_answer(connection)
    assert answer.end == "closed"
    assert answer.body.endswith(b"0\r\n\r\n")
    assert b'"done":true,"count":200000' in answer.body


def test_after_a_fin_there_is_a_second_for_the_response(server: Server) -> None:
    with connect(server.port) as connection:
        send(connection, LONG_WORK)
        connection.shutdown(socket.SHUT_WR)
        answer = read_answer(connection)
        assert (answer.data, answer.end) == (b"", "reset")
        assert AFTER_EOF_SECONDS <= answer.seconds < SECONDS
    wait_for(lambda: is_idle(server), "work goes on")


def test_a_long_response_goes_on_after_a_fin(server: Server) -> None:
    ids = b'{"tokens":[' + b",".join([b"97"] * 1_000_000) + b"]}"
    with connect(server.port, receive_buffer=4096) as connection:
        send(connection, post("/decode", ids))
        data = connection.recv(100)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(2 * AFTER_EOF_SECONDS)
        while piece := connection.recv(1 << 16):
            data += piece
    assert data.count(b"a") > 1_000_000


def test_work_for_nobody_does_not_delay_the_end(tmp_path: Path) -> None:
    publish_bytes(tmp_path / "artifacts", "starter")
    with serve(tmp_path / "artifacts", threads="2") as server, contextlib.ExitStack() as held:
        for _ in range(N_CLIENTS):
            send(held.enter_context(connect(server.port)), LONG_WORK)
        wait_for(lambda: metric(server, "tokenizer_inflight ") == N_CLIENTS + 1, "nothing began")
        assert server.terminate(seconds=60) < GRACEFUL_SECONDS + 10


@pytest.mark.row(14)
def test_what_overlaps_repeat_is_refused_before_it_is_made(tmp_path: Path) -> None:
    publish_bytes(tmp_path / "artifacts", "starter")
    with serve(tmp_path / "artifacts", max_body_bytes="1048576") as server:
        process = psutil.Process(server.process.pid)
        exchange(server.port, post("/encode", {"text": "a" * 100_000}, "Connection: close"))
        before, spent = process.memory_info().rss, process.cpu_times().user
        answer = exchange(server.port, LONG_WORK.replace(b"Host", b"Connection: close\r\nHost", 1))
        assert (answer.status, answer.problem()["code"]) == (413, "chunks_too_large")
        assert answer.problem()["actual"] == pytest.approx(180e6, rel=0.05)
        assert process.memory_info().rss - before < 30_000_000
        assert process.cpu_times().user - spent < 3


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
        time.sleep(1)  # the metric is a sample
        assert 0 < metric(small_server, "tokenizer_request_memory_bytes ") <= MEMORY_LIMIT
    wait_for(lambda: is_idle(small_server), "memory is held")


@pytest.mark.row(16)
def test_what_streams_hold_back_is_within_the_budget(small_server: Server) -> None:
    """A text without a split is held until it ends."""
    refused = metric(small_server, 'tokenizer_rejected_total{reason="overloaded"}')
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
        wait_for(
            lambda: metric(small_server, 'tokenizer_rejected_total{reason="overloaded"}') > refused,
            "nothing is refused",
        )
        assert 0 < metric(small_server, "tokenizer_request_memory_bytes ") <= MEMORY_LIMIT
    wait_for(lambda: is_idle(small_server), "memory is held")


@pytest.mark.row(16)
def test_large_work_does_not_delay_small_batches(server: Server) -> None:
    with connect(server.port) as busy:
        send(busy, LONG_WORK)
        wait_for(lambda: metric(server, "tokenizer_inflight ") == 2, "nothing has begun")
        small = post("/encode", {"text": ["a b"] * 200, "return": ["pieces"]}, "Connection: close")
        assert exchange(server.port, small).status == 200
        assert metric(server, "tokenizer_inflight ") == 2, "the large request has already ended"
        reset(busy)
    wait_for(lambda: is_idle(server), "work goes on")
