"""Duplex streams: the service sends its response while the client still sends the request.

`DuplexStream` is an ASGI response that reads the body itself. Starlette's `StreamingResponse` over
`request.stream()` has a second reader, which waits for a disconnect and swallows pieces of the body
under uvicorn. Here one coroutine alternates: receive a chunk, pass it to a codec, send what the
codec completes, receive the next. While the client does not read, `send` waits and the coroutine
receives nothing, so memory stays bounded in both directions. A codec decides what a chunk
completes; this module decides its wire format: lines or frames.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tokenizer_service.access.deadlines import DEPARTURE, send_within, within
from tokenizer_service.access.errors import ShuttingDownError
from tokenizer_service.access.limits import INLINE_BODY_BYTES, MIN_STREAM_BYTES, STREAM_IDLE_SECONDS
from tokenizer_service.http.problem import (
    Problem,
    internal_error,
    problem_response,
    request_id_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from tokenizer_service.access.limits import ByteBudget, WorkQueue
    from tokenizer_service.observability.metrics import ServiceMetrics

NDJSON: Final = "application/x-ndjson"
FRAMES: Final = "application/octet-stream"
DATA_FRAME, END_FRAME, ERROR_FRAME = 0, 1, 2

_WINDOW_BYTES: Final = 1 << 16
"""Bytes of the body processed at once; bounds the work done for a disconnected client."""

_LAST_WORD_SECONDS: Final = 0.5


class StreamPart(Protocol):
    """A part of the response that no later input changes."""

    def fields(self) -> dict[str, Any]:
        """The part as fields of a JSON line."""
        ...

    def payload(self) -> bytes:
        """The part as the payload of a frame."""
        ...


class StreamCodec(Protocol):
    """Converts bytes of a body to parts of the response; does no input or output.

    `feed` and `finish` compute each part when the caller takes it, so memory stays bounded even if
    one chunk completes many parts. They raise Problem, or an error that `problem_of` maps.
    """

    @property
    def n_pending(self) -> int:
        """Bytes received that the next call may have to process."""
        ...

    def feed(self, data: bytes) -> Iterator[StreamPart]:
        """The parts that `data` completes, after all earlier input."""
        ...

    def finish(self) -> Iterator[StreamPart]:
        """The remaining parts; the body ends here."""
        ...

    def totals(self) -> dict[str, int]:
        """The totals of the last record: `count` of ids and `bytes` of text."""
        ...

    def count_in(self, metrics: ServiceMetrics) -> None:
        """Add the work to the service's metrics."""
        ...


class DuplexStream(Response):
    """The response of a streaming route: what `codec` makes of the body, part by part.

    `headers` and `digest` identify the tokenizer. `problem_of` maps an error to a problem, or to
    None for a defect.
    """

    def __init__(
        self,
        codec: StreamCodec,
        *,
        headers: Mapping[str, str],
        digest: str,
        form: str,
        queue: WorkQueue,
        budget: ByteBudget,
        metrics: ServiceMetrics,
        problem_of: Callable[[Exception], Problem | None],
        idle_seconds: float = STREAM_IDLE_SECONDS,
    ) -> None:
        headers = {**headers, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(None, headers=headers, media_type=form)
        del self.headers["content-length"]  # unknown until the end
        self._codec = codec
        self._digest = digest
        self._problem_of = problem_of
        self._queue = queue
        self._lease = budget.lease()
        self._metrics = metrics
        self._idle_seconds = idle_seconds
        self._render: _Records = _Frames() if form == FRAMES else _Lines()
        self._scope: Scope = {}
        self._is_started = False
        self._waited_seconds = 0.0  # since MIN_STREAM_BYTES last arrived
        self._bytes_waited_for = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the response; returns when the last record was passed to the server.

        Raises:
            ClientDisconnect: the client disconnected, or read nothing for too long.
        """
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
            codec.count_in(self._metrics)

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
            message = await within(self._idle_seconds - self._waited_seconds, receive())
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

    async def _pass_on(self, send: Send, n_bytes: int, parts: Iterator[StreamPart]) -> None:
        # One byte can complete a megabyte of pending input, so pending bytes count too.
        n_held = n_bytes + self._codec.n_pending
        is_large = n_held > INLINE_BODY_BYTES
        departure = self._scope.get(DEPARTURE)
        # An ordinary stream holds back one window; a text without a split is held until its end.
        self._lease.hold(n_held if n_held > 2 * _WINDOW_BYTES else 0)
        while True:
            if is_large:
                part = await self._queue.run_admitted(departure, next, parts, None)
            else:
                part = next(parts, None)
            if part is None:
                return
            await self._send(send, self._render.part(part))

    async def _send(self, send: Send, body: bytes, *, is_last: bool = False) -> None:
        if not self._is_started:
            self._is_started = True
            head = {"status": self.status_code, "headers": self.raw_headers}
            await send_within(
                self._idle_seconds, self._scope, send, {"type": "http.response.start", **head}
            )
        message = {"type": "http.response.body", "body": body, "more_body": not is_last}
        await send_within(self._idle_seconds, self._scope, send, message)

    async def _send_error(
        self, error: Exception, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the problem as the response, or as the last record if the response has begun."""
        problem = self._problem_of(error) or internal_error(error, scope)
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

    def part(self, part: StreamPart) -> bytes:
        line = {"seq": self._sequence, **part.fields()}
        self._sequence += 1
        return _dump(line) + b"\n"

    def end(self, record: Mapping[str, Any]) -> bytes:
        return _dump(record) + b"\n"

    error = end


class _Frames:
    """Records as frames: u32 type, u32 payload length, payload; little-endian."""

    def part(self, part: StreamPart) -> bytes:
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
