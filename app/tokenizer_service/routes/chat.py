"""Routes that take a conversation: our own, and those that clients of other servers call.

`/tokenize` takes messages too, see `dialects`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.chat import (
    ChatEncodeRequest,
    ChatEncodeResponse,
    ChatRenderRequest,
    ChatRenderResponse,
    CountTokensRequest,
    CountTokensResponse,
    InputTokensRequest,
    InputTokensResponse,
)
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.chat import (
    count_input,
    count_messages,
    make_generate_request,
    parse_borrowed,
    parse_chat,
    render_limits_of,
)
from tokenizer_service.handlers.chat import encode_chat as run_encode_chat
from tokenizer_service.handlers.known_fields import reporting_ignored
from tokenizer_service.handlers.plan import Plan
from tokenizer_service.handlers.preconditions import require_no_query
from tokenizer_service.handlers.respond import planned
from tokenizer_service.http.bodies import (
    binary_content,
    json_request,
    require_acceptable,
    require_json,
)
from tokenizer_service.http.headers import header_of
from tokenizer_service.http.id_formats import NPY, OCTETS, choose_ids_form
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["chat"])


@planned(
    router,
    "/chat/encode",
    summary="Messages to token ids",
    body=json_request(ChatEncodeRequest),
    response={"model": ChatEncodeResponse, **binary_content(OCTETS, NPY)},
)
def encode_chat(request: HTTPConnection) -> Plan:
    """Render messages with the tokenizer's chat template and encode the text.

    Control tokens come from the template only: text of a user that looks like one is plain text.
    `Accept` chooses the binary forms of `/encode`. The header `Chat-Template-Digest` names the
    template.
    """
    require_no_query(request)
    form = choose_ids_form(header_of(request, b"accept"))
    require_json(request)
    limits = render_limits_of(services_of(request).settings)
    return Plan(parse_chat, partial(run_encode_chat, form=form, limits=limits))


@planned(
    router,
    "/chat/completions/render",
    summary="A chat completion to token ids, in vLLM's format",
    body=json_request(ChatRenderRequest),
    response={"model": ChatRenderResponse},
)
def render_chat_completion(request: HTTPConnection) -> Plan:
    """Render the prompt of a chat completion as vLLM does. The response is the request that vLLM's
    `/inference/v1/generate` takes."""
    return _plan(request, ChatRenderRequest, make_generate_request)


@planned(
    router,
    "/messages/count_tokens",
    summary="Count the tokens of a request in Anthropic's format",
    body=json_request(CountTokensRequest),
    response={"model": CountTokensResponse},
)
def count_message_tokens(request: HTTPConnection) -> Plan:
    """Count the tokens of messages, system prompt and tools, as the tokenizer's chat template
    writes them."""
    return _plan(request, CountTokensRequest, count_messages)


@planned(
    router,
    "/responses/input_tokens",
    summary="Count the tokens of a request in the format of OpenAI's responses",
    body=json_request(InputTokensRequest),
    response={"model": InputTokensResponse},
)
def count_input_tokens(request: HTTPConnection) -> Plan:
    """Count the tokens of input, instructions and tools, as the tokenizer's chat template writes
    them."""
    return _plan(request, InputTokensRequest, count_input)


def _plan(request: HTTPConnection, model: type[BaseModel], run: Callable[..., Rendered]) -> Plan:
    require_acceptable(request, "application/json")
    require_json(request)
    limits = render_limits_of(services_of(request).settings)
    parse: Any = partial(parse_borrowed, model=model)
    return Plan(parse, reporting_ignored(partial(run, limits=limits)))
