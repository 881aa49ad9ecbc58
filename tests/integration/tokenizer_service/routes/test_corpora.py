"""/corpora over a real socket: lost clients, early refusals, memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.server_process import ADMIN, ADMIN_KEY, Server, serve, wait_until
from tests.tokenizer_service.raw_http import RawRequest
from tokenizer_core.registry import ArtifactStore

MB = 1 << 20
KEY = f"X-API-Key: {ADMIN_KEY}"


def test_a_client_that_vanishes_leaves_nothing(server: Server) -> None:
    def has_bytes() -> bool:
        held: int = httpx.get(f"{server.url}/corpora", headers=ADMIN).json()["bytes"]
        return held > 0

    with RawRequest(server.host, server.port, "/corpora/gone", KEY, method="PUT") as request:
        request.send_chunk(b"a" * (2 * MB))
        wait_until(has_bytes)
    wait_until(lambda: not has_bytes())
    assert httpx.get(f"{server.url}/corpora/gone", headers=ADMIN).status_code == 404
    # A refusal comes before the upload.
    for headers, status in (((), 401), ((KEY, "Content-Type: multipart/form-data"), 415)):
        with RawRequest(server.host, server.port, "/corpora/x", *headers, method="PUT") as request:
            request.read_head()
            assert request.status == status


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_gigabyte_is_uploaded_in_flat_memory(store: ArtifactStore) -> None:
    """The client sends as fast as the server reads."""
    piece = ("the quick brown fox 中文 café\n".encode() * 40_000)[:MB]
    piece = piece.decode(errors="ignore").encode()
    digest = hashlib.sha256()
    with serve(store.root) as server:
        httpx.put(f"{server.url}/corpora/warm", content=piece * 4, headers=ADMIN)
        before = server.resident_bytes()
        most = 0

        def pieces() -> Iterator[bytes]:
            nonlocal most
            for _ in range(1024):
                digest.update(piece)
                yield piece
                most = max(most, server.resident_bytes())

        answer = httpx.put(
            f"{server.url}/corpora/large", content=pieces(), headers=ADMIN, timeout=600
        )
        assert answer.status_code == 201
        assert answer.json()["sha256"] == digest.hexdigest()
        assert most - before < 64 * MB
