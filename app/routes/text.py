"""POST /count, /truncate, /chunk and /verify: what else one asks of a text."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Depends, Request

from app.access.auth import require_read
from app.access.limits import max_decoded_bytes
from app.http.bodies import (
    json_request,
    read_model,
    require_acceptable,
    require_json,
)
from app.rendering.preconditions import require_known_specials
from app.rendering.problems import problem_responses
from app.rendering.respond import respond
from app.rendering.text import render_chunks, render_count, render_truncation, render_verification
from app.services import services_of
from tokenizer_client.schemas.text import (
    ChunkRequest,
    ChunkResponse,
    CountRequest,
    CountResponse,
    TextRequest,
    TruncateRequest,
    TruncateResponse,
    VerifyRequest,
    VerifyResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from app.rendering.json_values import Rendered
    from app.serving.live_tokenizer import LiveTokenizer

Wanted = TypeVar("Wanted", bound=TextRequest)

router = APIRouter(dependencies=[Depends(require_read)], tags=["text"])


def _documented(request: type[TextRequest], response: type[object]) -> dict[str, Any]:
    """What OpenAPI says of a route with this request and answer."""
    return {
        "openapi_extra": json_request(request),
        "response_model": None,
        "responses": {
            200: {"model": response},
            **problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503),
        },
    }


@router.post("/count", summary="How many tokens", **_documented(CountRequest, CountResponse))
async def count(request: Request) -> Response:
    """Count the tokens of a text, or of each of a batch, without making them.

    With `limit` counting stops once it is exceeded: whether a text fits is known early.
    """
    return await _respond(request, CountRequest, render_count)


@router.post(
    "/truncate",
    summary="Cut a text at a number of tokens",
    **_documented(TruncateRequest, TruncateResponse),
)
async def truncate(request: Request) -> Response:
    """The beginning of a text, or its end, of at most `max_tokens` tokens.

    It is text of the request, never cut inside a character or a special token, and `tokens` are
    exactly what it encodes to.
    """
    return await _respond(request, TruncateRequest, render_truncation)


@router.post("/chunk", summary="Cut a text into chunks", **_documented(ChunkRequest, ChunkResponse))
async def chunk(request: Request) -> Response:
    """All of a text in chunks of at most `max_tokens` tokens, which may overlap.

    The `tokens` of each are exactly what its text encodes to; `start` and `end` say where it
    stands.
    """
    maximum = max_decoded_bytes(services_of(request).settings.max_body_bytes)
    # A few kB make thousands of chunks, or of overlapping ones many times their text.
    return await _respond(
        request, ChunkRequest, partial(render_chunks, max_bytes=maximum), is_short=False
    )


@router.post("/verify", summary="Does it come back", **_documented(VerifyRequest, VerifyResponse))
async def verify(request: Request) -> Response:
    """Whether a text is what decoding its ids gives (after the normalizer), or ids what encoding
    their text gives, and where the first difference is."""
    maximum = max_decoded_bytes(services_of(request).settings.max_body_bytes)
    return await _respond(
        request, VerifyRequest, partial(render_verification, max_decoded_bytes=maximum)
    )


async def _respond(
    request: Request,
    model: type[Wanted],
    render: Callable[[Wanted, LiveTokenizer], Rendered],
    *,
    is_short: bool = True,
) -> Response:
    require_json(request)
    require_acceptable(request, "application/json")

    def render_checked(wanted: Wanted, live: LiveTokenizer) -> Rendered:
        require_known_specials(live, wanted.disallowed_special)
        return render(wanted, live)

    services = services_of(request)
    parse = partial(read_model, model, engine=services.engine)
    rendered, response = await respond(request, parse, render_checked, is_short=is_short)
    services.metrics.count_encoded(rendered.n_bytes, rendered.n_tokens)
    return response
