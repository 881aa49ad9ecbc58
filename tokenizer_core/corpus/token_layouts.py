"""TokenLayout: how token files stand on the disk, one for each trainer that reads them.

Each layout says how a shard begins, how wide an id is, and whether a document may go on in the next
shard. The layouts, and where their rules were read:

- `raw`: ids and nothing else, `train.bin` and `val.bin`, as nanoGPT maps them with
  `np.memmap(..., dtype=np.uint16)` (karpathy/nanoGPT `train.py`, `data/openwebtext/prepare.py`).
- `npy`: one array of numpy's own format, for `np.load(..., mmap_mode="r")` (numpy's
  `numpy/lib/format.py`, NEP 1).
- `megatron`: ids in `.bin`, and an `.idx` beside it (NVIDIA/Megatron-LM
  `megatron/core/datasets/indexed_dataset.py`); `megatron_index` has its layout.
- `llmc`: a header of 256 int32, then ids (karpathy/llm.c `dev/data/data_common.py`,
  `llmc/dataloader.h`, `train_llama3.py`). Magic 20240520 and version 1 for uint16 (GPT-2), magic
  20240801 and version 7 for uint32 (Llama 3); the third number is the count of tokens, and so a
  shard has fewer than 2^31. Of llm.c's readers that in C takes uint16 only.

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

MAX_UINT16_ID: Final = (1 << 16) - 1
INDEX_SUFFIX: Final = ".idx"

_LLMC_INTS: Final = 256
_LLMC_MAGIC_AND_VERSION: Final = {2: (20240520, 1), 4: (20240801, 7)}
_LLMC_MAX_TOKENS: Final = (1 << 31) - 1
_LLMC_TOKENS_PER_SHARD: Final = 100_000_000
_NPY_HEADER_BYTES: Final = 128


@dataclass(frozen=True)
class TokenLayout:
    """One layout of token files.

    - `spans_shards`: a document may begin in one shard and end in the next. It may where the
      trainer takes windows out of one stream of ids (nanoGPT, llm.c, the course): all shards but
      the last then have the same number of tokens, which is what llm.c's own scripts write. It may
      not where the trainer reads documents (Megatron): each shard is a dataset of its own there.
    - `wide`: the dtype on the disk for ids over 65,535. Megatron knows no uint32; ids are below
      2^20, so its int32 holds them as well.
    - `max_tokens_per_shard`, None without a bound; `default_tokens_per_shard`, None for one file.
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
    def has_index(self) -> bool:
        """Whether an `.idx` stands beside each shard."""
        return self.name == "megatron"

    def disk_dtype(self, width: Width) -> np.dtype[Any]:
        """The dtype of an id on the disk, little-endian.

        Example:
            >>> find_layout("megatron").disk_dtype("uint32")
            dtype('int32')
        """
        return np.dtype("<u2") if width == "uint16" else np.dtype(self.wide)

    def map_shard(self, path: Path, width: Width, n_tokens: int) -> TokenArray:
        """The ids of a shard, shape (n_tokens,), mapped and not read.

        The header must be byte for byte the one that is written, so nothing in it is interpreted.

        Raises:
            TokenFilesCorruptError: another header, or too short.
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
        if self.has_index:
            check_megatron_header(path.with_suffix(INDEX_SUFFIX), dtype)
        try:
            ids = np.memmap(path, dtype, mode="r", offset=len(header), shape=(n_tokens,))
        except ValueError:
            raise TokenFilesCorruptError(
                f"{path.name} has fewer than {n_tokens} ids; write the token files anew"
            ) from None
        # A plain array over the same mapping: slicing a memmap costs several times as much.
        return np.asarray(ids)


def find_layout(name: str) -> TokenLayout:
    """The layout of that name.

    Raises:
        TokenFilesPlanError: there is none; the message lists them.

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
    # numpy leaves room for 21 digits of the length, so the header's own length never changes.
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
