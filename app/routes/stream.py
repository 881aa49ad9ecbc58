"""POST /encode_stream: text to token ids while the text still comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from pydantic_core import PydanticCustomError

from app.auth import require_read
from app.encode_stream import FRAMES, NDJSON, EncodeStream
from app.preconditions import choose_tokenizer, require_known_specials
from app.problems import Problem, problem_responses, unknown_special_token
from app.request_bodies import accepts, content_type_of, require_no_encoding, require_utf8
from app.schemas import NAME_PATTERN, check_special_names
from app.services import services_of
from tokenizer_core.streaming import StreamingEncoder

if TYPE_CHECKING:
    from starlette.responses import Response

router = APIRouter(dependencies=[Depends(require_read)], tags=["encode and decode"])

_KNOWN: Final = ("tokenizer", "allowed_special", "disallowed_special")
_TEXT_BODY: Final = {
    "requestBody": {
        "required": True,
        "description": "UTF-8 text, chunked or whole, of any length.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
_RECORDS: Final = {
    "description": "Records as the text arrives: lines of JSON `{seq, tokens, byte_end}`, the last "
    "`{done, count, bytes, digest}` or `{error}`. Without a last record the answer was cut off. "
    "With `Accept: application/octet-stream`: frames of u32 type (0 ids, 1 end, 2 error), u32 "
    "length, payload, little-endian.",
    "content": {NDJSON: {"schema": {"type": "string"}}, FRAMES: {"schema": {"type": "string"}}},
}


@router.post(
    "/encode_stream",
    summary="Text to token ids, chunked both ways",
    openapi_extra=_TEXT_BODY,
    response_model=None,
    responses={
        200: _RECORDS,
        **problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503),
    },
)
async def encode_stream(
    request: Request,
    tokenizer: Annotated[
        str | None, Query(pattern=NAME_PATTERN, description="`name` or `name@version`.")
    ] = None,
    allowed_special: Annotated[
        list[str] | None,
        Query(description="`all` (default), `none`, or a name; repeat it for several."),
    ] = None,
    disallowed_special: Annotated[
        list[str] | None, Query(description="`all`, or a name; repeat it for several.")
    ] = None,
) -> Response:
    """Encode a text of any length. The ids joined are those of `/encode`, however it is cut.

    The client may wait for the ids of what it sent before it sends more: a chunk is answered with
    what it settles. The last ids of the text come when the body ends.
    """
    services = services_of(request)
    _require_text(request)
    unknown = next((name for name in request.query_params if name not in _KNOWN), None)
    if unknown is not None:
        raise Problem(422, "invalid_request", f"Unknown query parameter; known: {_KNOWN}.")
    form = _choose_form(request)
    live = await choose_tokenizer(request, tokenizer)
    allowed = _policy(allowed_special, ("all", "none"), "allowed_special")
    disallowed = _policy(disallowed_special, ("all",), "disallowed_special")
    require_known_specials(live, disallowed or ())
    try:
        encoder = StreamingEncoder(
            live.tokenizer,
            allowed_special="all" if allowed is None else allowed,  # type: ignore[arg-type]
            disallowed_special=() if disallowed is None else disallowed,  # type: ignore[arg-type]
        )
    except ValueError:
        raise unknown_special_token("allowed_special") from None
    return EncodeStream(
        live,
        encoder,
        form=form,
        queue=services.queue,
        metrics=services.metrics,
        idle_seconds=services.settings.stream_idle_seconds,
    )


def _require_text(request: Request) -> None:
    require_no_encoding(request)
    kind, charset = content_type_of(request)
    if kind not in ("", "text/plain", "application/octet-stream"):
        raise Problem(
            415,
            "text_required",
            "This route takes Content-Type: text/plain; charset=utf-8, or none. With curl, use "
            "`curl -T FILE` instead of `-d`.",
            headers={"Accept": "text/plain"},
        )
    require_utf8(charset)


def _choose_form(request: Request) -> str:
    if accepts(request, FRAMES, by_name=True):
        return FRAMES
    known = (NDJSON, "application/json", "application/jsonl", "text/plain")
    if any(accepts(request, kind) for kind in known):
        return NDJSON
    raise Problem(406, "not_acceptable", f"This route answers {NDJSON} or {FRAMES}.")


def _policy(
    values: list[str] | None, words: tuple[str, ...], name: str
) -> str | frozenset[str] | None:
    if values is None:
        return None
    if len(values) == 1 and values[0] in words:
        return values[0]
    try:
        return check_special_names(values)
    except PydanticCustomError as error:
        detail = error.message()
        raise Problem(
            422, "invalid_request", f"{name} {detail}", errors=[(f"/{name}", detail)]
        ) from None
