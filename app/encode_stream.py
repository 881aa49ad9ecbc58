"""The encode stream: text in, ids out while the text still comes.

An ASGI response that reads the body itself. Starlette's `StreamingResponse` over
`request.stream()` has a second reader that waits for the client to leave and swallows pieces of
the body under uvicorn; here one coroutine takes turns: receive a chunk, settle what it settles,
send that, receive the next. While the client does not read, `send` waits and nothing more is
received: memory stays bounded both ways. May import `limits`, `problems`, `live_tokenizer` and the
core.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import struct
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.limits import INLINE_BODY_BYTES, MIN_STREAM_BYTES, STREAM_IDLE_SECONDS
from app.problems import (
    Problem,
    internal_error,
    problem_of,
    problem_response,
    request_id_of,
    shutting_down,
)
from tokenizer_core.streaming import StreamingEncoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from app.limits import WorkQueue
    from app.live_tokenizer import LiveTokenizer
    from app.metrics import ServiceMetrics

NDJSON: Final = "application/x-ndjson"
FRAMES: Final = "application/octet-stream"
IDS_FRAME, END_FRAME, ERROR_FRAME = 0, 1, 2

_WINDOW_BYTES: Final = 1 << 16
"""Bytes of text settled in one go: what a client that left can still cost."""

_LAST_WORD_SECONDS: Final = 0.5


class TextSettler:
    """UTF-8 bytes in, records of settled ids out; no input or output of its own.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> settler = TextSettler(StreamingEncoder(tokenizer))
        >>> settler.feed(b"a b") + settler.finish()
        [97, 32, 98]
    """

    def __init__(self, encoder: StreamingEncoder) -> None:
        self._encoder = encoder
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self.n_bytes = 0
        self.n_tokens = 0
        self.byte_end = 0

    @property
    def n_pending(self) -> int:
        """Bytes received whose ids are not given out: what the next call may have to work on."""
        return self.n_bytes - self.byte_end

    def feed(self, data: bytes) -> list[int]:
        """The ids that `data` settles.

        Raises:
            Problem: 400 with the byte offset of what is not UTF-8.
            TokenizerCoreError: see `StreamingEncoder.feed`.
        """
        text = self._decode(data, final=False)
        self.n_bytes += len(data)
        return self._given_out(self._encoder.feed(text))

    def finish(self) -> list[int]:
        """The ids of the rest; the text ends here. Raises as `feed`."""
        self._decode(b"", final=True)
        ids = self._given_out(self._encoder.finish())
        self.byte_end = self.n_bytes
        return ids

    def _given_out(self, ids: list[int]) -> list[int]:
        if ids:
            self.n_tokens += len(ids)
            self.byte_end = self._encoder.bytes_settled
        return ids

    def _decode(self, data: bytes, *, final: bool) -> str:
        held = len(self._decoder.getstate()[0])
        try:
            return self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            offset = self.n_bytes - held + error.start
            what = "ends inside a character" if final else "is not UTF-8"
            raise Problem(
                400,
                "invalid_utf8",
                f"The text {what}: invalid bytes at offset {offset}.",
                byte_offset=offset,
            ) from None


class EncodeStream(Response):
    """Answers one request of `/encode_stream`; see the module."""

    def __init__(
        self,
        live: LiveTokenizer,
        encoder: StreamingEncoder,
        *,
        form: str,
        queue: WorkQueue,
        metrics: ServiceMetrics,
        idle_seconds: float = STREAM_IDLE_SECONDS,
    ) -> None:
        headers = {**live.headers, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(None, headers=headers, media_type=form)
        del self.headers["content-length"]  # the length is known when all is sent
        self._live = live
        self._settler = TextSettler(encoder)
        self._queue = queue
        self._metrics = metrics
        self._idle_seconds = idle_seconds
        self._render: _Records = _Frames() if form == FRAMES else _Lines()
        self._is_started = False
        self._waited_seconds = 0.0  # since as many bytes had come as make a sign of life
        self._bytes_waited_for = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; returns when the last record is handed over.

        Raises:
            ClientDisconnect: the client went away, or took nothing for too long.
        """
        settler = self._settler
        try:
            async for data in self._windows(receive):
                await self._send_ids(send, await self._work(len(data), settler.feed, data))
            await self._send_ids(send, await self._work(0, settler.finish))
            await self._send(send, self._render.end(self._last_record()), is_last=True)
        except ClientDisconnect:
            raise
        except asyncio.CancelledError:
            if not self._is_started:
                raise  # answered as any other request that the end of the server cuts off
            await self._send_last_word(shutting_down(), scope, receive, send)
        except Exception as error:
            problem = problem_of(error) or internal_error(error, scope)
            await self._send_error(problem, scope, receive, send)
        finally:
            self._metrics.encode_bytes.inc(settler.n_bytes)
            self._metrics.encode_tokens.inc(settler.n_tokens)

    async def _windows(self, receive: Receive) -> AsyncIterator[bytes]:
        is_last = False
        while not is_last:
            message = await self._receive(receive)
            body: bytes = message.get("body", b"")
            is_last = not message.get("more_body", False)
            for start in range(0, len(body), _WINDOW_BYTES):
                yield body[start : start + _WINDOW_BYTES]

    async def _receive(self, receive: Receive) -> Message:
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            # Only waiting counts: while the client reads its answer, it need not send.
            async with asyncio.timeout(self._idle_seconds - self._waited_seconds):
                message = await receive()
        except TimeoutError:
            raise Problem(
                408,
                "stream_idle",
                f"Fewer than {MIN_STREAM_BYTES} bytes arrived in {self._idle_seconds:g} seconds.",
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self._waited_seconds += clock() - started
        self._bytes_waited_for += len(message.get("body", b""))
        if self._bytes_waited_for >= MIN_STREAM_BYTES:
            self._waited_seconds, self._bytes_waited_for = 0.0, 0
        return message

    async def _work(self, n_bytes: int, function: Any, *arguments: bytes) -> list[int]:
        # One byte can settle a megabyte that was held back: what is pending decides.
        if n_bytes + self._settler.n_pending <= INLINE_BODY_BYTES:
            ids: list[int] = function(*arguments)
        else:
            ids = await self._queue.run_admitted(function, *arguments)
        return ids

    async def _send_ids(self, send: Send, ids: list[int]) -> None:
        if ids:
            await self._send(send, self._render.ids(ids, self._settler.byte_end))

    async def _send(self, send: Send, body: bytes, *, is_last: bool = False) -> None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                if not self._is_started:
                    self._is_started = True
                    start = {"status": self.status_code, "headers": self.raw_headers}
                    await send({"type": "http.response.start", **start})
                await send({"type": "http.response.body", "body": body, "more_body": not is_last})
        except TimeoutError:
            raise ClientDisconnect from None

    async def _send_error(
        self, problem: Problem, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """As the answer itself while nothing was sent, else as the last record."""
        if not self._is_started:
            await problem_response(problem, scope)(scope, receive, send)
            return
        document = problem.document(request_id_of(scope))
        del document["error"]  # the record itself is called that
        await self._send(send, self._render.error({"error": document}), is_last=True)

    async def _send_last_word(
        self, problem: Problem, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`_send_error` to a client that may not read, at the end of the server."""
        try:
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await self._send_error(problem, scope, receive, send)
        except TimeoutError:
            raise ClientDisconnect from None

    def _last_record(self) -> dict[str, Any]:
        settler = self._settler
        return {
            "done": True,
            "count": settler.n_tokens,
            "bytes": settler.n_bytes,
            "digest": self._live.ref.digest,
        }


class _Lines:
    """Records as lines of JSON."""

    def __init__(self) -> None:
        self._sequence = 0

    def ids(self, ids: list[int], byte_end: int) -> bytes:
        line = {"seq": self._sequence, "tokens": ids, "byte_end": byte_end}
        self._sequence += 1
        return _dump(line) + b"\n"

    def end(self, record: Mapping[str, Any]) -> bytes:
        return _dump(record) + b"\n"

    error = end


class _Frames:
    """Records as frames: u32 type, u32 length of the payload, payload; little-endian."""

    def ids(self, ids: list[int], byte_end: int) -> bytes:
        del byte_end
        return _frame(IDS_FRAME, struct.pack(f"<{len(ids)}I", *ids))

    def end(self, record: Mapping[str, Any]) -> bytes:
        return _frame(END_FRAME, _dump(record))

    def error(self, record: Mapping[str, Any]) -> bytes:
        return _frame(ERROR_FRAME, _dump(record))


_Records = _Lines | _Frames


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<II", kind, len(payload)) + payload


def _dump(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()
