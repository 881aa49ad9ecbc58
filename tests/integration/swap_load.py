"""Swaps under continuous duplex load.

Two tokenizers without a common id alternate, while clients encode and stream without a pause. Each
response must be complete, and all its ids must be of the tokenizer that its header names.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx

from tests.integration.server_process import ADMIN, Server
from tokenizer_core.registry import ArtifactRef

SECOND_FIRST_ID = 10_000
"""The second tokenizer's ids begin here; those of the first end far below."""

_TEXT = "The answers must be told apart, héllo 世界, by a glance at any id. " * 20
_LARGE_TIMES = 10
_CLIENTS = 3
_PIECES = 12
_PAUSE_SECONDS = 0.01
_CHECKS_AFTER_SWAP = 4


@dataclass
class SwapReport:
    """The outcome. `failures` is empty if every promise held."""

    swaps: int = 0
    encodes: int = 0
    streams: int = 0
    streams_across_a_swap: int = 0
    failures: list[str] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)


def run_swaps(
    server: Server, first: ArtifactRef, second: ArtifactRef, *, n_swaps: int
) -> SwapReport:
    """Swap between the two `n_swaps` times under load.

    `first` has ids below SECOND_FIRST_ID (single bytes), `second` the same from there on.
    """
    return asyncio.run(_Load(server, first, second).run(n_swaps))


class _Load:
    def __init__(self, server: Server, first: ArtifactRef, second: ArtifactRef) -> None:
        self._server = server
        self._refs = (first, second)
        self._expected = {
            str(ref): [first_id + byte for byte in _TEXT.encode()]
            for ref, first_id in ((first, 0), (second, SECOND_FIRST_ID))
        }
        self._digests = {str(ref): ref.digest for ref in self._refs}
        self._report = SwapReport(answers=dict.fromkeys(self._expected, 0))
        self._stop = asyncio.Event()

    async def run(self, n_swaps: int) -> SwapReport:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
        async with httpx.AsyncClient(
            base_url=self._server.url, headers=ADMIN, timeout=30, limits=limits
        ) as client:
            load = [
                *(asyncio.create_task(self._encode(client)) for _ in range(_CLIENTS)),
                *(asyncio.create_task(self._stream()) for _ in range(_CLIENTS)),
            ]
            try:
                for number in range(n_swaps):
                    await self._swap(client, self._refs[(number + 1) % 2])
            finally:
                self._stop.set()
                for outcome in await asyncio.gather(*load, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        self._report.failures.append(f"a client met {outcome!r}")
        return self._report

    async def _swap(self, client: httpx.AsyncClient, ref: ArtifactRef) -> None:
        answer = await client.put("/tokenizers/active", json={"tokenizer": str(ref)})
        if answer.status_code != 200:
            self._report.failures.append(f"swap: {answer.status_code} {answer.text[:200]}")
            return
        self._report.swaps += 1
        # On separate connections, so that each serving process may get one.
        for _ in range(_CHECKS_AFTER_SWAP):
            async with httpx.AsyncClient(base_url=self._server.url, timeout=30) as fresh:
                after = await fresh.post("/encode", json={"text": "a"})
            if after.headers.get("tokenizer-version") != str(ref):
                self._report.failures.append(f"after the swap to {ref}: {dict(after.headers)}")

    async def _encode(self, client: httpx.AsyncClient) -> None:
        # A thread processes large requests, so a swap can happen between two reads of the version.
        for n_times in itertools.cycle((1, _LARGE_TIMES)):
            if self._stop.is_set():
                return
            answer = await client.post("/encode", json={"text": _TEXT * n_times})
            self._report.encodes += 1
            if answer.status_code != 200:
                self._report.failures.append(f"encode: {answer.status_code} {answer.text[:200]}")
                continue
            body = answer.json()
            named = f"{body['tokenizer']['name']}@{body['tokenizer']['version']}"
            if named != answer.headers["tokenizer-version"]:
                self._report.failures.append("the body names another tokenizer than the header")
            self._check("encode", answer.headers, body["tokens"], n_times)

    async def _stream(self) -> None:
        while not self._stop.is_set():
            swaps_before = self._report.swaps
            try:
                status, headers, lines = await stream_two_ways(
                    self._server.port, _cut(_TEXT.encode(), _PIECES), pause_seconds=_PAUSE_SECONDS
                )
            except (OSError, EOFError, ValueError) as error:
                self._report.failures.append(f"stream: {error!r}")
                continue
            self._report.streams += 1
            self._report.streams_across_a_swap += self._report.swaps != swaps_before
            records = [json.loads(line) for line in lines]
            if status != 200 or not records or not records[-1].get("done"):
                self._report.failures.append(f"stream: {status} {lines[-1:]}")
                continue
            if records[-1]["digest"] != headers["tokenizer-digest"]:
                self._report.failures.append("the stream's end names another digest")
            ids = list(itertools.chain.from_iterable(r["tokens"] for r in records[:-1]))
            self._check("stream", headers, ids)

    def _check(
        self,
        what: str,
        headers: dict[str, str] | httpx.Headers,
        ids: list[int],
        n_times: int = 1,
    ) -> None:
        version = headers["tokenizer-version"]
        if version not in self._expected or self._digests[version] != headers["tokenizer-digest"]:
            self._report.failures.append(f"{what}: answered by {version}")
        elif ids != self._expected[version] * n_times:
            kinds = sorted({id_ >= SECOND_FIRST_ID for id_ in ids})
            self._report.failures.append(f"{what}: ids not those of {version}; kinds {kinds}")
        else:
            self._report.answers[version] += 1


def _cut(data: bytes, n_pieces: int) -> list[bytes]:
    size = -(-len(data) // n_pieces)
    return [data[start : start + size] for start in range(0, len(data), size)]


async def stream_two_ways(
    port: int, pieces: list[bytes], *, pause_seconds: float
) -> tuple[int, dict[str, str], list[bytes]]:
    """POST /encode_stream as a slow client that reads while it still sends.

    Returns the status, the headers (names in lower case) and the lines of the response. Uses a
    plain socket: HTTP libraries send a whole body before they read the response.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        writer.write(
            b"POST /encode_stream HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: text/plain; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(pause_seconds)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    sending = asyncio.create_task(send())
    try:
        status, headers = await _read_head(reader)
        body = b"".join([chunk async for chunk in _read_chunks(reader)])
        await sending
    finally:
        sending.cancel()
        writer.close()
    return status, headers, body.splitlines()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in head[1:] if line)
    return int(head[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def _read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        size = int((await reader.readline()).strip() or b"0", 16)
        data = await reader.readexactly(size)
        if await reader.readline() != b"\r\n":
            raise ValueError("a chunk of the answer is malformed")
        if not size:
            return
        yield data
