"""GET /docs and /openapi.json: the OpenAPI document, and a page to read it and try requests.

An installed package provides the scripts of the page, so it works without internet access and
no third party learns who reads it. The document describes this service's problems instead of
FastAPI's 422.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from pydantic.json_schema import models_json_schema
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.tokens import ProblemDocument
from tokenizer_service.access.auth import require_admin, require_read
from tokenizer_service.handlers.stored import StoredBody, stored, with_etag
from tokenizer_service.http.bodies import REQUEST_MODELS
from tokenizer_service.http.dialect_errors import dialects_of_route
from tokenizer_service.http.problem import TITLES, Problem
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import services_of

Made = TypeVar("Made")

router = APIRouter(dependencies=[Depends(require_read)], include_in_schema=False)

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START: Final = """const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  tryItOutEnabled: true,
});
"""
_MEDIA_TYPES: Final = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
}
"""Files of the installed package."""
_HEADERS: Final = {
    # Swagger UI sets styles on its elements.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_DEFAULT_422: Final = "HTTPValidationError"
"""FastAPI's model for the 422 of a route with parameters that declares no 422 itself."""

_OF_ANY_ROUTE: Final = (400, 408, 431, 500, 501, 503)
"""Statuses of every route: malformed HTTP, headers that arrive too slowly or are too large, an
unknown transfer encoding, a defect, too many connections, or a shutdown."""


@stored(router, "/openapi.json")
async def openapi_json(connection: HTTPConnection) -> StoredBody:
    """The OpenAPI document."""
    return await _made_once(
        connection, "openapi", lambda app: with_etag(bytes(JSONResponse(app.openapi()).body))
    )


@stored(router, "/docs")
async def docs(connection: HTTPConnection) -> StoredBody:
    """A page to read about the routes and try them."""
    return (await _made_once(connection, "docs", _read_assets))["index.html"]


@stored(router, "/docs/{file}")
async def docs_file(connection: HTTPConnection) -> StoredBody:
    """A script or style sheet of the page."""
    files = await _made_once(connection, "docs", _read_assets)
    file = files.get(connection.path_params["file"])
    if file is None:
        raise Problem(404, "not_found", "No such file; the page is at /docs.")
    return file


async def _made_once(
    connection: HTTPConnection, name: str, make: Callable[[FastAPI], Made]
) -> Made:
    """What `make` gives, which a thread makes for the first request."""
    app = connection.scope["app"]
    if not hasattr(app.state, name):
        setattr(app.state, name, await services_of(connection).shared.run(name, make, app))
    made: Made = getattr(app.state, name)
    return made


def _read_assets(app: FastAPI) -> Mapping[str, StoredBody]:
    # Find the package without importing it: importing it creates another application class.
    package = find_spec("fastapi_offline")
    if package is None or package.origin is None:
        raise RuntimeError("fastapi-offline is a dependency of this package; install it again")
    folder = Path(package.origin).parent / "static"
    html = with_etag(
        _PAGE.format(title=app.title).encode(), "text/html; charset=utf-8", _HEADERS.items()
    )
    start = with_etag(_START.encode(), "text/javascript; charset=utf-8", _HEADERS.items())
    return {
        "index.html": html,
        "start.js": start,
        **{
            name: with_etag((folder / name).read_bytes(), media_type, _HEADERS.items())
            for name, media_type in _MEDIA_TYPES.items()
        },
    }


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """The document, in which request bodies and problems refer to shared components."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.pop(_DEFAULT_422, None)
    components.pop("ValidationError", None)
    _, others = models_json_schema(
        [
            (ProblemDocument, "serialization"),
            *((model, "validation") for model in REQUEST_MODELS.values()),
        ],
        ref_template="#/components/schemas/{model}",
    )
    components.update(others["$defs"])
    for operations in document["paths"].values():
        for operation in operations.values():
            _describe_what_all_answer(operation["responses"])
    for context in iter_route_contexts(app.routes):
        for method in context.methods or ():
            path = (context.path or "").replace(":path}", "}")
            operation = document["paths"].get(path, {}).get(method.lower())
            if operation is not None:
                route: Any = context.original_route
                operation["operationId"] = route.name  # the name of the endpoint
                _describe_keys(operation, {d.call for d in context.dependant.dependencies})
                _describe_dialects(operation["responses"], context.path or "")
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    return document


def _describe_what_all_answer(responses: dict[str, Any]) -> None:
    """Add the server's problems before a route runs, defects, and the header of all responses."""
    if _DEFAULT_422 in str(responses.get("422")):
        del responses["422"]
        _add_problems(responses, 422)
    _add_problems(responses, *_OF_ANY_ROUTE)
    for response in responses.values():
        _add_header(response, "X-Request-Id", "The id that was sent, or a new one")


def _describe_keys(operation: dict[str, Any], guards: set[Any]) -> None:
    """Which keys a route accepts. Read routes also list no key, since read keys may be unset."""
    responses = operation["responses"]
    keys: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
    if require_admin in guards:
        operation["security"] = keys
        _add_problems(responses, 401, 403)
    elif require_read in guards:
        operation["security"] = [*keys, {}]
        _add_problems(responses, 401)
    else:
        operation["security"] = []
        return
    _add_header(responses["401"], "WWW-Authenticate", "Bearer")


def _describe_dialects(responses: dict[str, Any], path: str) -> None:
    """Add the errors in the shapes and with the statuses of other servers. What the server refuses
    before a route runs stays a problem document."""
    schemas: dict[int, list[dict[str, Any]]] = {}
    for dialect in dialects_of_route(path):
        ours = [int(status) for status in responses if int(status) >= 400]
        theirs = {dialect.status_of(status) for status in ours}
        theirs |= {status for code, status in dialect.statuses.items() if isinstance(code, str)}
        for status in theirs:
            schemas.setdefault(status, []).append(dialect.schema())
    for status, found in schemas.items():
        response = responses.setdefault(str(status), {"description": TITLES[status]})
        distinct = [schema for index, schema in enumerate(found) if schema not in found[:index]]
        content = response.setdefault("content", {})
        content["application/json"] = {"schema": {"anyOf": distinct}}
        _add_header(response, "X-Request-Id", "The id that was sent, or a new one")


def _add_problems(responses: dict[str, Any], *statuses: int) -> None:
    for status, problem in problem_responses(*statuses).items():
        response = responses.setdefault(str(status), problem)
        response.setdefault("content", {}).update(problem["content"])


def _add_header(response: dict[str, Any], name: str, description: str) -> None:
    response.setdefault("headers", {})[name] = {
        "description": description,
        "required": True,
        "schema": {"type": "string"},
    }
