"""FileBody: a file of any size as an answer, or a range of it.

It stands alone because what is sent is held open: neither the removal of the file nor a slow
reader spoils an answer that has begun, and memory holds one piece of it.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from app.access.deadlines import send_within
from app.access.limits import SEND_IDLE_SECONDS
from app.http.headers import header_of
from app.http.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import Message, Receive, Scope, Send

_PIECE_BYTES: Final = 1 << 20
_RANGE: Final = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")


class FileBody(Response):
    """Sends the bytes `start` to `stop` of an open file, and closes it."""

    def __init__(
        self,
        descriptor: int,
        span: tuple[int, int],
        n_bytes: int,
        *,
        headers: Mapping[str, str],
        media_type: str,
        idle_seconds: float = SEND_IDLE_SECONDS,
    ) -> None:
        start, stop = span
        super().__init__(None, headers=dict(headers), media_type=media_type)
        self.headers["Content-Length"] = str(stop - start)
        if (start, stop) != (0, n_bytes):
            self.status_code = 206
            self.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{n_bytes}"
        self._descriptor, self._start, self._stop = descriptor, start, stop
        self._idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; returns when the last piece is handed over.

        Raises:
            ClientDisconnect: the client took nothing for too long.
            OSError: the file cannot be read, or has become shorter; the answer is cut off.
        """
        try:
            head: Message = {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
            await send_within(self._idle_seconds, send(head))
            place = self._start
            while True:
                size = min(_PIECE_BYTES, self._stop - place)
                piece = await asyncio.to_thread(os.pread, self._descriptor, size, place)
                if len(piece) < size:
                    raise OSError("a file became shorter while it was sent")
                place += size
                body: Message = {
                    "type": "http.response.body",
                    "body": piece,
                    "more_body": place < self._stop,
                }
                await send_within(self._idle_seconds, send(body))
                if place == self._stop:
                    return
        finally:
            os.close(self._descriptor)


def requested_span(request: Request, n_bytes: int, etag: str) -> tuple[int, int]:
    """The bytes (start, stop) that a request asks for: all, or those of its Range.

    Several ranges, another unit, or a Range whose If-Range is not `etag` mean all, as RFC 9110 lets
    a server answer.

    Raises:
        Problem: 416, the range begins behind the end.
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
        if last and int(last) < int(first):  # no valid range: ignored
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
