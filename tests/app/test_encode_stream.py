"""EncodeStream and ChunkedBody as ASGI applications: clients that stall, whatever the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from app.body_responses import ChunkedBody
from app.encode_stream import NDJSON, EncodeStream, TextSettler
from app.limits import ByteBudget, WorkQueue
from app.live_tokenizer import LiveTokenizer
from app.metrics import ServiceMetrics
from tokenizer_core import Tokenizer
from tokenizer_core.store import ArtifactRef
from tokenizer_core.streaming import StreamingEncoder

SCOPE: dict[str, Any] = {"type": "http", "headers": []}


def stream_over(tokenizer: Tokenizer, idle_seconds: float) -> EncodeStream:
    ref = ArtifactRef("x", "20260101T000000Z-00000000", tokenizer.spec.fingerprint)
    return EncodeStream(
        LiveTokenizer.of(ref, tokenizer),
        StreamingEncoder(tokenizer),
        form=NDJSON,
        queue=WorkQueue(None),  # type: ignore[arg-type]  # nothing large comes
        metrics=ServiceMetrics(),
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


def test_a_stream_that_nothing_comes_on_is_ended(small_tokenizer: Tokenizer) -> None:
    silent, later = Client(), Client(b"the quick ")
    for client in (silent, later):
        stream = stream_over(small_tokenizer, idle_seconds=0.05)
        asyncio.run(stream(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    assert silent.taken[0]["status"] == 408
    assert later.taken[0]["status"] == 200
    last = json.loads(later.taken[-1]["body"])
    assert last["error"]["code"] == "stream_idle"
    assert not later.taken[-1]["more_body"]


def test_a_stream_that_nobody_reads_is_given_up(small_tokenizer: Tokenizer) -> None:
    client = Client(b"the quick ", b"brown ", patience=1)
    stream = stream_over(small_tokenizer, idle_seconds=0.05)
    with pytest.raises(ClientDisconnect):
        asyncio.run(stream(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    assert client.chunks == [b"brown "]  # nothing more was taken in


def test_an_answer_that_nobody_reads_frees_what_it_holds() -> None:
    budget = ByteBudget(100)
    lease = budget.lease()
    lease.reserve(60)
    client = Client(patience=1)
    answer = ChunkedBody([b"x" * 10], lease=lease, idle_seconds=0.05)
    with pytest.raises(ClientDisconnect):
        asyncio.run(answer(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    assert budget.used == 0


@pytest.mark.parametrize("sizes", [[], [0], [5], [300_000], [200_000] * 5, [1] * 9])
def test_an_answer_in_chunks_is_whole(sizes: list[int]) -> None:
    chunks = [bytes([index]) * size for index, size in enumerate(sizes)]
    client = Client()
    asyncio.run(ChunkedBody(chunks)(dict(SCOPE), client.receive, client.send))  # type: ignore[arg-type]
    start, *bodies = client.taken
    assert b"".join(message["body"] for message in bodies) == b"".join(chunks)
    assert [message["more_body"] for message in bodies] == [True] * (len(bodies) - 1) + [False]
    assert dict(start["headers"])[b"content-length"] == str(sum(sizes)).encode()


def test_bytes_of_a_settler_add_up(small_tokenizer: Tokenizer) -> None:
    settler = TextSettler(StreamingEncoder(small_tokenizer))
    text = "the quick é中👩 fox"
    ids = []
    for byte in text.encode():
        ids += settler.feed(bytes([byte]))
        assert small_tokenizer.decode_bytes(ids) == text.encode()[: settler.byte_end]
        assert settler.n_pending == settler.n_bytes - settler.byte_end
    ids += settler.finish()
    assert ids == small_tokenizer.encode(text)
    assert settler.byte_end == settler.n_bytes == len(text.encode())
