"""The HTTP/1.1 protocol of the service: uvicorn's protocol with the limits it lacks.

uvicorn's own protocol waits forever for headers, for a client that does not read, and for the rest
of a body after its response; it also accepts heads of any size and any Host. Here, a refusal before
a request exists is a problem document like any other. The module uses some private names of the
pinned uvicorn; `tests/tokenizer_service/http/test_protocol.py` tests the effect of each.
"""

from __future__ import annotations

import asyncio
import http
import logging
import re
import select
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from tokenizer_service.access.deadlines import DEPARTURE, FLOW, Departure
from tokenizer_service.http.bodies import COLLECT, WHOLE_BODY
from tokenizer_service.http.connections import STATE_KEY, ClosingTransport, ConnectionGuard
from tokenizer_service.http.cors import SharedReads
from tokenizer_service.http.middleware import RawResponse, Server, count_newline
from tokenizer_service.http.problem import Problem, problem_response, request_id_of
from tokenizer_service.ingress import AllowedHosts

log = logging.getLogger("tokenizer_service.http")

MAX_HEADER_BYTES: Final = 32 * 1024
"""Limit of the request line and headers together, and of the input between two pieces of a body."""

MAX_HEADERS: Final = 100

AFTER_EOF_SECONDS: Final = 1.0
"""After its FIN a client is served as long as no second passes without a part of a response: it
may have only stopped sending, or be gone."""

ENDING_SECONDS: Final = 1.0
"""When the server ends, a kept connection has so long for a request that is on its way."""

_RESET_POLL_SECONDS: Final = 0.1

_SAFE_METHODS: Final = frozenset({b"GET", b"HEAD", b"OPTIONS"})

_HOST: Final = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]+)(?::[0-9]{0,5})?", re.ASCII
)

_MOST_DIGITS: Final = 4
_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,%d})\r\n" % _MOST_DIGITS)

HEALTH_PATHS: Final = frozenset(
    prefix + path for prefix in (b"", b"/v1") for path in (b"/livez", b"/readyz", b"/health")
)


class GuardedHttpProtocol(HttpToolsProtocol):
    """One connection; see the module docstring."""

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.ws_protocol_class = None  # no route uses WebSocket
        guard = app_state.get(STATE_KEY)
        self._guard: ConnectionGuard = ConnectionGuard() if guard is None else guard
        self._wire: ClosingTransport = None  # type: ignore[assignment]
        self._in_head = True  # also before the first byte of the next request
        self._head_begun = False
        self._bytes_without_news = 0
        self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._departure = Departure()
        self._running: RequestResponseCycle | None = None
        self._is_parsing = False
        self._take: Callable[[bytes], bool] | None = None
        self._begun: tuple[RequestResponseCycle, Any] | None = None  # within one `data_received`
        # An app around the service has none, so that nothing passes it by.
        self._server_of = None if self.access_log else getattr(self.app, "server_of", None)
        self._data = b""  # within one `data_received`, if a request began with it
        self._known: tuple[bytes, bytes, Server] | None = None
        self._defaults: Any = None
        self._start_of_head = b""
        self._eof_timer: asyncio.TimerHandle | None = None
        self._reset_timer: asyncio.TimerHandle | None = None
        self._is_ending = False
        self._end_timer: asyncio.TimerHandle | None = None

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for a head."""
        self._wire = ClosingTransport(
            transport,
            self.loop,
            has_unread=self._has_unread,
            max_drained_bytes=self._guard.max_drained_bytes,
            send_seconds=self._guard.send_seconds,
        )
        super().connection_made(self._wire)
        self._await_head()
        self._guard.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection, stop its timers, and tell all its requests."""
        self._cancel_head_timer()
        self._cancel_stall_timer()
        for timer in (self._eof_timer, self._reset_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        self._wire.forget()
        self._guard.release(self)
        super().connection_lost(exc)
        # The base class notifies the last request only; an earlier one may be running.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._running = None
        self.pipeline.clear()
        self._departure.note()

    def shutdown(self) -> None:
        """The server ends: the next response says so, and an idle connection is closed later.

        uvicorn's closes an idle connection at once, into which a client may just send a request.
        """
        self._is_ending, self._known = True, None
        if not self._is_idle() and not self.cycle.response_started:
            self.cycle.keep_alive = False
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._end_timer = self.loop.call_later(ENDING_SECONDS, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._is_idle() and not self._head_begun and not self._bytes_without_news:
            self._wire.close()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep the connection for the responses of whole requests; otherwise close it.

        Both ways, what was written reaches the client.
        """
        if self._is_idle() or self._has_unread() or self.scheme == "https":
            self._wire.end()
        else:
            self.cycle.keep_alive = False
            self._await_response()
        return None if self.scheme == "https" else True  # True: do not close the transport here

    def _await_response(self) -> None:
        if self._eof_timer is None:
            self._wire.has_written = False
            self._eof_timer = self.loop.call_later(AFTER_EOF_SECONDS, self._response_is_late)

    def _response_is_late(self) -> None:
        self._eof_timer = None
        if self._wire.is_closing():
            return
        if self._wire.has_written or self.flow.write_paused:
            self._await_response()
        else:
            self._wire.abort()

    def _look_for_end(self) -> None:
        """Ask the kernel whether the client has left: while reading is paused, nothing says so."""
        self._reset_timer = None
        if not self.flow.read_paused or self._wire.is_closing():
            return
        poll = select.poll()
        ended = getattr(select, "POLLRDHUP", 0)  # Linux only
        poll.register(self._wire.get_extra_info("socket").fileno(), ended)
        events = poll.poll(0)
        if events and events[0][1] & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            self._wire.abort()
            return
        if events:
            self._await_response()
        self._watch_paused()

    def _watch_paused(self) -> None:
        if self._reset_timer is None:
            self._reset_timer = self.loop.call_later(_RESET_POLL_SECONDS, self._look_for_end)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, or drop it if no request needs it any more."""
        self._unset_keepalive_if_required()
        if self._wire.is_lingering:
            self._wire.drop(len(data))
            return
        if self._is_refused or self._wire.is_closing():
            self.flow.pause_reading()
            self._watch_paused()
            return
        is_begin = self._in_head and not self._head_begun and not self._bytes_without_news
        if is_begin and self._known is not None and self._responds_again(data, *self._known):
            return
        self._data = data if is_begin else b""
        self._bytes_without_news += len(data)
        self._is_parsing = True
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            malformed = Problem(400, "bad_http", "This is not well-formed HTTP/1.1.")
            self.refuse(cause if isinstance(cause, Problem) else malformed)
        else:
            if self._bytes_without_news > MAX_HEADER_BYTES:
                self.refuse(_headers_too_large())
        finally:
            self._is_parsing = False
            if self._begun is not None:
                begun, self._begun = self._begun, None
                self._start_asgi_task(*begun)
            self._data = b""
        if self._in_head and (self._head_begun or self._bytes_without_news):
            self._await_head()

    def _parse(self, data: bytes) -> None:
        """Feed the parser. A request that offers another protocol is read without the offer.

        `curl --http2` and Java's HttpClient offer h2c with each request, also with a body. The
        parser ends such a request with its head, so its body would be lost.
        """
        rest = memoryview(data)
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            if not self._offers_protocol():
                self.cycle.keep_alive = False  # CONNECT: what follows is no HTTP
                return
            head = self._head_without_offer()
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn
            # Not within `except`: a Problem is the context of what this raises.
            self.parser.feed_data(head)

    def _offers_protocol(self) -> bool:
        return self.parser.get_method() != b"CONNECT"  # of a request that asks for an upgrade

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def refuse(self, problem: Problem) -> None:
        """Respond with `problem` unless a response is in progress, then close the connection."""
        if self._is_refused or self._wire.is_closing():
            return
        self._is_refused = True
        self._cancel_head_timer()
        self._unset_keepalive_if_required()
        self._guard.note(problem)
        cycle = self.cycle
        if self._is_idle():
            self._write_problem(problem)
            self._wire.linger()
        elif cycle.more_body:  # the rest of this request's body is unreadable
            if not cycle.response_started:
                self._write_problem(problem)
            cycle.disconnected = True
            cycle.message_event.set()
            self._wire.linger()
        else:  # the request was valid, so its response is the last
            cycle.keep_alive = False
            self.flow.pause_reading()
            self._watch_paused()

    def turn_away(self, problem: Problem) -> None:
        """Refuse and close at once, because another connection needs the slot."""
        self._is_refused = True
        self._guard.note(problem)
        if self._is_idle():
            self._write_problem(problem)
        self._wire.end()

    def _write_problem(self, problem: Problem) -> None:
        scope: Any = self.scope if self._head_begun else {"type": "http", "headers": []}
        response = problem_response(problem, scope)
        phrase = http.HTTPStatus(problem.status).phrase
        headers = [*self.server_state.default_headers, *response.raw_headers]
        headers.append((b"x-request-id", request_id_of(scope).encode()))
        lines = [f"HTTP/1.1 {problem.status} {phrase}".encode()]
        body = bytes(response.body) + b"\n" * count_newline(headers)
        lines += [name + b": " + value for name, value in headers]
        lines += [b"connection: close", b"", body]
        self._wire.write(b"\r\n".join(lines))

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _has_unread(self) -> bool:
        return self._is_refused or (self.cycle is not None and self.cycle.more_body)

    # Head of a request

    def _await_head(self) -> None:
        if self._head_timer is None and not self._is_refused and not self._wire.is_closing():
            self._head_timer = self.loop.call_later(self._guard.header_seconds, self._head_is_late)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self._is_idle():
            self._await_head()  # pipelined: its timer starts when its turn comes
        elif self._head_begun or self._bytes_without_news:
            detail = f"The headers did not arrive within {self._guard.header_seconds:g} seconds."
            self.refuse(Problem(408, "headers_too_slow", detail))
        else:
            self._wire.close()

    def on_message_begin(self) -> None:
        """Handle the first byte of a head."""
        self._head_begun = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Drop trailers: a trailer could have the name of a checked header."""
        if self._in_head:
            # Same as in the base class, inlined because it runs for every header of every request.
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the head and start the response."""
        check_size(self.url, self.headers, self._bytes_without_news)
        if self.parser.should_upgrade() and self._offers_protocol():
            return  # `_parse` comes here again, without the offer
        self._in_head = False
        self._bytes_without_news = 0
        self._cancel_head_timer()
        host = check_framing(self.headers, self.parser.get_http_version())
        guard, method = self._guard, self.parser.get_method()
        check_source(self.url, method, self.headers, host, guard.hosts, guard.shared)
        is_admitted = self._guard.admit(self)
        if not is_admitted and self.url.partition(b"?")[0] not in HEALTH_PATHS:
            raise self._guard.too_many()
        super().on_headers_complete()
        if not is_admitted or self._is_ending:
            self.cycle.keep_alive = False
        if self.pipeline:
            self._watch_paused()

    def on_body(self, body: bytes) -> None:
        """Pass a piece of the body to the app."""
        self._bytes_without_news = 0
        # An earlier piece that is still a message must reach the app first.
        if self._take is None or self.cycle.body or not self._take(body):
            super().on_body(body)

    def _collect(self, cycle: RequestResponseCycle, take: Callable[[bytes], bool] | None) -> None:
        """Offer pieces of this request's body to `take` first; see `bodies.COLLECT`."""
        if cycle is self.cycle and cycle.more_body:
            self._take = take

    def on_message_complete(self) -> None:
        """End the request; the next byte begins another head."""
        if self.parser.should_upgrade() and self._offers_protocol():
            return
        self._take = None
        self._in_head = True
        self._head_begun = False
        self._bytes_without_news = 0
        super().on_message_complete()
        if not self.pipeline:
            # A large body paused it, and nobody asks for more: a reset would not be noticed.
            self.flow.resume_reading()

    # Response

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if self._is_parsing:
            # The parser first reads all data that is there, with the body of a small request.
            self._begun = cycle, app
            return
        self._running = cycle
        if self._has_responded_at_once(cycle, app):
            return
        start = partial(super()._start_asgi_task, cycle, partial(self._respond, cycle, app))
        if cycle.scope["raw_path"] in HEALTH_PATHS:
            start()
        else:
            self._guard.turns.take(start)

    def _has_responded_at_once(self, cycle: RequestResponseCycle, app: ASGI3Application) -> bool:
        """Respond to a small request without a task, if the app can. A task, its messages and
        headers written one by one cost half of the time of such a request."""
        if (
            self._server_of is None
            or cycle.more_body
            or self.pipeline
            or app is not self.app
            or self.flow.write_paused
            or self._wire.is_closing()
        ):
            return False
        serve = self._server_of(cycle.scope)
        response = None if serve is None else serve(bytes(cycle.body))
        if serve is None or response is None:
            return False
        cycle.response_started = cycle.response_complete = True
        self._write_response(response, keep_alive=cycle.keep_alive)
        end = self._data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(self._data, 0, end)
        if length is not None and self._data[end:] == cycle.body and cycle.keep_alive:
            self._known = self._data[: length.start(1)], self._data[length.end(1) : end], serve
        return True

    def _responds_again(self, data: bytes, before: bytes, after: bytes, serve: Server) -> bool:
        """Respond to a whole request whose head, but for the length of the body, is that of one
        that was served at once. Most clients repeat it, and reading it takes half of the time."""
        end = data.find(b"\r", len(before), len(before) + _MOST_DIGITS + 1)
        digits, start = data[len(before) : end], end + len(after)
        if (
            not (data.startswith(before) and data.startswith(after, end) and digits.isdigit())
            or len(data) - start != int(digits)
            or not self.cycle.response_complete
            or self.pipeline
            or self.flow.write_paused
        ):
            return False
        response = serve(data[start:])
        if response is not None:
            self._write_response(response, keep_alive=True)
        return response is not None

    def _write_response(self, response: RawResponse, *, keep_alive: bool) -> None:
        headers, content = response
        defaults = self.server_state.default_headers
        if defaults is not self._defaults:  # uvicorn makes them anew every second
            self._defaults = defaults
            lines = b"".join(b"%b: %b\r\n" % header for header in defaults)
            self._start_of_head = STATUS_LINE[200] + lines
        end = b"\r\n" if keep_alive else b"connection: close\r\n\r\n"
        self._wire.write_whole(b"%b%b%b%b" % (self._start_of_head, headers, end, content))
        if not keep_alive:
            self._wire.close()
        self.on_response_complete()

    async def _respond(
        self,
        cycle: RequestResponseCycle,
        app: ASGI3Application,
        scope: Any,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
    ) -> None:
        """Run the app; pass on the whole body and the flow control where no wait is needed."""
        scope[FLOW] = self.flow
        scope[DEPARTURE] = self._departure
        if not cycle.more_body:
            scope[WHOLE_BODY] = cycle.body
        else:
            scope[COLLECT] = partial(self._collect, cycle)
        is_unframed = False

        # A plain function: a coroutine function would add a coroutine per message.
        def send_message(message: ASGISendEvent) -> Awaitable[None]:
            nonlocal is_unframed
            if message["type"] == "http.response.start":
                has_length = b"content-length" in dict(message.get("headers", ()))
                if not has_length and cycle.scope["http_version"] == "1.0":
                    # HTTP/1.0 has no chunked encoding, which uvicorn would use: the connection's
                    # end marks the end of the response.
                    is_unframed = True
                    cycle.chunked_encoding, cycle.expected_content_length = False, sys.maxsize
                # A response with a length that begins before the body ends refuses the request, so
                # it is the last one. A stream has no length and continues while the body arrives.
                if cycle.more_body and has_length:
                    cycle.keep_alive = False
            elif (
                is_unframed
                and message["type"] == "http.response.body"
                and not message.get("more_body")
            ):
                cycle.expected_content_length = len(message.get("body", b""))
            return send(message)

        is_cut_off = False
        try:
            await app(scope, receive, send_message)
        except asyncio.CancelledError:
            if not cycle.response_started:
                raise
            # The server ends. uvicorn would log a traceback.
            log.warning("a response is cut off: the server ends")
            is_cut_off = True
        if not cycle.response_complete and (is_cut_off or self.flow.write_paused):
            cycle.disconnected = True
            if self.flow.write_paused:
                # The client does not read; a normal close would wait for it.
                self._wire.abort()
            else:
                self._wire.close()

    def on_response_complete(self) -> None:
        """Start the next request, unless the rest of this one is still to be received."""
        if self.cycle.response_complete and self.cycle.more_body:
            self._wire.close()
        elif self._is_ending:
            self._end_when_idle()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Pause the app, which writes faster than the client reads."""
        super().pause_writing()
        self._cancel_stall_timer()
        self._stall_timer = self.loop.call_later(self._guard.stall_seconds, self._wire.abort)

    def resume_writing(self) -> None:
        """Resume the app: the client has read."""
        self._cancel_stall_timer()
        super().resume_writing()

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def check_size(url: bytes, headers: list[tuple[bytes, bytes]], n_received: int) -> None:
    """Raise Problem 431 for a head over the limits, received within `n_received` bytes."""
    if len(headers) > MAX_HEADERS:
        raise Problem(
            431,
            "too_many_headers",
            f"A request has at most {MAX_HEADERS} headers.",
            limit=MAX_HEADERS,
            actual=len(headers),
        )
    if n_received <= MAX_HEADER_BYTES:
        return
    n_bytes = len(url) + sum(len(name) + len(value) + len(": \r\n") for name, value in headers)
    if n_bytes > MAX_HEADER_BYTES:
        raise _headers_too_large()


def check_framing(headers: list[tuple[bytes, bytes]], version: str) -> bytes | None:
    """The Host header; None for HTTP/1.0 without one.

    Raises 400 or 501 unless the request's host and end are unambiguous.
    """
    hosts: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
    if len(hosts) > 1 or (not hosts and version != "1.0"):
        raise Problem(400, "host_invalid", "A request has exactly one Host header.")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise Problem(400, "host_invalid", "The Host header is no host with an optional port.")
    if codings and version == "1.0":
        raise Problem(400, "bad_http", "HTTP/1.0 has no Transfer-Encoding.")
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
        raise Problem(
            501,
            "transfer_coding_unsupported",
            "The only Transfer-Encoding taken is `chunked`, once.",
        )
    return hosts[0] if hosts else None


def check_source(
    url: bytes,
    method: bytes,
    headers: list[tuple[bytes, bytes]],
    host: bytes | None,
    allowed: AllowedHosts,
    shared: SharedReads | None,
) -> None:
    """Raise Problem 421 or 403 for a request that a page of another site may have sent.

    Both the Host header and the host in an absolute target must be allowed. The health routes are
    exempt from the 421: probes address them by any name, and they reveal nothing.
    """
    named = [] if host is None else [host]
    if not url.startswith((b"/", b"*")):
        named.append(_authority(url))
    for name in named:
        if not allowed.allows(name) and url.partition(b"?")[0] not in HEALTH_PATHS:
            raise Problem(
                421,
                "host_not_allowed",
                "The request names no host under which this service may be addressed; the "
                "operator can add the host to TOKENIZER_ALLOWED_HOSTS.",
            )
    # The header's value is one of four words, and pages cannot set it.
    if (b"sec-fetch-site", b"cross-site") in headers and method not in _SAFE_METHODS:
        asked = dict(headers).get(b"origin", b""), method, url.partition(b"?")[0]
        if shared is not None and shared.allows(*(part.decode("latin-1") for part in asked)):
            return
        raise Problem(
            403,
            "cross_site_request",
            "A page of another site sent this request (Sec-Fetch-Site: cross-site). Send it from "
            "the site of the service, or from a program that is no browser.",
        )


def _authority(url: bytes) -> bytes:
    """The host, with its port, of a target in absolute form; raises Problem."""
    authority = re.split(rb"[/?#]", url.partition(b"://")[2], maxsplit=1)[0]
    if not _HOST.fullmatch(authority):
        raise Problem(400, "host_invalid", "The target is neither a path nor a URL with a host.")
    return authority


def _headers_too_large() -> Problem:
    """The 431 for a head with too many bytes."""
    return Problem(
        431,
        "headers_too_large",
        f"The request line and the headers are together larger than {MAX_HEADER_BYTES} bytes.",
        limit=MAX_HEADER_BYTES,
    )
