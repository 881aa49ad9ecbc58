"""Errors as RFC 9457 problem documents; the mapping from errors to documents is elsewhere.

A problem describes the error and the remedy. It never repeats the request and contains no file path
and no traceback. The body is ASCII and at most a few kB, for every request. It also contains the
`error` object that clients of OpenAI-style servers read. `responses.problem_table` maps the errors
of the domain to problems.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Scope

from tokenizer_client.schemas.tokens import explain
from tokenizer_core.errors import did_you_mean
from tokenizer_service.http.dialect_errors import ErrorText, dialect_of, named_model, openai_kind
from tokenizer_service.http.headers import header_fields

log = logging.getLogger("tokenizer_service.http.problem")

# A random prefix per process plus a counter: a random id per request costs a microsecond.
_request_numbers: Final = itertools.count()
MEDIA_TYPE: Final = "application/problem+json"
MAX_LISTED_ERRORS: Final = 8
_MAX_DETAIL_CHARS: Final = 600
_MAX_ITEM_CHARS: Final = 240
MAX_NAME_CHARS: Final = 64
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")

TITLES: Final = {
    400: "Bad request",
    401: "Authentication required",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    409: "Conflict",
    412: "Precondition failed",
    413: "Content too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    422: "Unprocessable content",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    501: "Not implemented",
    503: "Service unavailable",
    507: "Insufficient storage",
    529: "Overloaded",
}


class Problem(Exception):  # noqa: N818 - the RFC's name for the document
    """An error response. Code at any level below a route may raise it.

    `pointer` in `errors` is a JSON pointer into the request; `limit` and `actual` describe an
    exceeded limit; `byte_offset` is an offset in the client's text. `code` is stable, the texts are
    not.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] | None = None,
        limit: int | None = None,
        actual: int | None = None,
        headers: Mapping[str, str] | None = None,
        n_errors: int | None = None,
        byte_offset: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.errors = list(errors or [])
        self.limit, self.actual = limit, actual
        self.headers = dict(headers or {})
        self.byte_offset = byte_offset
        self.n_errors = len(self.errors) if n_errors is None else n_errors

    def document(self, request_id: str) -> dict[str, Any]:
        """The document as a JSON-serialisable dict of bounded size."""
        detail = _shorten(self.detail, _MAX_DETAIL_CHARS)
        document: dict[str, Any] = {
            "type": f"urn:tokenizer-service:problem:{self.code}",
            "title": TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": detail,
            "instance": f"urn:tokenizer-service:request:{request_id}",
            "code": self.code,
        }
        if self.errors:
            document["errors"] = [
                {"pointer": _shorten(pointer, 120), "detail": _shorten(text, _MAX_ITEM_CHARS)}
                for pointer, text in self.errors[:MAX_LISTED_ERRORS]
            ]
            if self.n_errors > MAX_LISTED_ERRORS:
                document["errors_total"] = self.n_errors
        for name in ("byte_offset", "limit", "actual"):
            if (value := getattr(self, name)) is not None:
                document[name] = value
        document["error"] = {
            "message": detail,
            "type": openai_kind(self.status),
            "param": document["errors"][0]["pointer"] if self.errors else None,
            "code": self.code,
        }
        return document


def problem_response(problem: Problem, scope: Scope) -> Response:
    """The response for a problem, in the dialect of the request if it has one, with code and place
    in headers; its body is ASCII. Stores the code in the scope for the metrics.

    If a tokenizer was chosen for the request, the response identifies it.
    """
    state, dialect = scope.setdefault("state", {}), dialect_of(scope)
    state["problem_code"] = problem.code
    headers = {**state.get("tokenizer_headers", {}), **problem.headers, "Cache-Control": "no-store"}
    if dialect is None:
        status, media_type = problem.status, MEDIA_TYPE
        document = problem.document(request_id_of(scope))
    else:
        status, media_type = dialect.status_of(problem.status, problem.code), "application/json"
        text = _text_of(problem, status, scope)
        document = dialect.document(text)
        headers["Problem-Code"] = problem.code
        if text.pointer:
            headers["Problem-Pointer"] = quote(text.pointer, safe="/~")
    body = json.dumps(document, separators=(",", ":"))
    return Response(body, status, headers, media_type=media_type)


def _text_of(problem: Problem, status: int, scope: Scope) -> ErrorText:
    """What `problem` says; one of an unknown model names it, as clients expect."""
    message = _shorten(problem.detail, _MAX_DETAIL_CHARS)
    if problem.code == "model_not_found" and (model := named_model(scope)):
        message = f"The model `{model}` does not exist. {message}"
    pointer = _shorten(problem.errors[0][0], 120) if problem.errors else None
    return ErrorText(status, problem.code, message, pointer, request_id_of(scope))


def request_id_of(scope: Scope) -> str:
    """The id of a request: the client's `X-Request-Id` if it is a plain word, else a new one."""
    state: dict[str, Any] = scope.setdefault("state", {})
    request_id: str | None = state.get("request_id")
    if request_id is None:
        request_id = state["request_id"] = given_request_id(scope) or new_request_id()
    return request_id


def given_request_id(scope: Scope) -> str:
    """The client's `X-Request-Id` if it is a plain word, else nothing."""
    given = header_fields(scope).get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else ""


def new_request_id() -> str:
    """An id that no other request has."""
    return f"{_begin_of_ids()}{next(_request_numbers):012x}"


@functools.cache  # at the first request, because processes are forks of one that imported this
def _begin_of_ids() -> str:
    return os.urandom(10).hex()


def problem_of_validation(
    items: Iterable[Mapping[str, Any]], *, skip: int = 0, known: Sequence[str] = ()
) -> Problem:
    """The 422 for pydantic's errors. Names fields and expectations, never values.

    `skip` drops the first parts of each location (FastAPI's `body`, `query`); `known` lists the
    valid names, which are shown when a name is unknown.
    """
    listed = []
    for item in items:
        parts = (str(part).replace("~", "~0").replace("/", "~1") for part in item["loc"][skip:])
        pointer = "".join(f"/{part}" for part in parts)
        text = explain(item)
        if item["type"] == "extra_forbidden":
            is_inner = len(item["loc"]) > skip + 1  # `known` are those of the outer object
            text = describe_unknown("field", str(item["loc"][-1]), () if is_inner else known)
        listed.append((pointer, text))
    first = listed[0] if listed else ("", "the request does not match the schema")
    field = f"{first[0]}: " if first[0] else ""
    return Problem(422, "invalid_request", f"{field}{first[1]}", errors=listed)


def describe_unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """What is said of the field or query parameter `name` that is not `known`."""
    near = did_you_mean(name[:MAX_NAME_CHARS], known)
    return f"unknown {kind}{near}{'; known: ' if known else ''}{', '.join(known)}"


def internal_error(error: BaseException, scope: Scope) -> Problem:
    """The 500 for a defect; the traceback is logged with the request id."""
    log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return Problem(
        500, "internal_error", "An internal error; the log of the server has it under this request."
    )


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
