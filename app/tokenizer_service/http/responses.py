"""Responses of any size: chunks in memory, or a file, sent as fast as the client reads.

Each piece waits until the client has received the previous one. A client that reads nothing for too
long is disconnected.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenizer_service.access.deadlines import Pace, send_within
from tokenizer_service.access.errors import OverloadedError
from tokenizer_service.access.limits import MIN_READ_BYTES_PER_SECOND, Lease
from tokenizer_service.http.headers import header_of
from tokenizer_service.http.problem import Problem

_SEND_BYTES: Final = 1 << 18
_PIECE_BYTES: Final = 1 << 20
_MOST_PATIENCE: Final = 5
"""The longest pause that earlier reading earns, in multiples of the idle time."""

_RANGE: Final = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")


class PartedResponse(Response):
    """A response that is sent in parts. A client that reads nothing for `idle_seconds` has left."""

    idle_seconds: float

    async def send_head(self, scope: Scope, send: Send) -> None:
        """Send the status and the headers. Raises ClientDisconnect, as `send_part`."""
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send_within(self.idle_seconds, scope, send, {"type": "http.response.start", **head})

    async def send_part(
        self,
        scope: Scope,
        send: Send,
        body: bytes,
        *,
        is_last: bool = False,
        seconds: float = math.inf,
    ) -> None:
        """Send a part of the body; the client must read it within `seconds`, too."""
        message = {"type": "http.response.body", "body": body, "more_body": not is_last}
        await send_within(min(seconds, self.idle_seconds), scope, send, message)


class ChunkedBody(PartedResponse):
    """A response with a known length that is sent chunk by chunk."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        raw_headers: Iterable[tuple[bytes, bytes]] = (),
        media_type: str = "application/json",
        idle_seconds: float,
    ) -> None:
        self._chunks = list(chunks)
        self.n_bytes = sum(map(len, self._chunks))
        self._lease: Lease | None = None
        self.idle_seconds = idle_seconds
        # Set here, because the constructor of the base class would derive them again.
        self.status_code, self.background, self.body = 200, None, b""
        self.media_type = media_type
        self.raw_headers = [
            *raw_headers,
            (b"content-length", b"%d" % self.n_bytes),
            (b"content-type", media_type.encode("latin-1")),
        ]

    def charge_to(self, lease: Lease) -> None:
        """Let `lease` hold the unsent bytes of the body, and nothing else, until it is sent.

        An OverloadedError releases it.
        """
        try:
            lease.hold(self.n_bytes)
        except OverloadedError:
            lease.release()
            raise
        self._lease = lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body; returns when the last chunk was passed to the server."""
        try:
            await self.send_head(scope, send)
            if self.n_bytes > _SEND_BYTES:
                await self._send_parts(scope, send)
            else:
                await self.send_part(scope, send, b"".join(self._chunks), is_last=True)
        finally:
            if self._lease is not None:
                self._lease.release()

    async def _send_parts(self, scope: Scope, send: Send) -> None:
        """Send the body in parts; the client must read them at the least rate."""
        clock = asyncio.get_running_loop().time
        n_left = self.n_bytes
        pace = Pace(
            grace_seconds=self.idle_seconds,
            most_seconds=_MOST_PATIENCE * self.idle_seconds,
            bytes_per_second=MIN_READ_BYTES_PER_SECOND,
        )
        for part, is_last in _join(self._chunks, n_left):
            started = clock()
            await self.send_part(scope, send, part, is_last=is_last, seconds=pace.seconds_left)
            pace.note(waited_seconds=clock() - started, n_bytes=len(part))
            n_left -= len(part)
            if self._lease is not None:
                self._lease.hold(n_left)


def _join(chunks: list[bytes], n_left: int) -> Iterator[tuple[bytes, bool]]:
    """Join the chunks, `n_left` bytes in total, into pieces of about `_SEND_BYTES`; yield each
    piece and whether it is the last. Empties the list `chunks`, so that sent chunks are freed."""
    waiting: list[bytes] = []
    n_bytes = 0
    chunks.reverse()
    while n_left:
        chunk = chunks.pop()
        for start in range(0, len(chunk), _SEND_BYTES):
            part = chunk[start : start + _SEND_BYTES]
            waiting.append(part)
            n_bytes += len(part)
            if n_bytes >= _SEND_BYTES or n_bytes == n_left:
                n_left -= n_bytes
                yield b"".join(waiting), not n_left
                waiting, n_bytes = [], 0


class FileBody(PartedResponse):
    """Sends the bytes `start` to `stop` of an open file and closes it.

    The open file stays readable after it is deleted. Memory holds one piece of it at a time.
    """

    def __init__(
        self,
        descriptor: int,
        span: tuple[int, int],
        n_bytes: int,
        *,
        headers: Mapping[str, str],
        media_type: str,
        idle_seconds: float,
    ) -> None:
        start, stop = span
        super().__init__(None, headers=dict(headers), media_type=media_type)
        self.headers["Content-Length"] = str(stop - start)
        if (start, stop) != (0, n_bytes):
            self.status_code = 206
            self.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{n_bytes}"
        self._descriptor, self._start, self._stop = descriptor, start, stop
        self.idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the body; returns when the last piece was passed to the server."""
        try:
            await self.send_head(scope, send)
            position = self._start
            while True:
                size = min(_PIECE_BYTES, self._stop - position)
                piece = await asyncio.to_thread(os.pread, self._descriptor, size, position)
                if len(piece) < size:
                    raise OSError("a file became shorter while it was sent")
                position += size
                is_last = position == self._stop
                await self.send_part(scope, send, piece, is_last=is_last)
                if is_last:
                    return
        finally:
            os.close(self._descriptor)


def requested_span(request: Request, n_bytes: int, etag: str) -> tuple[int, int]:
    """The bytes (start, stop) that a request asks for: the whole file, or its Range.

    Several ranges, another unit, or an If-Range other than `etag` select the whole file, as RFC
    9110 allows.
    """
    wanted = _RANGE.fullmatch(header_of(request, b"range"))
    if_range = header_of(request, b"if-range")
    if wanted is None or (if_range and if_range != etag):
        return 0, n_bytes
    first, last, suffix = wanted.groups()
    if suffix is not None:
        start, stop = max(0, n_bytes - int(suffix)), n_bytes
    else:
        start, stop = int(first), min(int(last) + 1, n_bytes) if last else n_bytes
        if last and int(last) < int(first):  # an invalid range is ignored
            return 0, n_bytes
    if start >= n_bytes or start >= stop:
        raise Problem(
            416,
            "range_not_satisfiable",
            f"The file has {n_bytes} bytes; ask for a range within them.",
            limit=n_bytes,
            headers={"Content-Range": f"bytes */{n_bytes}"},
        )
    return start, stop
