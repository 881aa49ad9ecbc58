"""vLLM's derender routes: generated ids to chat completions and completions."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.derender import (
    DerenderChatRequest,
    DerenderChatStreamRequest,
    DerenderCompletionRequest,
    DerenderCompletionStreamRequest,
    DerenderedChunk,
    DerenderedResponse,
)
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.derender import derender, parse_derender
from tokenizer_service.handlers.known_fields import reporting_ignored
from tokenizer_service.handlers.plan import Plan
from tokenizer_service.handlers.preconditions import require_json_exchange
from tokenizer_service.handlers.respond import planned
from tokenizer_service.http.bodies import json_request
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["chat"])
_RESPONSE = {"model": DerenderedResponse | DerenderedChunk}


@planned(
    router,
    "/chat/completions/derender",
    summary="Generated ids to a chat completion, in vLLM's format",
    body=json_request(DerenderChatRequest, DerenderChatStreamRequest),
    response=_RESPONSE,
)
def derender_chat_completion(request: HTTPConnection) -> Plan:
    """Make a chat completion of the response of vLLM's `/inference/v1/generate`: its text,
    reasoning and tool calls. With `stream`, of one part of it, with a state that the next request
    repeats."""
    return _plan(request, DerenderChatRequest, DerenderChatStreamRequest)


@planned(
    router,
    "/completions/derender",
    summary="Generated ids to a completion, in vLLM's format",
    body=json_request(DerenderCompletionRequest, DerenderCompletionStreamRequest),
    response=_RESPONSE,
)
def derender_completion(request: HTTPConnection) -> Plan:
    """Make a completion of responses of vLLM's `/inference/v1/generate`; with `stream`, of one part
    of one."""
    return _plan(request, DerenderCompletionRequest, DerenderCompletionStreamRequest)


def _plan(request: HTTPConnection, whole: type[BaseModel], stream: type[BaseModel]) -> Plan:
    require_json_exchange(request)
    run = partial(derender, max_decoded_bytes=services_of(request).settings.response_limit)
    parse = partial(parse_derender, whole=whole, stream=stream)
    return Plan(parse, reporting_ignored(run), is_cheap=False, is_decoding=True)
