"""POST /count, /truncate, /chunk, /verify and /align: other operations on a text."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.text import (
    AlignRequest,
    AlignResponse,
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
from tokenizer_service.handlers import text
from tokenizer_service.handlers.plan import BYTES_PER_ID, Plan
from tokenizer_service.handlers.preconditions import require_json_exchange
from tokenizer_service.handlers.respond import planned
from tokenizer_service.http.bodies import json_request, read_model
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["text"])

_COUNT: Final = Plan(partial(read_model, CountRequest), text.count)
_TRUNCATE: Final = Plan(
    partial(read_model, TruncateRequest), text.truncate, bytes_per_byte=BYTES_PER_ID + 1
)


def _documented(request: type[TextRequest], response: type[object]) -> dict[str, Any]:
    """The OpenAPI description of a route with this request and response."""
    return {"body": json_request(request), "response": {"model": response}}


@planned(router, "/count", summary="How many tokens", **_documented(CountRequest, CountResponse))
def count(request: HTTPConnection) -> Plan:
    """Count the tokens of a text, or of each text of a batch, without creating them.

    With `limit`, counting stops once the count exceeds it, so a too long text is detected early.
    """
    require_json_exchange(request)
    return _COUNT


@planned(
    router,
    "/truncate",
    summary="Cut a text at a number of tokens",
    **_documented(TruncateRequest, TruncateResponse),
)
def truncate(request: HTTPConnection) -> Plan:
    """Return the beginning or the end of a text, at most `max_tokens` tokens long.

    The cut never splits a character or a special token. Encoding the returned text gives exactly
    `tokens`.
    """
    require_json_exchange(request)
    return _TRUNCATE


@planned(
    router, "/chunk", summary="Cut a text into chunks", **_documented(ChunkRequest, ChunkResponse)
)
def chunk(request: HTTPConnection) -> Plan:
    """Split a text into chunks of at most `max_tokens` tokens, which may overlap.

    Encoding the text of a chunk gives exactly its `tokens`; `start` and `end` are its offsets in
    the text.
    """
    require_json_exchange(request)
    run = partial(text.chunk, max_bytes=services_of(request).settings.response_limit)
    # A few kB of text make thousands of chunks; overlapping chunks repeat their text many times.
    return Plan(partial(read_model, ChunkRequest), run, is_cheap=False)


@planned(
    router,
    "/verify",
    summary="Check that text survives encoding and decoding",
    **_documented(VerifyRequest, VerifyResponse),
)
def verify(request: HTTPConnection) -> Plan:
    """Check that decoding the ids of a text returns the text (after the normalizer), or that
    encoding the text of ids returns the ids; reports the first difference."""
    require_json_exchange(request)
    run = partial(text.verify, max_decoded_bytes=services_of(request).settings.response_limit)
    return Plan(partial(read_model, VerifyRequest), run)


@planned(
    router,
    "/align",
    summary="Align the tokens of two tokenizers",
    **_documented(AlignRequest, AlignResponse),
)
def align(request: HTTPConnection) -> Plan:
    """Return the ids of a text by two tokenizers, in the smallest groups that cover the same bytes.

    For distillation between vocabularies. Each recognises its own special tokens. A text of more
    tokens than a response may describe (`GET /info`) is a 413.
    """
    require_json_exchange(request)
    run = partial(text.align, find=services_of(request).live.get)
    # The other tokenizer may have to be loaded.
    return Plan(partial(read_model, AlignRequest), run, is_cheap=False)
