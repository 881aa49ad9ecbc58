"""The options that say how corpus files hold documents, the same for every command."""

from __future__ import annotations

import argparse
from typing import Final

from app.commands.command_line import UsageError
from tokenizer_core.documents import FORMATS, CorpusFormat

END_OF_TEXT: Final = "<|endoftext|>"
CHAT: Final = "chat"


def add_corpus_format(
    parser: argparse.ArgumentParser,
    *,
    separator: str | None = END_OF_TEXT,
    conversations: bool = False,
) -> None:
    """Add `--format`, `--field` and `--separator`, whose default is `separator`; with
    `conversations` also the format `chat`."""
    default = "special tokens" if separator is None else f"{separator}, '' for none"
    parser.add_argument(
        "--format",
        choices=(*FORMATS, CHAT) if conversations else FORMATS,
        help="format of the corpus (default: by file name)"
        + (f"; {CHAT}: conversations in JSON lines or Parquet" if conversations else ""),
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
    if arguments.format == CHAT:
        if arguments.field != "text":
            raise UsageError("--field names a text; conversations are whole records, leave it out")
        return CorpusFormat(field=None)
    return CorpusFormat(arguments.format, arguments.field, arguments.separator or None)


def _parse_utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("it is not UTF-8") from None
    return text
