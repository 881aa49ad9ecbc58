"""/corpora over a real socket: memory, lost clients, early refusals."""

import httpx

from tests.integration.server_process import ADMIN, ADMIN_KEY, wait_until
from tests.tokenizer_service.raw_http import RawRequest

MB = 1 << 20
KEY = f"X-API-Key: {ADMIN_KEY}"


def test_an_upload_takes_little_memory_and_leaves_nothing_if_the_client_vanishes(server):
    def held_bytes():
        return httpx.get(f"{server.url}/corpora", headers=ADMIN).json()["bytes"]

    before = server.resident_bytes()
    with RawRequest(server.host, server.port, "/corpora/gone", KEY, method="PUT") as request:
        for _ in range(200):
            request.send_chunk(b"a" * MB)
        wait_until(lambda: held_bytes() > 190 * MB)  # the rest is in buffers
        assert server.resident_bytes() - before < 64 * MB
    wait_until(lambda: held_bytes() == 0)
    assert httpx.get(f"{server.url}/corpora/gone", headers=ADMIN).status_code == 404


def test_a_refusal_comes_before_the_upload(server):
    for headers, status in (((), 401), ((KEY, "Content-Type: multipart/form-data"), 415)):
        with RawRequest(server.host, server.port, "/corpora/x", *headers, method="PUT") as request:
            request.read_head()
            assert request.status == status
