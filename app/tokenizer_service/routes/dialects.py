"""POST /tokenize, POST /detokenize and GET /tokenizer_info: the APIs of other servers."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.dialects import (
    DIALECTS,
    ContentResponse,
    DetokenizeRequest,
    DetokenizeResponse,
    InputsResponse,
    PlainTextResponse,
    PromptResponse,
    PropsResponse,
    TokenizerInfoResponse,
)
from tokenizer_client.schemas.tokens import ModelName
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.chat import render_limits_of
from tokenizer_service.handlers.choose_tokenizer import choose_tokenizer
from tokenizer_service.handlers.decode import detokenize as run_detokenize
from tokenizer_service.handlers.decode import parse_detokenize
from tokenizer_service.handlers.dialects import parse_tokenize
from tokenizer_service.handlers.dialects import tokenize as run_tokenize
from tokenizer_service.handlers.known_fields import reporting_ignored
from tokenizer_service.handlers.plan import Plan
from tokenizer_service.handlers.preconditions import TokenizerQuery, require_json_exchange
from tokenizer_service.handlers.respond import planned
from tokenizer_service.handlers.stored import respond_json
from tokenizer_service.http.bodies import json_request
from tokenizer_service.http.dialect_errors import choose_dialect, prefix_of
from tokenizer_service.responses.dialects import describe_props, describe_tokenizer
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["dialects"])


@planned(
    router,
    "/tokenize",
    summary="Text to token ids, in other servers' formats",
    body=json_request(*DIALECTS.values()),
    response={"model": PromptResponse | ContentResponse | InputsResponse | PlainTextResponse},
)
def tokenize(request: HTTPConnection) -> Plan:
    """Encode text in the dialect of the key that holds it: `prompt` (vLLM, SGLang), `content`
    (llama.cpp), `inputs` (text-embeddings-inference) or `text` (Cohere). `messages` (vLLM) is a
    conversation, which the tokenizer's chat template renders.

    The defaults are those of each server: `prompt` and `inputs` add the tokens of the tokenizer's
    post-processor, the other keys do not. Special tokens in the text are recognised.
    """
    require_json_exchange(request)
    limits = render_limits_of(services_of(request).settings)
    parse = partial(parse_tokenize, choose=partial(choose_dialect, request.scope))
    run = partial(run_tokenize, limits=limits, as_dialect=prefix_of(request.scope))
    return Plan(parse, reporting_ignored(run))


@planned(
    router,
    "/detokenize",
    summary="Token ids to text, in other servers' formats",
    body=json_request(DetokenizeRequest),
    response={"model": DetokenizeResponse},
)
def detokenize(request: HTTPConnection) -> Plan:
    """Decode a list of ids or a batch. The response has the keys of all dialects, and under
    `/as/vllm`, `/as/sglang`, `/as/llama.cpp` or `/as/cohere` the key of that one."""
    require_json_exchange(request)
    run = partial(
        run_detokenize,
        max_decoded_bytes=services_of(request).settings.response_limit,
        as_dialect=prefix_of(request.scope),
    )
    return Plan(parse_detokenize, reporting_ignored(run), is_decoding=True)


@router.get(
    "/tokenizer_info",
    summary="The tokenizer in vLLM's format",
    response_model=TokenizerInfoResponse,
    responses=problem_responses(404, 409, 412, 422, 503),
)
async def tokenizer_info(
    request: Request, tokenizer: TokenizerQuery = None, model: ModelName = None
) -> Response:
    """Show the values of its `tokenizer_config.json`, or those that it would have."""
    live = await choose_tokenizer(request, tokenizer, model)
    return await respond_json(lambda: describe_tokenizer(live), live.headers, only_set_fields=True)


@router.get(
    "/props",
    summary="The tokenizer in llama.cpp's format",
    response_model=PropsResponse,
    responses=problem_responses(404, 409, 412, 422, 503),
)
async def props(
    request: Request,
    tokenizer: TokenizerQuery = None,
    model: ModelName = None,
    autoload: Annotated[str | None, Query(description="Nothing is loaded here.")] = None,
) -> Response:
    """Show what is known of the model: its length, its chat template, its first and last token."""
    live = await choose_tokenizer(request, tokenizer, model)
    n_slots, build = services_of(request).settings.thread_count, request.app.version
    return await respond_json(lambda: describe_props(live, n_slots, build), live.headers)
