"""POST /extend: ids that stay, and those of the text or the messages after them."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.extend import (
    ExtendBatchRequest,
    ExtendBatchResponse,
    ExtendChatBatchRequest,
    ExtendChatRequest,
    ExtendRequest,
    ExtendResponse,
)
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.chat import render_limits_of
from tokenizer_service.handlers.extend import extend as run_extend
from tokenizer_service.handlers.extend import parse_extend
from tokenizer_service.handlers.plan import BYTES_PER_ID, Plan
from tokenizer_service.handlers.preconditions import require_json_exchange
from tokenizer_service.handlers.respond import planned
from tokenizer_service.http.bodies import json_request
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["chat"])


@planned(
    router,
    "/extend",
    summary="Token ids that stay, and those after them",
    body=json_request(ExtendChatRequest, ExtendRequest, ExtendChatBatchRequest, ExtendBatchRequest),
    response={"model": ExtendResponse | ExtendBatchResponse},
)
def extend(request: HTTPConnection) -> Plan:
    """Return ids unchanged, and after them the ids of a text, or of what the chat template writes
    for messages, or each of a batch.

    For training on conversations with tools: what a model generated keeps its ids. `first_drift`
    says where encoding the whole again would give others.
    """
    require_json_exchange(request)
    settings = services_of(request).settings
    run = partial(
        run_extend, max_decoded_bytes=settings.response_limit, limits=render_limits_of(settings)
    )
    # The mask has two bytes for each id.
    return Plan(parse_extend, run, bytes_per_byte=BYTES_PER_ID + 2)
