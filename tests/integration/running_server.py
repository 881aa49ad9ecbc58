"""The service in a separate process, started by uvicorn."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.tokenizer_service.conftest import ADMIN_KEY


@dataclass
class RunningServer:
    host: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@contextmanager
def run_server(
    artifacts_dir: Path, *arguments: str, ready: str = "/readyz", **environment: str
) -> Iterator[RunningServer]:
    log = artifacts_dir.parent / f"server-{uuid.uuid4().hex}.log"
    command = [
        *(sys.executable, "-m", "uvicorn", "tokenizer_service.main:create_app", "--factory"),
        *("--host", "127.0.0.1", "--port", "0", "--no-access-log"),
        *("--timeout-graceful-shutdown", "5"),
        *("--http", "tokenizer_service.http.protocol:GuardedHttpProtocol", *arguments),
    ]
    settings = {
        "TOKENIZER_ARTIFACTS_DIR": str(artifacts_dir),
        "TOKENIZER_ADMIN_KEYS": ADMIN_KEY,
        **environment,
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**inherited, **settings}, stdout=output, stderr=output
        )
    server = RunningServer("127.0.0.1", 0, process, log)
    try:
        _wait_until_ready(server, ready)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(server: RunningServer, path: str) -> None:
    """Read the port that the system chose from the log: no other process can take it."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.process.poll() is None:
        found = re.search(r"running on http://127\.0\.0\.1:(\d+)", server.log.read_text())
        if found:
            server.port = int(found[1])
            with suppress(httpx.TransportError):
                if httpx.get(server.url + path, timeout=10).status_code == 200:
                    return
        time.sleep(0.05)
    pytest.fail(f"the server did not become ready:\n{server.log.read_text()}")
