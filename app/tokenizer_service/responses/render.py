"""Requests for vLLM's `/inference/v1/generate` and SGLang's `/generate`: what the render routes
respond with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenizer_service.responses.json_values import dump, render_described, render_ids


def render_generate_request(
    request_id: str,
    ids: NDArray[np.uint32],
    offsets: NDArray[Any] | None,
    fields: bytes,
    *,
    with_input_ids: bool,
) -> Iterator[bytes]:
    """One request: the ids, by default under SGLang's name too, their offsets, and `fields`, an
    object of JSON."""
    rendered = list(render_ids(ids))
    yield b'{"request_id":%b,"token_ids":' % dump(request_id)
    yield from rendered
    if with_input_ids:
        yield b',"input_ids":'
        yield from rendered
    yield b',"token_offsets":'
    if offsets is None:
        yield b"null"
    else:
        yield from render_described(offsets, lambda row: row)
    yield b"," + fields[1:]


def render_sglang_request(rid: str, ids: NDArray[np.uint32], fields: bytes) -> Iterator[bytes]:
    """One request for SGLang's `/generate`: the ids and `fields`, an object of JSON."""
    yield b'{"rid":%b,"input_ids":' % dump(rid)
    yield from render_ids(ids)
    yield b"," + fields[1:]
