"""A client that sends raw bytes, also ones that no library sends, and reports how it ended."""

import json
import socket
import time
from dataclasses import dataclass, field

PATIENCE_SECONDS = 60.0
"""Far more than any deadline of the servers under test; only a defect waits so long."""


@dataclass
class Answer:
    """The response. `end` is `closed`, `reset`, or `open` if the connection was still open."""

    data: bytes
    end: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def __post_init__(self):
        if self.data:
            head, _, self.body = self.data.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            self.status = int(first.split()[1])
            for line in lines:
                name, _, value = line.partition(":")
                self.headers[name.lower()] = value.strip()

    def problem(self):
        """The document; checks what every problem promises."""
        assert self.headers["content-type"] == "application/problem+json"
        assert len(self.body) == int(self.headers["content-length"]) <= 4096
        document = json.loads(self.body)
        assert document["status"] == self.status
        assert {"type", "title", "detail", "instance", "code", "error"} <= set(document)
        return document


def connect(port, *, receive_buffer=None):
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(PATIENCE_SECONDS)
    connection.connect(("127.0.0.1", port))
    return connection


def send(connection, data):
    """Send; return how many bytes went out before the server closed."""
    view = memoryview(data)
    sent = 0
    try:
        while sent < len(view):
            sent += connection.send(view[sent : sent + (1 << 16)])
    except ConnectionError:
        pass
    return sent


def read_answer(connection, *, seconds=PATIENCE_SECONDS):
    """Everything received until the server closes, or until these seconds pass."""
    started = time.monotonic()
    data, end = b"", "open"
    while (left := started + seconds - time.monotonic()) > 0:
        connection.settimeout(left)
        try:
            piece = connection.recv(1 << 16)
        except TimeoutError:
            break
        except ConnectionError:
            end = "reset"
            break
        if not piece:
            end = "closed"
            break
        data += piece
    return Answer(data, end)


def read_one(connection):
    """One response with a length, on a connection that stays open."""
    data = b""
    while True:
        piece = connection.recv(1 << 16)
        assert piece, "closed inside an answer"
        data += piece
        if b"\r\n\r\n" in data:
            answer = Answer(data, "open")
            if len(answer.body) >= int(answer.headers["content-length"]):
                return answer


def exchange(port, *pieces):
    """Send these pieces on one connection, then read until the server closes it."""
    with connect(port) as connection:
        for piece in pieces:
            send(connection, piece)
        return read_answer(connection)


def head(line, *headers, host="Host: localhost"):
    return "\r\n".join([line, *([host] if host else []), *headers, "", ""]).encode("latin-1")


def post(path, body, *headers):
    """A whole request with JSON, or with the bytes that it is given in place of JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind, length = "Content-Type: application/json", f"Content-Length: {len(data)}"
    return head(f"POST {path} HTTP/1.1", kind, length, *headers) + data


LONG_WORK = post("/tokenize", {"inputs": "x" * 300_000})
"""Seconds with a tokenizer of bytes: 300,000 tokens, each described."""
