"""Routes that take a conversation: our own, and those that clients of other servers call.

`/tokenize` takes messages too, see `dialects`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.chat import (
    ApplyTemplateResponse,
    ChatEncodeRequest,
    ChatEncodeResponse,
    ChatInputRequest,
    ChatRenderRequest,
    CountTokensRequest,
    CountTokensResponse,
    GeminiCountRequest,
    GeminiCountResponse,
    InputTokensRequest,
    InputTokensResponse,
    MessagesRenderRequest,
    RenderResponse,
    ResponsesRenderRequest,
)
from tokenizer_client.schemas.dialects import CompletionRenderRequest, RenderResponses
from tokenizer_core.engines import EngineChoice
from tokenizer_service.access.auth import require_read
from tokenizer_service.access.limits import INLINE_ITEMS
from tokenizer_service.handlers.chat import (
    apply_template,
    count_chat,
    count_gemini,
    count_input,
    count_messages,
    parse_borrowed,
    parse_chat,
    render_limits_of,
)
from tokenizer_service.handlers.chat import encode_chat as run_encode_chat
from tokenizer_service.handlers.known_fields import reporting_ignored
from tokenizer_service.handlers.plan import BYTES_PER_ID, Plan
from tokenizer_service.handlers.preconditions import require_json_for_ids
from tokenizer_service.handlers.render import (
    Caller,
    render_completion,
    render_messages,
    render_responses,
)
from tokenizer_service.handlers.render import render_chat_completion as run_render_chat_completion
from tokenizer_service.handlers.respond import STATUSES, planned, respond
from tokenizer_service.http.bodies import (
    binary_content,
    json_request,
    require_acceptable,
    require_json,
)
from tokenizer_service.http.dialect_errors import prefix_of
from tokenizer_service.http.headers import header_of
from tokenizer_service.http.id_formats import NPY, OCTETS
from tokenizer_service.http.problem import request_id_of
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.responses.problem_table import problem_responses
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
    form = require_json_for_ids(request)
    limits = render_limits_of(services_of(request).settings)
    return Plan(parse_chat, partial(run_encode_chat, form=form, limits=limits))


@planned(
    router,
    "/completions/render",
    summary="Prompts of a completion to token ids, in vLLM's format",
    body=json_request(CompletionRenderRequest),
    response={"model": RenderResponses},
)
def render_completion_prompts(request: HTTPConnection) -> Plan:
    """Render the prompts of a completion as vLLM does: a text, texts, ids or lists of ids. The
    response is a list of requests that vLLM's `/inference/v1/generate` takes. Special tokens in a
    text are recognised."""
    maximum = services_of(request).settings.response_limit
    run = partial(render_completion, max_bytes=maximum)
    plan = _plan(request, CompletionRenderRequest, partial(_render, request, run))
    # The fields of the request are in each of its requests.
    return plan._replace(bytes_per_byte=INLINE_ITEMS * BYTES_PER_ID)


@planned(
    router,
    "/chat/completions/render",
    summary="A chat completion to token ids, in vLLM's format",
    body=json_request(ChatRenderRequest),
    response={"model": RenderResponse},
)
def render_chat_completion(request: HTTPConnection) -> Plan:
    """Render the prompt of a chat completion as vLLM does. The response is the request that vLLM's
    `/inference/v1/generate` takes."""
    return _plan_render(request, ChatRenderRequest, run_render_chat_completion)


@planned(
    router,
    "/messages/render",
    summary="A request in Anthropic's format to token ids, in vLLM's format",
    body=json_request(MessagesRenderRequest),
    response={"model": RenderResponse},
)
def render_anthropic_messages(request: HTTPConnection) -> Plan:
    """As `/chat/completions/render`, for a request of Anthropic's API."""
    return _plan_render(request, MessagesRenderRequest, render_messages)


@planned(
    router,
    "/responses/render",
    summary="A request in the format of OpenAI's responses to token ids, in vLLM's format",
    body=json_request(ResponsesRenderRequest),
    response={"model": RenderResponse},
)
def render_response_input(request: HTTPConnection) -> Plan:
    """As `/chat/completions/render`, for a request of OpenAI's responses."""
    return _plan_render(request, ResponsesRenderRequest, render_responses)


@planned(
    router,
    "/chat/completions/input_tokens",
    summary="Count the tokens of a chat completion, in llama.cpp's format",
    body=json_request(ChatInputRequest),
    response={"model": InputTokensResponse},
)
def count_chat_tokens(request: HTTPConnection) -> Plan:
    """Count the tokens of a chat completion, as the tokenizer's chat template writes them, and once
    those that the post-processor adds, unless `add_special_tokens` is sent."""
    return _plan_conversation(request, ChatInputRequest, count_chat)


@planned(
    router,
    "/apply-template",
    summary="A chat completion to text, in llama.cpp's format",
    body=json_request(ChatInputRequest),
    response={"model": ApplyTemplateResponse},
)
def apply_chat_template(request: HTTPConnection) -> Plan:
    """Render the text of a chat completion, without what the post-processor adds around a text.
    Encoded as a text, what a user wrote may become a control token, so encode untrusted
    conversations by the other routes."""
    return _plan_conversation(request, ChatInputRequest, apply_template)


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
    return _plan_conversation(request, CountTokensRequest, count_messages)


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
    return _plan_conversation(request, InputTokensRequest, count_input)


@router.post(
    "/models/{model:path}:countTokens",
    summary="Count the tokens of a request in Gemini's format",
    openapi_extra=json_request(GeminiCountRequest),
    response_model=None,
    responses={200: {"model": GeminiCountResponse}, **problem_responses(*STATUSES)},
)
async def count_gemini_tokens(request: Request, model: str) -> Response:
    """Count the tokens of contents, system instruction and functions, as the tokenizer's chat
    template writes them."""
    plan = _plan_conversation(request, GeminiCountRequest, count_gemini)

    def parse(body: bytes, engine: EngineChoice) -> Any:
        parsed: Any = plan.parse(body, engine)
        return parsed.model_copy(update={"model": model})

    return await respond(request, plan._replace(parse=parse))


def _plan_render(
    request: HTTPConnection, model: type[BaseModel], run: Callable[..., Rendered]
) -> Plan:
    plan = _plan_conversation(request, model, partial(_render, request, run))
    return plan._replace(bytes_per_byte=2 * BYTES_PER_ID)  # the ids have two names


def _render(
    request: HTTPConnection, run: Callable[..., Rendered], *arguments: Any, **options: Any
) -> Rendered:
    """Run for the caller of this request: a plan may serve others with the same head."""
    return run(*arguments, caller=_caller_of(request), **options)


def _plan_conversation(
    request: HTTPConnection, model: type[BaseModel], run: Callable[..., Rendered]
) -> Plan:
    limits = render_limits_of(services_of(request).settings)
    return _plan(request, model, partial(run, limits=limits))


def _plan(request: HTTPConnection, model: type[BaseModel], run: Callable[..., Rendered]) -> Plan:
    require_acceptable(request, "application/json")
    require_json(request)
    parse: Any = partial(parse_borrowed, model=model)
    return Plan(parse, reporting_ignored(run))


def _caller_of(request: HTTPConnection) -> Caller:
    """What a request says of itself; a header that is no plain word is not used."""
    own = request_id_of(request.scope)
    given = own if header_of(request, b"x-request-id") == own else None
    return Caller(given, own, prefix_of(request.scope))
