"""Responses of /decode: pure functions without HTTP.

The size of the text is computed from the ids first, because a list of short ids could otherwise
request gigabytes of text. Text is decoded and rendered in windows.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.text.decode_streams import BytesDecoder, StreamingDecoder
from tokenizer_service.access.limits import check_wanted, reserve_memory
from tokenizer_service.http.id_formats import OCTETS, render_lengths
from tokenizer_service.http.problem import Problem
from tokenizer_service.rendering.json_values import Rendered, escape, render_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokenizer_client.schemas.tokens import DecodeRequest
    from tokenizer_service.serving.live_tokenizer import LiveTokenizer

    Row = tuple[NDArray[np.uint32], str]
    """A list of ids, and the JSON pointer to it in the request."""

_WINDOW: Final = 1 << 15


def render_decoding(
    request: DecodeRequest,
    live: LiveTokenizer,
    *,
    max_decoded_bytes: int,
    as_bytes: bool = False,
) -> Rendered:
    """Decode the ids or the batch of `request`; the response is JSON, or only the bytes.

    Raises:
        Problem: 422 for an id outside the vocabulary (with its index) and, with `errors: strict`,
            for bytes that are not UTF-8; 413 for more text than `max_decoded_bytes`.
    """
    rows, is_batch = rows_of(request.tokens, "/tokens")
    check_decoded_size(rows, live, max_decoded_bytes)
    n_tokens = sum(len(ids) for ids, _ in rows)
    if as_bytes:
        chunks = _render_bytes(request, rows, live, is_batch=is_batch)
        media_type = OCTETS + ("; layout=batch" if is_batch else "")
        return Rendered(chunks, n_tokens, media_type=media_type)
    texts = render_texts(
        rows,
        live,
        is_batch=is_batch,
        errors=request.errors,
        skip_special_tokens=request.skip_special_tokens,
    )
    chunks = [b'{"text":', *texts, b',"tokenizer":' + live.identity_json + b"}"]
    return Rendered(chunks, n_tokens)


def rows_of(tokens: Any, pointer: str) -> tuple[list[Row], bool]:
    """The lists of ids in a field of a request, and whether the field is a batch."""
    if isinstance(tokens, list):
        return [(ids, f"{pointer}/{index}") for index, ids in enumerate(tokens)], True
    return [(tokens, pointer)], False


def check_decoded_size(rows: list[Row], live: LiveTokenizer, max_decoded_bytes: int) -> int:
    """Check lists of ids before any text is decoded, and reserve the memory for the text. Returns
    its size in bytes.

    Raises:
        Problem: 422 for an id outside the vocabulary; 413 for more text than `max_decoded_bytes`.
        OverloadedError: the memory for requests is used up.
    """
    size = sum(_decoded_size(ids, live, pointer) for ids, pointer in rows)
    if size > max_decoded_bytes:
        raise Problem(
            413,
            "decoded_text_too_large",
            f"These ids decode to more than {max_decoded_bytes} bytes of text; send fewer at once.",
            limit=max_decoded_bytes,
            actual=size,
        )
    reserve_memory(size)
    return size


def _decoded_size(ids: NDArray[np.uint32], live: LiveTokenizer, pointer: str) -> int:
    total = 0
    for start in range(0, len(ids), _WINDOW):
        sizes = sizes_of(ids[start : start + _WINDOW], live, pointer, first_index=start)
        total += int(sizes.sum(dtype=np.uint64))
    return total


def sizes_of(
    ids: NDArray[np.uint32], live: LiveTokenizer, pointer: str = "", *, first_index: int = 0
) -> NDArray[np.uint32]:
    """The length in bytes of each id; the first id is at `pointer/first_index`.

    Raises:
        Problem: 422 for an id outside the vocabulary.
    """
    lengths = live.token_lengths
    is_inside = ids < len(lengths)
    sizes: NDArray[np.uint32] = lengths[np.where(is_inside, ids, 0)] * is_inside
    if not sizes.all():
        is_unknown = (sizes == 0) & ~np.isin(ids, live.tokenizer.spec.empty_ids)
        if is_unknown.any():
            index = first_index + int(np.argmax(is_unknown))
            raise _unknown_id(index, len(lengths) - 1, pointer)
    return sizes


def _unknown_id(index: int, largest_id: int, pointer: str) -> Problem:
    where = f"{pointer}/{index}"
    return Problem(
        422,
        "unknown_token_id",
        f"The id at {where} is not in the vocabulary (largest id {largest_id}). Decode with the "
        f"tokenizer that made these ids.",
        errors=[(where, f"no such token; the largest id is {largest_id}")],
    )


def _render_bytes(
    request: DecodeRequest, rows: list[Row], live: LiveTokenizer, *, is_batch: bool
) -> list[bytes]:
    """The bytes of the texts; for a batch, their lengths come first."""
    chunks: list[bytes] = []
    lengths = np.zeros(len(rows), dtype=np.uint64)
    for index, (ids, pointer) in enumerate(rows):
        check = codecs.getincrementaldecoder("utf-8")(request.errors)
        decoder = BytesDecoder(live.tokenizer)
        kept = _without_special(ids, live) if request.skip_special_tokens else ids
        for start in range(0, len(kept), _WINDOW):
            check_wanted()
            chunk = decoder.feed(kept[start : start + _WINDOW])
            lengths[index] += np.uint64(len(chunk))
            chunks.append(chunk)
            if request.errors == "strict":
                _check_utf8(check, chunk, start + _WINDOW >= len(kept), pointer)
    return [render_lengths(lengths), *chunks] if is_batch else chunks


def _check_utf8(
    check: codecs.IncrementalDecoder, chunk: bytes, is_last: bool, pointer: str
) -> None:
    try:
        check.decode(chunk, is_last)
    except UnicodeDecodeError:
        raise _not_utf8(pointer) from None


def special_ids_of(live: LiveTokenizer) -> NDArray[np.uint32]:
    """The ids that `skip_special_tokens` leaves out."""
    return np.array(list(live.tokenizer.spec.special_tokens.values()), dtype=np.uint32)


def _without_special(ids: NDArray[np.uint32], live: LiveTokenizer) -> NDArray[np.uint32]:
    return ids[~np.isin(ids, special_ids_of(live))]


def render_texts(
    rows: list[Row],
    live: LiveTokenizer,
    *,
    is_batch: bool,
    errors: str = "replace",
    skip_special_tokens: bool = False,
) -> Iterator[bytes]:
    """The text of one list of ids as a JSON string, or the texts of a batch as a JSON list.

    Raises:
        Problem: 422 with `errors="strict"` for bytes that are not UTF-8.
    """
    yield from render_each(
        (
            _render_text(
                _without_special(ids, live) if skip_special_tokens else ids, live, errors, pointer
            )
            for ids, pointer in rows
        ),
        is_batch=is_batch,
    )


def _render_text(
    ids: NDArray[np.uint32], live: LiveTokenizer, errors: str, pointer: str
) -> Iterator[bytes]:
    decoder = StreamingDecoder(live.tokenizer, errors=errors)
    yield b'"'
    try:
        for start in range(0, len(ids), _WINDOW):
            check_wanted()
            window = ids[start : start + _WINDOW]
            rendered = escape(decoder.feed(window))
            # `check_decoded_size` reserved the bytes of the tokens. Escapes and U+FFFD need more.
            n_reserved = int(live.token_lengths[window].sum(dtype=np.uint64))
            reserve_memory(max(0, len(rendered) - n_reserved))
            yield rendered
        yield escape(decoder.flush())
    except UnicodeDecodeError:
        raise _not_utf8(pointer) from None
    yield b'"'


def _not_utf8(pointer: str) -> Problem:
    detail = 'the bytes of these ids are not UTF-8; decode them with "errors": "replace"'
    return Problem(422, "not_utf8", f"{pointer}: {detail}.", errors=[(pointer, detail)])
