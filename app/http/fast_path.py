"""The fast path: hot routes without the framework around them.

A route that takes only the request and returns a response needs neither FastAPI's matching nor its
dependency solver and exit stacks, which took 65 us of the 155 us of a small request. `app.main`
lists these routes. They stay ordinary routes in OpenAPI and in the test of guards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import Request

from app.access.auth import require_read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from fastapi import FastAPI
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    Endpoint = Callable[[Request], Awaitable[Response]]

_PREFIXES: Final = ("", "/v1")


class FastPath:
    """An ASGI app that serves POST requests for `routes` itself and passes all others on."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, APIRoute]) -> None:
        self._app = app
        self._routes = routes

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
