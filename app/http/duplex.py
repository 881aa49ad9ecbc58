"""The two-way stream: a body goes in while its answer goes out, for all routes that stream.

An ASGI response that reads the body itself. Starlette's `StreamingResponse` over
`request.stream()` has a second reader that waits for the client to leave and swallows pieces of
the body under uvicorn; here one coroutine takes turns: receive a chunk, settle what it settles,
send that, receive the next. While the client does not read, `send` waits and nothing more is
received: memory stays bounded both ways. What a chunk settles is a settler's business; how it
looks on the wire (lines or frames) is decided here, once.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.access.deadlines import send_within, within
from app.access.limits import INLINE_BODY_BYTES, MIN_STREAM_BYTES, STREAM_IDLE_SECONDS
from app.http.problem import Problem, internal_error, problem_response, request_id_of, shutting_down
from app.rendering.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from app.access.limits import WorkQueue
    from app.observability.metrics import ServiceMetrics
    from app.serving.live_tokenizer import LiveTokenizer

NDJSON: Final = "application/x-ndjson"
FRAMES: Final = "application/octet-stream"
DATA_FRAME, END_FRAME, ERROR_FRAME = 0, 1, 2

_WINDOW_BYTES: Final = 1 << 16
"""Bytes of the body settled in one go: what a client that left can still cost."""

_LAST_WORD_SECONDS: Final = 0.5


class Settled(Protocol):
    """A part of the answer that nothing still to come changes."""

    def fields(self) -> dict[str, Any]:
        """What a line says of it."""
        ...

    def payload(self) -> bytes:
        """What a frame holds of it."""
        ...


class Settler(Protocol):
    """Bytes of a body in, parts of the answer out; no input or output of its own.

    `feed` and `finish` do their work as their parts are taken, one part at a time, so that memory
    stays bounded whatever one chunk settles. They raise Problem, or errors of the core.
    """

    @property
    def n_pending(self) -> int:
        """Bytes received that the next call may have to work on."""
        ...

    def feed(self, data: bytes) -> Iterator[Settled]:
        """The parts that `data`, after all that came before, settles."""
        ...

    def finish(self) -> Iterator[Settled]:
        """The parts of the rest; the body ends here."""
        ...

    def totals(self) -> dict[str, int]:
        """What the last record says: `count` of ids and `bytes` of text."""
        ...

    def count_in(self, metrics: ServiceMetrics) -> None:
        """Add what was done to the service's metrics."""
        ...


class TwoWayStream(Response):
    """Answers one request of a streaming route with what `settler` makes of its body.

    `live` is the tokenizer it does that with, whose identity the answer carries.
    """

    def __init__(
        self,
        live: LiveTokenizer,
        settler: Settler,
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
        self._settler = settler
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
                await self._pass_on(send, len(data), settler.feed(data))
            await self._pass_on(send, 0, settler.finish())
            end = {"done": True, **settler.totals(), "digest": self._live.ref.digest}
            await self._send(send, self._render.end(end), is_last=True)
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
            settler.count_in(self._metrics)

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

    async def _pass_on(self, send: Send, n_bytes: int, parts: Iterator[Settled]) -> None:
        # One byte can settle a megabyte that was held back: what is pending decides.
        is_large = n_bytes + self._settler.n_pending > INLINE_BODY_BYTES
        while True:
            if is_large:
                part = await self._queue.run_admitted(next, parts, None)
            else:
                part = next(parts, None)
            if part is None:
                return
            await self._send(send, self._render.part(part))

    async def _send(self, send: Send, body: bytes, *, is_last: bool = False) -> None:
        await send_within(self._idle_seconds, self._send_now(send, body, is_last))

    async def _send_now(self, send: Send, body: bytes, is_last: bool) -> None:
        if not self._is_started:
            self._is_started = True
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": body, "more_body": not is_last})

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
        await send_within(_LAST_WORD_SECONDS, self._send_error(problem, scope, receive, send))


class _Lines:
    """Records as lines of JSON."""

    def __init__(self) -> None:
        self._sequence = 0

    def part(self, part: Settled) -> bytes:
        line = {"seq": self._sequence, **part.fields()}
        self._sequence += 1
        return _dump(line) + b"\n"

    def end(self, record: Mapping[str, Any]) -> bytes:
        return _dump(record) + b"\n"

    error = end


class _Frames:
    """Records as frames: u32 type, u32 length of the payload, payload; little-endian."""

    def part(self, part: Settled) -> bytes:
        return _frame(DATA_FRAME, part.payload())

    def end(self, record: Mapping[str, Any]) -> bytes:
        return _frame(END_FRAME, _dump(record))

    def error(self, record: Mapping[str, Any]) -> bytes:
        return _frame(ERROR_FRAME, _dump(record))


_Records = _Lines | _Frames


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<II", kind, len(payload)) + payload


def _dump(record: Mapping[str, Any]) -> bytes:
    # ASCII: some readers of lines also break them at U+2028 or U+0085.
    return json.dumps(record, separators=(",", ":")).encode()
