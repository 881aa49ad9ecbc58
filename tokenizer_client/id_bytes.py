"""Ids, texts and records as the bytes they go over the wire in, and back.

Raw little-endian ids, `; layout=batch` (u32 n, n x u64 lengths, then everything), and the frames
of a stream (u32 type, u32 length, payload).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenizer_client.errors import StreamCutOffError, UnexpectedAnswerError, problem_of_document
from tokenizer_client.schemas.tokens import MAX_ID, IdsError, parse_ids

Ids: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
"""Token ids as they are given."""

IdArray: TypeAlias = NDArray[np.uint32]
"""Token ids as they come back, shape (n,)."""

Width: TypeAlias = Literal["u32", "u16"]
"""Bytes of an id: four or two."""

DTYPES: Final[dict[str, np.dtype[Any]]] = {"u32": np.dtype("<u4"), "u16": np.dtype("<u2")}

_DATA_FRAME, _END_FRAME, _ERROR_FRAME = 0, 1, 2


def render_ids(ids: Ids, width: Width = "u32") -> bytes:
    r"""Token ids, little-endian.

    Raises:
        ValueError: an entry is no id, or does not fit.

    Example:
        >>> render_ids([1, 258], "u16")
        b'\x01\x00\x02\x01'
        >>> render_ids([70000], "u16")
        Traceback (most recent call last):
        ValueError: ids are integers from 0 to 65535 here
    """
    dtype = DTYPES[width]
    if isinstance(ids, np.ndarray):
        array: NDArray[Any] = ids
        if array.ndim != 1 or array.dtype.kind not in "ui":
            raise ValueError("ids are an array of integers of one dimension")
    else:
        try:
            array = parse_ids(list(ids))
        except IdsError:
            raise ValueError(f"ids are integers from 0 to {MAX_ID}") from None
    largest = np.iinfo(dtype).max
    if array.size and (int(array.min()) < 0 or int(array.max()) > largest):
        raise ValueError(f"ids are integers from 0 to {largest} here")
    return array.astype(dtype, copy=False).tobytes()


def render_batch(rows: Sequence[Ids]) -> bytes:
    """Ids of many texts, as `; layout=batch`."""
    parts = [render_ids(row) for row in rows]
    lengths = np.array([len(part) // 4 for part in parts], dtype="<u8")
    return b"".join((struct.pack("<I", len(parts)), lengths.tobytes(), *parts))


def parse_id_bytes(body: bytearray) -> IdArray:
    """The ids in `body`, which the array keeps; it can be written to.

    Raises:
        UnexpectedAnswerError: not a whole number of ids.
    """
    if len(body) % 4:
        raise UnexpectedAnswerError(f"an answer of {len(body)} bytes holds no ids of four bytes")
    return np.frombuffer(body, "<u4").astype(np.uint32, copy=False)


def parse_batch(body: bytearray, item_bytes: int) -> tuple[bytearray, NDArray[np.uint64]]:
    """What stands behind the lengths of a batch, and where each text begins and the last ends.

    Raises:
        UnexpectedAnswerError: the lengths do not agree with what is there.
    """
    n_texts = struct.unpack_from("<I", body)[0] if len(body) >= 4 else -1
    start = 4 + 8 * n_texts
    if n_texts < 0 or len(body) < start:
        raise UnexpectedAnswerError("the answer to a batch is cut off")
    offsets = np.zeros(n_texts + 1, dtype=np.uint64)
    np.cumsum(np.frombuffer(body, "<u8", n_texts, offset=4), out=offsets[1:])
    if int(offsets[-1]) * item_bytes != len(body) - start:
        raise UnexpectedAnswerError("the lengths in the answer to a batch do not add up")
    return body[start:], offsets


class FrameReader:
    r"""Frames of a stream out of bytes that come cut anywhere.

    Example:
        >>> reader = FrameReader()
        >>> reader.feed(b"\0\0\0\0\x02\0\0\0h"), reader.feed(b'i\x01\0\0\0\x02\0\0\0{}')
        (b'', b'hi')
        >>> reader.finish()
        {}
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._end: dict[str, Any] | None = None

    def feed(self, data: bytes) -> bytes:
        """The payloads of the data frames that are whole now, joined.

        Raises:
            ProblemError: the stream ended with an error.
            UnexpectedAnswerError: there are no frames in it.
        """
        self._held += data
        payloads: list[bytes] = []
        place = 0
        while len(self._held) - place >= 8:
            kind, length = struct.unpack_from("<II", self._held, place)
            if len(self._held) - place - 8 < length:
                break
            payload = bytes(memoryview(self._held)[place + 8 : place + 8 + length])
            place += 8 + length
            if kind == _DATA_FRAME and self._end is None:
                payloads.append(payload)
            else:
                self._take_last(kind, payload)
        del self._held[:place]
        return b"".join(payloads)

    def finish(self) -> dict[str, Any]:
        """The record at the end.

        Raises:
            StreamCutOffError: there is none.
        """
        if self._end is None or self._held:
            raise StreamCutOffError("the stream was cut off: its last record did not come")
        return self._end

    def _take_last(self, kind: int, payload: bytes) -> None:
        if self._end is not None or kind not in (_END_FRAME, _ERROR_FRAME):
            raise UnexpectedAnswerError(f"the stream has a frame of type {kind} where none can be")
        try:
            record = json.loads(payload)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            raise UnexpectedAnswerError("the last record of the stream is none")
        if kind == _ERROR_FRAME:
            document = record.get("error")
            document = document if isinstance(document, dict) else {}
            status = document.get("status")
            raise problem_of_document(status if type(status) is int else 500, document, {})
        self._end = record
