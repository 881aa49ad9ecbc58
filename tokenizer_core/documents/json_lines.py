"""JSONL: one JSON object per line, with the document in a field of it. A blank line is no
document, as for other readers; any other line that cannot be read is a bad document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tokenizer_core.documents.bad_documents import (
    INVALID_UTF8,
    BadDocument,
    BadDocumentError,
    one_field,
    report_bad,
)
from tokenizer_core.documents.corpus_files import CorpusFileBytes
from tokenizer_core.documents.document_pieces import DocumentPiece, cut_document
from tokenizer_core.strict_json import StrictJsonError, read_json

DEFAULT_FIELD: Final = "text"
"""The field, or the column of Parquet, that has the document."""

DEFAULT_LINE_BYTES: Final = 1 << 24
"""Parsing a line needs up to nine times its size in memory: bytes, text, value."""

_REMEDIES: Final = {
    "malformed_json": "; each line must hold one whole JSON object",
    INVALID_UTF8: "; convert the file to UTF-8",
    "duplicate_key": "; leave one of them out",
    "number_too_long": "; write a string",
    "nested_too_deep": "; write it flatter",
}


def read_json_lines(
    blocks: Iterable[bytes],
    source: CorpusFileBytes,
    field: str | Sequence[str] | None,
    max_line_bytes: int,
    max_piece_chars: int,
    bad: list[BadDocument] | None = None,
) -> Iterator[DocumentPiece]:
    r"""The documents of the JSONL file `source`, whose text arrives in blocks, cut anywhere;
    without a `field` a document is the whole line. Blank lines are counted in `n_blank_lines`.

    A line is bad if it is too long, is not a JSON object, has none of the fields `field` or
    several, or no text in it: with a list `bad` it is an empty document, and appended to the list
    with its number among these lines. Raises CorpusDocumentError: without the list, a line is bad;
    the message names file and line."""
    for number, line in enumerate(_lines(blocks, max_line_bytes), 1):
        if line is not None and (not line or line.isspace()):
            source.n_blank_lines += 1
            continue
        try:
            if line is None:
                raise BadDocumentError(
                    f"it is longer than {max_line_bytes} bytes; split it, or read it from Python "
                    f"with more max_line_bytes (memory for nine times as much is needed)",
                    "line_too_long",
                )
            text = _parse_document(line, field)
        except BadDocumentError as error:
            n_before = source.count_lines() if bad is None else 0
            report_bad(error, bad, source.name, "line", number + n_before)
            text = ""
        yield from cut_document(text, max_piece_chars)


def _lines(blocks: Iterable[bytes], max_line_bytes: int) -> Iterator[bytes | None]:
    """Lines without line ends, None for one that is too long; an empty rest after the last line end
    is not a line."""
    parts: list[bytes] = []
    n_bytes = 0
    for block in blocks:
        start = 0
        while start < len(block):
            end = block.find(b"\n", start)
            stop = len(block) if end < 0 else end
            if n_bytes <= max_line_bytes:
                n_bytes += stop - start
                parts.append(block[start:stop])
                if n_bytes > max_line_bytes:
                    parts.clear()
                    yield None
            start = stop + 1
            if end >= 0:
                if n_bytes <= max_line_bytes:
                    yield b"".join(parts)
                parts.clear()
                n_bytes = 0
    if 0 < n_bytes <= max_line_bytes:
        yield b"".join(parts)


def _parse_document(line: bytes, field: str | Sequence[str] | None) -> str:
    try:
        record = read_json(line, is_lenient=True)  # only one field is read
    except StrictJsonError as error:
        raise BadDocumentError(f"it {error}{_REMEDIES.get(error.code, '')}", error.code) from None
    if not isinstance(record, dict):
        raise BadDocumentError(
            "it holds no JSON object; write {...} with the text in a field", "no_object"
        )
    if field is None:
        return line.decode()
    if not isinstance(field, str) or field not in record:  # checked here for speed
        field = one_field(field, record)
    document = record[field]
    if not isinstance(document, str):
        raise BadDocumentError(
            f"its field {field!r} is no string; mend the line, or leave it out",
            "null" if document is None else "no_string",
        )
    if b"\\u" in line:  # only an escape can produce a surrogate
        try:
            document.encode("utf-8")
        except UnicodeEncodeError:
            raise BadDocumentError(
                f"its field {field!r} holds half of a surrogate pair, which is no text; mend the "
                f"escape, or leave the line out",
                "lone_surrogate",
            ) from None
    return document
