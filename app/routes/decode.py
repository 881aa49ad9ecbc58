"""POST /decode: token ids to text, one list or a batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request

from app.auth import require_read
from app.body_responses import ChunkedBody
from app.decode_answers import answer_decode
from app.limits import INLINE_BODY_BYTES, max_decoded_bytes
from app.preconditions import choose_tokenizer
from app.problems import problem_responses
from app.request_bodies import (
    json_request,
    read_body,
    require_acceptable,
    require_json,
    validate,
)
from app.schemas import DecodeRequest, DecodeResponse
from app.services import services_of
from app.strict_json import parse_strict_json

if TYPE_CHECKING:
    from starlette.responses import Response

router = APIRouter(dependencies=[Depends(require_read)], tags=["encode and decode"])


@router.post(
    "/decode",
    summary="Token ids to text",
    openapi_extra=json_request(DecodeRequest),
    response_model=None,
    responses={
        200: {"model": DecodeResponse},
        **problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503),
    },
)
async def decode(request: Request) -> Response:
    """Decode a list of ids, or a batch of lists. Bytes that are not UTF-8 become U+FFFD."""
    services = services_of(request)
    require_json(request)
    require_acceptable(request, "application/json")
    lease = services.budget.lease()
    try:
        body = await read_body(
            request, max_bytes=services.settings.max_body_bytes, reserve=lease.reserve
        )
        is_small = len(body) <= INLINE_BODY_BYTES
        wanted = parse(body) if is_small else await services.queue.run(parse, body)
        del body
        live = await choose_tokenizer(request, wanted.tokenizer)
        answer_it = partial(
            answer_decode,
            wanted,
            live,
            max_decoded_bytes=max_decoded_bytes(services.settings.max_body_bytes),
        )
        answer = answer_it() if is_small else await services.queue.run_admitted(answer_it)
    except BaseException:
        lease.release()
        raise
    services.metrics.decode_tokens.inc(answer.n_tokens)
    return ChunkedBody(answer.chunks, headers=live.headers, lease=lease)


def parse(body: bytes) -> DecodeRequest:
    """The request in `body`; raises Problem."""
    return validate(parse_strict_json(body), DecodeRequest)
