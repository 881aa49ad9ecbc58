"""Pieces of documents: a document may be larger than memory, so every format yields it in pieces.

`DocumentPiece` holds text. `Utf8Piece` holds the bytes of plain text, for an engine that takes
UTF-8; reading bytes costs little more than hashing the file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tokenizer_core.engines.native_calls import split_bytes
from tokenizer_core.errors import CorpusDocumentError, InvalidUtf8Error

DEFAULT_PIECE_CHARS: Final = 1 << 18

MAX_PIECE_CHARS: Final = 1 << 24
"""The largest piece allowed: reading a block copies the pending text."""


class DocumentPiece(NamedTuple):
    """A piece of a document; the documents of a file are its pieces in order.

    A document has at least one piece, and only its last one has `is_last`. All others have the
    full number of characters. The last is empty only in an empty document.
    """

    text: str
    is_last: bool


class Utf8Piece(NamedTuple):
    """A piece of a document as bytes, which never ends within a character; the last piece of a
    document has `is_last` and may be empty."""

    text: bytes
    is_last: bool


def cut_document(text: str, max_piece_chars: int) -> Iterator[DocumentPiece]:
    """The pieces of a complete document."""
    start = 0
    while len(text) - start > max_piece_chars:
        yield DocumentPiece(text[start : start + max_piece_chars], is_last=False)
        start += max_piece_chars
    yield DocumentPiece(text[start:], is_last=True)


def split_plain_text(
    texts: Iterable[str], separator: str | None, max_piece_chars: int
) -> Iterator[DocumentPiece]:
    """The documents of a text that arrives in parts, cut anywhere.

    A document ends at a separator or with the text; an empty rest after the last separator is not a
    document. Separators match leftmost and do not overlap, like the only special token of a
    tokenizer. Without a separator the text is one document, even if it is empty.
    """
    # The last characters may be the beginning of a separator that continues in the next part.
    n_doubtful = len(separator) - 1 if separator else 0
    pending = ""
    for part in texts:
        searched = max(len(pending) - n_doubtful, 0)
        text = pending + part
        if separator and (end := text.find(separator, searched)) >= 0:
            yield from cut_document(text[:end], max_piece_chars)
            *documents, text = text[end + len(separator) :].split(separator)
            for document in documents:
                if (
                    len(document) <= max_piece_chars
                ):  # the usual case: a generator for each would be slow
                    yield DocumentPiece(document, True)
                else:
                    yield from cut_document(document, max_piece_chars)
        start = 0
        while len(text) - n_doubtful - start > max_piece_chars:
            yield DocumentPiece(text[start : start + max_piece_chars], is_last=False)
            start += max_piece_chars
        pending = text[start:]
    if pending or not separator:
        yield from cut_document(pending, max_piece_chars)


def split_utf8_text(
    blocks: Iterable[bytes], separator: bytes | None, max_bytes: int
) -> Iterator[Utf8Piece]:
    """The documents of a text that arrives in blocks, cut anywhere, as in `split_plain_text`. But
    pieces end near the ends of blocks, or after about `max_bytes`, and bytes that are not UTF-8 are
    passed on."""
    carried = b""
    is_open = separator is None
    for block in _limited_to(max_bytes, blocks):
        text = carried + block if carried else block
        if separator is not None:
            parts = split_bytes(text, separator)
            text = parts.pop()
            for part in parts:
                yield Utf8Piece(part, True)
            is_open = is_open and not parts
        n_carried = max(_separator_begun(text, separator), _character_begun(text))
        carried = text[len(text) - n_carried :]
        if len(text) > n_carried:
            yield Utf8Piece(text[: len(text) - n_carried], False)
            is_open = True
    if is_open or carried:
        yield Utf8Piece(carried, True)


def end_documents_at(
    pieces: Iterable[Utf8Piece], separator: bytes, endings: Sequence[bytes]
) -> Iterator[tuple[bytes, bool, bytes]]:
    """The pieces with the separator after them, in more documents: one also ends after each of the
    `endings`, such as special tokens, which stay in its text. They match leftmost, the longest of
    equals.

    Example:
        >>> list(end_documents_at([Utf8Piece(b"a<|>b", True)], b"|", [b"<|>"]))
        [(b'a<|>', True, b''), (b'b', True, b'|')]
    """
    if not endings:
        yield from ((text, last, separator if last else b"") for text, last in pieces)
        return
    longest = max(map(len, endings))
    any_ending = re.compile(b"|".join(map(re.escape, sorted(endings, key=len, reverse=True))))
    pending, is_begun = b"", True
    for text, is_last in pieces:
        pending += text
        # Of an ending that begins later, a longer one may follow.
        stop = len(pending) if is_last else max(0, len(pending) - longest + 1)
        start = 0
        for found in any_ending.finditer(pending):
            if found.start() >= stop:
                break
            yield pending[start : found.end()], True, b""
            start, is_begun = found.end(), False
        if is_last:
            # After an ending, an empty rest is not a document.
            yield pending[start:], is_begun or start < len(pending), separator
            pending, is_begun = b"", True
            continue
        stop = max(start, stop)
        stop -= _character_begun(pending[start:stop])
        if start < stop:
            yield pending[start:stop], False, b""
            is_begun = True
        pending = pending[stop:]


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
        """The text that `data` completes. Raises InvalidUtf8Error: names the offset of the first
        invalid byte of the whole text."""
        held = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            offset = self.n_bytes - held + error.start
            raise InvalidUtf8Error(offset, is_cut=final) from None
        self.n_bytes += len(data)
        return text


def decode_blocks(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    """The text of blocks of UTF-8, cut anywhere; a byte order mark counts as text. Raises
    CorpusError: not UTF-8; the message names the file, and the byte and the line in the (unpacked)
    text."""
    decoder, n_line_ends, block = Utf8Decoder(), 0, b""
    try:
        for block in blocks:
            yield decoder.decode(block)
            n_line_ends += block.count(b"\n")
        block = b""
        decoder.decode(block, final=True)
    except InvalidUtf8Error as error:
        n_in_block = max(error.byte_offset - decoder.n_bytes, 0)
        line = n_line_ends + block.count(b"\n", 0, n_in_block) + 1
        raise CorpusDocumentError(
            f"the corpus file {name!r} is not UTF-8: its text is wrong at byte "
            f"{error.byte_offset}, line {line}; convert it to UTF-8, or mend it there"
        ) from None


def _limited_to(max_bytes: int, blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), max_bytes):
            yield block[start : start + max_bytes]


def _separator_begun(text: bytes, separator: bytes | None) -> int:
    """How many bytes at the end may be the beginning of a separator."""
    if separator is not None:
        for size in range(min(len(separator) - 1, len(text)), 0, -1):
            if text.endswith(separator[:size]):
                return size
    return 0


def _character_begun(text: bytes) -> int:
    """How many bytes at the end are the beginning of an incomplete character."""
    for size in range(1, min(3, len(text)) + 1):
        byte = text[-size]
        if byte >= 0xC0:
            return size if size < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        if byte < 0x80:
            break
    return 0
