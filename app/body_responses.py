"""Responses whose body is made of chunks: large answers without one large copy.

It stands alone because sending is where a slow reader must be waited for: each chunk waits until
the one before has left, and what the request holds of the byte budget is freed at the end of the
sending, however it ends. May import `limits`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.limits import SEND_IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from app.limits import Lease

_SEND_BYTES: Final = 1 << 18


class ChunkedBody(Response):
    """A response with a known length that is sent chunk by chunk."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
        lease: Lease | None = None,
        idle_seconds: float = SEND_IDLE_SECONDS,
    ) -> None:
        self._chunks = list(chunks)
        length = sum(map(len, self._chunks))
        self._lease = lease
        self._idle_seconds = idle_seconds
        super().__init__(
            None, headers={**(headers or {}), "Content-Length": str(length)}, media_type=media_type
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; returns when the last chunk is handed over.

        Raises:
            ClientDisconnect: the client took nothing for too long.
        """
        try:
            await self._send(
                send,
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                },
            )
            parts = _join(self._chunks, _SEND_BYTES)
            part: bytes | None = next(parts, b"")
            while part is not None:  # the last one is known only when there is no other
                following = next(parts, None)
                message = {"body": part, "more_body": following is not None}
                await self._send(send, {"type": "http.response.body", **message})
                part = following
        finally:
            if self._lease is not None:
                self._lease.release()

    async def _send(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                await send(message)
        except TimeoutError:
            raise ClientDisconnect from None


def _join(chunks: list[bytes], size: int) -> Iterator[bytes]:
    """The chunks joined to pieces of about `size` bytes; they are given up on the way."""
    waiting: list[bytes] = []
    n_bytes = 0
    chunks.reverse()
    while chunks:
        chunk = chunks.pop()
        waiting.append(chunk)
        n_bytes += len(chunk)
        if n_bytes >= size:
            yield b"".join(waiting)
            waiting, n_bytes = [], 0
    if waiting:
        yield b"".join(waiting)
