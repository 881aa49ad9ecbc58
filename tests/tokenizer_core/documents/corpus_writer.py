"""Corpus files as other programs write them, in every format, for the tests of their reader."""

import gzip
import json
import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SEPARATOR = "<|endoftext|>"
PACKERS = {"": lambda data: data, "gz": gzip.compress, "zst": zstd.compress}


def render_documents(documents, format_name):
    """The bytes of a file of these documents: `txt` or `jsonl`, optionally compressed."""
    kind, _, packed = format_name.partition(".")
    if kind == "jsonl":
        text = "".join(json.dumps({"id": 1, "text": document}) + "\n" for document in documents)
    else:
        text = "".join(document + SEPARATOR for document in documents)
    return PACKERS[packed](text.encode())


def write_corpus(path, documents, format_name):
    """The path of a new file of these documents."""
    if format_name == "parquet":
        # Imported here: the fuzzer's seeds use the rest of this file, and not these hundred
        # megabytes.
        import pyarrow
        from pyarrow import parquet

        table = pyarrow.table({"text": pyarrow.array(documents, pyarrow.string())})
        parquet.write_table(table, path, row_group_size=3)
    else:
        path.write_bytes(render_documents(documents, format_name))
    return path
