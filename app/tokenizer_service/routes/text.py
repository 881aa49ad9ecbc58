"""POST /count, /truncate, /chunk and /verify: other operations on a text."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter, Depends, Request

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
from tokenizer_service.access.auth import require_read
from tokenizer_service.http.bodies import (
    json_request,
    read_model,
    require_acceptable,
    require_json,
)
from tokenizer_service.rendering.preconditions import require_known_specials, require_no_query
from tokenizer_service.rendering.problems import problem_responses
from tokenizer_service.rendering.respond import Work, respond
from tokenizer_service.rendering.text import (
    render_chunks,
    render_count,
    render_truncation,
    render_verification,
)
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from tokenizer_service.rendering.json_values import Rendered
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

Wanted = TypeVar("Wanted", bound=TextRequest)

router = APIRouter(dependencies=[Depends(require_read)], tags=["text"])


def _documented(request: type[TextRequest], response: type[object]) -> dict[str, Any]:
    """The OpenAPI description of a route with this request and response."""
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
    """Count the tokens of a text, or of each text of a batch, without creating them.

    With `limit`, counting stops once the count exceeds it, so a too long text is detected early.
    """
    return await respond(request, count_work(request))


@router.post(
    "/truncate",
    summary="Cut a text at a number of tokens",
    **_documented(TruncateRequest, TruncateResponse),
)
async def truncate(request: Request) -> Response:
    """Return the beginning or the end of a text, at most `max_tokens` tokens long.

    The cut never splits a character or a special token. Encoding the returned text gives exactly
    `tokens`.
    """
    return await respond(request, truncate_work(request))


@router.post("/chunk", summary="Cut a text into chunks", **_documented(ChunkRequest, ChunkResponse))
async def chunk(request: Request) -> Response:
    """Split a text into chunks of at most `max_tokens` tokens, which may overlap.

    Encoding the text of a chunk gives exactly its `tokens`; `start` and `end` are its offsets in
    the text.
    """
    maximum = services_of(request).settings.response_limit
    render = partial(render_chunks, max_bytes=maximum)
    # A few kB of text make thousands of chunks; overlapping chunks repeat their text many times.
    return await respond(request, _work(request, ChunkRequest, render, is_short=False))


@router.post(
    "/verify",
    summary="Check that text survives encoding and decoding",
    **_documented(VerifyRequest, VerifyResponse),
)
async def verify(request: Request) -> Response:
    """Check that decoding the ids of a text returns the text (after the normalizer), or that
    encoding the text of ids returns the ids; reports the first difference."""
    maximum = services_of(request).settings.response_limit
    render = partial(render_verification, max_decoded_bytes=maximum)
    return await respond(request, _work(request, VerifyRequest, render))


def count_work(request: HTTPConnection) -> Work:
    """What /count does with a body; raises Problem for the headers."""
    return _work(request, CountRequest, render_count)


def truncate_work(request: HTTPConnection) -> Work:
    """What /truncate does with a body; raises Problem for the headers."""
    return _work(request, TruncateRequest, render_truncation)


def _work(
    request: HTTPConnection,
    model: type[Wanted],
    render: Callable[[Wanted, LiveTokenizer], Rendered],
    *,
    is_short: bool = True,
) -> Work:
    require_json(request)
    require_no_query(request)
    require_acceptable(request, "application/json")

    def render_checked(wanted: Wanted, live: LiveTokenizer) -> Rendered:
        require_known_specials(live, wanted.disallowed_special)
        return render(wanted, live)

    services = services_of(request)
    parse = partial(read_model, model, engine=services.engine)
    return Work(parse, render_checked, is_short=is_short)
