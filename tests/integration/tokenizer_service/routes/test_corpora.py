"""/corpora over a real socket: lost clients, early refusals, memory."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.running_server import RunningServer, run_server
from tests.integration.server_watch import resident_bytes
from tests.tokenizer_service.conftest import ADMIN_KEY
from tests.tokenizer_service.raw_http import RawRequest
from tests.tokenizer_service.routes.test_corpora import KEY, WINDOW
from tokenizer_core import TokenizerSpec
from tokenizer_core.registry import ArtifactStore


def held_bytes(server: RunningServer) -> int:
    held: int = httpx.get(f"{server.url}/corpora", headers=KEY).json()["bytes"]
    return held


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_client_that_vanishes_leaves_nothing(server: RunningServer) -> None:
    with RawRequest(
        server.host, server.port, "/corpora/gone", f"X-API-Key: {ADMIN_KEY}", method="PUT"
    ) as request:
        request.send_chunk(b"a" * (2 * WINDOW))
        wait_until(lambda: held_bytes(server) > 0)
    wait_until(lambda: held_bytes(server) == 0)
    assert httpx.get(f"{server.url}/corpora/gone", headers=KEY).status_code == 404


def test_who_may_not_is_told_before_the_upload(server: RunningServer) -> None:
    with RawRequest(server.host, server.port, "/corpora/x", method="PUT") as request:
        request.read_head()
        assert request.status == 401
    key = f"X-API-Key: {ADMIN_KEY}"
    with RawRequest(
        server.host,
        server.port,
        "/corpora/x",
        key,
        "Content-Type: multipart/form-data",
        method="PUT",
    ) as request:
        request.read_head()
        assert request.status == 415


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_gigabyte_in_flat_memory(tmp_path: Path, small_spec: TokenizerSpec) -> None:
    """P11. The client sends as fast as the server reads."""
    root = tmp_path / "artifacts"
    ArtifactStore(root).publish(small_spec, name="starter")
    piece = ("the quick brown fox 中文 café\n".encode() * 40_000)[: 1 << 20]
    piece = piece.decode(errors="ignore").encode()
    digest = hashlib.sha256()
    with run_server(root) as server:
        httpx.put(f"{server.url}/corpora/warm", content=piece * 4, headers=KEY)
        before = resident_bytes(server)
        most = 0

        def pieces() -> Iterator[bytes]:
            nonlocal most
            for _ in range(1024):
                digest.update(piece)
                yield piece
                most = max(most, resident_bytes(server))

        answer = httpx.put(
            f"{server.url}/corpora/large", content=pieces(), headers=KEY, timeout=600
        )
        assert answer.status_code == 201
        assert answer.json()["sha256"] == digest.hexdigest()
        assert most - before < 64 * 1024 * 1024
