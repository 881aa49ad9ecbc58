"""GET /livez, /readyz, /health (public), /info and /metrics: whether the process serves, which
tokenizer it serves, its limits, and what it counts."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.tokens import (
    MAX_BATCH_ITEMS,
    MAX_SPECIAL_NAMES,
    HealthResponse,
    InferenceInfo,
    InfoResponse,
    LimitsInfo,
    TokenizerIdentity,
    UnhealthyResponse,
)
from tokenizer_core.text.streaming import MAX_PENDING_CHARS
from tokenizer_service.access.auth import require_read
from tokenizer_service.access.limits import MAX_DETAILED_TOKENS
from tokenizer_service.access.work_queue import MAX_WAITING
from tokenizer_service.handlers.stored import StoredBody, stored
from tokenizer_service.http.dialect_errors import TEI, prefix_of
from tokenizer_service.observability.metrics import CONTENT_TYPE
from tokenizer_service.responses.problem_table import problem_of, problem_responses
from tokenizer_service.services import Services, services_of
from tokenizer_service.serving.errors import NoTokenizerError
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

SERVICE: Final = "tokenizer-service"
_OK: Final = StoredBody(b'{"status":"ok"}')

router = APIRouter()


@stored(
    router,
    "/livez",
    is_public=True,
    summary="The process answers",
    tags=["health"],
    responses={200: {"model": HealthResponse}},
)
async def livez(connection: HTTPConnection) -> StoredBody:
    """Respond 200 while the event loop runs; independent of tokenizers."""
    return _OK


@stored(
    router,
    "/readyz",
    is_public=True,
    summary="A tokenizer is loaded and passed its round-trip check",
    tags=["health"],
    responses={200: {"model": HealthResponse}, **problem_responses(503)},
)
async def readyz(connection: HTTPConnection) -> StoredBody:
    """Respond 200 with `ok`, or with `degraded` and the reason when the process serves another
    version than it should, another process cannot load it, or the job database is unavailable.
    `source` says why this version is active."""
    services = services_of(connection)
    active, source = services.live.require_active(), services.live.source
    trouble = await services.shared.run("readyz", services.live.trouble)
    reason = trouble or services.jobs.database.trouble
    health = HealthResponse(
        status="degraded" if reason else "ok",
        reason=reason,
        tokenizer=TokenizerIdentity(**active.identity),
        source=source,
    )
    return StoredBody(health.model_dump_json(exclude_none=True).encode())


@router.get(
    "/health",
    summary="In the format of llama.cpp's server",
    tags=["health"],
    response_model=None,
    responses={200: {"model": HealthResponse}, 503: {"model": UnhealthyResponse}},
)
async def health(request: Request) -> JSONResponse:
    """`{"status": "ok"}`, or 503 with llama.cpp's error object."""
    try:
        services_of(request).live.require_active()
    except NoTokenizerError as error:
        problem = problem_of(error)
        document = {"code": 503, "message": str(error), "type": "unavailable_error"}
        headers = None if problem is None else problem.headers
        return JSONResponse({"error": document}, 503, headers=headers)
    return JSONResponse({"status": "ok"})


@stored(
    router,
    "/info",
    summary="The active tokenizer and the limits",
    tags=["service"],
    dependencies=[Depends(require_read)],
    responses={200: {"model": InfoResponse}, **problem_responses(422, 503)},
)
async def info(connection: HTTPConnection) -> StoredBody:
    """Show the active tokenizer, its engine, and the limits that apply to clients; also the fields
    of text-embeddings-inference, and under `/as/tei` only these."""
    services = services_of(connection)
    live = services.live.require_active()
    is_tei = prefix_of(connection.scope) is TEI
    content = await services.shared.run(
        ("info", live.ref, is_tei), _render_info, services, live, is_tei
    )
    return StoredBody(content, headers=tuple(live.headers.items()))


def _render_info(services: Services, live: LiveTokenizer, is_tei: bool) -> bytes:
    spec, settings = live.tokenizer.spec, services.settings
    inference = InferenceInfo(
        version=version(SERVICE),
        model_id=live.ref.name,
        model_sha=live.ref.digest,
        model_dtype="none",
        model_type={},
        max_input_length=spec.chat.max_model_len or settings.max_body_bytes,
        max_client_batch_size=MAX_BATCH_ITEMS,
        max_concurrent_requests=MAX_WAITING,
        max_batch_tokens=settings.max_body_bytes,
        max_batch_requests=None,
        auto_truncate=False,
        tokenization_workers=settings.thread_count,
        sha=None,
        docker_label=None,
    )
    if is_tei:
        return inference.model_dump_json().encode()
    whole = InfoResponse(
        **inference.model_dump(),
        service=SERVICE,
        python=platform.python_version(),
        tokenizer=TokenizerIdentity(**live.identity),
        engine=live.tokenizer.engine_name,
        engine_reason=services.engine.reason,
        native_unavailable=services.engine.native_unavailable,
        vocab_size=live.tokenizer.vocab_size,
        largest_id=spec.largest_id,
        kind=spec.kind,
        pattern=spec.pattern.name,
        unicode_tables=spec.unicode_tables,
        normalizer=spec.normalizer.name,
        special_tokens=spec.special_tokens,
        loaded_at=live.loaded_at,
        limits=LimitsInfo(
            max_body_bytes=settings.max_body_bytes,
            max_decoded_bytes=settings.response_limit,
            max_batch_items=MAX_BATCH_ITEMS,
            max_detailed_tokens=MAX_DETAILED_TOKENS,
            max_special_names=MAX_SPECIAL_NAMES,
            max_stream_pre_token_chars=MAX_PENDING_CHARS,
        ),
    )
    return whole.model_dump_json().encode()


@stored(
    router,
    "/metrics",
    summary="Metrics of all server processes",
    tags=["service"],
    dependencies=[Depends(require_read)],
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **problem_responses(422, 503),
    },
)
async def metrics(connection: HTTPConnection) -> StoredBody:
    """The metrics in Prometheus' text format."""
    services = services_of(connection)
    services.metrics.count_cache([live.tokenizer for live in services.live.loaded()])
    return StoredBody(await services.shared.run("metrics", services.metrics.render), CONTENT_TYPE)
