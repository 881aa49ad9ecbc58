"""GET /info: what serves, and within which limits."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from app.access.auth import require_read
from app.access.limits import MAX_DETAILED_TOKENS, max_decoded_bytes
from app.rendering.problems import problem_responses
from app.services import services_of
from tokenizer_client.schemas.tokens import (
    MAX_BATCH_ITEMS,
    MAX_SPECIAL_NAMES,
    InfoResponse,
    LimitsInfo,
    TokenizerIdentity,
)
from tokenizer_core.streaming import MAX_PENDING_CHARS

router = APIRouter(dependencies=[Depends(require_read)], tags=["service"])

SERVICE: Final = "tokenizer-service"


@router.get("/info", summary="What serves, and its limits", responses=problem_responses(503))
async def info(request: Request, response: Response) -> InfoResponse:
    """The active tokenizer, the engine behind it, and the limits a client can meet."""
    services = services_of(request)
    live = services.live.require_active()
    response.headers.update(live.headers)
    spec = live.tokenizer.spec
    max_body_bytes = services.settings.max_body_bytes
    return InfoResponse(
        service=SERVICE,
        version=version(SERVICE),
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
        normalizer=spec.normalizer,
        special_tokens=spec.special_tokens,
        loaded_at=live.loaded_at,
        limits=LimitsInfo(
            max_body_bytes=max_body_bytes,
            max_decoded_bytes=max_decoded_bytes(max_body_bytes),
            max_batch_items=MAX_BATCH_ITEMS,
            max_detailed_tokens=MAX_DETAILED_TOKENS,
            max_special_names=MAX_SPECIAL_NAMES,
            max_stream_pre_token_chars=MAX_PENDING_CHARS,
        ),
    )
