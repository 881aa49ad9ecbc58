"""Duplex streams: the service sends its response while the client still sends the request.

`DuplexStream` is an ASGI response that reads the body itself. Starlette's `StreamingResponse` over
`request.stream()` has a second reader, which waits for a disconnect and swallows pieces of the body
under uvicorn. Here one coroutine alternates: receive a chunk, pass it to a codec, send what the
codec completes, receive the next. While the client does not read, `send` waits and the coroutine
receives nothing, so memory stays bounded in both directions. A codec computes each part when it is
taken, so memory stays bounded even if one chunk completes many parts. `stream_codecs` decides what
a chunk completes; this module decides its wire format: lines or frames.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from tokenizer_service.access.deadlines import DEPARTURE, within
from tokenizer_service.access.errors import ShuttingDownError
from tokenizer_service.access.limits import INLINE_BODY_BYTES, MIN_STREAM_BYTES
from tokenizer_service.handlers.stream_codecs import (
    DecodeCodec,
    DecodedPart,
    EncodeCodec,
    EncodedPart,
)
from tokenizer_service.http.problem import Problem, internal_error, problem_response, request_id_of
from tokenizer_service.http.responses import PartedResponse
from tokenizer_service.responses.problem_table import problem_of
from tokenizer_service.services import Services
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

Part = EncodedPart | DecodedPart

NDJSON: Final = "application/x-ndjson"
FRAMES: Final = "application/octet-stream"
DATA_FRAME, END_FRAME, ERROR_FRAME = 0, 1, 2

_WINDOW_BYTES: Final = 1 << 16
"""Bytes of the body processed at once; bounds the work done for a disconnected client."""

_LAST_WORD_SECONDS: Final = 0.5


class DuplexStream(PartedResponse):
    """The response of a streaming route: what `codec` makes of the body, part by part."""

    def __init__(
        self, services: Services, live: LiveTokenizer, codec: EncodeCodec | DecodeCodec, form: str
    ) -> None:
        headers = {**live.headers, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(None, headers=headers, media_type=form)
        del self.headers["content-length"]  # unknown until the end
        self._services, self._codec, self._digest = services, codec, live.ref.digest
        self._lease = services.budget.lease()
        self.idle_seconds = services.settings.stream_idle_seconds
        self._render: _Records = _Frames() if form == FRAMES else _Lines()
        self._scope: Scope = {}
        self._is_started = False
        self._waited_seconds = 0.0  # since MIN_STREAM_BYTES last arrived
        self._bytes_waited_for = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the response; returns when the last record was passed to the server."""
        codec, self._scope = self._codec, scope
        try:
            async for data in self._windows(receive):
                await self._pass_on(send, len(data), codec.feed(data))
            await self._pass_on(send, 0, codec.finish())
            end = {"done": True, **codec.totals(), "digest": self._digest}
            await self._send(send, self._render.end(end), is_last=True)
        except ClientDisconnect:
            raise
        except asyncio.CancelledError:
            if not self._is_started:
                raise  # `RequestObserver` responds, as for any other request
            last_word = self._send_error(ShuttingDownError(), scope, receive, send)
            try:
                await within(_LAST_WORD_SECONDS, last_word)
            except TimeoutError:
                raise ClientDisconnect from None
        except Exception as error:
            await self._send_error(error, scope, receive, send)
        finally:
            self._lease.release()
            codec.count_in(self._services.metrics)

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
            # Count only the wait: while the client reads the response, it need not send.
            message = await within(self.idle_seconds - self._waited_seconds, receive())
        except TimeoutError:
            raise Problem(
                408,
                "stream_idle",
                f"Fewer than {MIN_STREAM_BYTES} bytes arrived in {self.idle_seconds:g} seconds.",
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self._waited_seconds += clock() - started
        self._bytes_waited_for += len(message.get("body", b""))
        if self._bytes_waited_for >= MIN_STREAM_BYTES:
            self._waited_seconds, self._bytes_waited_for = 0.0, 0
        return message

    async def _pass_on(self, send: Send, n_bytes: int, parts: Iterator[Part]) -> None:
        # One byte can complete a megabyte of pending input, so pending bytes count too.
        n_held = n_bytes + self._codec.n_pending
        is_large = n_held > INLINE_BODY_BYTES
        queue, departure = self._services.queue, self._scope.get(DEPARTURE)
        # An ordinary stream holds back one window; a text without a split is held until its end.
        self._lease.hold(n_held if n_held > 2 * _WINDOW_BYTES else 0)
        while True:
            if is_large:
                part = await queue.run_admitted(departure, next, parts, None)
            else:
                part = next(parts, None)
            if part is None:
                return
            await self._send(send, self._render.part(part))

    async def _send(self, send: Send, body: bytes, *, is_last: bool = False) -> None:
        if not self._is_started:
            self._is_started = True
            await self.send_head(self._scope, send)
        await self.send_part(self._scope, send, body, is_last=is_last)

    async def _send_error(
        self, error: Exception, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the problem as the response, or as the last record if the response has begun."""
        problem = problem_of(error) or internal_error(error, scope)
        if not self._is_started:
            await problem_response(problem, scope)(scope, receive, send)
            return
        document = problem.document(request_id_of(scope))
        del document["error"]  # the record has its own `error` field
        await self._send(send, self._render.error({"error": document}), is_last=True)


class _Lines:
    """Records as lines of JSON."""

    def __init__(self) -> None:
        self._sequence = 0

    def part(self, part: Part) -> bytes:
        line = {"seq": self._sequence, **part.fields()}
        self._sequence += 1
        return _dump(line) + b"\n"

    def end(self, record: Mapping[str, Any]) -> bytes:
        return _dump(record) + b"\n"

    error = end


class _Frames:
    """Records as frames: u32 type, u32 payload length, payload; little-endian."""

    def part(self, part: Part) -> bytes:
        return _frame(DATA_FRAME, part.payload())

    def end(self, record: Mapping[str, Any]) -> bytes:
        return _frame(END_FRAME, _dump(record))

    def error(self, record: Mapping[str, Any]) -> bytes:
        return _frame(ERROR_FRAME, _dump(record))


_Records = _Lines | _Frames


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<II", kind, len(payload)) + payload


def _dump(record: Mapping[str, Any]) -> bytes:
    # ASCII: some line readers also break at U+2028 or U+0085.
    return json.dumps(record, separators=(",", ":")).encode()
