"""Duplex transports: httpx transports that read the response while the body is still being sent.

httpx's own transports send the whole body before they read. `/encode_stream` responds while it
reads, so both sides would deadlock, and the client would notice the refusal of a long upload only
after sending all of it. h11 renders and parses HTTP, as it does for httpx; this module moves bytes
between h11 and a socket. The blocking transport sends when the socket is writable and receives when
it is readable; the async one sends in a task. Each request opens a connection. Proxies are
unsupported.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Final, cast

import h11
import httpx

_RECEIVE_BYTES: Final = 1 << 17
_WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Exchange:
    """One request and its response as bytes, without a socket."""

    def __init__(self, request: httpx.Request) -> None:
        self._request = request
        self._h11 = h11.Connection(h11.CLIENT)

    def render_head(self) -> bytes:
        url = self._request.url
        return self._send(
            h11.Request(
                method=self._request.method, target=url.raw_path, headers=self._request.headers.raw
            )
        )

    def render_piece(self, piece: bytes | None) -> bytes:
        """A piece of the body, or None for its end."""
        return self._send(h11.EndOfMessage() if piece is None else h11.Data(data=piece))

    def _send(self, event: h11.Event) -> bytes:
        try:
            return self._h11.send(event) or b""
        except h11.LocalProtocolError as error:  # the file grew or shrank since it was measured
            raise httpx.LocalProtocolError(str(error), request=self._request) from None

    def receive(self, data: bytes) -> None:
        self._h11.receive_data(data)

    def next_event(self) -> h11.Response | h11.Data | h11.EndOfMessage | None:
        """The next event, None until more is received."""
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                raise httpx.RemoteProtocolError(str(error), request=self._request) from None
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return None
            if isinstance(event, h11.Response | h11.Data | h11.EndOfMessage):
                return event
            if isinstance(event, h11.ConnectionClosed):
                raise httpx.RemoteProtocolError("closed without a response", request=self._request)


class DuplexTransport(httpx.BaseTransport):
    """The blocking transport; any number of threads may use it.

    It connects to the Unix socket at `socket_path`, or to the host of each URL.
    """

    def __init__(self, tls: ssl.SSLContext | None, socket_path: str | None = None) -> None:
        self._tls, self._socket_path = tls, socket_path

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` until the head of the response; reading the response sends the rest."""
        connection = _Connection(request, self._tls, self._socket_path)
        try:
            head = connection.read_head()
        except BaseException:
            connection.close()
            raise
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=connection)


class _Connection(httpx.SyncByteStream):
    """A non-blocking socket: receives if it can, else sends if it can, else waits for either."""

    def __init__(
        self, request: httpx.Request, tls: ssl.SSLContext | None, socket_path: str | None
    ) -> None:
        self._request = request
        self._timeouts = request.extensions["timeout"]
        self._exchange = _Exchange(request)
        self._pieces = iter(
            cast("httpx.SyncByteStream", request.stream)
        )  # httpx.Client passes no other kind
        self._outgoing = memoryview(self._exchange.render_head())
        self._is_sending = True
        self._socket = self._connect(tls, socket_path)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)

    def _connect(self, tls: ssl.SSLContext | None, socket_path: str | None) -> socket.socket:
        host, port = _address_of(self._request)
        try:
            if socket_path is not None:
                sock = _connect_to_file(socket_path, self._timeouts["connect"])
            else:
                sock = socket.create_connection((host, port), self._timeouts["connect"])
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=host)
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error), request=self._request) from error
        except OSError as error:
            raise httpx.ConnectError(str(error), request=self._request) from error
        sock.setblocking(False)
        return sock

    def read_head(self) -> h11.Response:
        return cast("h11.Response", self._next_event())  # h11 allows no other order

    def __iter__(self) -> Iterator[bytes]:
        while isinstance(event := self._next_event(), h11.Data):
            yield bytes(event.data)

    def _next_event(self) -> h11.Response | h11.Data | h11.EndOfMessage:
        while (event := self._exchange.next_event()) is None:
            if not (self._receive_some() or self._send_some()):
                self._wait()
        return event

    def _receive_some(self) -> bool:
        try:
            self._exchange.receive(self._socket.recv(_RECEIVE_BYTES))
        except _WOULD_BLOCK:
            return False
        except OSError as error:
            raise httpx.ReadError(str(error), request=self._request) from error
        return True

    def _send_some(self) -> bool:
        if not self._outgoing and self._is_sending:
            self._take_piece()
        if not self._outgoing:
            return False
        try:
            n_sent = self._socket.send(self._outgoing)
        except _WOULD_BLOCK:
            return False
        except OSError:
            # A service that closes early may have sent the reason: continue to read.
            self._is_sending, n_sent = False, len(self._outgoing)
        self._outgoing = self._outgoing[n_sent:]
        return True

    def _take_piece(self) -> None:
        piece = next(self._pieces, None)
        self._is_sending = piece is not None
        self._outgoing = memoryview(self._exchange.render_piece(piece))

    def _wait(self) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._socket, wanted)
        if not self._selector.select(self._timeouts["read"]):
            raise httpx.ReadTimeout("nothing arrived", request=self._request)

    def close(self) -> None:
        """Close the connection, even in the middle of the body."""
        self._selector.close()
        self._socket.close()


class AsyncDuplexTransport(httpx.AsyncBaseTransport):
    """DuplexTransport for asyncio."""

    def __init__(self, tls: ssl.SSLContext | None, socket_path: str | None = None) -> None:
        self._tls, self._socket_path = tls, socket_path

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` until the head of the response; a task sends the rest."""
        connection = _AsyncConnection(request)
        try:
            head = await connection.open(self._tls, self._socket_path)
        except BaseException:
            await connection.aclose()
            raise
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=connection)


class _AsyncConnection(httpx.AsyncByteStream):
    """A connection whose task sends while the caller reads."""

    def __init__(self, request: httpx.Request) -> None:
        self._request = request
        self._timeouts = request.extensions["timeout"]
        self._exchange = _Exchange(request)
        self._reader: asyncio.StreamReader  # set by `open`
        self._writer: asyncio.StreamWriter | None = None
        self._sender: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._is_sending = True
        self._waits_for_piece = False
        self._n_written = 0  # bytes, also those that wait to be sent

    async def open(self, tls: ssl.SSLContext | None, socket_path: str | None) -> h11.Response:
        host, port = _address_of(self._request)
        try:
            async with asyncio.timeout(self._timeouts["connect"]):
                if socket_path is not None:
                    opened = asyncio.open_unix_connection(socket_path, limit=_RECEIVE_BYTES)
                else:
                    opened = asyncio.open_connection(host, port, ssl=tls, limit=_RECEIVE_BYTES)
                self._reader, self._writer = await opened
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error), request=self._request) from error
        except OSError as error:
            raise httpx.ConnectError(str(error), request=self._request) from error
        self._sender = asyncio.create_task(self._send(self._writer), name="send a body")
        return cast("h11.Response", await self._next_event())  # h11 allows no other order

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next_event(), h11.Data):
            yield bytes(event.data)

    async def _next_event(self) -> h11.Response | h11.Data | h11.EndOfMessage:
        while (event := self._exchange.next_event()) is None:
            n_sent = self._n_sent
            try:
                async with asyncio.timeout(self._timeouts["read"]):
                    data = await self._reader.read(_RECEIVE_BYTES)
            except TimeoutError as error:
                if self._waits_for_piece or self._n_sent != n_sent:
                    continue  # the service waits for us, or has not had the whole body
                raise httpx.ReadTimeout("nothing arrived", request=self._request) from error
            except OSError as error:
                raise self._failure or httpx.ReadError(str(error), request=self._request) from error
            if self._failure is not None:
                raise self._failure
            self._exchange.receive(data)
        return event

    @property
    def _n_sent(self) -> int:
        """The bytes that the system has taken; each wait for the service begins when it grows."""
        waiting = self._writer.transport.get_write_buffer_size() if self._writer is not None else 0
        return self._n_written - waiting

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        pieces = aiter(
            cast("httpx.AsyncByteStream", self._request.stream)
        )  # httpx.AsyncClient passes no other kind
        data: bytes | None = self._exchange.render_head()
        while data is not None:
            try:
                self._n_written += len(data)
                writer.write(data)
                await writer.drain()
                # drain() may return without yielding to the event loop; the reader needs its turn.
                await asyncio.sleep(0)
            except OSError:
                return  # the service may have sent the reason before it closed: continue to read
            try:
                data = await self._render_next(pieces)
            except BaseException as error:  # raised by the body; the reader raises it again
                # A body that awaits a cancelled task raises CancelledError, as `aclose` does here.
                self._failure = error
                writer.transport.abort()
                if not isinstance(error, Exception | asyncio.CancelledError):
                    raise
                return

    async def _render_next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        if not self._is_sending:
            return None
        self._waits_for_piece = True
        try:
            piece = await anext(pieces, None)
        finally:
            self._waits_for_piece = False
        self._is_sending = piece is not None
        return self._exchange.render_piece(piece)

    async def aclose(self) -> None:
        """Close the connection, even in the middle of the body."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait({self._sender})
        if self._writer is not None:
            self._writer.transport.abort()


def _connect_to_file(path: str, seconds: float | None) -> socket.socket:
    """Connect to the Unix socket at `path`. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(seconds)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _address_of(request: httpx.Request) -> tuple[str, int]:
    """Host and port."""
    url = request.url
    return url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)
