"""Options of the commands that count a corpus: the split, the workers, the memory."""

from __future__ import annotations

import argparse
from typing import Final

from tokenizer_core.spec.document_end import END_OF_TEXT
from tokenizer_core.splitting.patterns import PATTERN_NAMES
from tokenizer_core.training import Pruning
from tokenizer_core.training.count_pretokens import SMALLEST_CEILING_BYTES
from tokenizer_service.commands.command_line import CommandError, CommandParser, UsageError
from tokenizer_service.commands.corpus_options import (
    add_bad_documents,
    add_corpus_format,
    max_bad_of,
)

INPUTS_HELP: Final = (
    "text, JSONL or Parquet, also .gz and .zst; files, addresses (s3://...), or patterns of them "
    "in quotes"
)


def add_counting_options(parser: CommandParser) -> None:
    """Add the options for the counts of a corpus and for the workers that count."""
    parser.add(
        "--special-token TOKEN",
        f"a special token; repeat for more, in order (default: {END_OF_TEXT})",
        action="append",
    )
    parser.add("--no-special-token", "use no special token")
    parser.add(
        "--pattern PATTERN",
        f"split pattern: {', '.join(PATTERN_NAMES)}, or a regular expression (default: gpt2)",
    )
    add_corpus_format(parser, separator=None)
    add_bad_documents(parser)
    parser.add("--workers N", "processes that count (default: all processors)")
    parser.add(
        "--memory-limit BYTES",
        "memory limit of counting, for instance 2G; the rest goes to the disk",
        type=parse_size,
    )
    parser.add(
        "--temp-dir FOLDER",
        "folder for unpacked text and for counts over the memory limit (default: system)",
    )


def parse_size(text: str) -> int:
    """Parse a number of bytes; the suffixes K, M, G and T are powers of 1024.

    Example:
        >>> parse_size("2G"), parse_size("20000000")
        (2147483648, 20000000)
    """
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if not (number.isascii() and number.isdigit() and len(number) < 19 and unit in "KMGT"):
        raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 500M or 2G")
    size: int = int(number) * 1024 ** ("KMGT".index(unit) + 1 if unit else 0)
    if size < SMALLEST_CEILING_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is too small; give at least 16M")
    return size


def check_counting_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError if these options exclude each other."""
    if arguments.no_special_token and arguments.special_token:
        raise UsageError("--no-special-token and --special-token exclude each other")
    max_bad_of(arguments)
    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError("--workers must be at least 1")
    if arguments.temp_dir is not None and not arguments.temp_dir.is_dir():
        raise CommandError(
            f"the folder {arguments.temp_dir} (--temp-dir) does not exist; make it first"
        )


def describe_pruning(pruning: Pruning, n_bytes: int) -> str:
    """Describe what pruning left out of the counts of `n_bytes`, and the effect on merges."""
    return (
        f"without {pruning.n_distinct:,} distinct pre-tokens that occur fewer than "
        f"{pruning.min_count} times, {pruning.n_bytes / max(n_bytes, 1):.1%} of the text: a merge "
        f"may be one that occurs up to {pruning.bound:,} times less often than the best"
    )


def special_tokens_of(arguments: argparse.Namespace) -> list[str]:
    """The special tokens of the arguments, or the default one."""
    if arguments.no_special_token:
        return []
    return list(arguments.special_token or [END_OF_TEXT])
