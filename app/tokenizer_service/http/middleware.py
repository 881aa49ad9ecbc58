"""RequestObserver: the outermost middleware counts requests and turns defects into documents.

It catches errors that no handler maps and logs them with the request id; Starlette's own last
handler would raise them again into the server. It adds the request id to each response and each log
line, and serves HEAD as GET without a body. It is plain ASGI, so streams pass through unchanged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenizer_service.access.errors import ShuttingDownError
from tokenizer_service.http.problem import (
    Problem,
    given_request_id,
    internal_error,
    new_request_id,
    problem_response,
    request_id_of,
)
from tokenizer_service.observability.logs import REQUEST_ID
from tokenizer_service.observability.metrics import ServiceMetrics

RawResponse = tuple[bytes, bytes]
"""A response with status 200, ready to be written: its headers, each with its CRLF, and its
content."""

Server = Callable[[bytes], RawResponse | None]
"""Serves requests with one head in one step, given the whole body; None: the app must serve it."""

CLIENT_GONE: Final = 499
"""The status in the metrics for a client that disconnected before the response began."""

INTERNAL_ERROR: Final = 500

_DOCUMENTS: Final = {b"application/json", b"application/problem+json"}

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_UNMATCHED: Final = "unmatched"


def count_newline(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether it is the head of a JSON document, which ends with a newline, so that a shell's
    prompt begins a line; its length then counts it. A file that is downloaded keeps its bytes."""
    named = dict(headers)
    length = named.get(b"content-length", b"0")
    is_json = named.get(b"content-type", b"") in _DOCUMENTS
    if length == b"0" or not is_json or b"content-disposition" in named:
        return False
    position = headers.index((b"content-length", length))
    headers[position] = (b"content-length", b"%d" % (int(length) + 1))
    return True


async def _send_no_body(send: Send, message: Message) -> None:
    await send({"type": "http.response.body", "body": b""})
    if message.get("more_body"):
        raise ClientDisconnect  # stop a stream that has no reader


class RequestObserver:
    """Counts and times requests. `problem_of` maps an error to a problem, or a defect to None;
    `server_of` gives the function that serves requests with a head in one step, or None."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServiceMetrics,
        problem_of: Callable[[Exception], Problem | None],
        server_of: Callable[[Scope], Server | None] = lambda scope: None,
    ) -> None:
        self._app, self._server_of = app, server_of
        self._metrics = metrics
        self._problem_of = problem_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        # The server's own scope keeps the method HEAD.
        inner = {**scope, "method": "GET"} if is_head else scope
        request_id = request_id_of(inner)
        # Do not reset it: the server may log about this request after this call.
        REQUEST_ID.set(request_id)
        status, adds_newline = 0, False
        started = time.perf_counter()

        # A plain function: a coroutine function would add a coroutine per message.
        def observe(message: Message) -> Awaitable[None]:
            nonlocal status, adds_newline
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                adds_newline = count_newline(headers)
                message["headers"] = headers
            elif is_head:
                return _send_no_body(send, message)
            elif adds_newline and not message.get("more_body"):
                message["body"] = b"%b\n" % message.get("body", b"")
            return send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(inner, receive, observe)
        except ClientDisconnect:
            # Starlette responds to every exception with a 500 before it passes it on. Nobody reads
            # that one, and it must not raise the alert for defects.
            if status == INTERNAL_ERROR:
                status = CLIENT_GONE
        except asyncio.CancelledError:
            if status:
                raise
            # The server shuts down and cancels unfinished requests. The task ends normally here,
            # because the server would log a traceback for a cancelled one.
            await self._response_to(ShuttingDownError(), inner)(inner, receive, observe)
        except Exception as error:
            response = self._response_to(error, inner)
            if status:
                raise  # the head was sent: the response can only be cut off
            await response(inner, receive, observe)
        finally:
            self._metrics.in_flight.dec()
            seconds = time.perf_counter() - started
            self._record(scope["method"], inner, status or CLIENT_GONE, seconds)

    def server_of(self, scope: Scope) -> Server | None:
        """A function that serves requests with this head in one step; None if the app must serve
        them.

        After an error the app serves the request too, and reports the error.
        """
        try:
            respond = self._server_of(scope)
        except Exception:
            return None
        if respond is None:
            return None
        path, given = scope["route"].path, given_request_id(scope)

        def serve(body: bytes) -> RawResponse | None:
            started = time.perf_counter()
            request_id = scope["state"]["request_id"] = given or new_request_id()
            token = REQUEST_ID.set(request_id)
            try:
                response = respond(body)
            except Exception:
                return None
            finally:
                REQUEST_ID.reset(token)
            if response is None:
                return None
            seconds = time.perf_counter() - started
            self._metrics.count_request("POST", path, 200, seconds)
            headers, content = response
            return b"%bx-request-id: %b\r\n" % (headers, request_id.encode()), content

        return serve

    def _response_to(self, error: Exception, scope: Scope) -> Response:
        # Keep the problem in no variable: it may be the error itself, whose traceback refers to
        # the caller's frame. Such a cycle would keep a retired tokenizer alive.
        return problem_response(self._problem_of(error) or internal_error(error, scope), scope)

    def _record(self, method: str, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        handler = getattr(route, "path", None) or _UNMATCHED
        known = method if method in _METHODS else "OTHER"
        self._metrics.count_request(known, handler, status, seconds)
        if status >= 400:
            self._metrics.count_rejected(scope.get("state", {}).get("problem_code", ""))
