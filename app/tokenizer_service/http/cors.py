"""CORS: the read routes for pages of the origins that the operator lists; no route for others.

A page of another origin cannot read responses, and a browser asks (a preflight) before it sends a
JSON body or a key. Both stay so for admin routes and unlisted origins.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenizer_service.access.auth import require_read
from tokenizer_service.http.dialect_errors import take_prefix


class SharedReads:
    """Which origins may use the read routes among `routes`."""

    def __init__(self, origins: Sequence[str], routes: Sequence[BaseRoute]) -> None:
        self.origins = origins
        self._routes = [
            (context.methods or set(), context.path_regex)
            for context in iter_route_contexts(routes if origins else [])
            if require_read in {inner.call for inner in context.dependant.dependencies}
        ]

    def is_read(self, method: str, path: str) -> bool:
        """Whether the request is for a read route."""
        asked: Scope = {"method": "GET" if method == "HEAD" else method, "path": path, "state": {}}
        take_prefix(asked)
        return any(
            asked["method"] in methods and regex.match(asked["path"])
            for methods, regex in self._routes
        )

    def allows(self, origin: str, method: str, path: str) -> bool:
        """Whether a page of `origin` may send this request and read its response."""
        return origin in self.origins and self.is_read(method, path)


class ReadRoutesCors(CORSMiddleware):
    """Starlette's middleware, for read routes. Credentials of a browser (cookies) have no use; keys
    are headers."""

    def __init__(self, app: ASGIApp, shared: SharedReads) -> None:
        super().__init__(
            app,
            allow_origins=shared.origins,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=("*",),
            allow_private_network=True,
            expose_headers=("*",),
        )
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            method = headers.get("access-control-request-method", scope["method"])
            if self._shared.is_read(method, scope["path"]):
                await super().__call__(scope, receive, send)
                return
        await self.app(scope, receive, send)
