"""Reads tokenizer files for `import` and `convert`, with `--pattern` and `--special` if needed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from app.commands.command_line import (
    CommandError,
    UsageError,
    parse_special_token,
    require_files,
)
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import detect_format, load_spec
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.spec import TokenizerSpec

# Pattern and special tokens, which the public rank files lack; from tiktoken 0.14
# (`openai_public.py`).
_KNOWN_VOCABULARIES: Final[dict[str, tuple[str, dict[str, int]]]] = {
    "r50k": ("gpt2", {"<|endoftext|>": 50256}),
    "p50k": ("gpt2", {"<|endoftext|>": 50256}),
    "cl100k": (
        "cl100k",
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k": ("o200k", {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}


def add_reading_options(parser: Any) -> None:
    """Add `--pattern`, `--special` and `--no-special`."""
    parser.add_argument(
        "--pattern", help=f"how text is split: {', '.join(PATTERNS)}, or a regular expression"
    )
    parser.add_argument(
        "--special",
        action="append",
        type=parse_special_token,
        default=[],
        metavar="TOKEN=ID",
        help="a special token and its id; repeat for more",
    )
    parser.add_argument(
        "--no-special",
        action="store_true",
        help="the .tiktoken vocabulary has no special tokens",
    )


def read_files(files: list[Path], arguments: argparse.Namespace, *, name: str) -> TokenizerSpec:
    """The tokenizer in `files`, completed from the options; `name` is used only in error hints.

    Raises:
        UsageError: an option is missing, or two contradict each other.
        CommandError: a file is missing or invalid.
    """
    require_files(files)
    special = dict(arguments.special)
    if len(special) != len(arguments.special):
        raise UsageError("a --special token is given twice")
    if arguments.no_special and special:
        raise UsageError("--no-special and --special exclude each other")
    try:
        if detect_format(files[0]) == "tiktoken":
            _require_pattern_and_special(files[0], arguments, special, name)
        return load_spec(files, pattern=arguments.pattern, special_tokens=special or None)
    except FormatError as error:
        raise CommandError(f"{files[0]}: {error}") from error


def _require_pattern_and_special(
    path: Path, arguments: argparse.Namespace, special: dict[str, int], name: str
) -> None:
    missing = []
    if arguments.pattern is None:
        missing.append("--pattern")
    if not special and not arguments.no_special:
        missing.append("--special TOKEN=ID (or --no-special)")
    if not missing:
        return
    message = (
        f"a .tiktoken file says neither how text is split nor which tokens are special; "
        f"give {' and '.join(missing)}"
    )
    known = _guess(name, path)
    if known is not None:
        pattern = _KNOWN_VOCABULARIES[known][0]
        options = " ".join(special_options(known))
        message += f". For {known} as published: --pattern {pattern} {options}"
    raise UsageError(message)


def _guess(name: str, path: Path) -> str | None:
    """The well-known vocabulary that the names suggest, or None; used only in a hint."""
    for text in (path.name.lower(), name.lower()):
        for known in _KNOWN_VOCABULARIES:
            if known in text:
                return known
        if "gpt2" in text:
            return "r50k"
    return None


def special_options(known: str, indent: int = 0) -> list[str]:
    """The `--special` options of a well-known vocabulary, each after `indent` spaces."""
    tokens = _KNOWN_VOCABULARIES[known][1]
    return [f"{' ' * indent}--special '{token}={id_}'" for token, id_ in tokens.items()]
