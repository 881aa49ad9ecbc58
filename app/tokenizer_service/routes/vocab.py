"""GET /vocab/{id} and POST /merges: tokens, and the merges that produce them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from tokenizer_client.schemas.text import (
    MAX_TREE_DEPTH,
    MergesRequest,
    MergesResponse,
    VocabResponse,
)
from tokenizer_client.schemas.tokens import form
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.choose_tokenizer import choose_tokenizer
from tokenizer_service.handlers.preconditions import TokenizerQuery
from tokenizer_service.http.bodies import json_request, read_json
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.responses.vocab import list_merges, token_details
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["tokenizers"])

_MAX_MERGES_BYTES = 1 << 16
_ID = form(r"^(0|[1-9][0-9]{0,9})$", "must be an id in decimal")


@router.get(
    "/vocab/{token_id}",
    summary="One token and its merge tree",
    response_model=VocabResponse,
    responses=problem_responses(404, 409, 412, 422, 503),
)
async def show_token(
    request: Request,
    token_id: Annotated[str, Path(pattern=_ID, description="The id in decimal.")],
    tokenizer: TokenizerQuery = None,
    depth: Annotated[
        int, Query(ge=0, le=MAX_TREE_DEPTH, description="Depth of the merge tree.")
    ] = 8,
) -> Response:
    """Show its bytes, its rank and its merge tree, down to `depth` levels."""
    services = services_of(request)
    live = await choose_tokenizer(request, tokenizer)
    content = await services.quick_queue.run(
        lambda: token_details(live, int(token_id), depth).model_dump_json()
    )
    return Response(content, media_type="application/json", headers=dict(live.headers))


@router.post(
    "/merges",
    summary="The merges of many tokens",
    openapi_extra=json_request(MergesRequest),
    response_model=MergesResponse,
    responses=problem_responses(400, 404, 408, 409, 412, 413, 415, 422, 503),
)
async def show_merges(request: Request) -> Response:
    """List the merges that make these tokens, their parts, and so on, in the order of learning.

    Undoing the later ones gives the encoding by a smaller vocabulary.
    """
    services = services_of(request)
    wanted = await read_json(request, MergesRequest, services.settings, _MAX_MERGES_BYTES)
    live = await choose_tokenizer(request, wanted.tokenizer)
    content = await services.quick_queue.run(lambda: list_merges(wanted, live).model_dump_json())
    return Response(content, media_type="application/json", headers=dict(live.headers))
