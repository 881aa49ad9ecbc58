"""What all subcommands share: one-line errors, the parser class, where artifacts are.

It stands alone so that the subcommands do not import each other. May import `app.settings` and
the core.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final, NoReturn

from app.settings import Settings
from tokenizer_core.store import ArtifactStore

FAILED: Final = 1
WRONG_USAGE: Final = 2


class CommandError(Exception):
    """A command that cannot do what was asked; the message is one sentence with the remedy."""

    def __init__(self, message: str, *, exit_code: int = FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class UsageError(CommandError):
    """The command line itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=WRONG_USAGE)


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line that names the way to the help."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def add_artifacts_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--artifacts-dir`."""
    parser.add_argument(
        "--artifacts-dir",
        type=Path,
        metavar="FOLDER",
        help="where tokenizers are kept (default: TOKENIZER_ARTIFACTS_DIR, else ./artifacts)",
    )


def open_store(arguments: argparse.Namespace) -> ArtifactStore:
    """The artifact store the arguments or the environment name."""
    folder: Path | None = arguments.artifacts_dir
    if folder is None:
        folder = Settings.from_environment().artifacts_dir
    return ArtifactStore(folder)


def require_files(paths: list[Path]) -> None:
    """Raise CommandError naming the first path that is no readable file."""
    for path in paths:
        if path.is_dir():
            raise CommandError(f"{path} is a folder; name the files in it")
        if not path.exists():
            raise CommandError(f"{path} is not there; check the path")
        if not os.access(path, os.R_OK):
            raise CommandError(f"{path} cannot be read by this user; change its permissions")


def parse_special_token(text: str) -> tuple[str, int]:
    """`TOKEN=ID` as `(TOKEN, ID)`; the token may hold `=` itself.

    Example:
        >>> parse_special_token("<|endoftext|>=50256")
        ('<|endoftext|>', 50256)
    """
    token, separator, number = text.rpartition("=")
    if not separator or not token or not (number.isascii() and number.isdigit()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not TOKEN=ID, for instance '<|endoftext|>=50256'"
        )
    return token, int(number)
