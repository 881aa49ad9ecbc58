"""A web server of files in memory: ranges, versions, and the faults of real servers."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class StoreServer(ThreadingHTTPServer):
    """`files` by path; `redirects` maps path to path. `requests` are method, path and range."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.gives_parts = self.gives_size = True
        self.breaks_at: int | None = None
        """The byte of a file at which the connection ends."""
        self.version = 1

    def handle_error(self, *_: object) -> None:
        """Silent: a test that closes the connection does so on purpose."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: StoreServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        server, path = self.server, self.path.partition("?")[0]
        asked = self.headers["Range"]
        server.requests.append((self.command, path, asked))
        if path in server.redirects:
            self._send(302, b"", {"Location": server.redirects[path]}, with_body=False)
            return
        if path.endswith("/"):
            links = "".join(f'<a href="{name}">' for name in server.files if name.startswith(path))
            self._send(200, links.encode(), {"Content-Type": "text/html"}, with_body=with_body)
            return
        if path not in server.files:
            self._send(404, b"", {}, with_body=with_body)
            return
        data, status, start = server.files[path], 200, 0
        headers = {"ETag": f'"{server.version}"'}
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
        if part and server.gives_parts:
            start, end = int(part[1]), min(int(part[2]) + 1, len(data))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data, status = data[start:end], 206
        self._send(status, data, headers, with_body=with_body, start=start)

    def _send(
        self, status: int, data: bytes, headers: dict[str, str], *, with_body: bool, start: int = 0
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.server.gives_size:
            self.send_header("Content-Length", str(len(data)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        breaks_at = self.server.breaks_at
        if with_body:
            whole = breaks_at is None or breaks_at >= start + len(data)
            self.wfile.write(data if whole else data[: max(breaks_at - start, 0)])
            self.close_connection = not whole or not self.server.gives_size


@contextmanager
def serve_store() -> Iterator[StoreServer]:
    """The server, in a thread."""
    server = StoreServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
