"""Calls of the compiled module that need no engine: JSON, segments, and the readers of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizer_core.engines import base
from tokenizer_core.engines.native_import import native, unavailable_reason
from tokenizer_core.specials.segments import join_segments as join_in_python

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from tokenizer_core.engines.protocol import PackedModel
    from tokenizer_core.specials.segments import Segment


def count_ids(ids: NDArray[np.integer[Any]], counts: NDArray[np.uint64]) -> None:
    """Add to `counts`, shape (n,), how often each of the ids below n occurs in `ids`, shape
    (n_tokens,). NumPy takes five times as long."""
    import numpy as np

    if ids.dtype in (np.uint16, np.uint32) and unavailable_reason() is None:
        native.count_ids(np.ascontiguousarray(ids), counts)
    else:
        counts += np.bincount(ids, minlength=len(counts)).astype(np.uint64)


def split_bytes(text: bytes, separator: bytes) -> list[bytes]:
    """As `text.split(separator)`, by the compiled module, which finds it five times as fast, if it
    is available."""
    is_native = unavailable_reason() is None
    return native.split_bytes(text, separator) if is_native else text.split(separator)


def json_of_ids(ids: NDArray[np.uint32]) -> bytes:
    """Ids of shape (n_tokens,) as a JSON array without white space; no id becomes a Python int if
    the compiled module is available."""
    if unavailable_reason() is not None:
        return base.json_of_ids_in_python(ids)
    import numpy as np

    if ids.dtype != np.uint32 or not ids.flags.aligned:
        ids = np.require(ids, np.uint32, ["ALIGNED"])
    return native.json_of_ids(ids)


def join_segments(segments: Iterable[Segment]) -> tuple[str, list[tuple[int, int]]]:
    """As `specials.segments.join_segments`, by the compiled module if it is available."""
    listed = segments if type(segments) is list else list(segments)
    joined = native.join_segments(listed) if unavailable_reason() is None else None
    return join_in_python(listed) if joined is None else joined


def read_json_natively(
    document: bytes, *, most_values: int, most_containers: int
) -> tuple[object] | None:
    """The value of a document of strict JSON, alone in a tuple. Requires the compiled module.

    None if it is left to `strict_json.read_json`, which names every error: it is invalid, or has
    more strings, keys, arrays and objects than `most_values`, or more numbers and words outside
    arrays of integers, more arrays and objects than `most_containers`, nesting over 8 levels, or
    numbers that need Python. Other threads run meanwhile.
    """
    return native.read_json(document, most_values, most_containers)


def read_packed_model(document: bytes) -> tuple[bytes, PackedModel] | None:
    """A `tokenizer.json` without the entries and merges of its model, and these packed.

    As `read_rank_lines` and `read_tekken_entries`: None if the compiled module is not available, or
    if anything is not as it should be. Then read the whole document, which names it.
    """
    return native.read_model(document) if unavailable_reason() is None else None


def read_rank_lines(document: bytes) -> dict[bytes, int] | None:
    """The ranks of a `.tiktoken` file."""
    return native.read_ranks(document) if unavailable_reason() is None else None


def left_sizes(tokens: list[bytes]) -> list[int] | None:
    """How many bytes the left side of the merge has that makes each of these tokens, all different
    and in the order of their ranks; 0 if no merge does.

    None if the compiled module is not available, or if one of the 256 bytes is no token.
    """
    return native.left_sizes(tokens) if unavailable_reason() is None else None


def read_tekken_entries(document: bytes) -> tuple[bytes, list[bytes]] | None:
    """A `tekken.json` with an empty `vocab`, and its tokens, whose ranks are their positions."""
    return native.read_tekken(document) if unavailable_reason() is None else None
