"""Request bodies: read within a limit, checked as JSON, validated against a model.

Routes take the raw request and call these functions. FastAPI's body parameters accept invalid JSON
(see `json`), repeat the input in their errors and do not limit its size. `json_request` documents
the bodies for OpenAPI.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, HTTPConnection, Request

from tokenizer_client.schemas.tokens import MAX_ID, IdsError
from tokenizer_core.engines import EngineChoice
from tokenizer_service.access.deadlines import Pace, within
from tokenizer_service.access.errors import BodyTooLargeError, OverloadedError
from tokenizer_service.access.limits import MIN_BODY_BYTES_PER_SECOND
from tokenizer_service.http.headers import accepts, header_fields, header_of, parse_media_type
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.http.problem import Problem, problem_of_validation
from tokenizer_service.http.request_examples import examples_of
from tokenizer_service.settings import Settings

Model = TypeVar("Model", bound=BaseModel)

WHOLE_BODY: Final = "tokenizer_service.body"
"""Scope key: the whole body, if the protocol had received it before the request began."""

COLLECT: Final = "tokenizer_service.collect"
"""Scope key: a function that takes a `take`. The protocol then calls `take` with each later piece
of the body, in place of a message that the app must wake up for. A piece for which it returns False
becomes a message. `None` ends this."""


async def read_json(request: Request, model: type[Model], settings: Settings, most: int) -> Model:
    """Parse the body of `request` as a `model` on the event loop: for small bodies."""
    require_json(request)
    most, seconds = min(most, settings.max_body_bytes), settings.header_seconds
    body = await read_body(request, max_bytes=most, grace_seconds=seconds)
    return read_model(model, body)


async def read_body(
    request: Request,
    *,
    max_bytes: int,
    grace_seconds: float,
    reserve: Callable[[int], None] = lambda n_bytes: None,
) -> bytes:
    """Return the whole body. `reserve` runs before bytes are kept and may raise to refuse them.

    Raises:
        BodyTooLargeError: more than `max_bytes`, with and without Content-Length.
        Problem: 408 when the body arrives slower than the minimum rate.
        ClientDisconnect: the client disconnected.
    """
    declared = declared_length(request)
    if declared is not None and declared > max_bytes:
        raise BodyTooLargeError(max_bytes, declared)
    chunks: list[bytes] = []
    size = 0

    def take(chunk: bytes) -> bool:
        nonlocal size
        if size + len(chunk) > max_bytes:
            return False
        try:
            reserve(len(chunk))
        except OverloadedError:
            return False  # as a message, it is refused below
        chunks.append(chunk)
        size += len(chunk)
        return True

    # Without a length the pieces may be tiny, and each is an object.
    collect = request.scope.get(COLLECT) if declared is not None else None
    if collect is not None:
        collect(take)
    clock = asyncio.get_running_loop().time
    started, seconds_left = clock(), grace_seconds
    try:
        while True:
            try:
                message = await within(seconds_left, request.receive())
            except TimeoutError:
                seconds_left = started + grace_seconds + size / MIN_BODY_BYTES_PER_SECOND - clock()
                if collect is None or seconds_left <= 0:
                    raise _too_slow() from None
                continue
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > max_bytes:
                raise BodyTooLargeError(max_bytes, size)
            if chunk:
                reserve(len(chunk))
                chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            seconds_left = started + grace_seconds + size / MIN_BODY_BYTES_PER_SECOND - clock()
    finally:
        if collect is not None:
            collect(None)


async def body_windows(
    request: Request, window_bytes: int, *, grace_seconds: float, idle_seconds: float
) -> AsyncIterator[bytes]:
    """Yield a body of any length in pieces of at least `window_bytes`; the last may be shorter.

    A piece is received after the caller has processed the previous one, so memory stays flat.

    Raises:
        Problem: 408 when the body arrives slower than the minimum rate. Time saved by earlier
            pieces extends the allowed pause, up to `idle_seconds`.
        ClientDisconnect: the client disconnected.
    """
    clock = asyncio.get_running_loop().time
    pace = Pace(
        grace_seconds=grace_seconds,
        most_seconds=idle_seconds,
        bytes_per_second=MIN_BODY_BYTES_PER_SECOND,
    )
    held, is_last = bytearray(), False
    while not is_last:
        started = clock()
        try:
            message = await within(pace.seconds_left, request.receive())
        except TimeoutError:
            raise _too_slow() from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        data = message.get("body", b"")
        pace.note(waited_seconds=clock() - started, n_bytes=len(data))
        held += data
        is_last = not message.get("more_body", False)
        if held and (is_last or len(held) >= window_bytes):
            window = bytes(held)
            held.clear()
            yield window


def read_model(model: type[Model], body: bytes, engine: EngineChoice | None = None) -> Model:
    """Parse the JSON in `body` as a `model`, in the native engine if that is given."""
    return validate(parse_body_json(body, engine), model)


def validate(value: Any, model: type[Model]) -> Model:
    """Validate `value` as a `model`, strictly unless its configuration says otherwise.

    Raises:
        Problem: 422, which names the fields but never their values.
        BatchTooLargeError: a batch has too many items.
    """
    try:
        return model.model_validate(value, strict=model.model_config.get("strict", True) or None)
    except (ValidationError, IdsError) as error:
        raise _invalid(error, value, model) from None


def _invalid(error: ValidationError | IdsError, value: Any, model: type[BaseModel]) -> Problem:
    fields = [field.alias or name for name, field in model.model_fields.items()]
    if not isinstance(value, dict):
        return Problem(
            422,
            "invalid_request",
            f"The body must be a JSON object with {', '.join(fields)}.",
            errors=[("", "must be an object")],
        )
    if isinstance(error, IdsError):
        detail = f"must be integers from 0 to {MAX_ID}"
        return Problem(
            422,
            "invalid_token_id",
            f"Entries are not token ids ({error.count}, first {error.pointers[0]}); they {detail}.",
            errors=[(pointer, detail) for pointer in error.pointers],
            n_errors=error.count,
        )
    items = error.errors(include_input=False, include_url=False)
    return problem_of_validation(items, known=fields)


def require_json(request: HTTPConnection) -> None:
    """Raise 415 unless the body is declared as plain JSON in UTF-8."""
    fields = header_fields(request.scope)
    _require_json(fields.get(b"content-type", b""), fields.get(b"content-encoding", b""))


@lru_cache(maxsize=64)  # almost all requests share two combinations
def _require_json(content_type: bytes, encoding: bytes) -> None:
    _require_no_encoding(encoding)
    kind, parameters = parse_media_type(content_type.decode("latin-1"))
    is_json = kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
    if not is_json:
        raise Problem(
            415,
            "json_required",
            "This route takes Content-Type: application/json. With curl, use "
            "`curl --json '{...}'` instead of `-d`.",
            headers={"Accept": "application/json"},
        )
    require_utf8(parameters.get("charset", ""))


def require_no_encoding(request: HTTPConnection) -> None:
    """Raise 415 for a compressed body."""
    _require_no_encoding(header_fields(request.scope).get(b"content-encoding", b""))


def _require_no_encoding(encoding: bytes) -> None:
    if encoding.strip().lower() not in (b"", b"identity"):
        raise Problem(
            415,
            "content_encoding_unsupported",
            "Compressed bodies are not accepted; send the body without Content-Encoding.",
            headers={"Accept-Encoding": "identity"},
        )


def require_text(request: Request, remedy: str) -> None:
    """Raise 415 unless the body is declared as plain text in UTF-8 or as bytes, or has no type."""
    require_no_encoding(request)
    kind, charset = content_type_of(request)
    if kind not in ("", "text/plain", "application/octet-stream"):
        raise Problem(
            415,
            "text_required",
            f"This route takes Content-Type: text/plain; charset=utf-8, application/octet-stream, "
            f"or none. {remedy}",
            headers={"Accept": "text/plain"},
        )
    require_utf8(charset)


def require_file(request: Request) -> None:
    """Raise 415 for a body with a Content-Encoding, whose file would be another one, and for forms;
    400 for a part of a file, as `curl -C - -T FILE` sends it.

    `curl -T` declares no type, and programs declare many for the same file.
    """
    require_no_encoding(request)
    if header_of(request, b"content-range"):
        raise Problem(
            400,
            "part_of_a_file",
            "The body is a part of a file (Content-Range), and an upload is a whole one. Send all "
            "of it, without Content-Range; with curl, without -C.",
        )
    kind, charset = content_type_of(request)
    if kind.startswith(("multipart/", "application/x-www-form-urlencoded")):
        raise Problem(
            415,
            "text_required",
            "This route takes the file itself as the body, not a form. With curl, use `curl -T "
            "FILE`.",
            headers={"Accept": "text/plain"},
        )
    require_utf8(charset)


def require_utf8(charset: str) -> None:
    """Raise 415 for a declared charset other than UTF-8 or ASCII."""
    if charset not in ("", "utf-8", "utf8", "us-ascii", "ascii"):
        raise Problem(415, "charset_unsupported", "Text must be UTF-8; omit charset or name it.")


def content_type_of(request: HTTPConnection) -> tuple[str, str]:
    """Media type and charset of the body, lower case, empty where absent."""
    kind, parameters = parse_media_type(header_of(request, b"content-type"))
    return kind, parameters.get("charset", "")


def require_acceptable(request: HTTPConnection, media_type: str) -> None:
    """Raise 406 if Accept excludes `media_type`."""
    if not accepts(header_of(request, b"accept"), media_type):
        raise Problem(
            406,
            "not_acceptable",
            f"This route responds in {media_type}; name it in Accept or omit Accept.",
        )


REQUEST_MODELS: Final[dict[str, type[BaseModel]]] = {}
"""The models of `json_request` by name; their schemas are made only for the OpenAPI document."""


def json_request(*models: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra=` of a route whose JSON body is one of `models`."""
    REQUEST_MODELS.update({model.__name__: model for model in models})
    schemas = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    content: dict[str, Any] = {"schema": schema}
    if examples := examples_of(*(model.__name__ for model in models)):
        content["examples"] = examples
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


TEXT_REQUEST: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "UTF-8 text, chunked or whole, of any length.",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": "one two three"}},
    }
}
"""`openapi_extra=` of a route whose body is a text."""

FILE_REQUEST: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "A file of text (UTF-8), JSON lines or Parquet, also packed, of any length.",
        "content": {
            "text/plain": {"schema": {"type": "string"}, "example": "one two three"},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
"""`openapi_extra=` of a route whose body is a corpus file."""


def binary_content(*media_types: str) -> dict[str, Any]:
    """The OpenAPI `content` of a body or response that also has these binary forms."""
    return {
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}} for kind in media_types
        }
    }


def declared_length(request: Request) -> int | None:
    """Content-Length; None for a chunked body."""
    value = header_of(request, b"content-length")
    # The server has already checked it. A value that is not a number counts as not declared.
    return int(value) if value.isascii() and value.isdigit() else None


def _too_slow() -> Problem:
    return Problem(
        408,
        "body_too_slow",
        f"The body arrives slower than {MIN_BODY_BYTES_PER_SECOND} bytes a second.",
        headers={"Connection": "close"},
    )
