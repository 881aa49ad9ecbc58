"""POST /encode: text to token ids, one text or a batch."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Depends, Request

from tokenizer_client.schemas.tokens import EncodeRequest, EncodeResponse
from tokenizer_service.access.auth import require_read
from tokenizer_service.access.limits import INLINE_BODY_BYTES
from tokenizer_service.http.bodies import (
    binary_content,
    json_request,
    read_model,
    require_json_type,
)
from tokenizer_service.http.headers import header_fields
from tokenizer_service.http.id_formats import NPY, OCTETS, choose_ids_form
from tokenizer_service.http.json import cut_first_string
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering.encode import OneText, render_encoding
from tokenizer_service.rendering.preconditions import require_no_query
from tokenizer_service.rendering.problems import problem_responses
from tokenizer_service.rendering.respond import Work, respond

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from tokenizer_core.engines import EngineChoice
    from tokenizer_service.services import Services

_MOST_OPTIONS: Final = 256
"""The size in bytes of a body without its text, up to which it is kept."""

router = APIRouter(dependencies=[Depends(require_read)], tags=["encode and decode"])


@router.post(
    "/encode",
    summary="Text to token ids",
    openapi_extra=json_request(EncodeRequest),
    response_model=None,
    responses={
        200: {"model": EncodeResponse, **binary_content(OCTETS, NPY)},
        **problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503),
    },
)
async def encode(request: Request) -> Response:
    """Encode a text, or a batch of texts.

    Special tokens in the text are recognised unless `allowed_special` says otherwise. For untrusted
    text, send `"allowed_special": "none"`.

    With `Accept: application/octet-stream; dtype=u32` (or `u16`), the response is only the ids,
    little-endian; for a batch, u32 n and n x u64 lengths come first. With `application/x-npy`,
    `numpy.load` reads the ids of one text.
    """
    return await respond(request, encode_work(request))


def encode_work(request: HTTPConnection) -> Work:
    """What /encode does with a body; raises Problem for the headers and for a query."""
    if request.scope["query_string"]:  # spares small requests a call
        require_no_query(request)
    fields = header_fields(request.scope)
    require_json_type(fields.get(b"content-type", b""), fields.get(b"content-encoding", b""))
    form = choose_ids_form(fields.get(b"accept", b"").decode("latin-1"))
    services: Services = request.scope["app"].services
    if form is None:
        return Work(partial(parse_encode, engine=services.engine), render_encoding)
    return Work(
        partial(read_model, EncodeRequest, engine=services.engine),
        partial(render_encoding, form=form),
    )


def parse_encode(body: bytes, engine: EngineChoice) -> EncodeRequest | OneText:
    """Parse a request for JSON; raises Problem."""
    if len(body) <= INLINE_BODY_BYTES:
        cut = cut_first_string(body, engine)
        if cut is not None:
            key, text, rest = cut
            options = _read_options(rest) if key == "text" and len(rest) < _MOST_OPTIONS else None
            if options is not None:
                return OneText(text, options, options.tokenizer)
    return read_model(EncodeRequest, body, engine=engine)


@lru_cache(maxsize=64)  # most clients send the same options with each text
def _read_options(rest: bytes) -> EncodeRequest | None:
    """The options in a body whose text was cut out; None if they ask for more than the ids of one
    text, or are invalid."""
    try:
        options = read_model(EncodeRequest, rest)
    except Problem:
        return None
    return options if tuple(options.returned) == ("ids",) else None
