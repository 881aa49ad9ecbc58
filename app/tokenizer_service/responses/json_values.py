"""Values as JSON bytes, for all routes with JSON responses.

Long values are rendered in windows: a single `json.dumps` of a million ids would hold the
interpreter lock for 80 ms.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenizer_core.engines import json_of_ids
from tokenizer_service.access.work_queue import check_not_abandoned, reserve_memory
from tokenizer_service.serving.live_tokenizer import LiveTokenizer

_ID_WINDOW: Final = 1 << 15
_CHAR_WINDOW: Final = 1 << 18
_DESCRIBED_WINDOW: Final = 1 << 12


class Rendered(NamedTuple):
    """The body of a response in chunks, with the token and text byte counts for the metrics, and
    headers beside those of the tokenizer."""

    chunks: list[bytes]
    n_tokens: int
    n_bytes: int = 0
    media_type: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


def dump(value: object) -> bytes:
    """Render a short value as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def dump_with_identity(fields: Mapping[str, object], live: LiveTokenizer) -> list[bytes]:
    """Render `fields`, which are short, and the tokenizer's identity as a JSON object."""
    return [dump(fields)[:-1], b',"tokenizer":%b}' % live.identity_json]


def render_ids(ids: NDArray[np.uint32]) -> Iterator[bytes]:
    """Render ids as a JSON list."""
    if len(ids) <= _ID_WINDOW:
        yield json_of_ids(ids)
        return
    yield from render_windows(
        json_of_ids(ids[start : start + _ID_WINDOW]) for start in range(0, len(ids), _ID_WINDOW)
    )


def render_described(
    rows: NDArray[np.integer], describe: Callable[[Any], object]
) -> Iterator[bytes]:
    """Apply `describe` to each entry of `rows` (an int or a list of ints); render a JSON list, for
    which memory is reserved.

    Example:
        >>> import numpy as np
        >>> b"".join(render_described(np.array([1, 2]), lambda id_: {"id": id_}))
        b'[{"id":1},{"id":2}]'
    """

    def dump_window(start: int) -> bytes:
        window = dump([describe(row) for row in rows[start : start + _DESCRIBED_WINDOW].tolist()])
        reserve_memory(len(window))
        return window

    yield from render_windows(map(dump_window, range(0, len(rows), _DESCRIBED_WINDOW)))


def render_windows(windows: Iterator[bytes]) -> Iterator[bytes]:
    """Join the JSON lists in `windows` into one."""
    yield b"["
    for index, window in enumerate(windows):
        check_not_abandoned()
        if index:
            yield b","
        yield window[1:-1]
    yield b"]"


def render_each(values: Iterator[Iterator[bytes]], *, is_batch: bool) -> Iterator[bytes]:
    """Join rendered values into a JSON list, or return the single value unchanged."""
    if not is_batch:
        yield from next(values)
        return
    yield b"["
    for index, value in enumerate(values):
        check_not_abandoned()
        if index:
            yield b","
        yield from value
    yield b"]"


def render_text(text: str) -> Iterator[bytes]:
    """Render a text as a JSON string."""
    yield b'"'
    for start in range(0, len(text), _CHAR_WINDOW):
        yield escape(text[start : start + _CHAR_WINDOW])
    yield b'"'


def escape(text: str) -> bytes:
    """The content of a JSON string, without the quotes."""
    return dump(text)[1:-1]


def escaped_length(text: str) -> int:
    """The length of `text` in bytes of JSON, without the quotes: up to six times its UTF-8."""
    total = 0
    for start in range(0, len(text), _CHAR_WINDOW):
        check_not_abandoned()
        total += len(escape(text[start : start + _CHAR_WINDOW]))
    return total


def describe_token(token: bytes) -> dict[str, Any]:
    """The bytes of a token in base64, and as `text` if they are valid UTF-8."""
    try:
        text: str | None = token.decode()
    except UnicodeDecodeError:
        text = None
    return {"text": text, "bytes": base64.b64encode(token).decode()}


def utf8_length(text: str) -> int:
    """The length of `text` in bytes of UTF-8."""
    if text.isascii():
        return len(text)
    if len(text) <= _CHAR_WINDOW:
        return len(text.encode())
    windows = range(0, len(text), _CHAR_WINDOW)
    return sum(len(text[start : start + _CHAR_WINDOW].encode()) for start in windows)
