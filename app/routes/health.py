"""GET /livez, /readyz, /health: is the process there, and does it serve. Public."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from app.rendering.problems import problem_of, problem_responses
from app.services import services_of
from app.serving.errors import NoTokenizerError
from tokenizer_client.schemas.tokens import HealthResponse, TokenizerIdentity, UnhealthyResponse

router = APIRouter(tags=["health"])


@router.get("/livez", summary="The process answers", response_model_exclude_none=True)
async def livez() -> HealthResponse:
    """200 as long as the event loop turns; it says nothing about tokenizers."""
    return HealthResponse(status="ok")


@router.get(
    "/readyz",
    summary="A tokenizer is loaded and passed its round trip",
    response_model_exclude_none=True,
    responses=problem_responses(503),
)
async def readyz(request: Request) -> HealthResponse:
    """200 with `ok`, or `degraded` and the reason when it serves another version than it should, or
    what jobs need is away."""
    services = services_of(request)
    active = services.live.require_active()
    reason = services.live.reason or services.jobs.database.trouble
    return HealthResponse(
        status="degraded" if reason else "ok",
        reason=reason,
        tokenizer=TokenizerIdentity(**active.identity),
    )


@router.get(
    "/health",
    summary="As llama.cpp's server answers it",
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
        return JSONResponse(
            {"error": document}, 503, headers=None if problem is None else problem.headers
        )
    return JSONResponse({"status": "ok"})
