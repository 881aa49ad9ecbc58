"""A duplex HTTP/1.1 client over a bare socket: it sends a chunk, waits for the response to it, and
sends the next. Library clients send the whole body before they read."""

from __future__ import annotations

import socket
from types import TracebackType


class RawRequest:
    """One request with a chunked body."""

    def __init__(
        self, host: str, port: int, target: str, *headers: str, method: str = "POST"
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked"]
        self.socket.sendall("\r\n".join([*lines, *headers, "", ""]).encode())
        self._received = b""
        self.status = 0
        self.headers: dict[str, str] = {}

    def __enter__(self) -> RawRequest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send_chunk(self, data: bytes) -> None:
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.socket.sendall(b"0\r\n\r\n")

    def read_head(self) -> None:
        head = self._take_until(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }

    def read_chunk(self) -> bytes:
        """The next chunk of the response; empty at its end."""
        if not self.status:
            self.read_head()
        size = int(self._take_until(b"\r\n"), 16)
        data = self._take(size)
        self._take(2)
        return data

    def read_body(self) -> bytes:
        """The rest of the response."""
        if not self.status:
            self.read_head()
        if "content-length" in self.headers:
            return self._take(int(self.headers["content-length"]))
        parts = []
        while part := self.read_chunk():
            parts.append(part)
        return b"".join(parts)

    def _take_until(self, mark: bytes) -> bytes:
        while mark not in self._received:
            self._fill()
        head, _, self._received = self._received.partition(mark)
        return head

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._fill()
        data, self._received = self._received[:size], self._received[size:]
        return data

    def _fill(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._received += data
