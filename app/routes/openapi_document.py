"""The OpenAPI document, as this service answers: problems, not FastAPI's 422.

It stands alone because routes describe themselves where they are written and only the shared parts
(nested models, the problem document) need a place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from pydantic.json_schema import models_json_schema

from app.access.auth import require_admin, require_read
from app.rendering.problems import problem_responses
from tokenizer_client.schemas.tokens import ProblemDocument

if TYPE_CHECKING:
    from fastapi import FastAPI

_DEFAULT_422: Final = "HTTPValidationError"
"""What FastAPI writes where a route has parameters and says nothing of 422."""

_OF_ANY_ROUTE: Final = (400, 408, 431, 500, 501, 503)
"""Malformed HTTP, headers that come too slowly or are too large, a transfer encoding nobody knows;
a defect; too many connections, or the server's end."""


def install_openapi(app: FastAPI) -> None:
    """Make `app.openapi()` give this service's document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build_openapi(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """The document: request bodies and problems refer to shared components."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components.pop(_DEFAULT_422, None)
    components.pop("ValidationError", None)
    _, problems = models_json_schema(
        [(ProblemDocument, "serialization")], ref_template="#/components/schemas/{model}"
    )
    components.update(problems["$defs"])
    for operations in document["paths"].values():
        for operation in operations.values():
            _share_nested_models(operation, components)
            _describe_what_all_answer(operation["responses"])
    for context in iter_route_contexts(app.routes):
        for method in context.methods or ():
            operation = document["paths"].get(context.path, {}).get(method.lower())
            if operation is not None:
                _describe_keys(operation, {d.call for d in context.dependant.dependencies})
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    return document


def _describe_what_all_answer(responses: dict[str, Any]) -> None:
    """What the server refuses before it asks a route, defects, and the header on every answer."""
    if _DEFAULT_422 in str(responses.get("422")):
        del responses["422"]
        _add_problems(responses, 422)
    _add_problems(responses, *_OF_ANY_ROUTE)
    for response in responses.values():
        _add_header(response, "X-Request-Id", "The one that was sent, or a new one")


def _describe_keys(operation: dict[str, Any], guards: set[Any]) -> None:
    """Which keys open a route. No key is one of the ways where read keys may be unset."""
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


def _share_nested_models(operation: dict[str, Any], components: dict[str, Any]) -> None:
    content = operation.get("requestBody", {}).get("content", {})
    for media in content.values():
        schema = media.get("schema", {})
        components.update(schema.get("$defs", {}))
        media["schema"] = {key: value for key, value in schema.items() if key != "$defs"}
