"""Utf8Pieces: UTF-8 that comes in pieces, cut anywhere, as text; the first wrong byte is named.

It stands alone because two routes take text while it still arrives.
"""

from __future__ import annotations

import codecs

from app.http.problem import Problem


class Utf8Pieces:
    r"""The text of pieces; a character that is cut comes with the piece that ends it.

    Example:
        >>> pieces = Utf8Pieces()
        >>> pieces.decode(b"caf\xc3"), pieces.decode(b"\xa9", final=True), pieces.n_bytes
        ('caf', 'é', 5)
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self.n_bytes = 0

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """The text that `data` completes.

        Raises:
            Problem: 400 with the byte offset of what is not UTF-8.
        """
        held = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            offset = self.n_bytes - held + error.start
            what = "ends inside a character" if final else "is not UTF-8"
            raise Problem(
                400,
                "invalid_utf8",
                f"The text {what}: invalid bytes at offset {offset}.",
                byte_offset=offset,
            ) from None
        self.n_bytes += len(data)
        return text
