"""Requests for vLLM's `/inference/v1/generate`: what its render routes respond with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizer_service.responses.json_values import dump, render_described, render_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray


def render_generate_request(
    request_id: str, ids: NDArray[np.uint32], offsets: NDArray[Any] | None, fields: bytes
) -> Iterator[bytes]:
    """One request: the ids, under vLLM's name and SGLang's, their offsets, and `fields`, an object
    of JSON."""
    rendered = list(render_ids(ids))
    yield b'{"request_id":%b,"token_ids":' % dump(request_id)
    yield from rendered
    yield b',"input_ids":'
    yield from rendered
    yield b',"token_offsets":'
    if offsets is None:
        yield b"null"
    else:
        yield from render_described(offsets, lambda row: row)
    yield b"," + fields[1:]
