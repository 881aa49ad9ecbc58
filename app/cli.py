"""The command `tokenizer`: serve, train, encode, decode, count, inspect, import, convert, promote,
list, report, diff, corpus, counts.

Builds the parser and turns every error into one line with the remedy: exit code 2 for a wrong
command line, 1 for anything else. The work is in `app.commands`; a group is imported only when one
of its commands runs, so that `encode` does not pay for the web server.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from app.commands.command_line import FAILED, CommandError, CommandParser
from app.settings import SettingsError
from tokenizer_core.errors import TokenizerCoreError

_GROUPS: Final = {
    "serve": "serving",
    "train": "training",
    "encode": "text",
    "decode": "text",
    "count": "text",
    "inspect": "artifacts",
    "import": "artifacts",
    "convert": "conversion",
    "promote": "artifacts",
    "list": "artifacts",
    "report": "evaluation",
    "diff": "evaluation",
    "corpus": "corpus",
    "counts": "counts",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser(words[0] if words else None)
    command = "tokenizer"
    try:
        parsed = parser.parse_args(words)
        command = f"tokenizer {parsed.command}"
        parsed.run(parsed)
        sys.stdout.flush()
    except CommandError as error:
        return _fail(command, str(error), error.exit_code)
    except (TokenizerCoreError, SettingsError) as error:
        return _fail(command, str(error))
    except BrokenPipeError:
        # The reader (`head`, say) has enough. Closing quietly is what it expects.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return _fail(command, "interrupted", 128 + signal.SIGINT)
    except UnicodeEncodeError:
        return _fail(command, "the text holds bytes that are not UTF-8; convert it first")
    except MemoryError:
        return _fail(command, "out of memory; work on less at once")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(command, f"{where}{error.strerror or error}; check the path and the disk")
    return 0


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser; with a `command`, only what that one needs is imported."""
    parser = CommandParser(
        prog="tokenizer",
        description="Exact byte-level BPE tokenizers: train, serve, encode.",
        epilog=(
            "start here:\n"
            "  tokenizer serve                      run the HTTP service\n"
            "  tokenizer encode 'Hello, world!'     encode on the command line\n"
            "  tokenizer train corpus.txt --name my-first --vocab-size 5000\n\n"
            "Every command has its own --help with examples."
        ),
    )
    parser.add_argument(
        "--version",
        nargs=0,
        action=_PrintVersion,
        help="show the version, the engine that runs and why, and exit",
    )
    subcommands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    groups = [_GROUPS[command]] if command in _GROUPS else list(dict.fromkeys(_GROUPS.values()))
    for group in groups:
        importlib.import_module(f"app.commands.{group}").add_parsers(subcommands)
    return parser


class _PrintVersion(argparse.Action):
    """`--version`: looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        # Only here: the library costs a tenth of a second, which `--help` need not pay.
        from tokenizer_core.engines import choose_engine
        from tokenizer_core.patterns import UNICODE_TABLES

        engine = choose_engine()
        print(f"tokenizer-service {version('tokenizer-service')}")
        print(f"Python {platform.python_version()}, Unicode tables of {UNICODE_TABLES}")
        print(f"engine: {engine.name} ({engine.reason})")
        if engine.native_unavailable not in (None, engine.reason):
            print(f"the native engine cannot run here: {engine.native_unavailable}")
        parser.exit()


def _fail(command: str, message: str, exit_code: int = FAILED) -> int:
    one_line = " ".join(message.split())
    print(f"{command}: {one_line}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
