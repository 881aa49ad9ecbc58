"""Utf8Decoder: decodes UTF-8 that arrives in pieces, and names the first invalid byte."""

from __future__ import annotations

import codecs

from tokenizer_core.errors import InvalidUtf8Error


class Utf8Decoder:
    r"""Decodes pieces cut at any byte; a split character comes with the piece that ends it.

    Example:
        >>> decoder = Utf8Decoder()
        >>> decoder.decode(b"caf\xc3"), decoder.decode(b"\xa9", final=True), decoder.n_bytes
        ('caf', 'é', 5)
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self.n_bytes = 0

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """The text that `data` completes.

        Raises:
            InvalidUtf8Error: names the offset of the first invalid byte of the whole text.
        """
        held = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            offset = self.n_bytes - held + error.start
            raise InvalidUtf8Error(offset, is_cut=final) from None
        self.n_bytes += len(data)
        return text
