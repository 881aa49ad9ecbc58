"""GET /vocab/{id}: one token, and the merges behind it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.auth import require_read
from app.preconditions import choose_tokenizer
from app.problems import Problem, problem_responses
from app.schemas import NAME_PATTERN
from app.services import services_of
from app.text_schemas import MAX_TREE_DEPTH, VocabResponse
from app.vocab_answers import answer_vocab

router = APIRouter(dependencies=[Depends(require_read)], tags=["tokenizers"])

_ID = r"^(0|[1-9][0-9]{0,9})$"


@router.get(
    "/vocab/{token_id}",
    summary="One token and the merges behind it",
    responses=problem_responses(404, 409, 412, 422, 503),
)
async def show_token(
    request: Request,
    response: Response,
    token_id: Annotated[str, Path(pattern=_ID, description="The id, in decimal.")],
    tokenizer: Annotated[
        str | None, Query(pattern=NAME_PATTERN, description="`name` or `name@version`.")
    ] = None,
    depth: Annotated[
        int, Query(ge=0, le=MAX_TREE_DEPTH, description="Merges the tree goes down.")
    ] = 8,
) -> VocabResponse:
    """Bytes, rank, the two tokens it is merged from, and theirs, down to `depth`."""
    if set(request.query_params) - {"tokenizer", "depth"}:
        detail = "Unknown query parameter; known: tokenizer, depth."
        raise Problem(422, "invalid_request", detail)
    services = services_of(request)
    live = await choose_tokenizer(request, tokenizer)
    answer = await services.queue.run(answer_vocab, live, int(token_id), depth)
    response.headers.update(live.headers)
    return answer
