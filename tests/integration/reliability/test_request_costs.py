"""What a request may cost: work ends with its client, and memory stays within its budget.

Rows 9, 14, 15 and 16, P11, and the table in docs/operate.md of what a request costs.
"""

import contextlib
import json
import random
import re
import shutil
import socket
import struct
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import publish_bytes, serve, wait_until
from tests.native_module import native_module
from tests.profiles import first_and_slow
from tests.reliability.socket_client import (
    LONG_WORK,
    Answer,
    connect,
    exchange,
    head,
    post,
    read_answer,
    send,
)
from tokenizer_core.text.streaming import MAX_PENDING_CHARS

BODY_LIMIT = 4 << 20
MEMORY_LIMIT = 32 << 20
MB = 1_000_000
CHUNK_BYTES = 1 << 20
CLOSE = "Connection: close"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
LIVEZ = head("GET /livez HTTP/1.1")
N_CLIENTS = 12
OVERLOADED = 'tokenizer_rejected_total{reason="overloaded"}'


@contextlib.contextmanager
def quiet_server(artifacts, **settings):
    """A server that must not report a defect."""
    with serve(artifacts, threads="1", **settings) as server:
        yield server
        assert server.process.poll() is None
        assert "Traceback" not in server.output


@pytest.fixture(scope="module")
def bytes_artifacts(tmp_path_factory):
    artifacts = tmp_path_factory.mktemp("server") / "artifacts"
    publish_bytes(artifacts, "starter")
    return artifacts


@pytest.fixture(scope="module")
def server(bytes_artifacts):
    """A server with much memory for responses, so that work is long.

    A client that ended only its side is waited for once its response has begun: not for a minute.
    """
    limits = {"max_response_bytes": str(1 << 30), "send_seconds": "5"}
    with quiet_server(bytes_artifacts, **limits) as server:
        yield server


@pytest.fixture(scope="module")
def small_server(bytes_artifacts):
    """A server with little memory."""
    limits = {"max_body_bytes": str(BODY_LIMIT), "request_memory_bytes": str(MEMORY_LIMIT)}
    with quiet_server(bytes_artifacts, **limits) as server:
        yield server


@pytest.fixture(scope="module")
def starter_server(tmp_path_factory):
    """A server with the merges of real text, and the limits that it has by default."""
    artifacts = tmp_path_factory.mktemp("server") / "artifacts"
    shutil.copytree(REPOSITORY / "artifacts", artifacts)
    with quiet_server(artifacts) as server:
        yield server


class Memory:
    """The largest resident memory of a process since the creation of this object."""

    def __init__(self, server):
        self._proc = Path(f"/proc/{server.process.pid}")
        (self._proc / "clear_refs").write_text("5")  # resets the peak
        self._before = self._read("VmRSS")

    def growth(self):
        return self._read("VmHWM") - self._before

    def _read(self, name):
        (kilobytes,) = re.findall(
            rf"^{name}:\s+(\d+) kB", (self._proc / "status").read_text(), re.M
        )
        return int(kilobytes) * 1024


def is_idle(server):
    """No request is in progress but this one, and no memory is held."""
    return (
        server.metric("tokenizer_inflight ") == 1
        and server.metric("tokenizer_queue_depth ") == 0
        and server.metric("tokenizer_request_memory_bytes ") == 0
    )


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.row(16)
@pytest.mark.parametrize(
    ("n_bytes", "after", "leave"),
    [
        (0, b"", reset),
        (0, b"", lambda connection: connection.shutdown(socket.SHUT_WR)),
        (0, LIVEZ * 3, socket.socket.close),
        (600_000, b"", socket.socket.close),
    ],
    ids=["reset", "its side closed", "with requests sent ahead", "with a large body"],
)
def test_work_ends_with_its_client(server, n_bytes, after, leave):
    work = post("/tokenize", LONG_WORK.partition(b"\r\n\r\n")[2].ljust(n_bytes))
    connections = [connect(server.port) for _ in range(N_CLIENTS)]
    for connection in connections:
        send(connection, work)
    server.wait_for_in_flight(N_CLIENTS)
    for connection in connections:
        send(connection, after)
    for connection in connections:
        leave(connection)
    wait_until(lambda: is_idle(server))
    assert server.metric('http_requests_total{handler="/tokenize",method="POST",status="499"}') > 0
    assert server.metric('http_requests_total{handler="/tokenize",method="POST",status="500') == 0


@pytest.mark.row(14)
def test_repeated_overlaps_are_refused_before_they_are_made(small_server):
    exchange(small_server.port, post("/encode", {"text": "a" * 100_000}, CLOSE))
    before = small_server.resident_bytes()
    body = {"text": "x" * 60_000, "max_tokens": 2000, "overlap_tokens": 1999}
    answer = exchange(small_server.port, post("/chunk", body, CLOSE))
    assert (answer.status, answer.problem()["code"]) == (413, "chunks_too_large")
    assert answer.problem()["actual"] == pytest.approx(580e6, rel=0.05)
    assert small_server.resident_bytes() - before < 64_000_000


@pytest.mark.row(16)
def test_responses_that_nobody_reads_are_within_the_budget(small_server):
    """Each is 12 MB, of a body of 4 MB, and 32 MB are allowed: later requests get a 503."""
    ids = b"\7\0" * (BODY_LIMIT // 2)  # in JSON, six bytes each
    kind = "Content-Type: application/octet-stream; dtype=u16"
    request = head("POST /decode HTTP/1.1", kind, f"Content-Length: {len(ids)}")
    statuses = []
    with contextlib.ExitStack() as held:
        for _ in range(N_CLIENTS):
            connection = held.enter_context(connect(small_server.port, receive_buffer=4096))
            send(connection, request + ids)
            statuses.append(connection.recv(100).split()[1])
        assert statuses[0] == b"200"
        assert b"503" in statuses
        assert set(statuses) == {b"200", b"503"}
        wait_until(lambda: small_server.metric("tokenizer_request_memory_bytes ") > 0)
        assert small_server.metric("tokenizer_request_memory_bytes ") <= MEMORY_LIMIT
    wait_until(lambda: is_idle(small_server))


@pytest.mark.row(16)
def test_what_streams_hold_back_is_within_the_budget(small_server):
    """A text without a split is held until it ends."""
    refused = small_server.metric(OVERLOADED)
    piece = b"%x\r\n%b\r\n" % (CHUNK_BYTES, b"a" * CHUNK_BYTES)
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(connect(small_server.port)) for _ in range(N_CLIENTS)]
        for connection in connections:
            send(connection, head("POST /encode_stream HTTP/1.1", CHUNKED))
        for _ in range(4):
            for connection in connections:
                with contextlib.suppress(TimeoutError):
                    connection.settimeout(1)
                    send(connection, piece)
        wait_until(lambda: small_server.metric(OVERLOADED) > refused)
        assert 0 < small_server.metric("tokenizer_request_memory_bytes ") <= MEMORY_LIMIT
    wait_until(lambda: is_idle(small_server))


@pytest.mark.row(9)
@pytest.mark.parametrize(("path", "is_chunked"), [("/encode", True), ("/decode", False)])
def test_a_byte_over_the_limit_takes_no_more_memory_than_the_limit(
    starter_server, path, is_chunked
):
    limit = httpx.get(f"{starter_server.url}/info").json()["limits"]["max_body_bytes"]
    field = b'{"text":"' if path == "/encode" else b'{"tokens":['
    memory = Memory(starter_server)
    with connect(starter_server.port) as connection:
        if is_chunked:
            connection.sendall(head(f"POST {path} HTTP/1.1", JSON, CHUNKED))
            connection.sendall(b"%x\r\n%b\r\n" % (len(field), field))
            for start in range(len(field), limit + 1, CHUNK_BYTES):
                n_bytes = min(CHUNK_BYTES, limit + 1 - start)
                send(connection, b"%x\r\n%b\r\n" % (n_bytes, b"1" * n_bytes))
        else:
            length = f"Content-Length: {limit + 1}"
            connection.sendall(head(f"POST {path} HTTP/1.1", JSON, length) + field)
        answer = read_answer(connection)
    assert (answer.status, answer.end) == (413, "closed")
    assert answer.problem()["limit"] == limit
    assert memory.growth() < (limit if is_chunked else 0) + 16 * MB


def stream(server, path, piece, n_pieces, *headers):
    """The end of the response to this piece so often, read during the upload."""
    with connect(server.port) as connection:
        connection.sendall(head(f"POST {path} HTTP/1.1", CHUNKED, CLOSE, *headers))

        def upload():
            for _ in range(n_pieces):
                send(connection, b"%x\r\n%b\r\n" % (len(piece), piece))
            send(connection, b"0\r\n\r\n")

        sender = threading.Thread(target=upload, daemon=True)
        sender.start()
        first, last = connection.recv(1 << 16), b""
        while received := connection.recv(1 << 20):
            last = (last + received)[-4096:]
        sender.join(60)
    return Answer(first + last, "closed")


@pytest.mark.row(15)
def test_an_endless_pre_token_is_refused_in_bounded_memory(starter_server):
    memory = Memory(starter_server)
    n_pieces = 2 * MAX_PENDING_CHARS // CHUNK_BYTES
    plain = "Content-Type: text/plain"
    answer = stream(starter_server, "/encode_stream", b"a" * CHUNK_BYTES, n_pieces, plain)
    assert (answer.status, answer.problem()["code"]) == (413, "pre_token_too_long")
    assert memory.growth() < 8 * MAX_PENDING_CHARS


TEXT = "The upload is larger than memory would bear, héllo 世界, and it is never held whole. "


@pytest.mark.promise(11)
@pytest.mark.parametrize("n_bytes", first_and_slow([1 << 27, 1 << 30]))
@pytest.mark.parametrize("path", ["/encode_stream", "/decode_stream"])
def test_a_gigabyte_is_streamed_within_64_megabytes(starter_server, path, n_bytes):
    text = TEXT * (CHUNK_BYTES // len(TEXT.encode()))
    if path == "/encode_stream":
        kind, piece = "Content-Type: text/plain; charset=utf-8", text.encode()
    else:
        kind = "Content-Type: application/octet-stream; dtype=u32"
        with starter_server.client() as client:
            ids = client.post("/encode", json={"text": text}).json()["tokens"]
        piece = struct.pack(f"<{len(ids)}I", *ids)
    n_pieces = -(-n_bytes // len(piece))
    memory = Memory(starter_server)
    raw = "Accept: application/octet-stream"
    end = stream(starter_server, path, piece, n_pieces, kind, raw).data
    done = json.loads(end[end.rindex(b'{"done"') : end.rindex(b"}") + 1])
    assert done["bytes"] == n_pieces * len(text.encode())
    assert memory.growth() < 64 * MB


ROW_BYTES = 8 << 20
SLOWER = 5
"""How many times as long a row may take: the machine may be slower, and busy."""
WORDS = "some words of text "
LETTERS = "".join(random.Random(7).choices("qxzjkvwbfgy", k=1000))
ROW = re.compile(r"^\| (\S.*?) \| `(/\w+)` \| (\d+) \| ([\d.]+) \|$", re.MULTILINE)


def filled(prefix, unit, suffix, n_bytes=ROW_BYTES):
    return prefix + unit * ((n_bytes - len(prefix) - len(suffix)) // len(unit.encode())) + suffix


def batch(key, text):
    return json.dumps({key: [text] * 65_536})


BODIES = {
    "encode text": lambda: filled('{"text":"', WORDS, '"}'),
    "encode a text of one character": lambda: filled('{"text":"', "a", '"}'),
    "encode random letters": lambda: filled('{"text":"', LETTERS, '"}'),
    "encode symbols": lambda: filled('{"text":"', "~^|", '"}'),
    "encode a batch": lambda: batch("text", "some words " * 10),
    "encode with pieces and offsets": lambda: filled(
        '{"return":["ids","pieces","offsets"],"text":"', "a b ", '"}', 1_960_000
    ),
    "count a text of one character": lambda: filled('{"text":"', "a", '"}'),
    "cut into chunks": lambda: filled(
        '{"max_tokens":500,"overlap_tokens":100,"text":"', WORDS, '"}'
    ),
    "cut into chunks that overlap": lambda: filled(
        '{"max_tokens":500,"overlap_tokens":440,"text":"', WORDS, '"}', ROW_BYTES // 4
    ),
    "align two tokenizers": lambda: filled('{"other":"active","text":"', "a b ", '"}', 1_960_000),
    "decode": lambda: filled('{"tokens":[', "1234,", "1]}"),
    "decode ids of one digit": lambda: filled('{"tokens":[', "1,", "1]}"),
    "tokenize inputs": lambda: batch("inputs", WORDS),
    "stream a text of one character": lambda: "a" * (ROW_BYTES - 1),
}


def rows():
    """Route, bytes of memory per byte of the body, and seconds per MB, of each row."""
    found = ROW.findall((REPOSITORY / "docs/operate.md").read_text(encoding="utf-8"))
    return {name: (path, int(memory), float(seconds)) for name, path, memory, seconds in found}


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_a_request_costs_no_more_than_its_row(starter_server, name):
    native_module()
    assert set(rows()) == set(BODIES)
    path, memory_per_byte, seconds = rows()[name]
    body = BODIES[name]().encode()
    kind = "Content-Type: " + ("text/plain" if path == "/encode_stream" else "application/json")
    request = head(f"POST {path} HTTP/1.1", kind, f"Content-Length: {len(body)}", CLOSE)
    exchange(starter_server.port, head("GET /livez HTTP/1.1", CLOSE))
    process = psutil.Process(starter_server.process.pid)
    memory, spent = Memory(starter_server), sum(process.cpu_times()[:2])
    with connect(starter_server.port) as connection:
        send(connection, request + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        while connection.recv(1 << 20):
            pass
    assert memory.growth() <= memory_per_byte * len(body)
    assert sum(process.cpu_times()[:2]) - spent <= SLOWER * seconds * len(body) / MB
