"""The memory that large inputs take on a real server: rows 9, 15 and 35, P11."""

from __future__ import annotations

import json
import random
import shutil
import string
import struct
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import Server, serve
from tests.profiles import first_and_slow
from tests.reliability.socket_client import Answer, connect, head, read_answer, send
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
@pytest.mark.parametrize(("path", "is_chunked"), [("/encode", True), ("/decode", False)])
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


def stream(
    server: Server, path: str, pieces: Iterable[bytes], content_type: str = "text/plain"
) -> Answer:
    """The full response of a streaming route to a body in these chunks, read during the upload."""
    framed = [*(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]
    with connect(server.port) as connection:
        lines = [f"Content-Type: {content_type}", "Transfer-Encoding: chunked", "Connection: close"]
        connection.sendall(head(f"POST {path} HTTP/1.1", *lines))
        sender = threading.Thread(target=send, args=(connection, b"".join(framed)), daemon=True)
        sender.start()
        answer = read_answer(connection)
        sender.join(60)
    assert answer.end == "closed"
    return answer


@pytest.mark.row(15)
def test_one_pre_token_without_end_meets_the_cap_in_bounded_memory(server: Server) -> None:
    memory = Memory(server)
    pieces = [b"a" * CHUNK_BYTES] * (2 * MAX_PENDING_CHARS // CHUNK_BYTES)
    answer = stream(server, "/encode_stream", pieces)
    assert (answer.status, answer.problem()["code"]) == (413, "pre_token_too_long")
    assert memory.growth() < 8 * MAX_PENDING_CHARS


@pytest.mark.row(35)
@pytest.mark.parametrize("n_texts", first_and_slow([110, 500]))
def test_distinct_pre_tokens_of_a_megabyte_leave_no_memory_behind(
    server: Server, n_texts: int
) -> None:
    letters = string.ascii_letters.encode()
    table = bytes(letters[byte % len(letters)] for byte in range(256))
    source = random.Random(35)
    memory = Memory(server)
    with server.client() as client:
        for number in range(n_texts):
            text = source.randbytes(MB).translate(table).decode()
            assert client.post("/count", json={"text": text}).status_code == 200
            if number == 40:  # buffers and caches have their final size by now
                memory = Memory(server)
    assert memory.growth() < 64 * MB


TEXT = "The upload is larger than memory would bear, héllo 世界, and it is never held whole. "


@pytest.mark.promise(11)
@pytest.mark.parametrize("n_bytes", first_and_slow([1 << 27, 1 << 30]))
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


def read_to_the_end(connection: Any) -> bytes:
    """The last record received."""
    end = b""
    while piece := connection.recv(1 << 20):
        end = (end + piece)[-4096:]
    return end
