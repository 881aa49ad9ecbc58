"""Bodies with the text of ids: JSON strings, or the bytes alone.

The size of the text is computed from the ids first, because a list of short ids could otherwise
request gigabytes of text. Text is decoded and rendered in windows.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokenizer_core.engines.base import sizes_of_ids
from tokenizer_core.errors import UnknownTokenIdError
from tokenizer_core.text.decode_streams import BytesDecoder, StreamingDecoder
from tokenizer_service.access.errors import DecodedTextTooLargeError
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.http.id_formats import render_lengths
from tokenizer_service.responses.errors import NotUtf8Error, PlacedError
from tokenizer_service.responses.json_values import escape, render_each
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

Row = tuple[NDArray[np.uint32], str]
"""A list of ids, and the JSON pointer to it in the request."""

_WINDOW: Final = 1 << 15


def rows_of(tokens: Any, pointer: str) -> tuple[list[Row], bool]:
    """The lists of ids in a field of a request, and whether the field is a batch."""
    if isinstance(tokens, list):
        return [(ids, f"{pointer}/{index}") for index, ids in enumerate(tokens)], True
    return [(tokens, pointer)], False


def check_decoded_size(rows: list[Row], live: LiveTokenizer, max_decoded_bytes: int) -> int:
    """Check lists of ids before any text is decoded, and reserve the memory for the text. Returns
    its size in bytes.
    """
    size = 0
    for ids, pointer in rows:
        for start in range(0, len(ids), _WINDOW):
            sizes = sizes_of(ids[start : start + _WINDOW], live, pointer, first_index=start)
            size += int(sizes.sum(dtype=np.uint64))
    if size > max_decoded_bytes:
        raise DecodedTextTooLargeError(max_decoded_bytes, size)
    reserve_memory(size)
    return size


def sizes_of(
    ids: NDArray[np.uint32], live: LiveTokenizer, pointer: str = "", *, first_index: int = 0
) -> NDArray[np.uint32]:
    """The length in bytes of each id, the first at `pointer/first_index`; raises PlacedError."""
    try:
        return sizes_of_ids(live.tokenizer.spec, live.token_lengths, ids, first_index)
    except UnknownTokenIdError as error:
        raise PlacedError(error, f"{pointer}/{error.index}") from None


def render_bytes(
    rows: list[Row],
    live: LiveTokenizer,
    *,
    is_batch: bool,
    errors: str = "replace",
    skip_special_tokens: bool = False,
) -> list[bytes]:
    """The bytes of the texts; for a batch, their lengths come first."""
    chunks: list[bytes] = []
    lengths = np.zeros(len(rows), dtype=np.uint64)
    for index, (ids, pointer) in enumerate(rows):
        check = codecs.getincrementaldecoder("utf-8")(errors)
        decoder = BytesDecoder(live.tokenizer)
        kept = without_special(ids, live) if skip_special_tokens else ids
        for start in range(0, len(kept), _WINDOW):
            check_not_abandoned()
            chunk = decoder.feed(kept[start : start + _WINDOW])
            lengths[index] += np.uint64(len(chunk))
            chunks.append(chunk)
            if errors == "strict":
                try:
                    check.decode(chunk, start + _WINDOW >= len(kept))
                except UnicodeDecodeError:
                    raise NotUtf8Error(pointer) from None
    return [render_lengths(lengths), *chunks] if is_batch else chunks


def special_ids_of(live: LiveTokenizer) -> NDArray[np.uint32]:
    """The ids that `skip_special_tokens` leaves out."""
    return np.array(list(live.tokenizer.spec.special_tokens.values()), dtype=np.uint32)


def without_special(ids: NDArray[np.uint32], live: LiveTokenizer) -> NDArray[np.uint32]:
    """`ids` without those of special tokens."""
    return ids[~np.isin(ids, special_ids_of(live))]


def render_texts(
    rows: list[Row],
    live: LiveTokenizer,
    *,
    is_batch: bool,
    errors: str = "replace",
    skip_special_tokens: bool = False,
) -> Iterator[bytes]:
    """The text of one list of ids as a JSON string, or the texts of a batch as a JSON list."""
    yield from render_each(
        (
            _render_text(
                without_special(ids, live) if skip_special_tokens else ids, live, errors, pointer
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
            check_not_abandoned()
            window = ids[start : start + _WINDOW]
            rendered = escape(decoder.feed(window))
            # `check_decoded_size` reserved the bytes of the tokens. Escapes and U+FFFD need more.
            n_reserved = int(live.token_lengths[window].sum(dtype=np.uint64))
            reserve_memory(max(0, len(rendered) - n_reserved))
            yield rendered
        yield escape(decoder.flush())
    except UnicodeDecodeError:
        raise NotUtf8Error(pointer) from None
    yield b'"'
