"""The `.parquet` of a shard: a row for each document, with the columns that fine-tuning reads.

- `input_ids`: the ids, list of int32.
- `attention_mask`: 1 for each id, list of int8. axolotl takes rows as tokenized only with all three
  columns (`axolotl/utils/data/wrappers.py`, `_is_dataset_already_tokenized`).
- `labels`: the ids, -100 where the loss does not count, list of int32. They are not shifted. TRL
  (`trl/trainer/sft_trainer.py`, `_prepare_dataset`), axolotl and LlamaFactory
  (`llamafactory/data/loader.py`, `get_dataset`) read them.

There is no `seq_lengths`: TRL reads it as the documents of a packed row, and does not shorten it
when it truncates the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tokenizer_core.corpus.marked_ids import NO_LOSS
from tokenizer_core.errors import TokenFilesCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenizer_core.corpus.staging import StagedFile
    from tokenizer_core.corpus.token_plan import TokenFilesPlan

_GROUP_TOKENS: Final = 1 << 20
"""About as many ids are in a row group, except for a longer document."""


def write_parquet(
    file: StagedFile, plan: TokenFilesPlan, paths: list[Path], lengths: Iterable[NDArray[np.int64]]
) -> None:
    """Write the documents of a shard, which have these lengths, from its other files. `paths` are
    those of `TokenFilesPlan.file_names`."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = _row_groups(plan, paths, lengths)
    first = next(tables)
    with (
        pa.PythonFile(_Sink(file), mode="w") as sink,
        parquet.ParquetWriter(sink, first.schema) as writer,
    ):
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def count_rows(path: Path) -> int:
    """The number of documents of a `.parquet`; raise TokenFilesCorruptError if it is none."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return int(parquet.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        raise TokenFilesCorruptError(f"{path.name} is no Parquet file") from None


def is_parquet_of(
    plan: TokenFilesPlan, paths: list[Path], lengths: Iterable[NDArray[np.int64]]
) -> bool:
    """Whether a `.parquet` is the one that `write_parquet` writes."""
    from pyarrow import parquet

    with parquet.ParquetFile(paths[1]) as file:
        found = map(file.read_row_group, range(file.num_row_groups))
        expected = _row_groups(plan, paths, lengths)
        return all(group.equals(table) for group, table in zip(found, expected, strict=False))


class _Sink:
    """A staged file as pyarrow's `PythonFile` takes it; closing it does nothing."""

    closed = False

    def __init__(self, file: StagedFile) -> None:
        self.write, self.flush = file.write, file.flush

    def close(self) -> None:
        pass


def _row_groups(
    plan: TokenFilesPlan, paths: list[Path], lengths: Iterable[NDArray[np.int64]]
) -> Iterator[Any]:
    """A pyarrow Table for each row group."""
    import pyarrow as pa

    ids = np.memmap(paths[0], plan.disk_dtype, mode="r")
    mask = np.memmap(paths[-1], np.uint8, mode="r") if plan.loss_mask else None
    start = 0
    for piece in lengths:
        groups = piece.cumsum() // _GROUP_TOKENS
        for part in np.split(piece, np.flatnonzero(np.diff(groups)) + 1):
            offsets = np.concatenate(([0], part.cumsum()))
            rows = slice(start, start + int(offsets[-1]))
            start = rows.stop
            if start > len(ids):
                raise TokenFilesCorruptError(f"{paths[0].name} has too few ids for {paths[1].name}")
            given = ids[rows].astype(np.int32)
            labels = given if mask is None else np.where(mask[rows] == 1, given, NO_LOSS)
            columns = {
                "input_ids": given,
                "attention_mask": np.ones(len(given), np.int8),
                "labels": labels.astype(np.int32, copy=False),
            }
            yield pa.table(
                {
                    name: pa.ListArray.from_arrays(offsets, pa.array(values))
                    for name, values in columns.items()
                }
            )
