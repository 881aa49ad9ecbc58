"""The command `tokenizer`: the table of its subcommands, and its exit codes.

This module builds the parser and turns every error into one line with the remedy; `commands`
does the work. A command imports only its own group, and this module holds the help lines, so that
`--help` and `encode` do not load the web server.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn

from tokenizer_core.errors import (
    ArtifactCorruptError,
    ArtifactStorageError,
    CorpusDocumentError,
    SpecialTokenForbiddenError,
    TokenizerCoreError,
    did_you_mean,
)
from tokenizer_service.commands.command_line import (
    FAILED,
    INTERRUPTED,
    WRONG_USAGE,
    CommandError,
    CommandParser,
    UsageError,
    artifacts_dir_of,
    print_error,
    print_warnings,
)

_GROUPS: Final = {
    "text": {
        "encode": ("text", "turn text into token ids, or show its pieces"),
        "decode": ("text", "turn token ids into text"),
        "count": ("text", "count the tokens of a text"),
        "truncate": ("text", "cut a text to a number of tokens"),
        "chunk": ("text", "cut a text into chunks of at most a number of tokens"),
        "chat": ("chat", "turn a conversation into token ids, by a chat template"),
    },
    "corpora and training": {
        "train": ("training", "learn a tokenizer from text files"),
        "shrink": ("shrinking", "keep the tokens of a tokenizer that a text uses"),
        "counts": ("counts", "make, merge and prune files of counts to train from"),
        "corpus": ("corpus", "make token files for model training; check and sample them"),
        "report": ("evaluation", "measure tokenizers on text: bytes per token, words, speed"),
        "compare": ("evaluation", "show how two tokenizers differ: tokens, ids, merges, text"),
    },
    "published tokenizers": {
        "list": ("artifacts", "list them and their versions"),
        "inspect": ("artifacts", "show one: manifest, special tokens, longest tokens"),
        "import": ("artifacts", "publish a tokenizer from another program's file"),
        "pull": ("vocabulary_download", "download a preset, such as cl100k_base, or a model's"),
        "doctor": ("doctor", "show which ids a model folder gives, and its contradictions"),
        "convert": ("conversion", "write a tokenizer in another format"),
        "promote": ("artifacts", "choose the tokenizer that serves"),
        "rollback": ("artifacts", "go back to the tokenizer that served before"),
        "remove": ("artifacts", "delete a version that nothing uses"),
        "alias": ("artifacts", "give a tokenizer the names that clients send as `model`"),
    },
    "service": {
        "serve": ("serving", "run the HTTP service"),
        "jobs": ("jobs", "list, show, watch and cancel the jobs of a service"),
        "completion": ("completion", "print completion for your shell"),
    },
}
"""Group in `tokenizer --help` -> command -> its module in `commands`, and its line."""

_PYTHON: Final = re.compile(r"; (Tokenizer\.\w+|overwrite=True)(?=\))")
"""What messages of the library name for Python, after what they name for a shell."""

_COMMANDS: Final = {name: entry for group in _GROUPS.values() for name, entry in group.items()}

_DESCRIPTION: Final = "Exact byte-level BPE tokenizers: train, serve, encode.\n\n" + "\n\n".join(
    f"{title}:\n" + "\n".join(f"  {name:<11} {line}" for name, (_, line) in group.items())
    for title, group in _GROUPS.items()
)
_EPILOG: Final = """\
Commands that read a tokenizer take NAME or NAME@VERSION of a published one, its alias, a
preset (gpt2, cl100k_base, ...), or a path, which has a / or a suffix. Without it, most take
the promoted one, or the packaged starter where no folder or store is named.

Every command has its own --help with examples; options come after the command. Files are
UTF-8; - is standard input or output. Progress bars appear on a terminal only; --json prints
output for programs.

exit codes:
  0    done
  1    failed; one line on standard error says why and what to do
  2    the command line is wrong, or needs a package that is not installed
  3    done, with a negative result: compare found a difference, corpus verify found
       damage, doctor something to choose or to correct, or the job that jobs watch
       waited for did not succeed
  130  interrupted with Ctrl-C; no file is left half written (143: ended by SIGTERM)
  141  the reader of the output, for instance head, stopped reading

start here:
  tokenizer encode 'Hello, world!'     encode on the command line
  tokenizer train corpus.txt --name my-first --vocab-size 5000
  tokenizer serve                      run the HTTP service"""


class _Terminated(KeyboardInterrupt):
    """The process received SIGTERM; the command cleans up as after Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = "tokenizer"
    # numpy starts one thread per processor at import, for linear algebra. No command needs it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_standard_streams()
    try:
        with _terminated_as_interrupted(), _warnings_in_a_line():
            parsed = build_parser(words[0] if words else None).parse_args(words)
            command = parsed.prog
            code: int | None = parsed.run(parsed)
            sys.stdout.flush()
            return code or 0
    except CommandError as error:
        return _fail(command, str(error), _exit_code(error))
    except TokenizerCoreError as error:
        remedies = getattr(error, "__notes__", [])
        if isinstance(error, ArtifactCorruptError) and error.version is not None:
            remedies = ["restore it from a backup, or publish it again"]
        if isinstance(error, CorpusDocumentError) and "skip_bad" in parsed:
            remedies = ["or leave bad documents out (--skip-bad)", *remedies]
        said = str(error)
        if isinstance(error, ArtifactStorageError) and "artifacts_dir" in parsed:
            said = f"{os.environ.get('TOKENIZER_STORE') or artifacts_dir_of(parsed)}: {said}"
        if isinstance(error, SpecialTokenForbiddenError) and not error.place:
            said = f"{error.which} holds {error.shown}, which --disallowed-special forbids"
            remedies = ["leave it out to have the token, or give --allowed-special none for text"]
        return _fail(command, "; ".join([said, *remedies]), _exit_code(error))
    except BrokenPipeError:
        # The reader, for instance `head`, stopped reading: end without a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + 13  # SIGPIPE, which Windows does not name
    except KeyboardInterrupt as error:
        code = 128 + signal.SIGTERM if isinstance(error, _Terminated) else INTERRUPTED
        remedies = getattr(error, "__notes__", [])
        return _fail(command, "; ".join(["interrupted", *remedies]), code)
    except UnicodeEncodeError:
        return _fail(command, "the text holds bytes that are not UTF-8; convert it first")
    except MemoryError:
        return _fail(command, "out of memory; work on less at once")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(command, f"{where}{error.strerror or error}; check the path and the disk")


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser for a line that begins with `command`.

    Imports only the group of that command; `build_whole_parser` imports all groups.
    """
    parser, subcommands = _build_top()
    if command == "serve" and sys.platform == "win32":
        raise CommandError(
            "the service does not run on Windows; use its image, or WSL. The library, the client "
            "and the other commands run here"
        )
    if command in _COMMANDS:
        _add_group(_COMMANDS[command][0], subcommands)
        return parser
    if command is not None and not command.startswith("-"):
        is_extend = command == "extend"  # there is a command `shrink`
        near = "; see train --extend" if is_extend else did_you_mean(command, _COMMANDS)
        raise UsageError(f"there is no command {command!r}{near} (see tokenizer --help)")
    for name in _COMMANDS:
        subcommands.add_parser(name)
    return parser


def build_whole_parser() -> argparse.ArgumentParser:
    """The parser with every command that is installed, and all options."""
    parser, subcommands = _build_top()
    for group in dict.fromkeys(group for group, _ in _COMMANDS.values()):
        with suppress(_ExtraMissingError):
            _add_group(group, subcommands)
    return parser


def _build_top() -> tuple[argparse.ArgumentParser, _Subcommands]:
    usage = "tokenizer [-h] [-V] COMMAND ..."
    parser = CommandParser(prog="tokenizer", usage=usage, description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument(
        "-V",
        "--version",
        nargs=0,
        action=_PrintVersion,
        help="show the version, the engine that runs and why, and exit",
    )
    parser.set_defaults(build_whole_parser=build_whole_parser)  # for completion
    return parser, _Subcommands(
        parser.add_subparsers(
            dest="command",
            prog="tokenizer",
            metavar="COMMAND",
            help=argparse.SUPPRESS,  # the description lists them in groups
            required=True,
            parser_class=CommandParser,
        )
    )


class _ExtraMissingError(UsageError):
    """The command needs packages that the library does without."""


def _add_group(group: str, subcommands: _Subcommands) -> None:
    gc.disable()  # an import makes no garbage, and looking for it takes a tenth of the time
    try:
        module = importlib.import_module(f"tokenizer_service.commands.{group}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tokenizer_"):
            raise
        raise _ExtraMissingError(
            f"this command needs the package {error.name}; pip install 'tokenizer-service[service]'"
        ) from error
    finally:
        gc.freeze()  # the modules stay: neither a later collection nor the exit looks at them
        gc.enable()
    module.add_parsers(subcommands)


class _Subcommands:
    """Adds the parsers of a group, each with its help line from the table."""

    def __init__(self, action: Any) -> None:
        self._action = action

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = self._action.add_parser(
            name, help=_COMMANDS[name][1], **options
        )
        return parser


class _PrintVersion(argparse.Action):
    """`--version`, which imports the library only when used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        # Imported here because the library takes a tenth of a second to import.
        import platform
        from importlib.metadata import version

        from tokenizer_core.engines import choose_engine
        from tokenizer_core.splitting.patterns import UNICODE_TABLES

        engine = choose_engine()
        print(f"tokenizer-service {version('tokenizer-service')}")
        print(f"Python {platform.python_version()}, Unicode tables of {UNICODE_TABLES}")
        print(f"engine: {engine.name} ({engine.reason})")
        if engine.native_unavailable not in (None, engine.reason):
            print(f"the native engine cannot run here: {engine.native_unavailable}")
        parser.exit()


def _open_standard_streams() -> None:
    """Open the null device for closed standard streams; escape unencodable characters."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - open to the end
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    came = False

    def end(*_: object) -> NoReturn:
        nonlocal came
        came = True
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt as error:
        if not came or isinstance(error, _Terminated):
            raise
        # Ray replaces an exception that a signal handler raises within its calls by its own.
        terminated = _Terminated()
        for note in getattr(error, "__notes__", []):
            terminated.add_note(note)
        raise terminated from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Print each warning of the library once, without the line of code that caused it."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            print_warnings(message)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _exit_code(error: BaseException) -> int:
    """That of the error, or of the first in its chain of causes that needs a missing package."""
    found = error.exit_code if isinstance(error, CommandError) else FAILED
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TokenizerCoreError) and cause.needs_package:
            return WRONG_USAGE
        cause = cause.__cause__
    return found


def _fail(command: str, message: str, exit_code: int = FAILED) -> int:
    print_error(command, _PYTHON.sub("", message))
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
