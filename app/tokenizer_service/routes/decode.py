"""POST /decode: token ids to text, one list or a batch."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request

from tokenizer_client.schemas.dialects import IdsRequest, IdsResponse
from tokenizer_client.schemas.tokens import BatchTooLargeError, DecodeRequest, DecodeResponse
from tokenizer_service.access.auth import require_read
from tokenizer_service.http.bodies import (
    batch_too_large,
    binary_content,
    json_request,
    require_json,
    require_no_encoding,
    validate,
)
from tokenizer_service.http.headers import header_of
from tokenizer_service.http.id_formats import (
    NPY,
    OCTETS,
    IdsForm,
    ids_form_of,
    parse_ids_body,
    wants_bytes,
)
from tokenizer_service.http.json import parse_strict_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering.conversations import without_nulls
from tokenizer_service.rendering.decode import render_decoding
from tokenizer_service.rendering.dialects import render_inference_texts
from tokenizer_service.rendering.known_fields import reporting_ignored, validate_borrowed
from tokenizer_service.rendering.preconditions import require_known_query, require_no_query
from tokenizer_service.rendering.problems import problem_responses
from tokenizer_service.rendering.respond import Work, respond
from tokenizer_service.services import services_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from tokenizer_core.engines import EngineChoice
    from tokenizer_service.rendering.json_values import Rendered
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

router = APIRouter(dependencies=[Depends(require_read)], tags=["encode and decode"])


_OPTIONS = ("tokenizer", "skip_special_tokens", "errors")


def _request() -> dict[str, Any]:
    """The OpenAPI description of the body, and of the query options for a binary body."""
    document = json_request(DecodeRequest, IdsRequest)
    content = document["requestBody"]["content"]
    fields = content["application/json"]["schema"]["anyOf"][0]["properties"]
    content |= binary_content(OCTETS, NPY)["content"]
    parameters = [{"name": name, "in": "query", "schema": fields[name]} for name in _OPTIONS]
    return {**document, "parameters": parameters}


@router.post(
    "/decode",
    summary="Token ids to text",
    openapi_extra=_request(),
    response_model=None,
    responses={
        200: {"model": DecodeResponse | IdsResponse, **binary_content(OCTETS)},
        **problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503),
    },
)
async def decode(request: Request) -> Response:
    """Decode a list of ids, or a batch of lists. Bytes that are not UTF-8 become U+FFFD.

    The body may also be a binary response of `/encode`, sent back with its Content-Type; the
    options are then query parameters. With `Accept: application/octet-stream`, the response is the
    bytes of the text; for a batch, u32 n and n x u64 lengths come first.

    With `ids` instead of `tokens`, the route behaves as in text-embeddings-inference: it returns a
    list of texts and omits special tokens unless `skip_special_tokens` is false.
    """
    return await respond(request, decode_work(request))


def decode_work(request: HTTPConnection) -> Work:
    """What /decode does with a body; raises Problem for the headers and for the query."""
    form = ids_form_of(header_of(request, b"content-type"))
    if form is None:
        require_json(request)
        require_no_query(request)
    else:
        require_no_encoding(request)
        require_known_query(request, "tokenizer", "skip_special_tokens", "errors")
    services = services_of(request)
    maximum = services.settings.response_limit
    as_bytes = wants_bytes(header_of(request, b"accept"))

    def answer(wanted: DecodeRequest | IdsRequest, live: LiveTokenizer) -> Rendered:
        if isinstance(wanted, DecodeRequest):
            return render_decoding(wanted, live, max_decoded_bytes=maximum, as_bytes=as_bytes)
        if as_bytes:
            raise Problem(406, "not_acceptable", "`ids` has a JSON response; send `tokens`.")
        return render_inference_texts(wanted, live, max_decoded_bytes=maximum)

    parse_it = partial(parse, form=form, options=request.query_params, engine=services.engine)
    return Work(parse_it, reporting_ignored(answer), is_decoding=True)


def parse(
    body: bytes,
    form: IdsForm | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    engine: EngineChoice | None = None,
) -> DecodeRequest | IdsRequest:
    """Parse the request in `body`, and in the query if the body is binary; raises Problem."""
    if form is None:
        value = parse_strict_json(body, engine)
        if isinstance(value, dict) and "ids" in value and "tokens" not in value:
            return validate_borrowed(without_nulls(value), IdsRequest)
        return validate(value, DecodeRequest)
    fields: dict[str, Any] = {"tokens": [], **options}
    skip = fields.get("skip_special_tokens")
    if skip in ("true", "false"):
        fields["skip_special_tokens"] = skip == "true"
    wanted = validate(fields, DecodeRequest)
    try:
        return wanted.model_copy(update={"tokens": parse_ids_body(body, form)})
    except BatchTooLargeError as error:
        raise batch_too_large(error) from None
