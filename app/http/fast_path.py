"""The short way: hot routes without the framework's machinery around them.

For a route that takes the raw request and gives back a response, FastAPI's matching, dependency
solver and exit stacks do nothing, and took 65 us of the 155 of a small request. Such routes are
found among the app's own at the start: they stay where they are for OpenAPI, for their tests
and for the walk that looks for a guard on each, and requests for them come here first.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import Request

from app.access.auth import require_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from fastapi import FastAPI
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    FastRoutes = Mapping[tuple[str, str], APIRoute]

_PREFIXES: Final = ("", "/v1")


class FastPath:
    """ASGI: answers `routes` itself and hands everything else on."""

    def __init__(self, app: ASGIApp, routes: FastRoutes) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; problems are raised, as from the long way's inside."""
        route = None
        if scope["type"] == "http" and not scope.get("root_path"):
            route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        await require_read(request)
        endpoint: Callable[[Request], Awaitable[Response]] = route.endpoint
        response = await endpoint(request)
        await response(scope, receive, send)


def find_fast_routes(app: FastAPI) -> FastRoutes:
    """(method, path) -> route, of the POST routes of `app` that need nothing of the framework.

    That is: a fixed path, an endpoint that takes the request alone and returns a response, and
    `require_read` as the only dependency.
    """
    found: dict[tuple[str, str], APIRoute] = {}
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute) and "POST" in (route.methods or ()) and _is_fast(route):
            found.update({("POST", prefix + route.path): route for prefix in _PREFIXES})
    return found


def _is_fast(route: APIRoute) -> bool:
    guards = [dependency.call for dependency in route.dependant.dependencies]
    return guards == [require_read] and _takes_the_request_alone(route.endpoint)


def _takes_the_request_alone(endpoint: Callable[..., Any]) -> bool:
    return list(inspect.signature(endpoint).parameters) == ["request"]
