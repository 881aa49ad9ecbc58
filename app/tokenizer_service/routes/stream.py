"""POST /encode_stream and /decode_stream: text to ids and back while the body is arriving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic_core import PydanticCustomError

from tokenizer_client.schemas.tokens import check_special_names
from tokenizer_core.specials.policy import Policy
from tokenizer_core.text.streaming import StreamingEncoder
from tokenizer_service.access.auth import require_read
from tokenizer_service.handlers.choose_tokenizer import choose_tokenizer
from tokenizer_service.handlers.duplex import FRAMES, NDJSON, DuplexStream
from tokenizer_service.handlers.preconditions import TokenizerQuery, require_known_specials
from tokenizer_service.handlers.stream_codecs import DecodeCodec, EncodeCodec, IdLines, RawIds
from tokenizer_service.http.bodies import (
    TEXT_REQUEST,
    content_type_of,
    require_no_encoding,
    require_text,
    require_utf8,
)
from tokenizer_service.http.headers import accepts, header_of
from tokenizer_service.http.id_formats import OCTETS, ids_form_of
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.errors import InvalidFieldError, refused_text
from tokenizer_service.responses.problem_table import problem_responses
from tokenizer_service.services import services_of
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

router = APIRouter(dependencies=[Depends(require_read)], tags=["encode and decode"])

_JSON_LINES: Final = (NDJSON, "application/ndjson", "application/jsonl")
_LINES: Final = (NDJSON, "application/json", "application/jsonl")
"""Media types of Accept under which clients ask for lines."""

_IDS_BODY: Final = {
    "requestBody": {
        "required": True,
        "description": "Any number of ids: raw, little-endian, with `; dtype=u32` (default) or "
        "`u16`; or lines of JSON, each an array of ids or a record of /encode_stream.",
        "content": {
            OCTETS: {"schema": {"type": "string", "format": "binary"}},
            NDJSON: {"schema": {"type": "string"}, "example": "[72,101]\n[108,108,111]\n"},
        },
    }
}


def _records(fields: str, payload: str) -> dict[str, object]:
    """The OpenAPI description of a response in records."""
    schema = {"schema": {"type": "string"}}
    return {
        "description": f"Records as the body arrives: lines of JSON `{{{fields}}}`, the last "
        f"`{{done, count, bytes, digest}}` or `{{error}}`. Without a last record, the response is "
        f"incomplete. With `Accept: application/octet-stream`: frames of u32 type (0 {payload}, 1 "
        f"end, 2 error), u32 length, payload, little-endian.",
        "content": {NDJSON: schema, FRAMES: schema},
    }


_PROBLEMS: Final = problem_responses(400, 404, 406, 408, 409, 412, 413, 415, 422, 503)


@router.post(
    "/encode_stream",
    summary="Text to token ids, chunked both ways",
    openapi_extra=TEXT_REQUEST,
    response_model=None,
    responses={200: _records("seq, tokens, byte_end", "ids"), **_PROBLEMS},
)
async def encode_stream(
    request: Request,
    tokenizer: TokenizerQuery = None,
    allowed_special: Annotated[
        list[str] | None,
        Query(description="`all` (default), `none`, or a name; repeat it for several."),
    ] = None,
    disallowed_special: Annotated[
        list[str] | None, Query(description="`all`, or a name; repeat it for several.")
    ] = None,
    added_tokens: Annotated[
        Literal["all", "none"],
        Query(description="`none`: no added token is recognised, which changes ids."),
    ] = "all",
) -> DuplexStream:
    """Encode a text of any length. However the body is split, the joined ids are those of
    `/encode`.

    Each chunk returns the ids that it settles, so a client may wait for them before it sends more.
    The last ids of the text arrive when the body ends.
    """
    require_text(request, "With curl, use `curl -T FILE` instead of `-d`.")
    form = _choose_form(request)
    live = await choose_tokenizer(request, tokenizer)
    allowed: Any = _policy(allowed_special, ("all", "none"), "allowed_special", "all")
    disallowed: Any = _policy(disallowed_special, ("all",), "disallowed_special", ())
    require_known_specials(live, disallowed)
    if added_tokens == "none" and isinstance(allowed, frozenset):
        detail = "'none' recognises no added token; leave the names of allowed_special out"
        raise InvalidFieldError("/added_tokens", detail)
    policy = Policy.of_text(allowed, disallowed, added_tokens)
    try:
        encoder = StreamingEncoder(live.tokenizer, **policy.options)
    except ValueError as error:
        raise refused_text(error, "") from None
    return DuplexStream(services_of(request), live, EncodeCodec(encoder), form)


@router.post(
    "/decode_stream",
    summary="Token ids to text, chunked both ways",
    openapi_extra=_IDS_BODY,
    response_model=None,
    responses={200: _records("seq, text, ids_end", "text"), **_PROBLEMS},
)
async def decode_stream(
    request: Request,
    tokenizer: TokenizerQuery = None,
    skip_special_tokens: bool = False,
    errors: Annotated[
        Literal["replace", "strict"],
        Query(description="Bytes that are not UTF-8 become U+FFFD, or are an error."),
    ] = "replace",
) -> DuplexStream:
    """Decode any number of ids. However the body is split, the joined text is that of `/decode`.

    A character is sent when all its bytes have arrived. A client may send the lines that
    `/encode_stream` returns as they arrive. If the last record is missing or its count does not
    match, the response ends with an error.
    """
    form = _choose_form(request)
    make_reader = _choose_reader(request)
    live = await choose_tokenizer(request, tokenizer)
    codec = DecodeCodec(
        live, make_reader(live), errors=errors, skip_special_tokens=skip_special_tokens
    )
    return DuplexStream(services_of(request), live, codec, form)


def _choose_reader(request: Request) -> Callable[[LiveTokenizer], RawIds | IdLines]:
    """Return a function that makes the reader for the ids of this body."""
    require_no_encoding(request)
    kind, charset = content_type_of(request)
    if kind in _JSON_LINES:
        require_utf8(charset)
        return lambda live: IdLines(live.ref.digest)
    form = ids_form_of(header_of(request, b"content-type"))
    if form is None or form.kind != OCTETS or form.is_batch:
        raise Problem(
            415,
            "ids_required",
            f"This route takes Content-Type: {OCTETS}; dtype=u32 or dtype=u16, or {NDJSON}, and "
            f"does not guess. With curl, add -H 'Content-Type: {NDJSON}'.",
            headers={"Accept": f"{OCTETS}, {NDJSON}"},
        )
    return lambda live: RawIds(form)


def _choose_form(request: Request) -> str:
    """Frames if Accept names them; lines if it includes them under any of their media types."""
    accept = header_of(request, b"accept")
    if accepts(accept, FRAMES, by_name=True):
        return FRAMES
    if any(accepts(accept, kind) for kind in _LINES):
        return NDJSON
    raise Problem(406, "not_acceptable", f"This route responds with {NDJSON} or {FRAMES}.")


def _policy(values: list[str] | None, words: tuple[str, ...], name: str, default: object) -> object:
    if values is None:
        return default
    if len(values) == 1 and values[0] in words:
        return values[0]
    try:
        return check_special_names(values)
    except PydanticCustomError as error:
        raise InvalidFieldError(f"/{name}", error.message()) from None
