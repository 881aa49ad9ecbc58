"""JSONL: one JSON object per line, with the document in one of its fields. No line is skipped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

from tokenizer_core.documents.document_pieces import DocumentPiece, cut_document
from tokenizer_core.errors import CorpusError

DEFAULT_LINE_BYTES: Final = 1 << 24
"""Parsing a line needs up to nine times its size in memory: bytes, text, value."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class _LineError(Exception):
    """The fault of a line and its remedy; the caller adds file and line."""


def read_json_lines(
    blocks: Iterable[bytes], name: str, field: str, max_line_bytes: int, max_piece_chars: int
) -> Iterator[DocumentPiece]:
    r"""The documents of a JSONL file that arrives in blocks, cut anywhere.

    Raises:
        CorpusError: a line is too long, is not a JSON object, or has no text in `field`; the
            message names file and line.

    Example:
        >>> blocks = [b'{"text": "a"}\n{"te', b'xt": "b"}']
        >>> [piece.text for piece in read_json_lines(blocks, "some.jsonl", "text", 100, 100)]
        ['a', 'b']
    """
    for number, line in _lines(blocks, name, max_line_bytes):
        try:
            text = _parse_document(line, field, is_first=number == 1)
        except _LineError as error:
            raise _error(name, number, str(error)) from None
        yield from cut_document(text, max_piece_chars)


def _lines(blocks: Iterable[bytes], name: str, max_line_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Numbers and lines, without line ends; an empty rest after the last line end is not a line."""
    number = 1
    parts: list[bytes] = []
    n_bytes = 0
    for block in blocks:
        start = 0
        while start < len(block):
            end = block.find(b"\n", start)
            stop = len(block) if end < 0 else end
            n_bytes += stop - start
            if n_bytes > max_line_bytes:
                raise _error(
                    name,
                    number,
                    f"it is longer than {max_line_bytes} bytes; split it, or read it from Python "
                    f"with more max_line_bytes (memory for nine times as much is needed)",
                )
            parts.append(block[start:stop])
            start = stop + 1
            if end >= 0:
                yield number, b"".join(parts)
                number += 1
                parts.clear()
                n_bytes = 0
    if n_bytes:
        yield number, b"".join(parts)


def _parse_document(line: bytes, field: str, *, is_first: bool) -> str:
    if is_first and line.startswith(_BYTE_ORDER_MARK):
        raise _LineError("it begins with a byte order mark; write the file without one")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _LineError(
            f"its byte {error.start} is not UTF-8; convert the file to UTF-8, or mend it there"
        ) from None
    record = _parse_object(text)
    if field not in record:
        raise _LineError(
            f"it has no field {field!r}; name the one with the text (--field, in Python field=)"
        )
    document = record[field]
    if not isinstance(document, str):
        raise _LineError(f"its field {field!r} is no string; mend the line, or leave it out")
    # UTF-8 has no surrogates; only an escape can produce one.
    if "\\u" in text:
        try:
            document.encode("utf-8")
        except UnicodeEncodeError:
            raise _LineError(
                f"its field {field!r} holds half of a surrogate pair, which is no text; mend the "
                f"escape, or leave the line out"
            ) from None
    return document


def _parse_object(text: str) -> dict[str, object]:
    if not text or text.isspace():
        raise _LineError("it is empty; each line must hold a JSON object, so remove it")
    try:
        record = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _LineError(
            f"it is not JSON: {error.msg} at character {error.pos}; each line must hold one whole "
            f"JSON object"
        ) from None
    except RecursionError:
        raise _LineError("it is nested too deep to be read; write it flatter") from None
    except ValueError:  # int() refuses more than 4,300 digits
        raise _LineError("it holds a number of more than 4,300 digits; write a string") from None
    if not isinstance(record, dict):
        raise _LineError("it holds no JSON object; write {...} with the text in a field")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise _LineError(f"it holds {name}, which is not JSON; write null")


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise _LineError("an object in it has the same key twice; leave one of them out")
    return built


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_object, parse_constant=_refuse_constant)


def _error(name: str, number: int, what: str) -> CorpusError:
    return CorpusError(f"the corpus file {name!r}, line {number}: {what}")
