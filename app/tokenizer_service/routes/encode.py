"""POST /encode: text to token ids, one text or a batch."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Depends
from starlette.requests import HTTPConnection

from tokenizer_client.schemas.tokens import EncodeRequest, EncodeResponse
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.encode import encode_binary, encode_body, encode_to_json
from tokenizer_service.handlers.plan import Plan
from tokenizer_service.handlers.preconditions import require_json_for_ids
from tokenizer_service.handlers.respond import planned
from tokenizer_service.http.bodies import binary_content, json_request, read_model
from tokenizer_service.http.headers import header_fields
from tokenizer_service.http.id_formats import NPY, OCTETS, IdsForm

router = APIRouter(dependencies=[Depends(require_read)], tags=["encode and decode"])


@planned(
    router,
    "/encode",
    summary="Text to token ids",
    body=json_request(EncodeRequest),
    response={"model": EncodeResponse, **binary_content(OCTETS, NPY)},
)
def encode(request: HTTPConnection) -> Plan:
    """Encode a text, or a batch of texts.

    Special tokens in the text are recognised unless `allowed_special` says otherwise. For untrusted
    text, send `"allowed_special": "none"`.

    With `Accept: application/octet-stream; dtype=u32` (or `u16`), the response is only the ids,
    little-endian; for a batch, u32 n and n x u64 lengths come first. With `application/x-npy`,
    `numpy.load` reads the ids of one text.
    """
    form = require_json_for_ids(request)
    run = encode_to_json if form is None else partial(encode_binary, form=form)
    plan = Plan(partial(read_model, EncodeRequest), run)
    # Otherwise the form is checked, or the digest in If-Match is compared, after the body was read.
    has_digest = b"if-match" in header_fields(request.scope)
    if form in (None, IdsForm(OCTETS)) and not has_digest:
        plan = plan._replace(run_body=partial(encode_body, form=form))
    return plan
