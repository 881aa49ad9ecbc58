"""Unpack gzip and Zstandard files piece by piece, with a limit on their expansion.

An archive that ends early, is damaged, or is followed by other data is an error, so that no part of
a corpus is lost silently. A few bytes can unpack to terabytes, so the output is limited to a
multiple of the input.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from tokenizer_core.errors import CorpusError, missing_extra

DEFAULT_MAX_EXPANSION: Final = 200.0
"""Text packs to a third or a tenth of its size, the most repetitive logs to a fiftieth."""

FREE_BYTES: Final = 1 << 26
"""Allowed for every file: a small file may repeat one line."""

MAX_ZSTD_WINDOW_LOG: Final = 27
"""Reading needs as much memory as the window. 2**27 bytes is the most that zstd itself accepts by
default and that its levels use; files of `zstd --long=31` need 2 GB."""

# Small: each member that ends in a block copies the data after its end.
_FED_BYTES: Final = 1 << 14
_TAKEN_BYTES: Final = 1 << 18


class _GzipMember:
    """zlib's object with the interface of the standard library's zstd: `decompress` takes no data
    unless `needs_input`, `eof` is true at the end, and `unused_data` follows it."""

    def __init__(self) -> None:
        # 16: gzip's header and checksum; 15: any window that gzip can have (32 KiB).
        self._zlib = zlib.decompressobj(16 + 15)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        taken = self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)
        self.needs_input = not self._zlib.unconsumed_tail
        return taken


def unpack_gzip(blocks: Iterable[bytes], name: str, max_expansion: float) -> Iterator[bytes]:
    """The content of a gzip file with any number of members; zeros may pad its end. Raises
    CorpusError: it ends early, is damaged, is not a gzip file, or holds more than `max_expansion`
    times its size (and more than FREE_BYTES)."""
    return _unpack(blocks, name, "gzip", _GzipMember, zlib.error, max_expansion)


def unpack_zstd(blocks: Iterable[bytes], name: str, max_expansion: float) -> Iterator[bytes]:
    """The content of a zstd file with any number of frames. Raises CorpusError: as for gzip; it
    needs a window of more than 2**27 bytes; or no library for it is installed."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        what = f"the corpus file {name!r} cannot be read: .zst"
        raise missing_extra(CorpusError, what, "zstd") from None
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_ZSTD_WINDOW_LOG}
    open_frame = partial(zstd.ZstdDecompressor, options=options)
    return _unpack(blocks, name, "zstd", open_frame, zstd.ZstdError, max_expansion)


def _unpack(
    blocks: Iterable[bytes],
    name: str,
    kind: str,
    open_member: Callable[[], Any],
    error_class: type[Exception],
    max_expansion: float,
) -> Iterator[bytes]:
    n_fed = n_taken = n_members = 0
    member: Any = None
    for data in _cut(blocks):
        n_fed += len(data)
        while True:
            if member is None:
                # Like gzip's own programs, treat zeros after a member as padding.
                data = data.lstrip(b"\0") if n_members and kind == "gzip" else data
                if not data:
                    break
                member = open_member()
                n_members += 1
            try:
                taken = member.decompress(data, _TAKEN_BYTES)
            except error_class as error:
                raise _damaged(name, kind, error) from None
            n_taken += len(taken)
            if n_taken > max(FREE_BYTES, max_expansion * n_fed):
                raise expands_too_much(name, max_expansion)
            if taken:
                yield taken
            data = b""
            if member.eof:
                data, member = member.unused_data, None
            elif member.needs_input:
                break
    if member is not None or not n_members:
        raise CorpusError(
            f"the corpus file {name!r} ends inside its {kind} data; it was not written or copied "
            f"to its end, so fetch or write it again"
        )


def expands_too_much(name: str, max_expansion: float) -> CorpusError:
    """The error for a file that expands beyond the limit."""
    return CorpusError(
        f"the corpus file {name!r} holds more than {max_expansion:g} times as much text as it has "
        f"bytes, which no text of people does; if it is meant, write it anew unpacked, or "
        f"read it from Python with more max_expansion"
    )


def _damaged(name: str, kind: str, error: Exception) -> CorpusError:
    if "too much memory" in str(error):
        return CorpusError(
            f"the corpus file {name!r} needs a {kind} window of more than "
            f"{1 << MAX_ZSTD_WINDOW_LOG} bytes of memory to read; compress it again without "
            f"--long, or with --long={MAX_ZSTD_WINDOW_LOG} at most"
        )
    return CorpusError(
        f"the corpus file {name!r} is no {kind} file, is damaged, or has something else after its "
        f"end ({error!s:.80}); fetch or write it again"
    )


def _cut(blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), _FED_BYTES):
            yield block[start : start + _FED_BYTES]
