"""The fast path: hot routes without the framework around them.

A route that takes only the request and returns a response needs neither FastAPI's matching nor its
dependency solver and exit stacks, which took 65 us of the 155 us of a small request. `main`
lists these routes. They stay ordinary routes in OpenAPI and in the test of guards.

A small request of some of them is served at once: its body has arrived with its head, and nothing
has to wait. The protocol then calls `serve_now` instead of starting a task for the app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import HTTPConnection, Request

from tokenizer_service.access.auth import check_read, require_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from fastapi import FastAPI
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    Endpoint = Callable[[Request], Awaitable[Response]]

    RawResponse = tuple[bytes, bytes]
    """A response with status 200, ready to be written: its headers, each with its CRLF, and its
    content."""

    RespondNow = Callable[[HTTPConnection, bytes], RawResponse | None]
    """Responds to a request with this body; None if that takes a thread or a wait."""

_PREFIXES: Final = ("", "/v1")


class FastPath:
    """An ASGI app that serves POST requests for `routes` itself and passes all others on.

    `now` has what serves a request at once, for some endpoints.
    """

    def __init__(
        self, app: ASGIApp, routes: Mapping[str, APIRoute], now: Mapping[Endpoint, RespondNow]
    ) -> None:
        self._app = app
        self._routes = routes
        self._now = {
            path: (route, now[route.endpoint])
            for path, route in routes.items()
            if route.endpoint in now
        }

    def serve_now(self, scope: Scope, body: bytes) -> RawResponse | None:
        """Serve one request with this whole body; None if it must be served as an ASGI app does.

        Raises any error of a route; the app then responds to the request with it.
        """
        found = self._now.get(scope["path"])
        if found is None or scope["method"] != "POST" or scope["root_path"]:
            return None
        scope["route"], respond_now = found
        request = HTTPConnection(scope)
        check_read(request)
        return respond_now(request, body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises Problem, as routes do."""
        route = None
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            route = self._routes.get(scope["path"])
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        await require_read(request)
        response: Response = await route.endpoint(request)
        await response(scope, receive, send)


def find_fast_routes(app: FastAPI, endpoints: Collection[Endpoint]) -> dict[str, APIRoute]:
    """Map the path of each of `endpoints`, which are POST routes of `app`, to its route.

    Raises:
        ValueError: an endpoint needs more than the request and `require_read`.
    """
    found: dict[str, APIRoute] = {}
    for context in iter_route_contexts(app.routes):
        route: Any = context.original_route
        if isinstance(route, APIRoute) and route.endpoint in endpoints:
            if [guard.call for guard in route.dependant.dependencies] != [require_read]:
                raise ValueError(f"{route.path} has other guards than require_read")
            found.update({prefix + route.path: route for prefix in _PREFIXES})
    return found
