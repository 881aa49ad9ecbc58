"""The encode stream: text in, ids out while the text still comes.

It stands alone because it alone knows text that arrives in pieces; how a stream takes turns with
its client is told in `two_way_stream`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizer_core.documents.utf8_decoder import Utf8Decoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.observability.metrics import ServiceMetrics
    from tokenizer_core.streaming import StreamingEncoder


@dataclass(frozen=True, slots=True)
class SettledIds:
    """Ids, and up to which byte of the text they reach."""

    ids: list[int]
    byte_end: int

    def fields(self) -> dict[str, Any]:
        """As a line says it."""
        return {"tokens": self.ids, "byte_end": self.byte_end}

    def payload(self) -> bytes:
        """The ids as u32, little-endian."""
        return struct.pack(f"<{len(self.ids)}I", *self.ids)


class TextSettler:
    """UTF-8 bytes in, settled ids out; no input or output of its own.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> from tokenizer_core.streaming import StreamingEncoder
        >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
        >>> settler = TextSettler(StreamingEncoder(tokenizer))
        >>> [*settler.feed(b"a b"), *settler.finish()]
        [SettledIds(ids=[97, 32, 98], byte_end=3)]
    """

    def __init__(self, encoder: StreamingEncoder) -> None:
        self._encoder = encoder
        self._text = Utf8Decoder()
        self.n_tokens = 0
        self.byte_end = 0

    @property
    def n_bytes(self) -> int:
        """Bytes of text taken in."""
        return self._text.n_bytes

    @property
    def n_pending(self) -> int:
        """Bytes received whose ids are not given out: what the next call may have to work on."""
        return self.n_bytes - self.byte_end

    def feed(self, data: bytes) -> Iterator[SettledIds]:
        """The ids that `data` settles.

        Raises:
            InvalidUtf8Error: names the offset of the first invalid byte.
            TokenizerCoreError: see `StreamingEncoder.feed`.
        """
        yield from self._given_out(self._encoder.feed(self._text.decode(data)), is_last=False)

    def finish(self) -> Iterator[SettledIds]:
        """The ids of the rest; the text ends here. Raises as `feed`."""
        self._text.decode(b"", final=True)
        yield from self._given_out(self._encoder.finish(), is_last=True)

    def totals(self) -> dict[str, int]:
        """Ids given out and bytes of text taken in."""
        return {"count": self.n_tokens, "bytes": self.n_bytes}

    def count_in(self, metrics: ServiceMetrics) -> None:
        """Add bytes and ids to the metrics of encoding."""
        metrics.count_encoded(self.n_bytes, self.n_tokens)

    def _given_out(self, ids: list[int], *, is_last: bool) -> Iterator[SettledIds]:
        if ids:
            self.n_tokens += len(ids)
            self.byte_end = self.n_bytes if is_last else self._encoder.bytes_settled
            yield SettledIds(ids, self.byte_end)
