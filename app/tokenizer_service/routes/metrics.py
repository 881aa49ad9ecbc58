"""GET /metrics: for Prometheus."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends, Request, Response

from tokenizer_service.access.auth import require_read
from tokenizer_service.observability.metrics import CONTENT_TYPE
from tokenizer_service.responses.problems import problem_responses
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["service"])


@router.get(
    "/metrics",
    summary="Metrics of all server processes",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **problem_responses(503),
    },
)
async def metrics(request: Request) -> Response:
    """The metrics in Prometheus' text format."""
    services = services_of(request)
    services.metrics.count_cache([live.tokenizer for live in services.live.loaded()])
    body = await asyncio.to_thread(services.metrics.render)
    return Response(body, headers={"Content-Type": CONTENT_TYPE})
