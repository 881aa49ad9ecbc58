"""`TOKENIZER` on a command line where there may be several: a published one, or files.

It stands apart from `text`, whose options name one tokenizer only. May import `command_line` and
the core.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from app.commands.command_line import CommandError, UsageError, open_store, require_files
from tokenizer_core.errors import FormatError
from tokenizer_core.formats import load_spec
from tokenizer_core.tokenizer import Tokenizer

TOKENIZER_HELP: Final = (
    "a published NAME[@VERSION], or a file: tokenizer.json, VOCAB,MERGES, or "
    "FILE.tiktoken:PATTERN; LABEL= before it says what it is called in the answer"
)

_LABEL: Final = re.compile(r"([\w.@-]+)=(.+)", flags=re.DOTALL)
_SUFFIXES: Final = re.compile(r"(\.(json|tiktoken|pkl|txt|tokenizer|vocab))+$")


def load_named_tokenizers(arguments: argparse.Namespace, words: list[str]) -> dict[str, Tokenizer]:
    """The tokenizers the words name, by label, in order.

    Raises:
        UsageError: two have the same label.
        CommandError: a file is missing, or is no tokenizer.
    """
    found: dict[str, Tokenizer] = {}
    for word in words:
        label, what = split_label(word)
        tokenizer, name = _load(arguments, what)
        if (label or name) in found:
            raise UsageError(
                f"two tokenizers are called {label or name}; tell them apart: LABEL={what}"
            )
        found[label or name] = tokenizer
    return found


def split_label(word: str) -> tuple[str | None, str]:
    """`LABEL=WHAT` as `(LABEL, WHAT)`; without a label, or where a file has that name,
    `(None, word)`.

    Example:
        >>> split_label("mine=tokenizer.json")
        ('mine', 'tokenizer.json')
    """
    match = _LABEL.fullmatch(word)
    if match is None or Path(word).exists():
        return None, word
    return match[1], match[2]


def _load(arguments: argparse.Namespace, what: str) -> tuple[Tokenizer, str]:
    files, pattern = _files_of(what)
    if not files:
        store = open_store(arguments)
        return Tokenizer.from_spec(store.open(store.resolve(what))), what
    require_files(files)
    try:
        spec = load_spec(files, pattern=pattern)
    except FormatError as error:
        hint = "" if pattern else f" (the pattern goes behind a colon: {what}:cl100k)"
        raise CommandError(f"{what}: {error}{hint if 'pattern' in str(error) else ''}") from error
    return Tokenizer.from_spec(spec), _SUFFIXES.sub("", files[0].name) or files[0].name


def _files_of(what: str) -> tuple[list[Path], str | None]:
    """The files and the pattern behind a colon; no files where a published tokenizer is meant."""
    if Path(what).is_file():
        return [Path(what)], None
    named, colon, pattern = what.partition(":")
    files = [Path(name) for name in named.split(",") if name]
    if colon or len(files) > 1 or "/" in what or _SUFFIXES.search(named):
        return files, pattern or None
    return [], None
