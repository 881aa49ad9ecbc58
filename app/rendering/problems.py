"""What errors mean to a client: the one table from errors of the domain to problem documents."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.http.problem import (
    MEDIA_TYPE,
    TITLES,
    Problem,
    internal_error,
    problem_of_validation,
    problem_response,
)
from tokenizer_core import errors as core

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger("app.rendering.problems")

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

# What the core's errors mean to a client. The first class that fits decides, so subclasses come
# before their bases.
_CORE_STATUS: Final[tuple[tuple[type[core.TokenizerCoreError], int], ...]] = (
    (core.SpecialTokenForbiddenError, 422),
    (core.UnknownTokenIdError, 422),
    (core.UnknownPatternError, 422),
    (core.PreTokenTooLongError, 413),
    (core.VocabSizeError, 422),
    (core.CorpusError, 422),
    (core.ArtifactNotFoundError, 404),
    (core.ArtifactNameError, 422),
    (core.ArtifactInUseError, 409),
    (core.PointerMovedError, 409),
    (core.ArtifactError, 422),
)

# Errors whose own text repeats a name that was sent: in a library it helps, here it is input.
_DETAIL_WITHOUT_NAMES: Final[dict[type[core.TokenizerCoreError], str]] = {
    core.SpecialTokenForbiddenError: (
        "The text holds a special token that disallowed_special forbids. To have it recognised, "
        "put it into allowed_special; to take it as plain text, leave it out of both."
    ),
    core.ArtifactNotFoundError: (
        "There is no such tokenizer or version; GET /tokenizers lists those there are."
    ),
    core.ArtifactNameError: (
        "No tokenizer can be called that: a name has up to 64 of a-z 0-9 . _ - and starts with a "
        "letter or digit, a version reads like 20261121T041500Z-1a2b3c4d, and 'active' is taken."
    ),
}


def problem_of(error: Exception) -> Problem | None:
    """The problem an exception of the core or the framework means, or None when it is a defect."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, core.TokenizerCoreError):
        return _problem_of_core_error(error)
    if isinstance(error, RequestValidationError):
        return problem_of_validation(error.errors(), skip=1)
    if isinstance(error, HTTPException):
        return _problem_of_http_error(error)
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return problem_of_disk(error)
    return None


def problem_of_disk(error: OSError) -> Problem:
    """The 507 or 503 for a disk that is full or fails; what it said goes to the log."""
    log.error("the disk does not do what it should: %s", error)
    if error.errno in _DISK_FULL:
        return Problem(
            507, "disk_full", "The disk of the server takes no more; what is served goes on."
        )
    return Problem(
        503,
        "storage_failed",
        "The disk of the server cannot be read or written; the log of the server says why.",
        headers={"Retry-After": "30"},
    )


def unknown_special_token(field: str) -> Problem:
    """The 422 for a name in `field` that is no special token of the tokenizer."""
    detail = f"{field} names what is no special token of this tokenizer; GET /info lists them"
    return Problem(422, "unknown_special_token", detail, errors=[(f"/{field}", detail)])


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error of `app` a problem document.

    Errors that no handler knows are caught by `request_observer`, outside the router.
    """
    handled: tuple[type[Exception], ...] = (
        Problem,
        core.TokenizerCoreError,
        RequestValidationError,
        HTTPException,
    )
    for kind in handled:
        app.add_exception_handler(kind, _handle)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses=` of a route for OpenAPI: these statuses are problem documents.

    What any route may answer, and what its keys bring, is added by `openapi_document`.
    """
    reference = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {
            "description": TITLES[status],
            "content": {MEDIA_TYPE: {"schema": reference}},
        }
        for status in sorted(statuses)
    }


async def _handle(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem is None:  # an error class was registered and not mapped
        problem = internal_error(error, request.scope)
    if problem.status == 405:
        problem.headers["Allow"] = ", ".join(_allowed_methods(request))
    return problem_response(problem, request.scope)


def _allowed_methods(request: Request) -> list[str]:
    """What the routes of this path answer together; Starlette names one route's methods only."""
    allowed = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.router.routes
        )
    ]
    return [*allowed, "HEAD"] if "GET" in allowed else allowed  # see `request_observer`


def _problem_of_core_error(error: core.TokenizerCoreError) -> Problem | None:
    if isinstance(error, core.UnknownTokenIdError):
        detail = (
            f"The id at index {error.index} is not in the vocabulary (largest id "
            f"{error.largest_id}). Decode with the tokenizer that made these ids."
        )
        return Problem(422, error.code, detail, errors=[(f"/tokens/{error.index}", detail)])
    if isinstance(error, core.ArtifactCorruptError):
        log.error("an artifact was refused: %s", error)
        return Problem(
            409,
            error.code,
            "The stored tokenizer fails its verification and is not loaded; the log of the "
            "server has the reason. Publish or import it again.",
        )
    if isinstance(error, core.ArtifactStorageError):
        return problem_of_disk(error)
    for kind, status in _CORE_STATUS:
        if isinstance(error, kind):
            return Problem(status, error.code, _DETAIL_WITHOUT_NAMES.get(kind, str(error)))
    return None


def _problem_of_http_error(error: HTTPException) -> Problem:
    details = {
        404: ("not_found", "There is no such route; /docs lists those there are."),
        405: ("method_not_allowed", "This route does not answer that method; see Allow."),
    }
    status = error.status_code
    code, detail = details.get(
        status, (f"http_{status}", TITLES.get(status, "The request failed."))
    )
    return Problem(status, code, detail, headers=error.headers)
