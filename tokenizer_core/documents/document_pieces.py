"""Pieces of documents: a document may be larger than memory, so every format yields it in pieces.

`DocumentPiece` holds text. `Utf8Piece` holds the bytes of plain text, for an engine that takes
UTF-8; reading bytes costs little more than hashing the file.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tokenizer_core.errors import CorpusError

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
    """The pieces of a complete document.

    Example:
        >>> [piece.text for piece in cut_document("abcdef", 3)]
        ['abc', 'def']
    """
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

    Example:
        >>> [piece.text for piece in split_plain_text(["a<", "|>b<|>"], "<|>", 10)]
        ['a', 'b']
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
    passed on.

    Example:
        >>> [tuple(piece) for piece in split_utf8_text([b"a<", b"|>b", b"c<|>"], b"<|>", 100)]
        [(b'a', False), (b'', True), (b'b', False), (b'c', True)]
    """
    carried = b""
    is_open = separator is None
    for block in _limited_to(max_bytes, blocks):
        text = carried + block if carried else block
        if separator is not None:
            parts = text.split(separator)
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


def decode_blocks(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    """The text of blocks of UTF-8, cut anywhere; a byte order mark counts as text.

    Raises:
        CorpusError: not UTF-8; the message names the file, and the byte and the line in the
            (unpacked) text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    n_bytes = n_line_ends = 0
    try:
        for block in blocks:
            n_held = len(decoder.getstate()[0])
            text = decoder.decode(block)
            n_bytes += len(block)
            n_line_ends += block.count(b"\n")
            yield text
        n_held = len(decoder.getstate()[0])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        offset = n_bytes - n_held + error.start
        line = n_line_ends + error.object.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"the corpus file {name!r} is not UTF-8: its text is wrong at byte {offset}, line "
            f"{line}; convert it to UTF-8, or mend it there"
        ) from None


def _limited_to(max_bytes: int, blocks: Iterable[bytes]) -> Iterator[bytes]:
    for block in blocks:
        if len(block) <= max_bytes:
            yield block
        else:
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
