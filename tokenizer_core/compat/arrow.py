"""Columns of text in Arrow's format (Polars, pandas, pyarrow, DuckDB, datasets) to columns of ids.

Needs pyarrow, the extra `parquet`. Ids are not copied after encoding; Polars and pyarrow take the
result as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tokenizer_core.specials.policy import Allowed, Disallowed
    from tokenizer_core.tokenizer import Tokenizer


def encode_column(
    tokenizer: Tokenizer,
    column: Any,
    *,
    num_threads: int | None = None,
    allowed_special: Allowed = "all",
    disallowed_special: Disallowed = (),
    add_special_tokens: bool = False,
) -> Any:
    """The ids of each row: a `pyarrow.ChunkedArray` of `large_list<uint32>`, with the chunks and
    the nulls of `column`, which is any array of strings with Arrow's PyCapsule interface. The
    options are those of `Tokenizer.encode_batch_to_numpy`.

    Raises:
        TypeError: `column` is no array of strings.
        Exception: as `encode_batch_to_numpy`; rows are counted from the start of their chunk.
    """
    import pyarrow as pa

    if not (hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__")):
        raise TypeError(f"{type(column).__name__} is no Arrow array; pyarrow.array makes one")
    given = pa.chunked_array(column)
    if not (
        pa.types.is_string(given.type)
        or pa.types.is_large_string(given.type)
        or pa.types.is_string_view(given.type)
    ):
        raise TypeError(f"the column has the type {given.type}, not string; cast it first")
    chunks = []
    for chunk in given.chunks:
        ids, offsets = tokenizer.encode_batch_to_numpy(
            [row or "" for row in chunk.to_numpy(zero_copy_only=False)],
            num_threads=num_threads,
            allowed_special=allowed_special,
            disallowed_special=disallowed_special,
            add_special_tokens=add_special_tokens,
        )
        chunks.append(
            pa.LargeListArray.from_arrays(
                pa.array(offsets.view(np.int64)), pa.array(ids), mask=chunk.is_null()
            )
        )
    return pa.chunked_array(chunks, pa.large_list(pa.uint32()))


def count_column(tokenizer: Tokenizer, column: Any, **options: Any) -> Any:
    """The number of ids of each row, null for a null: a `pyarrow.ChunkedArray` of int64; the rest
    as `encode_column`."""
    import pyarrow.compute as pc

    return pc.list_value_length(encode_column(tokenizer, column, **options))
