"""POST /encode: text to token ids, one text or a batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request

from app.access.auth import require_read
from app.http.bodies import binary_content, json_request, read_model, require_json_type
from app.http.headers import header_fields
from app.http.id_formats import NPY, OCTETS, choose_ids_form
from app.rendering.encode import render_encoding
from app.rendering.problems import problem_responses
from app.rendering.respond import respond
from tokenizer_client.schemas.tokens import EncodeRequest, EncodeResponse

if TYPE_CHECKING:
    from starlette.responses import Response


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
    fields = header_fields(request.scope)
    require_json_type(fields.get(b"content-type", b""), fields.get(b"content-encoding", b""))
    form = choose_ids_form(fields.get(b"accept", b"").decode("latin-1"))
    services = request.scope["app"].services
    parse = partial(read_model, EncodeRequest, engine=services.engine)
    rendered, response = await respond(request, parse, partial(render_encoding, form=form))
    services.metrics.count_encoded(rendered.n_bytes, rendered.n_tokens)
    return response
