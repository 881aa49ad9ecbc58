"""The cost of large inputs on a real server, in memory and time: rows 9, 10, 15 and 35, P11."""

from __future__ import annotations

import json
import random
import shutil
import socket
import statistics
import string
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import Server, serve
from tests.profiles import first_and_slow
from tests.reliability.socket_client import Answer, connect, head, read_answer, send
from tokenizer_core.registry import ArtifactStore
from tokenizer_core.streaming import MAX_PENDING_CHARS

JSON = "Content-Type: application/json"
MB = 1_000_000
CHUNK_BYTES = 1 << 20
RAW_IDS = "application/octet-stream; dtype=u32"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The starter tokenizer, whose merges are those of real text."""
    artifacts = tmp_path_factory.mktemp("server") / "artifacts"
    shutil.copytree(REPOSITORY / "artifacts", artifacts)
    with serve(artifacts) as server:
        yield server
        assert server.process.poll() is None


class Memory:
    """The largest resident memory of a process since the creation of this object."""

    def __init__(self, server: Server) -> None:
        self._proc = Path(f"/proc/{server.process.pid}")
        (self._proc / "clear_refs").write_text("5")  # resets the peak
        self._before = self._read("VmRSS")

    def growth(self) -> int:
        return self._read("VmHWM") - self._before

    def _read(self, name: str) -> int:
        lines = (self._proc / "status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith(name)]
        return int(line.split()[1]) * 1024


@pytest.mark.row(9)
@pytest.mark.parametrize("path", ["/encode", "/decode"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_byte_over_the_limit_takes_no_more_memory_than_the_limit(
    server: Server, path: str, is_chunked: bool
) -> None:
    limit = httpx.get(f"{server.url}/info").json()["limits"]["max_body_bytes"]
    field = b'{"text":"' if path == "/encode" else b'{"tokens":['
    memory = Memory(server)
    with connect(server.port) as connection:
        if is_chunked:
            connection.sendall(head(f"POST {path} HTTP/1.1", JSON, "Transfer-Encoding: chunked"))
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


def worst_merge_chain() -> str:
    """The word of letters only that takes the longest chain of merges."""
    spec = ArtifactStore(REPOSITORY / "artifacts").open(
        ArtifactStore(REPOSITORY / "artifacts").resolve("starter")
    )
    depth: dict[bytes, int] = {}
    for first, second in spec.merges:
        depth.setdefault(first + second, 1 + max(depth.get(first, 0), depth.get(second, 0)))
    words = [token for token in depth if token.isalpha()]
    return max(words, key=lambda token: (depth[token], token)).decode()


def one_pre_token(kind: str, n_bytes: int) -> str:
    if kind == "random letters":
        return "".join(random.Random(n_bytes).choices(string.ascii_lowercase, k=n_bytes))
    unit = worst_merge_chain() if kind == "worst merge chain" else kind
    return unit * (n_bytes // len(unit.encode()))


KINDS = ["worst merge chain", "a", "^", " ", "\n", "\u0301", "\u200d", "random letters"]


def check_linear(seconds_of: Callable[[int], float], n_bytes: int, *, n_times: int = 5) -> None:
    """Twice the input takes about twice as long; quadratic work would take four times."""
    ratio = 0.0
    # Other processes may lengthen one of the two measurements, but hardly in every repetition.
    for _ in range(6):
        times = [(seconds_of(n_bytes), seconds_of(2 * n_bytes)) for _ in range(n_times)]
        once, twice = map(statistics.median, zip(*times, strict=True))
        ratio = twice / once
        if ratio < 2.6:
            return
    raise AssertionError(f"time(2n)/time(n) = {ratio:.2f}")


@pytest.mark.row(10)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=ascii)
def test_twice_a_megabyte_takes_about_twice_as_long(server: Server, kind: str) -> None:
    def body(n_bytes: int) -> bytes:
        text = one_pre_token(kind, n_bytes)
        return json.dumps({"text": text, "allowed_special": "none"}, ensure_ascii=False).encode()

    bodies = {n_bytes: body(n_bytes) for n_bytes in (MB, 2 * MB)}

    def seconds_of(n_bytes: int) -> float:
        started = time.perf_counter()
        answer = httpx.post(
            f"{server.url}/encode",
            content=bodies[n_bytes],
            headers={"Content-Type": "application/json"},
            timeout=120,
        )
        assert answer.status_code == 200
        return time.perf_counter() - started

    check_linear(seconds_of, MB)


def stream(
    server: Server,
    path: str,
    pieces: Iterable[bytes],
    content_type: str = "text/plain",
    *,
    is_each_sent_alone: bool = False,
) -> Answer:
    """The full response of a streaming route to a body in these chunks, read during the upload."""
    with connect(server.port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [f"Content-Type: {content_type}", "Transfer-Encoding: chunked", "Connection: close"]
        connection.sendall(head(f"POST {path} HTTP/1.1", *lines))

        framed = [*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]

        def upload() -> None:
            for data in framed if is_each_sent_alone else [b"".join(framed)]:
                send(connection, data)

        sender = threading.Thread(target=upload, daemon=True)
        sender.start()
        answer = read_answer(connection)
        sender.join(60)
    assert answer.end == "closed"
    return answer


def records_of(answer: Answer) -> list[dict[str, Any]]:
    """The lines of a chunked response."""
    body, rest = b"", answer.body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return [json.loads(line) for line in body.splitlines()]


def in_bytes(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


@pytest.mark.row(15)
@pytest.mark.slow
@pytest.mark.parametrize("unit", ["The end, héllo 世界. ", "a"], ids=["words", "one pre-token"])
def test_a_megabyte_in_chunks_of_one_byte(server: Server, unit: str) -> None:
    """Equal to one shot, both ways, in linear time; an error names invalid UTF-8 at the end."""
    data = (unit * (MB // len(unit.encode()) + 1)).encode()[:MB]
    data = data.decode(errors="ignore").encode()
    with server.client() as client:
        ids = client.post("/encode", json={"text": data.decode()}).json()["tokens"]

    def seconds_of(n_bytes: int) -> float:
        started = time.perf_counter()
        pieces = in_bytes(data[:n_bytes])
        assert stream(server, "/encode_stream", pieces, is_each_sent_alone=True).status == 200
        return time.perf_counter() - started

    check_linear(seconds_of, MB // 20, n_times=3)
    *parts, last = records_of(stream(server, "/encode_stream", in_bytes(data)))
    assert last["done"]
    assert [id_ for part in parts for id_ in part["tokens"]] == ids
    packed = in_bytes(struct.pack(f"<{len(ids)}I", *ids))
    *parts, last = records_of(stream(server, "/decode_stream", packed, RAW_IDS))
    assert last["done"]
    assert "".join(part["text"] for part in parts).encode() == data
    wrong = stream(server, "/encode_stream", in_bytes(data + b" x \xff"))
    # No id of the only pre-token was sent yet.
    assert wrong.status == (400 if unit == "a" else 200)
    said = wrong.problem() if wrong.status == 400 else records_of(wrong)[-1]["error"]
    assert said["byte_offset"] == len(data) + 3


@pytest.mark.row(15)
@pytest.mark.parametrize("before", first_and_slow([b"", b"the quick "]))
def test_one_pre_token_without_end_meets_the_cap_in_bounded_memory(
    server: Server, before: bytes
) -> None:
    memory = Memory(server)
    pieces = [before] * bool(before) + [b"a" * CHUNK_BYTES] * (2 * MAX_PENDING_CHARS // CHUNK_BYTES)
    answer = stream(server, "/encode_stream", pieces)
    if before:  # some ids were sent: the error is the last record
        assert answer.status == 200
        assert records_of(answer)[-1]["error"]["code"] == "pre_token_too_long"
    else:
        assert (answer.status, answer.problem()["code"]) == (413, "pre_token_too_long")
    assert memory.growth() < 8 * MAX_PENDING_CHARS


@pytest.mark.row(35)
def test_500_distinct_pre_tokens_of_a_megabyte_leave_no_memory_behind(server: Server) -> None:
    letters = string.ascii_letters.encode()
    table = bytes(letters[byte % len(letters)] for byte in range(256))
    source = random.Random(35)
    memory = Memory(server)
    with server.client() as client:
        for number in range(500):
            text = source.randbytes(MB).translate(table).decode()
            assert client.post("/count", json={"text": text}).status_code == 200
            if number == 50:  # buffers and caches have their final size by now
                memory = Memory(server)
    assert memory.growth() < 64 * MB


TEXT = "The upload is larger than memory would bear, héllo 世界, and it is never held whole. "


@pytest.mark.promise(11)
@pytest.mark.parametrize(
    "n_bytes", [1 << 27, pytest.param(1 << 30, marks=pytest.mark.slow)], ids=["an eighth", "all"]
)
@pytest.mark.parametrize("path", ["/encode_stream", "/decode_stream"])
def test_a_gigabyte_is_streamed_within_64_megabytes(
    server: Server, path: str, n_bytes: int
) -> None:
    text = TEXT * (CHUNK_BYTES // len(TEXT.encode()))
    if path == "/encode_stream":
        content_type, piece = "text/plain; charset=utf-8", text.encode()
    else:
        content_type = RAW_IDS
        with server.client() as client:
            ids = client.post("/encode", json={"text": text}).json()["tokens"]
        piece = struct.pack(f"<{len(ids)}I", *ids)
    n_pieces = -(-n_bytes // len(piece))
    chunk = b"%x\r\n%b\r\n" % (len(piece), piece)
    memory = Memory(server)
    with connect(server.port) as connection:
        connection.settimeout(60)
        connection.sendall(
            head(
                f"POST {path} HTTP/1.1",
                f"Content-Type: {content_type}",
                "Accept: application/octet-stream",
                "Transfer-Encoding: chunked",
                "Connection: close",
            )
        )

        def upload() -> None:
            for _ in range(n_pieces):
                connection.sendall(chunk)
            connection.sendall(b"0\r\n\r\n")

        sender = threading.Thread(target=upload, daemon=True)
        sender.start()
        end = read_to_the_end(connection)
        sender.join(60)
    done = json.loads(end[end.rindex(b'{"done"') : end.rindex(b"}") + 1])
    assert done["bytes"] == n_pieces * len(text.encode())
    assert memory.growth() < 64 * MB


def read_to_the_end(connection: socket.socket) -> bytes:
    """The last record received."""
    end = b""
    while piece := connection.recv(1 << 20):
        end = (end + piece)[-4096:]
    return end
