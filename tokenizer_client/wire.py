"""Requests and responses as bytes: JSON, ids, batches, stream frames, server-sent events.

The formats of ids: raw and little-endian; `; layout=batch` (u32 n, n x u64 lengths, then all
items); the frames of a stream (u32 type, u32 length, payload). html.spec.whatwg.org defines events.
Another response than was asked for raises UnexpectedResponseError.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from tokenizer_client.errors import (
    DigestMismatchError,
    StreamCutOffError,
    UnexpectedResponseError,
    problem_of_document,
)
from tokenizer_client.local_files import Source
from tokenizer_client.schemas.tokens import MAX_ID, IdsError, parse_ids

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
"""Token ids as callers pass them."""

IdArray: TypeAlias = NDArray[np.uint32]
"""Token ids as calls return them, shape (n,)."""

Width: TypeAlias = Literal["u32", "u16"]
"""Width of an id: four or two bytes."""

Query: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of a query."""

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
IDS: Final = f"{OCTETS}; dtype=u32"
BATCH: Final = f"{IDS}; layout=batch"
DTYPES: Final[dict[str, np.dtype[Any]]] = {"u32": np.dtype("<u4"), "u16": np.dtype("<u2")}

_DATA_FRAME, _END_FRAME, _ERROR_FRAME = 0, 1, 2


def render_ids(ids: Ids, width: Width = "u32") -> bytes:
    """Token ids as little-endian bytes.

    Raises:
        TypeError: an entry is no integer (a float, a bool, a list).
        ValueError: an entry is negative, or does not fit.
    """
    dtype = DTYPES[width]
    if isinstance(ids, np.ndarray):
        array: NDArray[Any] = ids
        if array.ndim != 1 or array.dtype.kind not in "ui":
            shape = f"{array.dtype} of shape {array.shape}"
            raise TypeError(f"ids are an array of integers of one dimension, not {shape}")
    else:
        array = _parse_id_list(ids)
    largest = np.iinfo(dtype).max
    if array.size and (int(array.min()) < 0 or int(array.max()) > largest):
        raise ValueError(f"ids are integers from 0 to {largest} here")
    return array.astype(dtype, copy=False).tobytes()


def _parse_id_list(ids: Sequence[int]) -> IdArray:
    if isinstance(ids, str | bytes | Mapping | Set) or not isinstance(ids, Iterable):
        raise TypeError(f"ids are a list or an array of integers, not {type(ids).__name__}")
    listed = list(ids)
    try:
        return parse_ids(listed)
    except IdsError:
        integers = [_to_integer(id_, index) for index, id_ in enumerate(listed)]
    try:
        return parse_ids(integers)  # NumPy's integers are Python's now
    except IdsError:
        raise ValueError(f"ids are integers from 0 to {MAX_ID}") from None


def _to_integer(value: Any, index: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        kind = type(value).__name__
        raise TypeError(f"ids[{index}] = {value!r:.40} is a {kind}; ids are integers")
    return int(value)


def render_batch(rows: Sequence[Ids]) -> bytes:
    """The ids of many texts in the format `; layout=batch`."""
    parts = [render_ids(row) for row in rows]
    lengths = np.array([len(part) // 4 for part in parts], dtype="<u8")
    return b"".join((struct.pack("<I", len(parts)), lengths.tobytes(), *parts))


def parse_id_bytes(body: bytearray) -> IdArray:
    """The ids in `body`, as a writable array that shares its memory."""
    if len(body) % 4:
        raise UnexpectedResponseError(f"a response of {len(body)} bytes is no list of 4-byte ids")
    return np.frombuffer(body, "<u4").astype(np.uint32, copy=False)


def to_list(ids: IdArray) -> list[int]:
    """An array of ids as Python's integers."""
    listed: list[int] = ids.tolist()
    return listed


def parse_batch(
    body: bytearray, item_bytes: int, n_texts: int
) -> tuple[bytearray, NDArray[np.uint64]]:
    """The joined items of a batch of `n_texts`, and the offsets of each item and of the end."""
    n_present = struct.unpack_from("<I", body)[0] if len(body) >= 4 else -1
    if n_present != n_texts:
        raise UnexpectedResponseError(
            f"the response is no batch of {n_texts}: "
            + (f"it has {n_present}" if n_present >= 0 else "it is cut off")
        )
    start = 4 + 8 * n_texts
    if len(body) < start:
        raise UnexpectedResponseError("the response to a batch is cut off")
    lengths = np.frombuffer(body, "<u8", n_texts, offset=4)
    n_bytes = len(body) - start
    offsets = np.zeros(n_texts + 1, dtype=np.uint64)
    np.cumsum(lengths, out=offsets[1:])
    # Check each length: the sum of unchecked ones may wrap around.
    if (lengths > n_bytes).any() or int(offsets[-1]) * item_bytes != n_bytes:
        raise UnexpectedResponseError("the lengths in the response to a batch do not add up")
    return body[start:], offsets


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `path` is relative to the address of the service.

    The response may begin before a `Source` is sent. The client must then read while it sends, or
    both sides wait for each other.
    """

    method: str
    path: str
    query: Query = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Source | None = None

    @property
    def is_repeatable(self) -> bool:
        """Whether the body can be read again from the beginning."""
        return not isinstance(self.body, Source) or self.body.is_repeatable


def form_of(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """The media type and the body of a form with these files; raises ValueError without any.

    Example:
        >>> form_of({"a.json": b"{}"})[1].splitlines()[1]
        b'Content-Disposition: form-data; name="a.json"; filename="a.json"'
    """
    if not files:
        raise ValueError("files is empty; give the files of one vocabulary by their names")
    parts = {name: (name, content) for name, content in files.items()}
    form = httpx.Request("POST", "http://any", files=parts)
    return form.headers["Content-Type"], form.read()


def path_of(*parts: str) -> str:
    """Join and quote the parts of a path.

    Example:
        >>> path_of("corpora", "../x")
        '/corpora/..%2Fx'
    """
    return "".join(f"/{quote(part, safe='')}" for part in parts)


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """A response that reports no error, read to its end."""

    headers: Mapping[str, str]
    body: bytearray

    def parse(self, model: type[Model]) -> Model:
        """Parse the body, which must be JSON, as a `model`."""
        require_media_type(self.headers, JSON)
        return parse_json(self.body, model)


def render_json(fields: Mapping[str, Any]) -> bytes:
    """Fields as JSON, in their order; raises ValueError for a lone surrogate."""
    try:
        # This is ten times as fast as the standard library on a megabyte of text.
        return to_json(fields, fallback=plain_number)
    except PydanticSerializationError:
        raise ValueError(
            "the request cannot be written as JSON in UTF-8: a text has a lone surrogate (decode "
            "the file with errors='replace'), or an option has the wrong type"
        ) from None


def plain_number(value: Any) -> Any:
    """A number of NumPy as one of Python; any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def require_media_type(headers: Mapping[str, str], wanted: str) -> None:
    """Check that a response has the type that was asked for, `dtype` and `layout` included."""
    present = headers.get("content-type", "")
    if _layout_of(present) != _layout_of(wanted):
        raise UnexpectedResponseError(
            f"the response is {present[:80]!r} where this service sends {wanted!r}; check the "
            f"address, and whether a proxy answers for the service"
        )


def require_same(what: str, present: object, asked: object) -> None:
    """Check that the response is about what was asked for."""
    if present != asked:
        raise UnexpectedResponseError(
            f"the response has the {what} {present!r:.60} where {asked!r:.60} was asked for; check "
            f"the address, and that no proxy caches responses"
        )


def _layout_of(media_type: str) -> tuple[str, str | None, str | None]:
    kind, *rest = media_type.lower().split(";")
    pairs = (parameter.partition("=") for parameter in rest)
    parameters = {name.strip(): word.strip().strip('"') for name, _, word in pairs}
    return kind.strip(), parameters.get("dtype"), parameters.get("layout")


def parse_json(body: bytes | bytearray, model: type[Model]) -> Model:
    """Parse JSON of the service as a `model`."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        wrong = ", ".join(
            ".".join(map(str, item["loc"])) or "the whole" for item in error.errors()[:4]
        )
        raise UnexpectedResponseError(
            f"the response is not a {model.__name__} of this service ({wrong}); check the address, "
            f"and that the service is as new as the client"
        ) from None


def require_one(found: T | list[T]) -> T:
    """What a response has for one text."""
    if isinstance(found, list):
        raise UnexpectedResponseError("the response to one text has the counts of many")
    return found


def require_digest(headers: Mapping[str, str], digest: str | None) -> None:
    """Refuse ids of another tokenizer even if a proxy dropped If-Match."""
    present = headers.get("tokenizer-digest")
    if digest is not None and present not in (None, digest):
        detail = "another tokenizer than the pinned one responded; a proxy dropped If-Match"
        raise DigestMismatchError(412, {"code": "digest_mismatch", "detail": detail}, headers)


def check_most_tokens(n_tokens: int, most: int | None) -> None:
    """Raise UnexpectedResponseError for more tokens than were asked for."""
    if most is not None and n_tokens > most:
        raise UnexpectedResponseError(
            f"the response has {n_tokens} tokens where at most {most} were asked for"
        )


class FrameReader:
    """Reads the frames of a stream from bytes split anywhere."""

    def __init__(self) -> None:
        self.digest: str | None = None
        """The digest of the tokenizer, None until the response has begun."""
        self.n_payload_bytes = 0
        self._held = bytearray()
        self._end: dict[str, Any] | None = None

    def feed(self, data: bytes) -> bytes:
        """Add `data`; return the payloads of the data frames that are now complete, joined.

        Raises:
            ProblemError: the stream ended with an error.
            UnexpectedResponseError: a frame has an unknown type, or follows the last one.
        """
        self._held += data
        payloads: list[bytes] = []
        position = 0
        while len(self._held) - position >= 8:
            kind, length = struct.unpack_from("<II", self._held, position)
            if len(self._held) - position - 8 < length:
                break
            payload = bytes(memoryview(self._held)[position + 8 : position + 8 + length])
            position += 8 + length
            if kind == _DATA_FRAME and self._end is None:
                payloads.append(payload)
            else:
                self._read_last(kind, payload)
        del self._held[:position]
        payload = b"".join(payloads)
        self.n_payload_bytes += len(payload)
        return payload

    def finish(self) -> dict[str, Any]:
        """The record of the last frame; raises StreamCutOffError if it did not arrive."""
        if self._end is None or self._held:
            raise StreamCutOffError("the stream was cut off: its last record did not arrive")
        return self._end

    def check(self, *, n_ids: int, n_text_bytes: int) -> None:
        """Raise StreamCutOffError unless the last frame agrees with the ones before it."""
        end = self.finish()
        reported = (end.get("count"), end.get("bytes"), end.get("digest"))
        if reported != (n_ids, n_text_bytes, self.digest):
            raise StreamCutOffError(
                f"the last record of the stream does not agree with its {n_ids} ids and "
                f"{n_text_bytes} bytes of text, or names another tokenizer"
            )

    def _read_last(self, kind: int, payload: bytes) -> None:
        if self._end is not None or kind not in (_END_FRAME, _ERROR_FRAME):
            raise UnexpectedResponseError(f"the stream has an unexpected frame of type {kind}")
        try:
            record = json.loads(payload)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise UnexpectedResponseError("the last record of the stream is not a JSON object")
        if kind == _ERROR_FRAME:
            document = record.get("error")
            document = document if isinstance(document, dict) else {}
            status = document.get("status")
            raise problem_of_document(status if type(status) is int else 500, document, {})
        self._end = record


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event; send `id` as Last-Event-ID to continue after it."""

    id: str
    data: bytes


class EventReader:
    """Reads server-sent events from bytes split anywhere; skips comments."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """Add `data`; return the events that are now complete."""
        self._held += data
        *blocks, rest = bytes(self._held).split(b"\n\n")
        self._held = bytearray(rest)
        return [event for event in map(_parse_event, blocks) if event is not None]


def _parse_event(block: bytes) -> Event | None:
    fields: dict[bytes, list[bytes]] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        fields.setdefault(name, []).append(value.removeprefix(b" "))
    if b"data" not in fields:
        return None
    return Event(
        fields.get(b"id", [b""])[-1].decode("utf-8", "replace"), b"\n".join(fields[b"data"])
    )
