"""The options that say how corpus files hold documents, the same for every command."""

from __future__ import annotations

import argparse
from typing import Final

from tokenizer_core.documents import FORMATS, CorpusFormat

END_OF_TEXT: Final = "<|endoftext|>"


def add_corpus_format(
    parser: argparse.ArgumentParser, *, separator: str | None = END_OF_TEXT
) -> None:
    """Add `--format`, `--field` and `--separator`, whose default is `separator`."""
    default = "special tokens" if separator is None else f"{separator}, '' for none"
    parser.add_argument(
        "--format", choices=FORMATS, help="format of the corpus (default: by file name)"
    )
    parser.add_argument("--field", default="text", help="JSON or Parquet field (default: text)")
    parser.add_argument(
        "--separator",
        type=_parse_utf8,
        default=separator,
        metavar="TEXT",
        help=f"text that ends a document in plain text (default: {default})",
    )


def corpus_format_of(arguments: argparse.Namespace) -> CorpusFormat:
    """The format of the options."""
    return CorpusFormat(arguments.format, arguments.field, arguments.separator or None)


def _parse_utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("it is not UTF-8") from None
    return text
