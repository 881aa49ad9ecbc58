"""The table in docs/operate.md of what a request costs: each row is measured on a server."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.integration.server_process import serve
from tests.native_module import native_module
from tests.reliability.socket_client import connect, exchange, head, send

ROOT = Path(__file__).parents[3]
BODY_BYTES = 8 << 20
SECONDS_PER_MB = 1e-6
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


@pytest.mark.thorough
@pytest.mark.parametrize("name", BODIES)
def test_a_request_costs_no_more_than_its_row(tmp_path: Path, name: str) -> None:
    native_module()
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the highest memory can be reset on Linux only")
    path, memory, seconds = rows()[name]
    shutil.copytree(ROOT / "artifacts", tmp_path / "artifacts")
    body = BODIES[name]().encode()
    kind = "text/plain" if path == "/encode_stream" else "application/json"
    length = f"Content-Length: {len(body)}"
    request = head(f"POST {path} HTTP/1.1", f"Content-Type: {kind}", length, "Connection: close")
    with serve(tmp_path / "artifacts", threads="1", max_body_bytes=str(BODY_BYTES)) as server:
        process = psutil.Process(server.process.pid)
        exchange(server.port, head("GET /livez HTTP/1.1", "Connection: close"))
        time.sleep(0.2)  # what the start left to do
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
    print(f"{name}: {(highest - before) / len(body):.1f} B/B, {used / len(body) * 1e6:.3f} s/MB")
    assert highest - before <= memory * len(body)
    assert used <= seconds * len(body) * SECONDS_PER_MB
