"""Bodies and connections: both clients with a real server."""

import asyncio

import pytest

from tokenizer_client import (
    AsyncClient,
    Client,
    ProblemError,
)


def test_a_slow_source_does_not_time_out_the_stream(server, monkeypatch):
    """While its source is slow, each wait of the client for the service times out at once."""
    read_seconds = 60.0
    n_waits = 0
    waits_in_earnest = asyncio.Event()

    def timeout(seconds: float) -> asyncio.Timeout:
        nonlocal n_waits
        if seconds != read_seconds:
            return real_timeout(seconds)
        n_waits += 1
        if n_waits <= 3:
            return real_timeout(0)
        waits_in_earnest.set()
        return real_timeout(seconds)

    async def slowly():
        await waits_in_earnest.wait()
        yield b"low lower"

    async def stream() -> int:
        async with AsyncClient(server.url, timeout=read_seconds) as client:
            return sum([len(ids) async for ids in client.encode_stream(slowly())])

    real_timeout = asyncio.timeout
    monkeypatch.setattr(asyncio, "timeout", timeout)
    n_ids = asyncio.run(stream())
    with Client(server.url) as client:
        assert n_ids == client.count("low lower")


def test_a_refused_upload_raises_its_problem(client):
    with pytest.raises(ProblemError) as told:
        client.corpora.upload("c", [bytes(65_536)] * 1000)
    assert told.value.status == 401
