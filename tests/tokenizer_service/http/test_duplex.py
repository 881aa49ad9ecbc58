"""DuplexStream and ChunkedBody as ASGI applications: clients that stall, on any server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from tokenizer_core import Tokenizer
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.streaming import StreamingEncoder
from tokenizer_service.access.limits import ByteBudget, WorkQueue
from tokenizer_service.http.duplex import NDJSON, DuplexStream, StreamCodec
from tokenizer_service.http.id_formats import OCTETS, IdsForm
from tokenizer_service.http.responses import ChunkedBody
from tokenizer_service.observability.metrics import ServiceMetrics
from tokenizer_service.rendering.problems import problem_of
from tokenizer_service.rendering.stream_codecs import DecodeCodec, EncodeCodec, RawIds
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

SCOPE: dict[str, Any] = {"type": "http", "headers": []}
FIRST = {True: b"the quick ", False: b"a\0\0\0b\0\0\0"}
"""A chunk that settles at least one token, for text and for ids."""


@pytest.fixture(params=["encode", "decode"])
def is_encoding(request: pytest.FixtureRequest) -> bool:
    """Either stream: both take turns in the same way."""
    return bool(request.param == "encode")


def stream_over(tokenizer: Tokenizer, is_encoding: bool, idle_seconds: float) -> DuplexStream:
    ref = ArtifactRef("x", "20260101T000000Z-00000000", tokenizer.spec.fingerprint)
    live = LiveTokenizer.of(ref, tokenizer)
    codec: StreamCodec = DecodeCodec(live, RawIds(IdsForm(OCTETS)))
    if is_encoding:
        codec = EncodeCodec(StreamingEncoder(tokenizer))
    return DuplexStream(
        codec,
        headers=live.headers,
        digest=live.ref.digest,
        form=NDJSON,
        queue=WorkQueue(None),  # type: ignore[arg-type]  # nothing large comes
        budget=ByteBudget(1 << 20),
        metrics=ServiceMetrics(),
        problem_of=problem_of,
        idle_seconds=idle_seconds,
    )


class Client:
    """Sends these chunks, then waits for ever; takes `patience` messages, then none."""

    def __init__(self, *chunks: bytes, patience: int = 1000) -> None:
        self.chunks = list(chunks)
        self.patience = patience
        self.taken: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if not self.chunks:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": self.chunks.pop(0), "more_body": True}

    async def send(self, message: Any) -> None:
        if len(self.taken) >= self.patience:
            await asyncio.sleep(60)
        self.taken.append(message)


@pytest.mark.row(17)
def test_an_idle_stream_ends_with_an_error(small_tokenizer: Tokenizer, is_encoding: bool) -> None:
    silent, later = Client(), Client(FIRST[is_encoding])
    for client in (silent, later):
        stream = stream_over(small_tokenizer, is_encoding, idle_seconds=0.05)
        asyncio.run(stream(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    assert silent.taken[0]["status"] == 408
    assert later.taken[0]["status"] == 200
    last = json.loads(later.taken[-1]["body"])
    assert last["error"]["code"] == "stream_idle"
    assert not later.taken[-1]["more_body"]


@pytest.mark.row(16)
def test_a_stream_without_a_reader_is_ended(small_tokenizer: Tokenizer, is_encoding: bool) -> None:
    client = Client(FIRST[is_encoding], b"brown ", patience=1)
    stream = stream_over(small_tokenizer, is_encoding, idle_seconds=0.05)
    with pytest.raises(ClientDisconnect):
        asyncio.run(stream(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    assert client.chunks == [b"brown "]  # it read nothing more


@pytest.mark.row(16)
def test_a_response_without_a_reader_frees_its_memory() -> None:
    budget = ByteBudget(100)
    lease = budget.lease()
    lease.reserve(60)
    client = Client(patience=1)
    answer = ChunkedBody([b"x" * 10], idle_seconds=0.05)
    answer.charge_to(lease)
    assert budget.used == 10
    with pytest.raises(ClientDisconnect):
        asyncio.run(answer(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    assert budget.used == 0


@pytest.mark.parametrize("sizes", [[], [0], [300_000], [200_000] * 5, [1] * 9])
def test_an_answer_in_chunks_is_whole(sizes: list[int]) -> None:
    chunks = [bytes([index]) * size for index, size in enumerate(sizes)]
    client = Client()
    asyncio.run(ChunkedBody(chunks)(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    start, *bodies = client.taken
    assert b"".join(message["body"] for message in bodies) == b"".join(chunks)
    assert [message["more_body"] for message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert dict(start["headers"])[b"content-length"] == str(sum(sizes)).encode()
