"""The native engine: a thin adapter over the compiled module `tokenizer_core._native`.

The only file that imports it, but for `native_training`. A text is split, looked up and merged in
one call; what the module cannot do (split by a custom pattern, decode what is no plain int) is
done as the Python engine does it, around the module or instead of it, so that the results stay
the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.engines.protocol import CacheStatistics
from tokenizer_core.engines.python_engine import join_tokens
from tokenizer_core.errors import EngineUnavailableError, UnknownTokenIdError
from tokenizer_core.patterns import UNICODE_TABLES
from tokenizer_core.pretokenize import split_in_windows

try:
    import tokenizer_core._native as _native
except ImportError as error:
    _import_error: ImportError | None = error
else:
    _import_error = None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokenizer_core.spec import TokenizerSpec

_MODULE: Final = "tokenizer_core._native"


def unavailable_reason() -> str | None:
    """Why the native engine cannot run here, for people to read; None when it can."""
    if isinstance(_import_error, ModuleNotFoundError) and _import_error.name == _MODULE:
        return (
            f"the compiled module {_MODULE} is not in this installation: it was installed without "
            "a Rust toolchain, or the build failed. Install it again with "
            "TOKENIZER_REQUIRE_NATIVE=1 in the environment to see why"
        )
    if _import_error is not None:
        # The loader's words begin with where the file lies, which the service would tell anybody.
        told = str(_import_error).replace(f"{_import_error.path}: ", "")
        return f"the compiled module {_MODULE} does not load: {told}"
    if _native.UNICODE_TABLES != UNICODE_TABLES:
        return (
            f"the compiled module {_MODULE} has the Unicode tables of {_native.UNICODE_TABLES}, "
            f"but {UNICODE_TABLES} is installed"
        )
    return None


class NativeEngine:
    """Encodes and decodes for one spec; see `protocol.Engine`. Safe to share between threads."""

    name = "native"

    def __init__(self, spec: TokenizerSpec) -> None:
        """Raises EngineUnavailableError where the compiled module is missing or does not fit."""
        reason = unavailable_reason()
        if reason is not None:
            raise EngineUnavailableError(f"there is no native engine: {reason}")
        self._pattern = spec.pattern
        self._is_compiled = spec.pattern.is_named
        self._vocab = spec.vocab
        self._largest_id = spec.largest_id
        self._encoder = _native.NativeEncoder(
            dict(spec.vocab),
            dict(spec.token_to_id),
            list(spec.merges) if spec.kind == "merges" else None,
            spec.kind == "ranks" or spec.ignore_merges,
            spec.pattern.name if spec.pattern.is_named else None,
        )

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, split by the spec's pattern."""
        if self._is_compiled:
            return self._encoder.encode(text)
        ids: list[int] = []
        for pre_tokens in split_in_windows(text, self._pattern):
            ids += self._encoder.encode_pre_tokens(pre_tokens)
        return ids

    def encode_to_numpy(self, text: str, num_threads: int | None = None) -> NDArray[np.uint32]:
        """Ids of `text` as uint32 of shape (n_tokens,), by up to `num_threads` threads; by one
        when none are asked for, and with a custom pattern."""
        if self._is_compiled:
            return self._encoder.encode_to_numpy(text, max(1, num_threads or 1))
        return np.array(self.encode(text), dtype=np.uint32)

    def encode_pre_tokens(self, pre_tokens: Sequence[str]) -> list[int]:
        """Ids of pre-tokens, one after the other."""
        return self._encoder.encode_pre_tokens(pre_tokens)

    def count(self, text: str, limit: int | None = None) -> int:
        """The number of ids of `text`; counting may stop once it is over `limit`."""
        if self._is_compiled and (limit is None or limit >= 0):
            return self._encoder.count(text, limit)
        return len(self.encode(text))

    def decode_bytes(self, ids: Iterable[int] | NDArray[np.integer]) -> bytes:
        """The bytes of `ids`, joined."""
        if isinstance(ids, np.ndarray):
            fitting = _as_uint32(ids)
            if fitting is not None:
                decoded = self._encoder.decode_array(fitting)
                if isinstance(decoded, bytes):
                    return decoded
            ids = ids.tolist()
        listed = ids if type(ids) is list else list(ids)
        decoded = self._encoder.decode_list(listed)
        if isinstance(decoded, bytes):
            return decoded
        if type(listed[decoded]) is int:
            raise UnknownTokenIdError(decoded, listed[decoded], self._largest_id)
        return join_tokens(self._vocab, listed)

    def cache_statistics(self) -> CacheStatistics:
        """Hits, misses and size of all caches of this engine; `maximum` is when all are in use."""
        return CacheStatistics(*self._encoder.cache_statistics())


def _as_uint32(ids: NDArray[np.integer]) -> NDArray[np.uint32] | None:
    """The same ids as uint32; None where that would change one, or they are not in one row."""
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        return None
    if ids.dtype != np.uint32 and ids.size and (ids.min() < 0 or ids.max() > 0xFFFF_FFFF):
        return None
    return ids.astype(np.uint32, copy=False)
