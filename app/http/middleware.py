"""The outermost middleware: every request is counted, and no defect leaves without a document.

It stands alone because it must wrap everything: what a handler does not know is caught here, with
the request's id in the log, instead of by Starlette's own last resort, which would raise it again
into the server. That id goes onto every answer and into every line of the log here. HEAD is
answered here too, as GET without a body, for all routes alike. Plain ASGI, so that streams pass
through untouched.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect

from app.http.problem import internal_error, problem_response, request_id_of, shutting_down
from app.observability.logs import REQUEST_ID
from app.rendering.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from app.observability.metrics import ServiceMetrics

CLIENT_GONE: Final = 499
"""Status counted for a request whose client left before the answer began."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_UNMATCHED: Final = "unmatched"


async def _send_no_body(send: Send, message: Message) -> None:
    await send({"type": "http.response.body", "body": b""})
    if message.get("more_body"):
        raise ClientDisconnect  # nobody reads on: a stream must not go on for nobody


class RequestObserver:
    """Counts and times every request, and answers any defect with a 500 document."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"
        # HEAD is answered as GET without its body; the server's own scope stays as it was.
        inner = {**scope, "method": "GET"} if is_head else scope
        request_id = request_id_of(inner)
        # Not reset: what the server itself has to say of this request comes after this.
        REQUEST_ID.set(request_id)
        status = 0
        started = time.perf_counter()

        # No coroutine itself, which would be one more for each message.
        def observe(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                named = (b"x-request-id", request_id.encode())
                message["headers"] = [*message.get("headers", ()), named]
            elif is_head:
                return _send_no_body(send, message)
            return send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(inner, receive, observe)
        except ClientDisconnect:
            pass  # nobody is there to be answered
        except asyncio.CancelledError:
            if status:
                raise
            # The server ends and cancels what is not done in time. It is the last to be said here,
            # so the task may as well end by itself: the server would log a traceback otherwise.
            await problem_response(shutting_down(), inner)(inner, receive, observe)
        except Exception as error:
            # In no variable of its own, as it may be the error, whose traceback leads here: the two
            # would keep all that is on the way, a retired tokenizer for one.
            response = problem_response(problem_of(error) or internal_error(error, inner), inner)
            if status:
                raise  # the head is sent: only cutting the answer off is left
            await response(inner, receive, observe)
        finally:
            self._metrics.in_flight.dec()
            seconds = time.perf_counter() - started
            self._record(scope["method"], inner, status or CLIENT_GONE, seconds)

    def _record(self, method: str, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        handler = getattr(route, "path", None) or _UNMATCHED
        known = method if method in _METHODS else "OTHER"
        self._metrics.count_request(known, handler, status, seconds)
        if status >= 400:
            self._metrics.count_rejected(scope.get("state", {}).get("problem_code", ""))
