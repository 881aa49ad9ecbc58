"""Respond to GET requests with stored bytes: fixed ones, and ones that a thread makes.

Stored routes need no FastAPI, whose matching took 0.55 ms of the 0.65 ms of GET /livez, so that 100
clients delayed each other by as much; `StoredRoutes` serves them without it. What is made for a
request, such as the list of tokenizers, is made on one thread, and once for all requests that wait
for it: see `access.shared_work`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from tokenizer_service.access.auth import check_read
from tokenizer_service.handlers.preconditions import check_query, not_modified
from tokenizer_service.http.dialect_errors import take_prefix
from tokenizer_service.http.responses import ChunkedBody
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class StoredBody(NamedTuple):
    """A body that is ready to send, and its headers."""

    content: bytes
    media_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    etag: str = ""
    """Empty: a response without an ETag."""


def with_etag(
    content: bytes, media_type: str = "application/json", headers: Iterable[tuple[str, str]] = ()
) -> StoredBody:
    """A body whose ETag is its hash."""
    return StoredBody(
        content, media_type, tuple(headers), f'"{hashlib.sha256(content).hexdigest()}"'
    )


BodySource = Callable[[HTTPConnection], Awaitable[StoredBody]]


class StoredRoute(NamedTuple):
    """A route, and what gives the body of a request; it raises any error of the route."""

    path: str
    source: BodySource
    is_public: bool
    parameter: str
    """The name of the last part of the path; empty for a path without a parameter."""


STORED: Final[dict[str, StoredRoute]] = {}
"""The stored routes, by their paths with and without `/v1`, in which a parameter is `{}`."""


def stored(
    router: APIRouter, path: str, *, is_public: bool = False, **documented: Any
) -> Callable[[BodySource], BodySource]:
    """Make the decorated function the source of GET requests to `path`; `documented` is for
    OpenAPI, where the route is an ordinary one. `router` requires the key."""

    def register(source: BodySource) -> BodySource:
        async def endpoint(request: Request) -> Response:
            return respond_stored(request, await source(request))

        endpoint.__name__, endpoint.__doc__ = source.__name__, source.__doc__
        router.get(path, response_model=None, **documented)(endpoint)
        folder, _, parameter = path.removesuffix("}").partition("{")
        key = f"{folder}{{}}" if parameter else path
        STORED[key] = STORED[f"/v1{key}"] = StoredRoute(path, source, is_public, parameter)
        return source

    return register


def respond_stored(request: Request, body: StoredBody) -> Response:
    """The response with `body`, or a 304 for a client that has it."""
    headers = dict(body.headers)
    if body.etag:
        unchanged = not_modified(request, body.etag, headers)
        if unchanged is not None:
            return unchanged
        headers["ETag"] = body.etag
    seconds = services_of(request).settings.send_seconds
    response = ChunkedBody([body.content], media_type=body.media_type, idle_seconds=seconds)
    response.headers.update(headers)
    return response


async def respond_json(
    make: Callable[[], BaseModel],
    headers: Mapping[str, str] | None = None,
    *,
    only_set_fields: bool = False,
) -> Response:
    """A response with the value that `make` returns as JSON, which a thread makes: FastAPI would
    serialise it on the event loop. Raises as `make`."""

    def render() -> bytes:
        return make().model_dump_json(by_alias=True, exclude_unset=only_set_fields).encode()

    content = await asyncio.to_thread(render)
    return Response(content, headers=headers, media_type="application/json")


def _find(scope: Scope) -> StoredRoute | None:
    path: str = scope["path"]
    route = STORED.get(path)
    if route is None:
        folder, _, last = path.rpartition("/")
        route = STORED.get(f"{folder}/{{}}") if last else None
        if route is not None:
            scope["path_params"] = {route.parameter: last}
    return route


class StoredRoutes:
    """An ASGI app: serves the stored routes of `service`, and passes other requests to `app`."""

    def __init__(self, app: ASGIApp, service: Any) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises any error of a route."""
        route = None
        if scope["type"] == "http":
            take_prefix(scope)
            if scope["method"] == "GET" and not scope.get("root_path"):
                route = _find(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["app"], scope["route"] = self._service, route
        request = Request(scope, receive, send)
        if not route.is_public:
            check_read(request)
        check_query(request)
        response = respond_stored(request, await route.source(request))
        await response(scope, receive, send)
