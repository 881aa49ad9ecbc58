"""Parquet: a column of strings, one document per row, read a few rows at a time with pyarrow.

Conversations are rows of nested columns. pyarrow gives a value of the type JSON as its encoding, a
MAP as a list of pairs, and a struct with a null for each field that only other rows have; here they
become values and objects, at any depth.

pyarrow is imported only to read a Parquet file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from tokenizer_core.documents.archives import FREE_BYTES, expands_too_much
from tokenizer_core.documents.bad_documents import (
    INVALID_UTF8,
    BadDocument,
    BadDocumentError,
    one_field,
    report_bad,
)
from tokenizer_core.documents.conversations import CONVERSATION_FIELDS
from tokenizer_core.documents.corpus_files import CorpusFileBytes
from tokenizer_core.documents.document_pieces import DocumentPiece, cut_document
from tokenizer_core.errors import CorpusError, missing_extra
from tokenizer_core.strict_json import StrictJsonError, read_json

_BUFFER_BYTES: Final = 1 << 16
_MAX_BATCH_ROWS: Final = 64


def read_parquet_rows(
    source: CorpusFileBytes,
    column: str | Sequence[str] | None,
    max_expansion: float,
    max_piece_chars: int,
    bad: list[BadDocument] | None = None,
) -> Iterator[DocumentPiece]:
    """The documents in a column of a Parquet file, of several the only one that it has, in the
    order of its rows; without a `column` the conversations of its rows, as JSON objects.

    `source.position_bytes` is the fraction of rows read, times the size of the file. A row that is
    null or not UTF-8 is bad: with a list `bad` it is an empty document, and appended to the list.
    Raises CorpusError: pyarrow is not installed; the file is damaged or not Parquet; it has no such
    column or several, or the column has no strings; without the list, a row is bad; the text has
    more than `max_expansion` times the size of the file (and more than FREE_BYTES)."""
    pyarrow, parquet = _import_pyarrow(source.name)
    try:
        file = parquet.ParquetFile(
            pyarrow.PythonFile(source.file, mode="r"),
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
            arrow_extensions_enabled=True,  # else a type JSON of Parquet is a string
        )
        if column is not None:
            column = _one_column(pyarrow, file, source.name, column)
        columns = [column] if column is not None else _conversation_columns(file, source.name)
        types = [file.schema_arrow.field(name).type for name in columns]
        decoders = dict(zip(columns, (_decoder(pyarrow, kind) for kind in types), strict=True))
        n_total = file.metadata.num_rows
        n_bytes = n_rows = 0
        for values in _values(file, source, columns, max_expansion):
            try:
                if column is not None:
                    text = _text(values[0], column)
                else:
                    text = _record(dict(zip(columns, values, strict=True)), decoders)
            except BadDocumentError as error:
                report_bad(error, bad, source.name, "row", n_rows + 1)
                text = ""
            n_bytes += len(text)
            if n_bytes > max(FREE_BYTES, max_expansion * source.size_bytes):
                raise expands_too_much(source.name, max_expansion)
            yield from cut_document(text, max_piece_chars)
            n_rows += 1
            source.position_bytes = source.size_bytes * n_rows // max(n_total, n_rows)
        if n_rows != n_total:
            raise _damaged(source.name, f"{n_rows} rows of {n_total}")
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(source.name, next(iter(str(error).splitlines()), "")) from error


def _values(
    file: Any, source: CorpusFileBytes, columns: list[str], max_expansion: float
) -> Iterator[tuple[Any, ...]]:
    """The values of the columns as pyarrow's scalars, one row group after another."""
    metadata = file.metadata
    paths = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
    # A nested column has a leaf for each field: `messages.list.element.role`.
    leaves = [leaf for leaf, path in enumerate(paths) if path.partition(".")[0] in columns]
    leaves = [paths.index(columns[0])] if columns[0] in paths and len(columns) == 1 else leaves
    for group in range(metadata.num_row_groups):
        chunks = [metadata.row_group(group).column(leaf) for leaf in leaves]
        n_bytes = max(sum(chunk.total_uncompressed_size for chunk in chunks), 1)
        n_compressed = sum(chunk.total_compressed_size for chunk in chunks)
        if n_bytes > max(FREE_BYTES, max_expansion * min(n_compressed, source.size_bytes)):
            raise expands_too_much(source.name, max_expansion)
        # A batch holds a value of the dictionary once for each row that refers to it.
        n_rows = min(max(FREE_BYTES // n_bytes, 1), _MAX_BATCH_ROWS)
        for batch in file.iter_batches(n_rows, [group], columns, use_threads=False):
            yield from zip(*(batch.column(column) for column in columns), strict=True)


def _conversation_columns(file: Any, name: str) -> list[str]:
    names = file.schema_arrow.names
    columns = [column for column in CONVERSATION_FIELDS if names.count(column) == 1]
    if not {"messages", "conversations"} & set(columns):
        raise CorpusError(
            f"the corpus file {name!r} has no column messages or conversations, but "
            f"{names!r:.80}; write the conversations to one of them, as a list of structs or as "
            f"JSON; no other shape is read"
        )
    return columns


def _decoder(pyarrow: ModuleType, kind: Any) -> Callable[[Any], Any]:
    """What makes JSON of a value of this type, or null, that `as_py` gave.

    A struct has the fields of all rows: one that is null is left out, so that no call gets the
    arguments of another function. A value of the type JSON keeps its nulls.

    It raises ValueError for a value that is no JSON, and for a map with the same key twice.
    """
    types = pyarrow.types
    decode: Callable[[Any], Any]
    if isinstance(kind, pyarrow.JsonType):
        decode = _parse_json
    elif types.is_map(kind):
        item = _decoder(pyarrow, kind.item_type)

        def decode(pairs: Any) -> Any:
            return _build_object((key, item(value)) for key, value in pairs)

    elif types.is_struct(kind):
        fields = {field.name: _decoder(pyarrow, field.type) for field in kind}

        def decode(struct: Any) -> Any:
            present = {name: value for name, value in struct.items() if value is not None}
            return {name: fields[name](value) for name, value in present.items()}

    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _decoder(pyarrow, kind.value_type)
    elif hasattr(kind, "value_type"):  # lists of all kinds
        element = _decoder(pyarrow, kind.value_type)

        def decode(values: Any) -> Any:
            return list(map(element, values))

    else:
        return lambda value: value
    return lambda value: None if value is None else decode(value)


def _parse_json(value: str) -> Any:
    try:
        return read_json(value.encode())
    except StrictJsonError as error:
        raise ValueError(f"a value of the type JSON {error}") from None


def _build_object(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    listed = list(pairs)
    built = dict(listed)
    if len(built) != len(listed):
        raise ValueError("a map has the same key twice")
    return built


def _record(values: dict[str, Any], decoders: Mapping[str, Callable[[Any], Any]]) -> str:
    try:
        fields = {column: decoders[column](value.as_py()) for column, value in values.items()}
        present = {column: value for column, value in fields.items() if value is not None}
        return json.dumps(present, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise BadDocumentError(
            f"the conversation is no JSON ({error!s:.120}); write text, numbers, lists and structs",
            "no_json",
        ) from None


def _text(value: Any, column: str) -> str:
    try:
        text = value.as_py()
    except UnicodeDecodeError as error:
        raise BadDocumentError(
            f"byte {error.start} of the column {column!r} is not UTF-8; write the file again from "
            f"text",
            INVALID_UTF8,
        ) from None
    if not isinstance(text, str):
        raise BadDocumentError(
            f"the column {column!r} is null; leave such rows out, or write an empty string", "null"
        )
    return text


def _one_column(pyarrow: ModuleType, file: Any, name: str, asked: str | Sequence[str]) -> str:
    schema = file.schema_arrow
    try:
        column = one_field(asked, schema.names, "column")
    except BadDocumentError as error:
        raise CorpusError(f"the corpus file {name!r}: {error}") from None
    kind = schema.field(column).type
    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    # Writers give a column without a value, as of a file without rows, the type null.
    texts = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(), pyarrow.null())
    if kind not in texts:
        raise CorpusError(
            f"the corpus file {name!r}: the column {column!r} is of type {kind!s:.60}, not of "
            f"strings; name the one with the text (`field`, on the command line --field), or write "
            f"strings"
        )
    return column


def _damaged(name: str, what: str) -> CorpusError:
    return CorpusError(
        f"the corpus file {name!r} is no Parquet file, or is damaged ({what!r:.120}); fetch or "
        f"write it again"
    )


def _import_pyarrow(name: str) -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        what = f"the corpus file {name!r} cannot be read: Parquet"
        raise missing_extra(CorpusError, what, "parquet") from None
    return pyarrow, parquet
