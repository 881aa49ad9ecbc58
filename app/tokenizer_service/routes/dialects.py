"""POST /tokenize, POST /detokenize and GET /tokenizer_info: the APIs of other servers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request, Response

from tokenizer_client.schemas.dialects import (
    DIALECTS,
    ContentResponse,
    DetokenizeRequest,
    DetokenizeResponse,
    InputsResponse,
    PlainTextResponse,
    PromptResponse,
    TokenizerInfoResponse,
)
from tokenizer_client.schemas.tokens import ModelName
from tokenizer_service.access.auth import require_read
from tokenizer_service.http.bodies import json_request, require_acceptable, require_json
from tokenizer_service.http.json import parse_strict_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering.chat import render_limits_of
from tokenizer_service.rendering.conversations import require_shallow, without_nulls
from tokenizer_service.rendering.dialects import (
    describe_tokenizer,
    render_detokenize,
    render_tokenize,
)
from tokenizer_service.rendering.known_fields import reporting_ignored, validate_borrowed
from tokenizer_service.rendering.preconditions import (
    TokenizerQuery,
    choose_tokenizer,
    require_known_query,
    require_no_query,
)
from tokenizer_service.rendering.problems import problem_responses
from tokenizer_service.rendering.respond import Work, respond
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from tokenizer_client.schemas.dialects import TokenizeRequest
    from tokenizer_core.engines import EngineChoice

router = APIRouter(dependencies=[Depends(require_read)], tags=["dialects"])

_PROBLEMS = problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503)


@router.post(
    "/tokenize",
    summary="Text to token ids, in other servers' formats",
    openapi_extra=json_request(*DIALECTS.values()),
    response_model=None,
    responses={
        200: {"model": PromptResponse | ContentResponse | InputsResponse | PlainTextResponse},
        **_PROBLEMS,
    },
)
async def tokenize(request: Request) -> Response:
    """Encode text in the dialect of the key that holds it: `prompt` (vLLM, SGLang), `content`
    (llama.cpp), `inputs` (text-embeddings-inference) or `text` (Cohere). `messages` (vLLM) is a
    conversation, which the tokenizer's chat template renders.

    The defaults are those of each server: `prompt` and `inputs` add the tokens of the tokenizer's
    post-processor, the other keys do not. Special tokens in the text are recognised.
    """
    return await respond(request, tokenize_work(request))


def tokenize_work(request: HTTPConnection) -> Work:
    """What /tokenize does with a body; raises Problem for the headers."""
    require_no_query(request)
    require_json(request)
    require_acceptable(request, "application/json")
    services = services_of(request)
    render = reporting_ignored(partial(render_tokenize, limits=render_limits_of(services.settings)))
    return Work(partial(parse_tokenize, engine=services.engine), render)


@router.post(
    "/detokenize",
    summary="Token ids to text, in other servers' formats",
    openapi_extra=json_request(DetokenizeRequest),
    response_model=None,
    responses={200: {"model": DetokenizeResponse}, **_PROBLEMS},
)
async def detokenize(request: Request) -> Response:
    """Decode a list of ids or a batch. The response has the keys of all dialects."""
    return await respond(request, detokenize_work(request))


def detokenize_work(request: HTTPConnection) -> Work:
    """What /detokenize does with a body; raises Problem for the headers."""
    require_no_query(request)
    require_json(request)
    require_acceptable(request, "application/json")
    services = services_of(request)
    maximum = services.settings.response_limit
    render = reporting_ignored(partial(render_detokenize, max_decoded_bytes=maximum))
    parse = partial(parse_detokenize, engine=services.engine)
    return Work(parse, render, is_decoding=True)


@router.get(
    "/tokenizer_info",
    summary="The tokenizer in vLLM's format",
    response_model_exclude_unset=True,
    responses=problem_responses(404, 409, 412, 422, 503),
)
async def tokenizer_info(
    request: Request,
    response: Response,
    tokenizer: TokenizerQuery = None,
    model: ModelName = None,
) -> TokenizerInfoResponse:
    """Show the values of its `tokenizer_config.json`, or those that it would have."""
    require_known_query(request, "tokenizer", "model")
    live = await choose_tokenizer(request, tokenizer, model)
    response.headers.update(live.headers)
    return describe_tokenizer(live)


def parse_tokenize(body: bytes, engine: EngineChoice | None = None) -> TokenizeRequest:
    """Parse the request in `body`, in the dialect of its key.

    Raises:
        Problem: 422 for no key or several keys; otherwise as `validate`.
    """
    value = without_nulls(parse_strict_json(body, engine))
    keys = [key for key in DIALECTS if isinstance(value, dict) and key in value]
    if len(keys) != 1:
        given = " and ".join(keys) or "none of them"
        raise Problem(
            422,
            "ambiguous_dialect" if keys else "invalid_request",
            f"The body must be a JSON object with one of {', '.join(DIALECTS)}, which decides the "
            f"format of the response; it has {given}.",
            errors=[(f"/{key}", "one of several texts") for key in keys] or [("", "no text")],
        )
    if keys == ["messages"]:
        require_shallow(value)
    return validate_borrowed(value, DIALECTS[keys[0]])


def parse_detokenize(body: bytes, engine: EngineChoice | None = None) -> DetokenizeRequest:
    """Parse the request in `body`; raises Problem."""
    return validate_borrowed(without_nulls(parse_strict_json(body, engine)), DetokenizeRequest)
