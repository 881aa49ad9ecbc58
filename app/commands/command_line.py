"""What all subcommands share: one-line errors, the parser class, where artifacts are.

It stands alone so that the subcommands do not import each other. Every command waits for it, also
`--help`, so it imports nothing that takes time: of the environment it reads three variables itself,
and `app.settings`, which checks all of them, is for the service.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from tokenizer_core.registry import Artifacts

FAILED: Final = 1
WRONG_USAGE: Final = 2
ANSWER_IS_NO: Final = 3
INTERRUPTED: Final = 130

DEFAULT_ARTIFACTS_DIR: Final = "artifacts"
DEFAULT_TOKENIZER: Final = "starter"


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
        self.set_defaults(prog=self.prog)  # of the innermost: who an error comes from

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(WRONG_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """As its base, and what is not known is an error here, where the options there are known:
        the base hands it up to the command above, whose help does not help."""
        parsed, unknown = super().parse_known_args(*arguments, **options)
        for word in unknown:
            if word.startswith("-"):
                near = did_you_mean(word.partition("=")[0], self._option_string_actions)
                self.error(f"there is no option {word}{near}")
            self.error(f"one argument too many: {word!r}; quotes keep words together")
        return parsed, unknown


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean encode?`, or nothing where no known word is near.

    Example:
        >>> did_you_mean("enocde", ["encode", "decode"]), did_you_mean("x", ["encode"])
        ('; did you mean encode?', '')
    """
    import difflib  # only here: nobody else should wait for it

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def add_artifacts_dir(parser: Any) -> None:
    """Add `--artifacts-dir`."""
    parser.add_argument(
        "--artifacts-dir",
        type=Path,
        metavar="FOLDER",
        help="where tokenizers are kept (default: TOKENIZER_ARTIFACTS_DIR, else ./artifacts)",
    )


def artifacts_dir_of(arguments: argparse.Namespace) -> Path:
    """The artifacts folder the arguments or the environment name."""
    given: Path | None = arguments.artifacts_dir
    return given or Path(os.environ.get("TOKENIZER_ARTIFACTS_DIR", DEFAULT_ARTIFACTS_DIR))


def default_tokenizer() -> str:
    """What is served where nothing was ever promoted."""
    return os.environ.get("TOKENIZER_DEFAULT") or DEFAULT_TOKENIZER


def open_store(arguments: argparse.Namespace) -> Artifacts:
    """The artifact store the arguments or the environment name."""
    from tokenizer_core.registry import open_artifacts

    return open_artifacts(os.environ.get("TOKENIZER_STORE"), artifacts_dir_of(arguments))


def parse_place(text: str) -> Path | str:
    """A path, or an address (`s3://...`) as it is, of which a path would make another.

    Example:
        >>> parse_place("s3://bucket/news.counts"), parse_place("news.counts").name
        ('s3://bucket/news.counts', 'news.counts')
    """
    return text if "://" in text else Path(text)


def require_files(paths: Sequence[Path | str]) -> None:
    """Raise CommandError naming the first path that is no readable file; not of addresses."""
    for path in paths:
        if isinstance(path, str):
            continue
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
