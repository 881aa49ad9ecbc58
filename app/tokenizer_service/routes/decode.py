"""POST /decode: token ids to text, one list or a batch."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.dialects import IdsRequest, IdsResponse
from tokenizer_client.schemas.tokens import DecodeRequest, DecodeResponse
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.decode import decode as run_decode
from tokenizer_service.handlers.decode import parse_binary, parse_decode
from tokenizer_service.handlers.known_fields import reporting_ignored
from tokenizer_service.handlers.plan import Plan
from tokenizer_service.handlers.preconditions import refuse_unknown_query
from tokenizer_service.handlers.respond import planned
from tokenizer_service.http.bodies import (
    binary_content,
    json_request,
    require_json,
    require_no_encoding,
)
from tokenizer_service.http.dialect_errors import choose_dialect
from tokenizer_service.http.headers import header_of
from tokenizer_service.http.id_formats import NPY, OCTETS, ids_form_of, wants_bytes
from tokenizer_service.services import services_of

router = APIRouter(dependencies=[Depends(require_read)], tags=["encode and decode"])

_OPTIONS = ("tokenizer", "skip_special_tokens", "errors")


def _body() -> dict[str, Any]:
    """The OpenAPI description of the body, and of the query options for a binary body."""
    document = json_request(DecodeRequest, IdsRequest)
    document["requestBody"]["content"] |= binary_content(OCTETS, NPY)["content"]
    fields = DecodeRequest.model_json_schema()["properties"]
    parameters = [{"name": name, "in": "query", "schema": fields[name]} for name in _OPTIONS]
    return {**document, "parameters": parameters}


@planned(
    router,
    "/decode",
    summary="Token ids to text",
    body=_body(),
    response={"model": DecodeResponse | IdsResponse, **binary_content(OCTETS)},
)
def decode(request: HTTPConnection) -> Plan:
    """Decode a list of ids, or a batch of lists. Bytes that are not UTF-8 become U+FFFD.

    The body may also be a binary response of `/encode`, sent back with its Content-Type; the
    options are then query parameters. With `Accept: application/octet-stream`, the response is the
    bytes of the text; for a batch, u32 n and n x u64 lengths come first.

    With `ids` instead of `tokens`, the route behaves as in text-embeddings-inference: it returns a
    list of texts and omits special tokens unless `skip_special_tokens` is false.
    """
    form = ids_form_of(header_of(request, b"content-type"))
    if form is None:
        require_json(request)
        refuse_unknown_query(request.query_params, (), has_json=True)
        parse: Any = partial(parse_decode, choose=partial(choose_dialect, request.scope))
    else:
        require_no_encoding(request)
        parse = partial(parse_binary, form=form, options=request.query_params)
    run = partial(
        run_decode,
        max_decoded_bytes=services_of(request).settings.response_limit,
        as_bytes=wants_bytes(header_of(request, b"accept")),
    )
    return Plan(parse, reporting_ignored(run), is_decoding=True)
