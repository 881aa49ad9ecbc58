"""Read the documents of files: plain text, JSON lines and Parquet, also packed, in bounded memory.

    from tokenizer_core.documents import find_corpus_files, open_documents

`open_documents` defines the documents of each format. These names are public.
"""

from tokenizer_core.documents.corpus_files import (
    corpus_file_name,
    corpus_file_size,
    find_corpus_files,
)
from tokenizer_core.documents.document_pieces import DEFAULT_PIECE_CHARS, DocumentPiece, Utf8Piece
from tokenizer_core.documents.document_reader import (
    FORMATS,
    DocumentReader,
    can_be_entered,
    open_documents,
    open_utf8_documents,
    read_documents,
)
from tokenizer_core.documents.document_sample import DocumentSample

__all__ = [
    "DEFAULT_PIECE_CHARS",
    "FORMATS",
    "DocumentPiece",
    "DocumentReader",
    "DocumentSample",
    "Utf8Piece",
    "can_be_entered",
    "corpus_file_name",
    "corpus_file_size",
    "find_corpus_files",
    "open_documents",
    "open_utf8_documents",
    "read_documents",
]
