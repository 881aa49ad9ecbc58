"""TokenLayout: the file formats of token files, one for each trainer that reads them.

A layout defines the header of a shard, the width of an id, and whether a document may continue in
the next shard. The layouts and the sources of their rules:

- `raw`: ids and nothing else, `train.bin` and `val.bin`, as nanoGPT maps them with
  `np.memmap(..., dtype=np.uint16)` (karpathy/nanoGPT `train.py`, `data/openwebtext/prepare.py`).
- `npy`: one array of numpy's own format, for `np.load(..., mmap_mode="r")` (numpy's
  `numpy/lib/format.py`, NEP 1).
- `megatron`: ids in `.bin` and an `.idx` (NVIDIA/Megatron-LM
  `megatron/core/datasets/indexed_dataset.py`); `document_index` describes the `.idx`.
- `parquet`: the file of `raw`, and a `.parquet` of the same documents (`parquet_shards`).
- `llmc`: a header of 256 int32, then ids (karpathy/llm.c `dev/data/data_common.py`,
  `llmc/dataloader.h`, `train_llama3.py`). Magic 20240520 and version 1 for uint16 (GPT-2), magic
  20240801 and version 7 for uint32 (Llama 3). The third number is the count of tokens. llm.c's
  reader in C accepts only uint16, and casts offsets to int: a shard of uint16 has at most 2 GiB.

All numbers are little-endian.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from tokenizer_core.corpus.document_index import check_megatron_header
from tokenizer_core.errors import TokenFilesCorruptError, TokenFilesPlanError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    TokenArray = NDArray[np.integer[Any]]

Width = Literal["uint16", "uint32"]

INDEX_SUFFIX: Final = ".idx"
_INDEX_SUFFIXES: Final = {"megatron": INDEX_SUFFIX, "parquet": ".parquet"}

_MAX_UINT16_ID: Final = (1 << 16) - 1
_LLMC_INTS: Final = 256
_LLMC_MAGIC_AND_VERSION: Final = {2: (20240520, 1), 4: (20240801, 7)}
_LLMC_MAX_TOKENS: Final = (1 << 30) - 512
_LLMC_TOKENS_PER_SHARD: Final = 100_000_000
_NPY_HEADER_BYTES: Final = 128


@dataclass(frozen=True)
class TokenLayout:
    """One layout of token files.

    - `spans_shards`: whether a document may begin in one shard and end in the next. True if the
      trainer reads windows of one stream of ids (nanoGPT, llm.c): all shards but the last then
      have the same number of tokens, as llm.c's own scripts write them. False if the trainer reads
      documents (Megatron, Parquet): there each shard is a separate dataset.
    - `wide`: the stored dtype for ids over 65,535. Megatron has no uint32; its int32 suffices,
      because ids are below 2^20.
    - `max_tokens_per_shard`: None for no limit; `default_tokens_per_shard`: None for one file.
    """

    name: str
    suffix: str
    spans_shards: bool
    header_bytes: int
    wide: str
    max_tokens_per_shard: int | None
    default_tokens_per_shard: int | None
    render_header: Callable[[int, np.dtype[Any]], bytes]

    @property
    def index_suffix(self) -> str | None:
        """The suffix of the file that each shard has beside its ids, if any."""
        return _INDEX_SUFFIXES.get(self.name)

    def disk_dtype(self, width: Width) -> np.dtype[Any]:
        """The stored dtype of an id, little-endian.

        Example:
            >>> find_layout("megatron").disk_dtype("uint32")
            dtype('int32')
        """
        return np.dtype("<u2") if width == "uint16" else np.dtype(self.wide)

    def map_shard(self, path: Path, width: Width, n_tokens: int) -> TokenArray:
        """The memory-mapped ids of a shard, shape (n_tokens,).

        The header must equal the one that we write, byte for byte; nothing in it is interpreted.

        Raises:
            TokenFilesCorruptError: the header differs, or the file is too short.
            OSError: the file cannot be opened.
        """
        dtype = self.disk_dtype(width)
        with path.open("rb") as file:
            header = file.read(self.header_bytes)
        if header != self.render_header(n_tokens, dtype):
            raise TokenFilesCorruptError(
                f"{path.name} does not begin with the header of the layout {self.name} for "
                f"{n_tokens} ids of {dtype}; write the token files anew"
            )
        if self.index_suffix == INDEX_SUFFIX:
            check_megatron_header(path.with_suffix(INDEX_SUFFIX), dtype)
        try:
            ids = np.memmap(path, dtype, mode="r", offset=len(header), shape=(n_tokens,))
        except ValueError:
            raise TokenFilesCorruptError(
                f"{path.name} has fewer than {n_tokens} ids; write the token files anew"
            ) from None
        # A plain array over the same mapping: slicing a memmap costs several times as much.
        return np.asarray(ids)


def choose_width(dtype: Literal["auto"] | Width, largest_id: int) -> Width:
    """`dtype`, or the narrowest by `auto`; TokenFilesPlanError unless it holds `largest_id`."""
    narrowest: Width = "uint16" if largest_id <= _MAX_UINT16_ID else "uint32"
    if dtype not in ("auto", "uint16", "uint32"):
        raise TokenFilesPlanError(
            f"there is no dtype {dtype!r:.40} of token files; take auto, uint16 or uint32"
        )
    if dtype == "uint16" != narrowest:
        raise TokenFilesPlanError(
            f"the tokenizer's largest id is {largest_id}, and uint16 ends at {_MAX_UINT16_ID}; "
            f"take dtype uint32 (or auto), or a tokenizer with a smaller vocabulary"
        )
    return narrowest if dtype == "auto" else dtype


def find_layout(name: str) -> TokenLayout:
    """The layout with this name.

    Raises:
        TokenFilesPlanError: the name is unknown; the message lists the layouts.

    Example:
        >>> find_layout("csv")
        Traceback (most recent call last):
        ...
        tokenizer_core.errors.TokenFilesPlanError: no layout is named 'csv'; there are raw, npy, ...
    """
    found = LAYOUTS.get(name)
    if found is None:
        raise TokenFilesPlanError(
            f"no layout is named {name!r:.40}; there are {', '.join(LAYOUTS)}"
        )
    return found


def _no_header(n_tokens: int, dtype: np.dtype[Any]) -> bytes:
    return b""


def _render_npy_header(n_tokens: int, dtype: np.dtype[Any]) -> bytes:
    # numpy reserves 21 digits for the length, so the header has a constant size.
    file = io.BytesIO()
    fields = {"descr": dtype.str, "fortran_order": False, "shape": (n_tokens,)}
    np.lib.format.write_array_header_1_0(file, fields)
    header = file.getvalue()
    if len(header) != _NPY_HEADER_BYTES:
        raise TokenFilesPlanError(
            f"this numpy writes .npy headers of {len(header)} bytes, not {_NPY_HEADER_BYTES}; "
            f"install the numpy that is pinned, or take the layout raw"
        )
    return header


def _render_llmc_header(n_tokens: int, dtype: np.dtype[Any]) -> bytes:
    header = np.zeros(_LLMC_INTS, dtype="<i4")
    header[:3] = (*_LLMC_MAGIC_AND_VERSION[dtype.itemsize], n_tokens)
    return header.tobytes()


LAYOUTS: Final = {
    layout.name: layout
    for layout in (
        TokenLayout("raw", ".bin", True, 0, "<u4", None, None, _no_header),
        TokenLayout("npy", ".npy", True, _NPY_HEADER_BYTES, "<u4", None, None, _render_npy_header),
        TokenLayout("megatron", ".bin", False, 0, "<i4", None, None, _no_header),
        TokenLayout("parquet", ".bin", False, 0, "<u4", None, None, _no_header),
        TokenLayout(
            "llmc",
            ".bin",
            True,
            4 * _LLMC_INTS,
            "<u4",
            _LLMC_MAX_TOKENS,
            _LLMC_TOKENS_PER_SHARD,
            _render_llmc_header,
        ),
    )
}
