"""The table in docs/operate.md of what a request costs: each row is measured on a server."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.server_process import Server, serve
from tests.native_module import native_module
from tests.reliability.socket_client import connect, exchange, head, send

ROOT = Path(__file__).parents[3]
BODY_BYTES = 8 << 20
SECONDS_PER_MB = 1e-6
SLOWER = 5
"""How many times as long it may take: the machine may be slower, and busy."""
WORDS = "some words of text "
LETTERS = "".join(random.Random(7).choices("qxzjkvwbfgy", k=1000))
ROW = re.compile(r"^\| (\S.*?) \| `(/\w+)` \| (\d+) \| ([\d.]+) \|$", re.MULTILINE)


def filled(prefix: str, unit: str, suffix: str, n_bytes: int = BODY_BYTES) -> str:
    return prefix + unit * ((n_bytes - len(prefix) - len(suffix)) // len(unit.encode())) + suffix


def batch(key: str, text: str, n: int) -> str:
    return f'{{"{key}":[' + ",".join([f'"{text}"'] * n) + "]}"


BODIES: dict[str, Callable[[], str]] = {
    "encode text": lambda: filled('{"text":"', WORDS, '"}'),
    "encode a text of one character": lambda: filled('{"text":"', "a", '"}'),
    "encode random letters": lambda: filled('{"text":"', LETTERS, '"}'),
    "encode symbols": lambda: filled('{"text":"', "~^|", '"}'),
    "encode a batch": lambda: batch("text", "some words " * 10, 65_536),
    "encode with pieces and offsets": lambda: filled(
        '{"return":["ids","pieces","offsets"],"text":"', "a b ", '"}', 1_960_000
    ),
    "count a text of one character": lambda: filled('{"text":"', "a", '"}'),
    "cut into chunks": lambda: filled(
        '{"max_tokens":500,"overlap_tokens":100,"text":"', WORDS, '"}'
    ),
    "decode": lambda: filled('{"tokens":[', "1234,", "1]}"),
    "decode ids of one digit": lambda: filled('{"tokens":[', "1,", "1]}"),
    "tokenize inputs": lambda: batch("inputs", WORDS, 65_536),
    "stream a text of one character": lambda: "a" * (BODY_BYTES - 1),
}


def rows() -> dict[str, tuple[str, int, float]]:
    """Route, bytes of memory per byte of the body, and seconds per MB, of each row."""
    page = (ROOT / "docs/operate.md").read_text(encoding="utf-8")
    return {
        name: (path, int(memory), float(seconds))
        for name, path, memory, seconds in ROW.findall(page)
    }


def test_every_row_is_measured() -> None:
    assert set(rows()) == set(BODIES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    native_module()
    artifacts = tmp_path_factory.mktemp("server") / "artifacts"
    shutil.copytree(ROOT / "artifacts", artifacts)
    with serve(artifacts, threads="1", max_body_bytes=str(BODY_BYTES)) as server:
        yield server


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux resets a maximum")
@pytest.mark.parametrize("name", BODIES)
def test_a_request_costs_no_more_than_its_row(server: Server, name: str) -> None:
    path, memory, seconds = rows()[name]
    body = BODIES[name]().encode()
    kind = "text/plain" if path == "/encode_stream" else "application/json"
    length = f"Content-Length: {len(body)}"
    request = head(f"POST {path} HTTP/1.1", f"Content-Type: {kind}", length, "Connection: close")
    exchange(server.port, head("GET /livez HTTP/1.1", "Connection: close"))
    process = psutil.Process(server.process.pid)
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # forgets the highest memory
    before, spent = process.memory_info().rss, sum(process.cpu_times()[:2])
    with connect(server.port) as connection:
        send(connection, request + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        while connection.recv(1 << 20):
            pass
    status = Path(f"/proc/{process.pid}/status").read_text()
    highest = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
    used = sum(process.cpu_times()[:2]) - spent
    assert highest - before <= memory * len(body)
    assert used <= SLOWER * seconds * len(body) * SECONDS_PER_MB
