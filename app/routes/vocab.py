"""GET /vocab/{id}: one token, and the merges that produce it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.access.auth import require_read
from app.rendering.preconditions import TokenizerQuery, choose_tokenizer, require_known_query
from app.rendering.problems import problem_responses
from app.rendering.vocab import token_details
from app.services import services_of
from tokenizer_client.schemas.text import MAX_TREE_DEPTH, VocabResponse

router = APIRouter(dependencies=[Depends(require_read)], tags=["tokenizers"])

_ID = r"^(0|[1-9][0-9]{0,9})$"


@router.get(
    "/vocab/{token_id}",
    summary="One token and its merge tree",
    responses=problem_responses(404, 409, 412, 422, 503),
)
async def show_token(
    request: Request,
    response: Response,
    token_id: Annotated[str, Path(pattern=_ID, description="The id in decimal.")],
    tokenizer: TokenizerQuery = None,
    depth: Annotated[
        int, Query(ge=0, le=MAX_TREE_DEPTH, description="Depth of the merge tree.")
    ] = 8,
) -> VocabResponse:
    """Show its bytes, its rank and its merge tree, down to `depth` levels."""
    require_known_query(request, "tokenizer", "depth")
    services = services_of(request)
    live = await choose_tokenizer(request, tokenizer)
    answer = await services.quick_queue.run(token_details, live, int(token_id), depth)
    response.headers.update(live.headers)
    return answer
