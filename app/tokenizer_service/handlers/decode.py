"""Ids to text: /decode, also in the form of text-embeddings-inference, and /detokenize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tokenizer_client.schemas.dialects import DetokenizeRequest, IdsRequest
from tokenizer_client.schemas.tokens import DecodeRequest
from tokenizer_core.engines import EngineChoice
from tokenizer_service.access.work_queue import reserve_memory
from tokenizer_service.handlers.known_fields import validate_borrowed, without_nulls
from tokenizer_service.http.bodies import validate
from tokenizer_service.http.dialect_errors import COHERE, LLAMA_CPP, SGLANG, VLLM, Dialect
from tokenizer_service.http.id_formats import OCTETS, IdsForm, parse_ids_body
from tokenizer_service.http.json import parse_body_json
from tokenizer_service.http.problem import Problem
from tokenizer_service.responses.decode import (
    Row,
    check_decoded_size,
    render_bytes,
    render_texts,
    rows_of,
    special_ids_of,
)
from tokenizer_service.responses.json_values import Rendered
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_KEYS: Final = {
    VLLM.name: "prompt",
    SGLANG.name: "text",
    LLAMA_CPP.name: "content",
    COHERE.name: "text",
}
"""The name of a dialect -> the key of its response to ids."""


def parse_decode(
    body: bytes, engine: EngineChoice | None = None, *, choose: Callable[[str], None]
) -> DecodeRequest | IdsRequest:
    """Parse the request in a body of JSON; `choose` gets a key that names a dialect. Raises
    Problem."""
    value = parse_body_json(body, engine)
    if isinstance(value, dict) and "ids" in value and "tokens" not in value:
        choose("ids")
        return validate_borrowed(without_nulls(value), IdsRequest)
    return validate(value, DecodeRequest)


def parse_binary(
    body: bytes, engine: EngineChoice | None = None, *, form: IdsForm, options: Mapping[str, str]
) -> DecodeRequest:
    """Parse the ids in a body in `form`, and the options in the query; raises Problem."""
    fields: dict[str, Any] = {"tokens": [], **options}
    skip = fields.get("skip_special_tokens")
    if skip in ("true", "false"):
        fields["skip_special_tokens"] = skip == "true"
    wanted = validate(fields, DecodeRequest)
    return wanted.model_copy(update={"tokens": parse_ids_body(body, form)})


def parse_detokenize(body: bytes, engine: EngineChoice | None = None) -> DetokenizeRequest:
    """Parse the request in `body`; raises Problem."""
    return validate_borrowed(without_nulls(parse_body_json(body, engine)), DetokenizeRequest)


def decode(
    request: DecodeRequest | IdsRequest,
    live: LiveTokenizer,
    *,
    max_decoded_bytes: int,
    as_bytes: bool,
) -> Rendered:
    """Decode the ids or the batch of `request`; the response is JSON, or only the bytes."""
    if isinstance(request, IdsRequest):
        if as_bytes:
            raise Problem(406, "not_acceptable", "`ids` has a JSON response; send `tokens`.")
        rows, _ = rows_of(request.ids, "/ids")
        check_decoded_size(rows, live, max_decoded_bytes)
        skip = request.skip_special_tokens
        texts = render_texts(rows, live, is_batch=True, skip_special_tokens=skip)
        return Rendered(list(texts), _count(rows))
    rows, is_batch = rows_of(request.tokens, "/tokens")
    check_decoded_size(rows, live, max_decoded_bytes)
    options: dict[str, Any] = {
        "is_batch": is_batch,
        "errors": request.errors,
        "skip_special_tokens": request.skip_special_tokens,
    }
    if as_bytes:
        chunks = render_bytes(rows, live, **options)
        media_type = OCTETS + ("; layout=batch" if is_batch else "")
        return Rendered(chunks, _count(rows), media_type=media_type)
    texts = render_texts(rows, live, **options)
    chunks = [b'{"text":', *texts, b',"tokenizer":%b}' % live.identity_json]
    return Rendered(chunks, _count(rows))


def detokenize(
    request: DetokenizeRequest,
    live: LiveTokenizer,
    *,
    max_decoded_bytes: int,
    as_dialect: Dialect | None,
) -> Rendered:
    """Decode the ids or the batch of `request` under the keys of all dialects, or under that of
    `as_dialect`.

    Where the request does not say it, `text` has no special tokens, and the others have them.
    """
    rows, is_batch = rows_of(request.tokens, "/tokens")
    size = check_decoded_size(rows, live, max_decoded_bytes)
    skip = request.skip_special_tokens
    whole = list(render_texts(rows, live, is_batch=is_batch, skip_special_tokens=bool(skip)))
    text = whole
    special = special_ids_of(live)
    if skip is None and any(np.isin(ids, special).any() for ids, _ in rows):
        reserve_memory(size)
        text = list(render_texts(rows, live, is_batch=is_batch, skip_special_tokens=True))
    texts = {"prompt": whole, "content": whole, "text": text}
    key = None if as_dialect is None else _KEYS.get(as_dialect.name)
    chunks: list[bytes] = []
    for name in texts if key is None else [key]:
        chunks += [b',"%b":' % name.encode(), *texts[name]]
    return Rendered([b"{", chunks[0][1:], *chunks[1:], b"}"], _count(rows))


def _count(rows: list[Row]) -> int:
    return sum(len(ids) for ids, _ in rows)
