"""POST /encode: text to token ids, one text or a batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request

from app.auth import require_read
from app.binary_forms import NPY, OCTETS, choose_ids_form
from app.body_responses import ChunkedBody
from app.encode_answers import answer_encode, answer_encode_binary
from app.limits import INLINE_BODY_BYTES
from app.preconditions import choose_tokenizer, require_known_specials
from app.problems import problem_responses
from app.request_bodies import (
    binary_content,
    json_request,
    read_body,
    require_json,
    validate,
)
from app.schemas import EncodeRequest, EncodeResponse
from app.services import services_of
from app.strict_json import parse_strict_json

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

    Special tokens in the text are recognised unless `allowed_special` says otherwise: for text
    that strangers wrote, send `"allowed_special": "none"`.

    With `Accept: application/octet-stream; dtype=u32` (or `u16`) the answer is the ids alone,
    little-endian; those of a batch after u32 n and n x u64 lengths. With `application/x-npy` the
    ids of one text are what `numpy.load` reads.
    """
    services = services_of(request)
    require_json(request)
    form = choose_ids_form(request.headers.getlist("accept"))
    lease = services.budget.lease()
    try:
        body = await read_body(
            request, max_bytes=services.settings.max_body_bytes, reserve=lease.reserve
        )
        is_small = len(body) <= INLINE_BODY_BYTES
        wanted = parse(body) if is_small else await services.queue.run(parse, body)
        del body
        live = await choose_tokenizer(request, wanted.tokenizer)
        require_known_specials(live, wanted.disallowed_special)
        if form is None:
            answer_it = partial(answer_encode, wanted, live)
        else:
            answer_it = partial(answer_encode_binary, wanted, live, form)
        answer = answer_it() if is_small else await services.queue.run_admitted(answer_it)
    except BaseException:
        lease.release()
        raise
    services.metrics.encode_bytes.inc(answer.n_bytes)
    services.metrics.encode_tokens.inc(answer.n_tokens)
    return ChunkedBody(
        answer.chunks, headers=live.headers, media_type=answer.media_type, lease=lease
    )


def parse(body: bytes) -> EncodeRequest:
    """The request in `body`; raises Problem."""
    return validate(parse_strict_json(body), EncodeRequest)
