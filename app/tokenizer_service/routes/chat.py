"""Routes that take a conversation: our own, and those that clients of other servers call.

`/tokenize` takes messages too, see `dialects`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Depends, Request

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
from tokenizer_service.http.bodies import (
    binary_content,
    json_request,
    require_acceptable,
    require_json,
    validate,
)
from tokenizer_service.http.headers import header_of
from tokenizer_service.http.id_formats import NPY, OCTETS, choose_ids_form
from tokenizer_service.http.json import parse_strict_json
from tokenizer_service.rendering.chat import (
    render_chat_encoding,
    render_generate_request,
    render_input_count,
    render_limits_of,
    render_message_count,
)
from tokenizer_service.rendering.conversations import require_shallow, without_nulls
from tokenizer_service.rendering.known_fields import reporting_ignored, validate_borrowed
from tokenizer_service.rendering.preconditions import require_no_query
from tokenizer_service.rendering.problems import problem_responses
from tokenizer_service.rendering.respond import Work, respond
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel
    from starlette.responses import Response

    from tokenizer_core.engines import EngineChoice
    from tokenizer_service.rendering.json_values import Rendered
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

Wanted = TypeVar(
    "Wanted", ChatEncodeRequest, ChatRenderRequest, CountTokensRequest, InputTokensRequest
)

router = APIRouter(dependencies=[Depends(require_read)], tags=["chat"])


def _documented(request: type[BaseModel], response: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI description of a route with this request and response."""
    return {
        "openapi_extra": json_request(request),
        "response_model": None,
        "responses": {
            200: response,
            **problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503),
        },
    }


@router.post(
    "/chat/encode",
    summary="Messages to token ids",
    **_documented(ChatEncodeRequest, {"model": ChatEncodeResponse, **binary_content(OCTETS, NPY)}),
)
async def encode_chat(request: Request) -> Response:
    """Render messages with the tokenizer's chat template and encode the text.

    Control tokens come from the template only: text of a user that looks like one is plain text.
    `Accept` chooses the binary forms of `/encode`. The header `Chat-Template-Digest` names the
    template.
    """
    require_no_query(request)
    form = choose_ids_form(header_of(request, b"accept"))
    parse = partial(_read, ChatEncodeRequest)
    return await _respond(request, parse, partial(render_chat_encoding, form=form))


@router.post(
    "/chat/completions/render",
    summary="A chat completion to token ids, in vLLM's format",
    **_documented(ChatRenderRequest, {"model": ChatRenderResponse}),
)
async def render_chat_completion(request: Request) -> Response:
    """Render the prompt of a chat completion as vLLM does. The response is the request that vLLM's
    `/inference/v1/generate` takes."""
    require_acceptable(request, "application/json")
    parse = partial(_read_others, ChatRenderRequest)
    return await _respond(request, parse, render_generate_request)


@router.post(
    "/messages/count_tokens",
    summary="Count the tokens of a request in Anthropic's format",
    **_documented(CountTokensRequest, {"model": CountTokensResponse}),
)
async def count_message_tokens(request: Request) -> Response:
    """Count the tokens of messages, system prompt and tools, as the tokenizer's chat template
    writes them."""
    require_acceptable(request, "application/json")
    parse = partial(_read_others, CountTokensRequest)
    return await _respond(request, parse, render_message_count)


@router.post(
    "/responses/input_tokens",
    summary="Count the tokens of a request in the format of OpenAI's responses",
    **_documented(InputTokensRequest, {"model": InputTokensResponse}),
)
async def count_input_tokens(request: Request) -> Response:
    """Count the tokens of input, instructions and tools, as the tokenizer's chat template writes
    them."""
    require_acceptable(request, "application/json")
    parse = partial(_read_others, InputTokensRequest)
    return await _respond(request, parse, render_input_count)


async def _respond(
    request: Request,
    parse: Callable[..., Wanted],
    render: Callable[..., Rendered],
) -> Response:
    require_json(request)
    services = services_of(request)
    limits = render_limits_of(services.settings)

    def render_within(wanted: Wanted, live: LiveTokenizer) -> Rendered:
        return render(wanted, live, limits=limits)

    parse_it = partial(parse, engine=services.engine)
    return await respond(request, Work(parse_it, reporting_ignored(render_within)))


def _read(model: type[Wanted], body: bytes, *, engine: EngineChoice) -> Wanted:
    value = parse_strict_json(body, engine)
    require_shallow(value)
    return validate(value, model)


def _read_others(model: type[Wanted], body: bytes, *, engine: EngineChoice) -> Wanted:
    value = without_nulls(parse_strict_json(body, engine))
    require_shallow(value)
    return validate_borrowed(value, model)
