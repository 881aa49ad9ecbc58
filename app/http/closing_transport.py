"""The closing transport: a connection that ends so that the other side sees the answer.

A socket closed with unread bytes in it sends a reset, and the reset takes the answer with it; one
closed with unsent bytes waits for its reader for ever. This transport stands between uvicorn's
protocol and the real one and ends in three steps: it says that it sends no more, reads and drops
for a while what still comes, then closes, with a deadline for what is unsent. It knows nothing of
HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


_MOST_HELD_BYTES = 1 << 16


class ClosingTransport(asyncio.Transport):
    """What uvicorn writes to; see the module."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        *,
        has_unread: Callable[[], bool],
        linger_seconds: float,
        max_drained_bytes: int,
        send_seconds: float,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._has_unread = has_unread
        self._linger_seconds = linger_seconds
        self._left_to_drain = max_drained_bytes
        self._send_seconds = send_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._held: bytes | None = None
        self.is_lingering = False

    def close(self) -> None:
        """End: at once, or when the rest of what the client sends was read or waited for."""
        if self.is_closing():
            return
        if self._has_unread():
            self.linger()
        else:
            self.end()

    def linger(self) -> None:
        """End, and expect that the client is still sending."""
        if self.is_closing():
            return
        self.is_lingering = True
        self._send_held()
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(self._linger_seconds, self.end)

    def drop(self, n_bytes: int) -> None:
        """Note that so many bytes came that nobody wants; too many, and no more are read."""
        self._left_to_drain -= n_bytes
        # Not closed: the client has stopped sending then, and has time to read.
        if self._left_to_drain < 0 and not self._transport.is_closing():
            self._transport.pause_reading()

    def forget(self) -> None:
        """The connection is lost; nothing is to be done for it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Close, once the client has taken what was written; it has `send_seconds` for that."""
        self.forget()
        self._send_held()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._timer = self._loop.call_later(self._send_seconds, self.abort)

    def abort(self) -> None:
        """End at once; what was not sent is lost, and the client is told so by a reset."""
        self.forget()
        # Else the kernel would go on offering what it has to a client that does not read.
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it has ended for those who write."""
        return self.is_lingering or self._transport.is_closing()

    def write(self, data: Any) -> None:
        """Send, or drop what comes after the end.

        Of requests sent ahead, uvicorn tells only the last that the connection is lost.
        """
        if self.is_closing():
            return
        if self._held is None:
            # Head and body of a small answer go out together, at the end of the loop's turn: a
            # client is woken once for them, and all that were answered in one turn together. It
            # makes small requests a third faster.
            self._held = data
            self._loop.call_soon(self._send_held)
        elif len(self._held) + len(data) <= _MOST_HELD_BYTES:
            self._held += data
        else:
            self._send_held()
            self._transport.write(data)

    def _send_held(self) -> None:
        held, self._held = self._held, None
        if held is not None and not self._transport.is_closing():
            self._transport.write(held)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken."""
        return self._transport.get_write_buffer_size() + len(self._held or b"")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the transport below."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """As the transport below, which may be closing."""
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """As the transport below, which may be closing."""
        if not self.is_closing():
            self._transport.resume_reading()
