"""The options that say how corpus files hold documents, the same for every command."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from tokenizer_core.documents import (
    DEFAULT_FIELD,
    DEFAULT_MAX_BAD,
    FORMATS,
    CorpusFormat,
    corpus_file_name,
    find_corpus_files,
    format_of_name,
    unused_separator,
)
from tokenizer_core.spec.document_end import END_OF_TEXT
from tokenizer_service.commands.command_line import (
    CommandParser,
    UsageError,
    add_field,
    is_given,
)

CHAT: Final = "chat"


def add_corpus_format(
    parser: CommandParser,
    *,
    separator: str | None = END_OF_TEXT,
    may_be_empty: bool = True,
    conversations: bool = False,
) -> None:
    """Add `--format`, `--field` and `--separator`, whose default is `separator`; with
    `conversations` also the format `chat`."""
    none = ", '' for none" if may_be_empty else ""
    default = "special tokens" if separator is None else f"{separator}{none}"
    parser.add(
        "--format",
        "format of the corpus (default: by file name)"
        + (f"; {CHAT}: conversations in JSON lines or Parquet" if conversations else ""),
        choices=(*FORMATS, CHAT) if conversations else FORMATS,
    )
    add_field(parser)
    parser.add(
        "--separator TEXT",
        f"text that ends a document in plain text (default: {default})",
        type=_parse_utf8,
        default=separator,
    )


def add_bad_documents(parser: CommandParser) -> None:
    """Add `--skip-bad` and `--max-bad`."""
    parser.add(
        "--skip-bad",
        "leave out documents that cannot be read or encoded, and count them by reason",
        default=None,
    )
    parser.add(
        "--max-bad FRACTION",
        "fraction of such documents that ends the run (default: "
        f"{DEFAULT_MAX_BAD:g}); needs --skip-bad",
    )


def max_bad_of(arguments: argparse.Namespace) -> float | None:
    """The share of bad documents that may be left out; None: none."""
    if not arguments.skip_bad:
        if arguments.max_bad is not None:
            raise UsageError("--max-bad belongs to --skip-bad")
        return None
    return DEFAULT_MAX_BAD if arguments.max_bad is None else float(arguments.max_bad)


def separator_warnings(arguments: argparse.Namespace, n_documents: int, n_files: int) -> list[str]:
    """A sentence if `--separator` is given and ends no document."""
    is_used = n_documents > n_files or not is_given(arguments, "separator")
    return [] if is_used or not arguments.separator else [unused_separator(arguments.separator)]


def corpus_format_of(
    arguments: argparse.Namespace, files: Iterable[str | os.PathLike[str]]
) -> CorpusFormat:
    """The format of the options, for these files; raise UsageError as `field_of`."""
    if arguments.format == CHAT:
        if arguments.field is not None:
            raise UsageError("--field names a text; conversations are whole records, leave it out")
        if is_given(arguments, "separator"):
            raise UsageError("--separator is of plain text; conversations have none, leave it out")
        return CorpusFormat(field=None)
    field = field_of(arguments, files)
    return CorpusFormat(arguments.format, field, arguments.separator or None)


def files_in_order(inputs: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The files that the arguments name, each once, in the order of the arguments; those of a
    pattern are sorted. Prints a note if one is named again.
    """
    if "-" in map(str, inputs):
        raise UsageError("a corpus is not read from standard input; write it to a file first")
    files = set(find_corpus_files(inputs))
    named = [file for each in inputs for file in find_corpus_files([each])]
    if len(named) > len(files):
        times = Counter(named)
        again = next(file for file in named if file not in files or times[file] > 1)
        print(f"note: {again} is named more than once; each file is read once", file=sys.stderr)
    return [file for file in dict.fromkeys(named) if file in files]


def field_of(
    arguments: argparse.Namespace,
    files: Iterable[str | os.PathLike[str]],
    *,
    writes_text: bool = False,
) -> str | list[str]:
    """The fields of the options, for these files. With `writes_text` the separator is also written.

    Raises:
        UsageError: the field is given, and all files are plain text, or the separator, and none
            is: ignored, it would hide a wrong format.
    """
    is_text = kinds_of(arguments, files)
    if is_given(arguments, "separator") and is_text == {False} and not writes_text:
        raise UsageError(
            "--separator is of plain text, and by its name the corpus is none; leave it out, or "
            "name the --format"
        )
    if arguments.field is not None and is_text == {True}:
        raise UsageError(
            "--field is of JSON lines or Parquet, and by its name the corpus is text; leave it "
            "out, or name the --format"
        )
    return fields_in(arguments)


def fields_in(arguments: argparse.Namespace) -> str | list[str]:
    """The fields that the options name, each once; one alone as a string."""
    fields = list(dict.fromkeys(arguments.field or [DEFAULT_FIELD]))
    return fields[0] if len(fields) == 1 else fields


def kinds_of(arguments: argparse.Namespace, files: Iterable[str | os.PathLike[str]]) -> set[bool]:
    """Whether the files are plain text, by the option or their names."""
    formats = {
        arguments.format or format_of_name(corpus_file_name(file)) or "txt" for file in files
    }
    return {name.startswith("txt") for name in formats}


def _parse_utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("it is not UTF-8") from None
    return text
