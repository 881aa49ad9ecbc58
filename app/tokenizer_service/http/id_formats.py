"""Binary forms of token ids and texts: negotiate, read and write them.

The forms are raw little-endian ids (`application/octet-stream; dtype=u32` or `u16`), batches of
them (`; layout=batch`: u32 n, n x u64 lengths, then all ids), and one-dimensional NumPy `.npy`. The
Content-Type of a response is one that `/decode` accepts, so a client can send a response back
unchanged. A body is checked before it is used: an `.npy` header is parsed as a literal of at most a
kilobyte, and its shape is compared with the body.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tokenizer_client.schemas.tokens import MAX_BATCH_ITEMS, BatchTooLargeError
from tokenizer_service.http.headers import accepted_types, parse_media_type
from tokenizer_service.http.problem import Problem

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
NPY: Final = "application/x-npy"

_DTYPES: Final[dict[str, np.dtype[Any]]] = {"u32": np.dtype("<u4"), "u16": np.dtype("<u2")}
_WINDOW: Final = 1 << 16
_ANYTHING: Final[list[tuple[str, dict[str, str], float]]] = [("*/*", {}, 1.0)]
_NPY_HEADERS: Final = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,  # in UTF-8 instead of Latin-1, for names of fields
}
_MAX_NPY_HEADER_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class IdsForm:
    """The layout of ids in a body or a response."""

    kind: str
    """OCTETS or NPY."""

    dtype: str = "u32"
    is_batch: bool = False

    @property
    def media_type(self) -> str:
        """The form as a Content-Type.

        Example:
            >>> IdsForm(OCTETS, is_batch=True).media_type
            'application/octet-stream; dtype=u32; layout=batch'
        """
        if self.kind == NPY:
            return NPY
        return f"{OCTETS}; dtype={self.dtype}" + ("; layout=batch" if self.is_batch else "")

    @property
    def id_bytes(self) -> int:
        """The size of one id in bytes."""
        return _DTYPES[self.dtype].itemsize


@lru_cache(maxsize=64)  # almost all requests share a few values
def choose_ids_form(accept: str) -> IdsForm | None:
    """The form of ids that this Accept header prefers; None for JSON; raises 406 without any."""
    kind, parameters = _choose(accept, (JSON, OCTETS, NPY))
    if kind == JSON:
        return None
    form = _form_of(kind, parameters)
    if form is None:
        raise _not_acceptable(
            f"Responses with ids take dtype=u32 or dtype=u16 and, as {OCTETS}, layout=batch."
        )
    return form


@lru_cache(maxsize=64)
def wants_bytes(accept: str) -> bool:
    """Whether this Accept header prefers the bytes of a text to JSON; raises 406 as above."""
    return _choose(accept, (JSON, OCTETS))[0] == OCTETS


def ids_form_of(content_type: str) -> IdsForm | None:
    """The declared form of a body of ids, None if not binary; raises 415 for an unknown one."""
    kind, parameters = parse_media_type(content_type)
    if kind not in (OCTETS, NPY):
        return None
    form = _form_of(kind, parameters)
    if form is None:
        raise Problem(
            415,
            "ids_form_unsupported",
            f"Ids are taken as {OCTETS}; dtype=u32 or dtype=u16, for many texts with "
            f"; layout=batch, or as {NPY}.",
        )
    return form


def _form_of(kind: str, parameters: dict[str, str]) -> IdsForm | None:
    """The form that the parameters of a media type name, or None."""
    dtype, layout = parameters.get("dtype", "u32"), parameters.get("layout", "")
    is_known = dtype in _DTYPES and layout in ("", "batch") and not (layout and kind == NPY)
    return IdsForm(kind, dtype, bool(layout)) if is_known else None


def require_fit(form: IdsForm, largest_id: int) -> None:
    """Raise 406 unless every id up to `largest_id` fits in `form`."""
    if largest_id > np.iinfo(_DTYPES[form.dtype]).max:
        raise _not_acceptable(
            f"The largest id of this tokenizer is {largest_id}, too large for dtype=u16; ask for "
            f"dtype=u32."
        )


def render_ids_form(
    ids: NDArray[np.uint32], lengths: NDArray[np.uint64], form: IdsForm
) -> Iterator[bytes]:
    """The bytes of all `ids` in `form`, in windows; `lengths` are the text lengths of a batch."""
    dtype = _DTYPES[form.dtype]
    if form.kind == NPY:
        head = io.BytesIO()
        shape = {"descr": dtype.str, "fortran_order": False, "shape": (len(ids),)}
        npy.write_array_header_1_0(head, shape)
        yield head.getvalue()
    elif form.is_batch:
        yield render_lengths(lengths)
    for start in range(0, len(ids), _WINDOW):
        yield ids[start : start + _WINDOW].astype(dtype, copy=False).tobytes()


def render_lengths(lengths: NDArray[np.uint64]) -> bytes:
    """The header of a batch: u32 n, n x u64 lengths."""
    return struct.pack("<I", len(lengths)) + lengths.astype("<u8").tobytes()


def parse_ids_body(body: bytes, form: IdsForm) -> NDArray[np.uint32] | list[NDArray[np.uint32]]:
    """Parse the ids in `body`: one array, or a list of arrays for a batch; raises Problem."""
    if form.kind == NPY:
        return _parse_npy(body)
    if form.is_batch:
        return _parse_batch(body, _DTYPES[form.dtype])
    if len(body) % form.id_bytes:
        raise _malformed(f"A body of {form.id_bytes}-byte ids cannot have {len(body)} bytes.")
    return parse_raw_ids(body, form)


def parse_raw_ids(data: bytes, form: IdsForm) -> NDArray[np.uint32]:
    """Parse `data`, which must contain whole ids only."""
    return np.frombuffer(data, _DTYPES[form.dtype]).astype(np.uint32)


def _parse_batch(body: bytes, dtype: np.dtype[Any]) -> list[NDArray[np.uint32]]:
    n_texts = struct.unpack_from("<I", body)[0] if len(body) >= 4 else 0
    if n_texts > MAX_BATCH_ITEMS:
        raise BatchTooLargeError(n_texts)
    start = 4 + 8 * n_texts
    n_ids, rest = divmod(len(body) - start, dtype.itemsize)
    if len(body) < start or rest:
        raise _malformed("A batch is u32 n, n x u64 lengths, then the ids; this one is cut off.")
    lengths = np.frombuffer(body, "<u8", n_texts, offset=4)
    # Check each length first: the sum of unchecked lengths could wrap around.
    if (lengths > n_ids).any() or int(lengths.sum()) != n_ids:
        raise _malformed(f"The lengths of the batch do not add up to the {n_ids} ids after them.")
    ids = np.frombuffer(body, dtype, offset=start).astype(np.uint32)
    return np.split(ids, np.cumsum(lengths)[:-1].astype(np.int64)) if n_texts else []


def _parse_npy(body: bytes) -> NDArray[np.uint32]:
    head = io.BytesIO(body[:_MAX_NPY_HEADER_BYTES])
    try:
        shape, _, dtype = _NPY_HEADERS[npy.read_magic(head)](head)
    except Exception:  # of a hostile literal, almost any
        raise _malformed("The body is no .npy file, or its header is too long.") from None
    if dtype not in _DTYPES.values():
        raise Problem(
            422,
            "unsupported_dtype",
            "The array does not hold uint32 or uint16 in little-endian order; save it with "
            "ids.astype('<u4').",
        )
    if len(shape) != 1:
        raise Problem(
            422,
            "unsupported_shape",
            "The array must have one dimension; for many texts, send "
            f"{OCTETS}; dtype=u32; layout=batch.",
        )
    start = head.tell()
    if type(shape[0]) is bool or len(body) - start != shape[0] * dtype.itemsize:
        raise _malformed("The .npy header names another number of ids than the body has.")
    return np.frombuffer(body, dtype, offset=start).astype(np.uint32)


def _choose(accept: str, kinds: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The preferred kind, the first among equals; JSON if the client accepts anything."""
    found = []
    for kind, parameters, quality in accepted_types(accept) or _ANYTHING:
        if kind in ("*/*", "application/*"):
            kind, parameters = JSON, {}
        if quality > 0 and kind in kinds:
            found.append((quality, kind, parameters))
    if not found:
        raise _not_acceptable(
            f"This route answers {', '.join(kinds)}; say so in Accept or leave Accept out."
        )
    _, kind, parameters = max(found, key=itemgetter(0))
    return kind, parameters


def _not_acceptable(detail: str) -> Problem:
    return Problem(406, "not_acceptable", detail)


def _malformed(detail: str) -> Problem:
    return Problem(400, "malformed_ids", detail)
