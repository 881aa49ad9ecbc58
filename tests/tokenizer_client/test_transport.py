"""Bodies longer than all buffers, with responses during the upload; refusals; lost connections."""

import asyncio
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from tokenizer_client import AsyncClient, ConnectionLostError, StreamCutOffError, TooLargeError

PIECE = bytes(1 << 18)
N_PIECES = 80
"""20 MB: more than the sockets of both sides hold together."""

OK = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@contextmanager
def serving(answer, path=None):
    """A service that accepts connections one by one; `answer` gets the socket after the head.

    It listens on a port, or at the Unix socket `path`.
    """
    if path is None:
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    else:
        listener = socket.create_server(str(path), family=socket.AF_UNIX)
        url = f"unix:{path}"

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(1)
                answer(connection)

    with listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield url
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("name", [None, "a.sock"])
def test_the_response_is_read_while_the_body_is_sent(make_client, tmp_path, name):
    """A service that returns as much as it receives, and reads nothing while it cannot send."""
    n_received = []

    def echo(connection):
        connection.sendall(OK)
        n_bytes, tail = 0, b""
        while not tail.endswith(b"0\r\n\r\n"):
            data = connection.recv(1 << 16)
            n_bytes, tail = n_bytes + len(data), (tail + data)[-5:]
            ids = bytes(len(data) // 4 * 4)
            frame = struct.pack("<II", 0, len(ids)) + ids
            connection.sendall(b"%x\r\n%b\r\n" % (len(frame), frame))
        n_received.append(n_bytes)

    with serving(echo, name and tmp_path / name) as url:
        lengths = []
        parts = make_client(url, timeout=20).encode_stream([PIECE] * N_PIECES)
        with pytest.raises(StreamCutOffError):  # it has no last record
            lengths.extend(len(ids) for ids in parts)
    assert n_received[0] > N_PIECES * len(PIECE)
    assert sum(lengths) > n_received[0] / 5


def test_a_closed_port_or_socket_is_reported_at_once(make_client, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    socket.create_server(f"{tmp_path}/left_over.sock", family=socket.AF_UNIX).close()
    for url in (
        f"http://127.0.0.1:{port}",
        f"http://localhost:{port}",
        f"unix:{tmp_path}/left_over.sock",
        f"unix:{tmp_path}/none.sock",
    ):
        client = make_client(url, deadline_seconds=None)
        for ask in (client.info, lambda: list(client.encode_stream([b"a"]))):  # noqa: B023
            with pytest.raises(ConnectionLostError, match=f"^connection refused at {url};") as told:
                ask()
            assert not told.value.was_sent


def test_a_refusal_is_seen_before_the_body_has_ended(make_client):
    document = b'{"code": "body_too_large", "detail": "Less.", "limit": 1}'

    def refuse(connection):
        connection.sendall(
            b"HTTP/1.1 413 Too large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
            % (len(document), document)
        )
        while connection.recv(1 << 16):
            pass  # as the service does for a while, so that a reset does not overtake the response

    n_sent = []
    with serving(refuse) as url, pytest.raises(TooLargeError, match="Less"):
        make_client(url).corpora.upload(
            "c", [PIECE] * 100_000, on_progress=lambda n_bytes, _: n_sent.append(n_bytes)
        )
    assert len(n_sent) < 10_000


def test_a_connection_that_ends_too_early_is_an_error(make_client):
    def answer(sent, connection):
        body = b""
        while not body.endswith(b"0\r\n\r\n"):  # unread bytes turn the close into a reset
            body += connection.recv(100)
        connection.sendall(sent)

    for sent, kind in (
        (b"", ConnectionLostError),
        (b"HTTP/1.1 200", ConnectionLostError),
        (b"SSH-2.0-x\r\n", ConnectionLostError),
        (OK, StreamCutOffError),
        (OK + b"8\r\nabc", StreamCutOffError),
    ):
        with serving(partial(answer, sent)) as url, pytest.raises(kind):
            list(make_client(url).encode_stream(iter([b"abc"])))


def test_a_silent_service_times_out(make_client):
    silence = threading.Event()
    with serving(lambda connection: silence.wait(20)) as url:
        try:
            with pytest.raises(ConnectionLostError, match="ReadTimeout"):
                list(make_client(url, timeout=0.05).encode_stream(iter([b"abc"])))
        finally:
            silence.set()


def test_a_file_that_grows_during_the_upload_is_refused(make_client, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with (
        serving(lambda connection: connection.recv(100)) as url,
        pytest.raises(ValueError, match="written to while"),
    ):
        make_client(url).corpora.upload("c", path, on_progress=lambda *_: path.write_bytes(b"abcd"))


def test_a_cancelled_call_closes_all_it_opened():
    connection_closed, source_closed = threading.Event(), []

    def listen(connection):
        with suppress(ConnectionResetError):
            connection.sendall(OK)
            while connection.recv(1 << 16):
                pass
        connection_closed.set()

    async def arriving(begun):
        try:
            yield b"abc"
            begun.set()
            await asyncio.Event().wait()
        finally:
            source_closed.append(True)

    async def cancel(url):
        begun = asyncio.Event()
        async with AsyncClient(url) as client:
            call = asyncio.ensure_future(anext(client.encode_stream(arriving(begun))))
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert source_closed == [True]
            assert await asyncio.to_thread(connection_closed.wait, 10)

    with serving(listen) as url:
        asyncio.run(cancel(url))
