"""Responses whose body is made of chunks: large answers without one large copy.

It stands alone because sending is where a slow reader must be waited for: each chunk waits until
the one before has left, and what the request holds of the byte budget is freed at the end of the
sending, however it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from app.access.deadlines import send_within
from app.access.limits import SEND_IDLE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.types import Message, Receive, Scope, Send

    from app.access.limits import Lease

_SEND_BYTES: Final = 1 << 18


class ChunkedBody(Response):
    """A response with a known length that is sent chunk by chunk."""

    def __init__(
        self,
        chunks: Iterable[bytes],
        *,
        raw_headers: Iterable[tuple[bytes, bytes]] = (),
        media_type: str = "application/json",
        lease: Lease | None = None,
        idle_seconds: float = SEND_IDLE_SECONDS,
    ) -> None:
        self._chunks = list(chunks)
        self._n_bytes = sum(map(len, self._chunks))
        self._lease = lease
        self._idle_seconds = idle_seconds
        # What the base class makes of content and headers is all known here.
        self.status_code, self.background, self.body = 200, None, b""
        self.media_type = media_type
        self.raw_headers = [
            *raw_headers,
            (b"content-length", b"%d" % self._n_bytes),
            (b"content-type", media_type.encode("latin-1")),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; returns when the last chunk is handed over.

        Raises:
            ClientDisconnect: the client took nothing for too long.
        """
        try:
            head = {"status": self.status_code, "headers": self.raw_headers}
            start: Message = {"type": "http.response.start", **head}
            for part, is_last in _join(self._chunks, self._n_bytes):
                await send_within(self._idle_seconds, _send(send, start, part, is_last))
                start = {}
        finally:
            if self._lease is not None:
                self._lease.release()


async def _send(send: Send, start: Message, body: bytes, is_last: bool) -> None:
    if start:
        await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


def _join(chunks: list[bytes], n_bytes: int) -> Iterable[tuple[bytes, bool]]:
    """The chunks, `n_bytes` together, joined to pieces of about `_SEND_BYTES`, and whether each is
    the last; they are given up on the way."""
    if n_bytes <= _SEND_BYTES:
        return ((b"".join(chunks), True),)
    return _join_many(chunks, n_bytes)


def _join_many(chunks: list[bytes], n_left: int) -> Iterator[tuple[bytes, bool]]:
    waiting: list[bytes] = []
    n_bytes = 0
    chunks.reverse()
    while chunks:
        chunk = chunks.pop()
        waiting.append(chunk)
        n_bytes += len(chunk)
        if n_bytes >= _SEND_BYTES or n_bytes == n_left:
            n_left -= n_bytes
            yield b"".join(waiting), not n_left
            if not n_left:
                return  # what is left is empty
            waiting, n_bytes = [], 0
