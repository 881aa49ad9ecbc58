"""Send requests over many connections, each one after the previous response is complete.

    .venv/bin/python benchmarks/http_load.py < job.json

It is a separate process, so that its cost does not count as the server's. It parses only the status
and Content-Length of a response, so it is several times faster than the servers that it measures.
`compare_http.py` starts it; the job is a JSON object, see `Job`.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@dataclass
class Job:
    """What to send; `bodies` is a file with one JSON body per line, sent in order."""

    port: int
    bodies: str
    seconds: float
    socket: str = ""  # path of a Unix socket, in place of the port
    n_connections: int = 32
    path: str = "/encode"  # empty: each line begins with a method and a path
    accept: str = "application/json"
    warm_up_seconds: float = 1.0
    requests_per_second: float = 0.0  # 0: as fast as responses come
    has_ids: bool = False  # each request with another X-Request-Id, so that no two heads are equal
    is_once: bool = False  # each body once, without warming up; `seconds` is the longest time
    processor: int | None = None


@dataclass
class Result:
    """The responses within the measured time; `n_all` and `n_wrong` count those before too."""

    n_requests: int = 0
    n_all: int = 0
    n_body_bytes: int = 0
    n_wrong: int = 0
    seconds: float = 0.0
    p50_milliseconds: float = 0.0
    p99_milliseconds: float = 0.0


class Connection(asyncio.Protocol):
    """One client: sends the next request after the whole response, or when it is due."""

    def __init__(self, load):
        self._load = load
        self._received = bytearray()
        self._answer_bytes = 0
        self._size = 0
        self._sent_at = 0.0

    def connection_made(self, transport):
        self._transport = transport
        self._send_next()

    def data_received(self, data):
        if not self._answer_bytes:
            self._received += data
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._received, 0, end + 2)
            self._answer_bytes = end + 4 + int(length[1]) if length else 0
            self._n_received = len(self._received)
        else:
            self._n_received += len(data)
        if self._n_received >= self._answer_bytes:
            is_right = self._received.startswith(b"HTTP/1.1 200 ")
            self._load.note(self._sent_at, self._size, is_right)
            self._received.clear()
            self._answer_bytes = 0
            self._send_next()

    def connection_lost(self, error):
        if not self._load.is_over:
            self._load.note(self._sent_at, 0, is_right=False)

    def _send_next(self):
        if self._load.all_are_sent():
            return
        wait = self._load.seconds_until_due()
        if wait > 0:
            asyncio.get_running_loop().call_later(wait, self._send)
        else:
            self._send()

    def _send(self):
        request, self._size = self._load.next_request()
        self._sent_at = time.perf_counter()
        self._transport.write(request)


class Load:
    """All connections of one job."""

    def __init__(self, job):
        self._job = job
        self._result = Result()
        self._latencies = []
        self.is_over = False
        lines = Path(job.bodies).read_bytes().splitlines()
        self._requests = [self._request(line) for line in lines]
        self._n_sent = 0
        self._next_due = 0.0
        self._from = self._until = 0.0

    async def run(self):
        loop = asyncio.get_running_loop()
        warm_up_seconds = 0.0 if self._job.is_once else self._job.warm_up_seconds
        self._from = self._next_due = time.perf_counter() + warm_up_seconds
        self._until = self._from + self._job.seconds
        self._next_due -= warm_up_seconds
        self._all_are_answered = asyncio.Event()
        for _ in range(self._job.n_connections):
            if self._job.socket:
                await loop.create_unix_connection(lambda: Connection(self), self._job.socket)
            else:
                await loop.create_connection(lambda: Connection(self), "127.0.0.1", self._job.port)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._until - time.perf_counter()):
                await self._all_are_answered.wait()
        self.is_over = True
        self._result.seconds = min(time.perf_counter() - self._from, self._job.seconds)
        in_order = sorted(self._latencies)
        if in_order:
            self._result.p50_milliseconds = 1e3 * in_order[len(in_order) // 2]
            self._result.p99_milliseconds = 1e3 * in_order[len(in_order) * 99 // 100]
        return self._result

    def note(self, sent_at, n_bytes, is_right):
        now = time.perf_counter()
        self._result.n_all += 1
        self._result.n_wrong += not is_right
        if self._from <= now < self._until:
            self._result.n_requests += 1
            self._result.n_body_bytes += n_bytes
            self._latencies.append(now - sent_at)
        if self._job.is_once and self._result.n_requests == len(self._requests):
            self._all_are_answered.set()

    def all_are_sent(self):
        return self._job.is_once and self._n_sent == len(self._requests)

    def seconds_until_due(self):
        if not self._job.requests_per_second:
            return 0.0
        self._next_due += 1 / self._job.requests_per_second
        return self._next_due - time.perf_counter()

    def next_request(self):
        request, size = self._requests[self._n_sent % len(self._requests)]
        self._n_sent += 1
        if self._job.has_ids:
            line, _, rest = request.partition(b"\r\n")
            request = b"%b\r\nX-Request-Id: %d\r\n%b" % (line, self._n_sent, rest)
        return request, size

    def _request(self, line):
        """The request of a line, and the size of its body."""
        method, path, body = "POST", self._job.path, line
        if not path:
            named, named_path, body = (line + b"  ").split(b" ", 2)
            method, path, body = named.decode(), named_path.decode(), body.strip()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {self._job.accept}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body, len(body)


def main():
    job = Job(**json.load(sys.stdin))
    if job.processor is not None:
        os.sched_setaffinity(0, {job.processor})
    print(json.dumps(asdict(uvloop.run(Load(job).run()))))


if __name__ == "__main__":
    main()
