"""Read the documents of files: plain text, JSON lines and Parquet, also packed, in bounded memory.

    from tokenizer_core.documents import find_corpus_files, open_documents

`open_documents` defines the documents of each format. These names are public.
"""

from tokenizer_core.documents.bad_documents import DEFAULT_MAX_BAD, BadDocument, BadDocuments
from tokenizer_core.documents.corpus_files import (
    CorpusSource,
    are_sources,
    corpus_file_identity,
    corpus_file_name,
    corpus_file_names,
    corpus_file_size,
    find_corpus_files,
)
from tokenizer_core.documents.corpus_formats import (
    BY_NAME,
    CONTENT_BYTES,
    CONTENT_NAMES,
    ENDS_OF_TEXT,
    FORMATS,
    CorpusFormat,
    check_text_content,
    content_remedy,
    format_of_content,
    format_of_name,
    unused_separator,
)
from tokenizer_core.documents.document_pieces import DEFAULT_PIECE_CHARS, Utf8Piece
from tokenizer_core.documents.document_reader import (
    DocumentReader,
    PlainTextCopy,
    make_separator,
    open_documents,
    open_utf8_documents,
    plain_text_copies,
    raise_not_utf8,
    read_documents,
    write_separated,
)
from tokenizer_core.documents.document_sample import DocumentSample
from tokenizer_core.documents.json_lines import DEFAULT_FIELD

__all__ = [
    "BY_NAME",
    "CONTENT_BYTES",
    "CONTENT_NAMES",
    "DEFAULT_FIELD",
    "DEFAULT_MAX_BAD",
    "DEFAULT_PIECE_CHARS",
    "ENDS_OF_TEXT",
    "FORMATS",
    "BadDocument",
    "BadDocuments",
    "CorpusFormat",
    "CorpusSource",
    "DocumentReader",
    "DocumentSample",
    "PlainTextCopy",
    "Utf8Piece",
    "are_sources",
    "check_text_content",
    "content_remedy",
    "corpus_file_identity",
    "corpus_file_name",
    "corpus_file_names",
    "corpus_file_size",
    "find_corpus_files",
    "format_of_content",
    "format_of_name",
    "make_separator",
    "open_documents",
    "open_utf8_documents",
    "plain_text_copies",
    "raise_not_utf8",
    "read_documents",
    "unused_separator",
    "write_separated",
]
