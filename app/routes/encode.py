"""POST /encode: text to token ids, one text or a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request

from app.access.auth import require_read
from app.http.bodies import (
    binary_content,
    json_request,
    require_json,
)
from app.http.headers import header_of
from app.http.id_formats import NPY, OCTETS, choose_ids_form
from app.rendering.encode import render_encoding, render_encoding_binary
from app.rendering.preconditions import require_known_specials
from app.rendering.problems import problem_responses
from app.rendering.respond import respond
from app.rendering.text_bodies import parse_text_body
from app.services import services_of
from tokenizer_client.schemas.tokens import EncodeRequest, EncodeResponse

if TYPE_CHECKING:
    from starlette.responses import Response

    from app.rendering.json_values import Rendered
    from app.serving.live_tokenizer import LiveTokenizer

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

    Special tokens in the text are recognised unless `allowed_special` says otherwise: for text
    that strangers wrote, send `"allowed_special": "none"`.

    With `Accept: application/octet-stream; dtype=u32` (or `u16`) the answer is the ids alone,
    little-endian; those of a batch after u32 n and n x u64 lengths. With `application/x-npy` the
    ids of one text are what `numpy.load` reads.
    """
    services = services_of(request)
    require_json(request)
    form = choose_ids_form(header_of(request, b"accept"))

    def answer(wanted: EncodeRequest, live: LiveTokenizer) -> Rendered:
        require_known_specials(live, wanted.disallowed_special)
        if form is None:
            return render_encoding(wanted, live)
        return render_encoding_binary(wanted, live, form)

    def parse(body: bytes) -> EncodeRequest:
        return parse_text_body(body, EncodeRequest, services.engine)

    made, response = await respond(request, parse, answer)
    services.metrics.count_encoded(made.n_bytes, made.n_tokens)
    return response
