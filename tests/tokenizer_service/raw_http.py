"""A duplex HTTP/1.1 client over a bare socket: it sends a chunk, waits for the response to it, and
sends the next. Library clients send the whole body before they read."""

import socket


class RawRequest:
    def __init__(self, host, port, target, *headers, method="POST"):
        self.socket = socket.create_connection((host, port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked"]
        self.socket.sendall("\r\n".join([*lines, *headers, "", ""]).encode())
        self._received = self.socket.makefile("rb")
        self.status = 0
        self.headers = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._received.close()
        self.socket.close()

    def send_chunk(self, data):
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self):
        self.socket.sendall(b"0\r\n\r\n")

    def read_head(self):
        self.status = int(self._line().split()[1])
        while line := self._line():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def read_chunk(self):
        """The next chunk of the response; empty at its end."""
        if not self.status:
            self.read_head()
        data = self._received.read(int(self._line(), 16))
        self._line()
        return data

    def read_body(self):
        if not self.status:
            self.read_head()
        if "content-length" in self.headers:
            return self._received.read(int(self.headers["content-length"]))
        return b"".join(iter(self.read_chunk, b""))

    def _line(self):
        line = self._received.readline().decode("latin-1")
        if not line.endswith("\r\n"):
            raise ConnectionError("the server closed the connection")
        return line[:-2]
