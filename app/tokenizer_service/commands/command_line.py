"""Code that all subcommands share: one-line errors, the parser class, the artifacts folder.

Every command loads this module, even for `--help`, so it imports nothing slow. For that reason it
reads three environment variables itself; only the service loads `tokenizer_service.settings`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tokenizer_core.errors import did_you_mean

if TYPE_CHECKING:
    from tokenizer_core.registry import ArtifactRef, Artifacts, ArtifactStore
    from tokenizer_core.spec import TokenizerSpec

FAILED: Final = 1
WRONG_USAGE: Final = 2
ANSWER_IS_NO: Final = 3
INTERRUPTED: Final = 130

_MOST_NAMED: Final = 20
_GIVEN: Final = "given_options"
DEFAULT_ARTIFACTS_DIR: Final = "artifacts"
DEFAULT_TOKENIZER: Final = "starter"
_MAKE_THE_FOLDER: Final = ("import", "train", "shrink")
"""The commands that publish, into a new folder if need be."""
_MAY_BE_EMPTY: Final = ("--separator", "--begin-of-document", "--end-of-document")


def parse_path(text: str) -> Path:
    """The path of an option; an empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a path")
    return Path(text)


_UNITS: Final = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000}


def parse_count(text: str) -> int:
    """Parse a number; k, M and B after it are thousands, millions and billions.

    Example:
        >>> parse_count("32k"), parse_count("100M"), parse_count("8192")
        (32000, 100000000, 8192)
    """
    unit = _UNITS.get(text[-1:].lower())
    digits = text[:-1] if unit else text
    if not (digits.isascii() and digits.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number from 0 up, such as 512 or 32k"
        )
    return int(digits) * (unit or 1)


def parse_fraction(text: str) -> float:
    """Parse a number from 0 to 1."""
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no fraction from 0 to 1, such as 0.01")
    return share


_TYPES: Final = {
    "N": parse_count,
    "SEED": int,
    "FRACTION": parse_fraction,
    "FILE": parse_path,
    "FOLDER": parse_path,
}
"""Metavar -> type of the value; any other is a text."""


class CommandError(Exception):
    """The command cannot do what was asked; the message is one sentence with the remedy."""

    def __init__(self, message: str, *, exit_code: int = FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class UsageError(CommandError):
    """The command line itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=WRONG_USAGE)


def error_of_file(path: Path | str, error: object) -> CommandError:
    """The error with the path in front, if it does not name it."""
    is_named = f" {Path(path)} " in f" {error} "
    return CommandError(f"{'' if is_named else f'{path}: '}{error}")


class _StoreOnce(argparse.Action):
    """Stores the value of an option. Given again, an option of several values adds to them, and one
    of a single value is an error: argparse would silently take the last. An empty value, such as a
    shell variable that is not set, is an error too: most options would take it for the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string is not None:
            if values == "" and option_string not in _MAY_BE_EMPTY:
                raise argparse.ArgumentError(self, "is empty; give a value, or leave it out")
            if is_given(namespace, self.dest):
                if self.nargs not in ("+", "*"):
                    raise argparse.ArgumentError(self, "is given twice; leave one out")
                values = [*getattr(namespace, self.dest), *values]
            vars(namespace).setdefault(_GIVEN, set()).add(self.dest)
        setattr(namespace, self.dest, values)


def is_given(arguments: argparse.Namespace, destination: str) -> bool:
    """Whether the command line has an option of this destination, rather than its default."""
    return destination in vars(arguments).get(_GIVEN, ())


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line that points to `--help`, and which takes an
    option of a single value only once. `instead`: options of other commands -> what to take here.
    """

    instead: Mapping[str, str] = MappingProxyType(
        {"--server": "encode, decode, count, truncate, chunk and jobs take it"}
    )

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)
        self.set_defaults(prog=self.prog)  # errors name the innermost command

    def add(self, names: str, about: str, **options: Any) -> None:
        """Add an argument, named as its help shows it: `-o --output FILE`.

        The metavar decides the type, and in `completion` what a shell offers. An option without one
        is a flag.
        """
        words = names.split()
        flags = [word for word in words if word.startswith("-")] or words[:1]
        if len(words) > len(flags):
            options = {"metavar": words[-1], "type": _TYPES.get(words[-1])} | options
        elif words[0].startswith("-") and not options.keys() & {"action", "choices"}:
            options["action"] = "store_true"
        self.add_argument(*flags, help=about, **options)

    def format_help(self) -> str:
        """Add what a number may be."""
        about = (
            "\nN: a number, also with k, M or B for thousands, millions or billions (32k = 32000)\n"
        )
        return super().format_help() + about * any(a.type is parse_count for a in self._actions)

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        print_error(self.prog, f"{message} (see {self.prog} --help)")
        self.exit(WRONG_USAGE)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown words here, where the similar options are known. The base class would pass
        them to the parent command. Refuse an option before a command: the base class would take
        its value for the command. Without a command, print the help."""
        first, _, _ = (args or [""])[0].partition("=")
        known = self._option_string_actions
        if self._subparsers is not None and not args:
            self.print_help(sys.stderr)
            self.exit(WRONG_USAGE)
        if self._subparsers is not None and first.startswith("-") and first not in known:
            if near := did_you_mean(first, known):
                self.error(f"there is no option {first}{near}")
            self.error(f"options come after the command: {self.prog} COMMAND {first} ...")
        words = list(args or [])
        n_before = words.index("--") if "--" in words else len(words)
        if self._subparsers is None:
            # Before the base class, which would first ask for a required option. For it, a word
            # with a space is a text.
            for word in words[:n_before]:
                is_option = word.startswith("--") and " " not in word
                if (is_option or word.startswith("-h")) and word.partition("=")[0] not in known:
                    self._refuse_option(word)
        parsed, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            if word.partition("=")[0] in known:
                self.error(f"no word after -- is an option; put {word} before it")
            if word.startswith("-") and word not in words[n_before:]:
                self._refuse_option(word)
            self._refuse_argument(word)
        return parsed, unknown

    def _refuse_option(self, word: str) -> NoReturn:
        option = word.partition("=")[0]
        if option in self.instead:
            way = f"; {self.instead[option]}"
        elif option.startswith("--") and option.strip("-"):
            way = did_you_mean(option, self._option_string_actions)
        else:
            way = f"; a value that begins with - is joined (--option={word}), a text comes after --"
        self.error(f"there is no option {word}{way}")

    def _refuse_argument(self, word: str) -> NoReturn:
        if not self._get_positional_actions():
            self.error(f"takes no name; leave out {word!r}")
        way = "quotes keep words together"
        for option in ("--file", "--corpus"):
            if option in self._option_string_actions and Path(word).is_file():
                way = f"it is a file here, and files come after {option}"
        self.error(f"one argument too many: {word!r}; {way}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown subcommand as the base class does, and name the similar one."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            near = did_you_mean(value, action.choices) or f"; there are {', '.join(action.choices)}"
            self.error(f"there is no command {value!r}{near}")
        super()._check_value(action, value)


def add_command(
    subcommands: Any,
    run: Callable[[argparse.Namespace], int | None],
    *,
    below: str = "example",
    **options: Any,
) -> CommandParser:
    """Add the command NAME that `run_NAME` runs. The docstring of `run` is the help; the paragraph
    that begins with `below`, and all after it, is printed below the options."""
    name = run.__name__.removeprefix("run_")
    parser: CommandParser = subcommands.add_parser(name, **_texts(run, below) | options)
    parser.set_defaults(run=run)
    return parser


def add_group(subcommands: Any, name: str, add_parsers: Callable[[Any], None]) -> Any:
    """Add the command `name`, which has subcommands, and return what takes them. The docstring of
    `add_parsers` is its help."""
    parser = subcommands.add_parser(name, **_texts(add_parsers, "example"))
    return parser.add_subparsers(dest=f"{name}_command", metavar="COMMAND", required=True)


def _texts(function: Callable[[Any], object], below: str) -> dict[str, str | None]:
    text = textwrap.dedent(f"    {function.__doc__ or ''}").strip()  # python -OO has none
    about, begin, end = text.partition(f"\n\n{below}")
    return {"description": about, "epilog": f"{below}{end}" if begin else None}


def add_field(parser: CommandParser) -> None:
    """Add `--field`."""
    parser.add(
        "--field FIELD",
        "JSON or Parquet field (default: text); repeat it if records have one of several",
        type=_parse_field,
        action="append",
    )


def _parse_field(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("it is empty; give a value, or leave it out")
    return text


def command_text() -> str:
    """The command line as manifests record it: file names without their folders."""
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    # A file name may be invalid UTF-8, which a manifest cannot hold.
    return " ".join(["tokenizer", *words]).encode(errors="backslashreplace").decode()


def publish(
    store: Artifacts, spec: TokenizerSpec, *, name: str, **record: Any
) -> tuple[ArtifactRef, str]:
    """As `store.publish`, and what to say of it: an equal version may be there already."""
    before = store.versions(name)
    ref = store.publish(spec, name=name, command=command_text(), **record)
    return ref, f"already there: {ref}" if ref in before else f"published {ref}"


def print_how_to_serve(ref: ArtifactRef) -> None:
    """Print the command that makes a published version the one that serves."""
    print(f"serve it:  tokenizer promote {ref.name}  (commands without --tokenizer take it, too)")


def print_error(command: str, message: str) -> None:
    """Print the line of an error to stderr; that of `serve` has the form of its log."""
    line = f"{command}: {' '.join(map(str.strip, message.splitlines()))}"
    if command == "tokenizer serve" and os.environ.get("TOKENIZER_LOG_FORMAT") == "json":
        import logging

        from tokenizer_service.observability.logs import JsonFormatter

        name = "tokenizer_service.commands.serving"
        record = logging.LogRecord(name, logging.ERROR, "", 0, line, None, None)
        line = JsonFormatter().format(record)
    print(line, file=sys.stderr)


def print_warnings(*messages: object) -> None:
    """Print a line for each to stderr."""
    for warning in messages:
        print(f"tokenizer: warning: {warning}", file=sys.stderr)


def add_artifacts_dir(parser: Any) -> None:
    """Add `--artifacts-dir`."""
    parser.add_argument(
        "--artifacts-dir",
        type=parse_path,
        metavar="FOLDER",
        help="folder of the tokenizers (default: TOKENIZER_ARTIFACTS_DIR, else ./artifacts); one "
        f"that is named must exist, but for {', '.join(_MAKE_THE_FOLDER)}, which make it",
    )


def artifacts_dir_of(arguments: argparse.Namespace) -> Path:
    """The artifacts folder that the arguments or the environment name."""
    given: Path | None = arguments.artifacts_dir
    named = os.environ.get("TOKENIZER_ARTIFACTS_DIR", DEFAULT_ARTIFACTS_DIR)
    if given is None and not named:
        raise CommandError("TOKENIZER_ARTIFACTS_DIR is empty; name a folder, or unset the variable")
    folder = given or Path(named)
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is no folder of tokenizers, but a file")
    return folder


def check_named_folder(store: str | None, artifacts_dir: Path) -> None:
    """Refuse a folder of tokenizers that is named and does not exist: it is misspelt, or the volume
    is not mounted. `store` is the value of TOKENIZER_STORE."""
    from tokenizer_core.blobs.addresses import is_store_address

    if store and is_store_address(store):
        return
    folder = Path(store or artifacts_dir)
    if not folder.exists():
        raise CommandError(
            f"the folder {folder}, which TOKENIZER_{'STORE' if store else 'ARTIFACTS_DIR'} or an "
            f"option names, does not exist; check its name and that its volume is mounted, or make "
            f"it: mkdir -p {shlex.quote(str(folder))}"
        )


def default_tokenizer() -> str:
    """The tokenizer to use before the first promotion."""
    return os.environ.get("TOKENIZER_DEFAULT") or DEFAULT_TOKENIZER


def open_store(arguments: argparse.Namespace) -> Artifacts:
    """The artifact store that the arguments or the environment name; raises CommandError if its
    folder is named and does not exist, unless the command makes it."""
    from tokenizer_core.blobs.addresses import is_store_address
    from tokenizer_core.registry import open_artifacts

    store, folder = os.environ.get("TOKENIZER_STORE"), artifacts_dir_of(arguments)
    if arguments.command in _MAKE_THE_FOLDER and not (store and is_store_address(store)):
        require_writable(Path(store or folder), store or folder)
    if _is_store_named(arguments):
        try:
            check_named_folder(store, folder)
        except CommandError:
            if arguments.command not in _MAKE_THE_FOLDER:
                raise
            made = f"{store or folder} does not exist yet; this command makes it"
            warnings.warn(made, stacklevel=2)
    return open_artifacts(store, folder)


def resolve_tokenizer(
    arguments: argparse.Namespace, name: str | None = None
) -> tuple[Artifacts, ArtifactRef]:
    """The version of `name`, and the store that has it: a published tokenizer, one by its alias, or
    the packaged starter. Without `name` the active one, or that of TOKENIZER_DEFAULT.

    The packaged starter is for use outside a checkout: nobody gets it where an option or the
    environment names a store.
    """
    from tokenizer_core.errors import ArtifactError, ArtifactNotFoundError

    if name == "":
        raise UsageError("the name of a tokenizer is empty")
    store = open_store(arguments)
    if name is None and (active := store.active()) is not None:
        return store, active
    wanted = name or default_tokenizer()
    try:
        ref = store.resolve_named(wanted) if name else store.resolve_default(wanted)
    except ArtifactNotFoundError as error:
        is_named = _is_store_named(arguments)
        is_starter = wanted.partition("@")[0] == DEFAULT_TOKENIZER
        packaged = open_packaged_store() if is_starter and not is_named else None
        way = ""
        if name is None and (names := store.names()):
            way = f"--tokenizer {names[0]}, or make it the default: tokenizer promote {names[0]}"
        if packaged is None:
            if way:
                raise CommandError(
                    f"no tokenizer is active, and {wanted!r} is not published; name one: {way}"
                ) from error
            also = () if is_starter or is_named else (DEFAULT_TOKENIZER,)
            raise unknown_tokenizer(store, wanted, also) from error
        if name is None and (way or _is_kept(arguments)):
            way = way or f"name it, or another: --tokenizer {wanted}"
            said = "note: no tokenizer is active here, so this is the packaged starter"
            print(f"{said}; {way}", file=sys.stderr)
        return packaged, packaged.resolve(wanted)
    if name is not None:
        # The name `active` is no model, and damage is an error of the command that meets it.
        with contextlib.suppress(ArtifactError):
            note_other_version(str(ref), str(store.resolve_model(wanted)))
    return store, ref


def _is_kept(arguments: argparse.Namespace) -> bool:
    """Whether the result goes to a program or a file, where nobody sees that its ids are others."""
    return not sys.stdout.isatty() or str(getattr(arguments, "output", None) or "-") != "-"


def note_other_version(newest: str, served: str) -> None:
    """Say that a name alone is another version for a command than for requests by `model`."""
    if newest != served:
        print(f"note: this is {newest}, the newest; {served} serves", file=sys.stderr)


def resolve_published(store: Artifacts, name: str) -> ArtifactRef:
    """The version that `NAME[@VERSION]` or an alias names; raises CommandError as
    `resolve_tokenizer`."""
    from tokenizer_core.errors import ArtifactNotFoundError
    from tokenizer_core.registry.versions import NAME

    if not name:
        raise UsageError("the name of a tokenizer is empty")
    try:
        return store.resolve_named(name)
    except ArtifactNotFoundError as error:
        path = name.replace(",", " ") if {*"/,"} & {*name} else f"./{name}"
        if NAME.fullmatch(name.partition("@")[0]) or not Path(path.split()[0]).exists():
            raise unknown_tokenizer(store, name) from error
        raise CommandError(
            f"{name} is not published here; publish it: tokenizer import {path} --name NAME"
        ) from None


def unknown_tokenizer(store: Artifacts, wanted: str, also: Sequence[str] = ()) -> CommandError:
    """The error for a tokenizer that is not published: what there is, and what is similar to it.

    `also` are names that are found though they are not in the store.
    """
    from tokenizer_core.errors import ArtifactStorageError
    from tokenizer_core.presets import PRESETS, preset_of_model

    name, at, version = wanted.partition("@")
    names = store.names()
    if wanted == "active":
        return CommandError("no tokenizer is active; make one so: tokenizer promote NAME")
    if at and name in names:
        versions = [ref.version for ref in store.versions(name)]
        near = did_you_mean(version, versions)
        there = ", ".join(versions[:_MOST_NAMED])
        return CommandError(f"{name!r} has no version {version!r:.80}{near}; it has {there}")
    if wanted in (*PRESETS, DEFAULT_TOKENIZER):
        kind = "a preset" if wanted in PRESETS else "the tokenizer of the package"
        words = f"--preset {wanted}" if wanted in PRESETS else wanted
        return CommandError(
            f"{wanted!r} is {kind}, which is not published here; publish it: tokenizer import "
            f"{words} --name {wanted}"
        )
    if (preset := preset_of_model(wanted)) is not None:
        return CommandError(
            f"{wanted!r} is a model of OpenAI, not a tokenizer; its preset is {preset}"
        )
    with contextlib.suppress(ArtifactStorageError):
        if (owner := store.aliases().get(name)) is not None:
            return CommandError(f"{name!r} is an alias; name its tokenizer, {owner}")
    near = did_you_mean(name, [*names, *PRESETS, *also])
    there = ", ".join(sorted(names)[:_MOST_NAMED]) or "none (see tokenizer train, tokenizer import)"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return CommandError(
        f"there is no tokenizer {name!r:.80}{near}{_file_here(wanted)}; published: {there}{more}; "
        f"presets: {', '.join(PRESETS)}"
    )


def _file_here(word: str) -> str:
    return f"; the file or folder here is ./{word}" if Path(word).exists() else ""


def _is_store_named(arguments: argparse.Namespace) -> bool:
    variables = ("TOKENIZER_STORE", "TOKENIZER_ARTIFACTS_DIR")
    return arguments.artifacts_dir is not None or any(name in os.environ for name in variables)


def open_packaged_store() -> ArtifactStore:
    """The tokenizers in the package, or in the checkout of an editable installation."""
    from tokenizer_core.presets import PACKAGED
    from tokenizer_core.registry import ArtifactStore

    return ArtifactStore(PACKAGED)


def parse_place(text: str) -> Path | str:
    """A path, or an address (`s3://...`) as a str, because a Path would change it.

    Example:
        >>> parse_place("s3://bucket/news.counts"), parse_place("news.counts").name
        ('s3://bucket/news.counts', 'news.counts')
    """
    if ":/" not in text:
        return Path(text)
    from tokenizer_core.blobs.addresses import is_store_address
    from tokenizer_core.errors import StorageError

    try:
        return text if is_store_address(text) else Path(text)
    except StorageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def require_files(paths: Sequence[Path | str]) -> None:
    """Raise CommandError for the first path that is not a readable file; skip addresses."""
    for path in paths:
        if isinstance(path, str):
            continue
        if path.is_dir():
            raise CommandError(f"{path} is a folder; name the files in it")
        if not path.exists():
            raise CommandError(f"{path} is not there; check the path")
        if not os.access(path, os.R_OK):
            raise CommandError(f"{path} cannot be read by this user; change its permissions")


def require_writable(folder: Path, output: Path | str) -> None:
    """Raise CommandError, which names `output`, if this user cannot write to a folder, or to the
    one to make it in."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK):
        raise CommandError(
            f"{output} cannot be written: this user may not write to the folder {there}; change "
            f"its permissions, or name another folder"
        )


def refuse_packed(shown: str, beginning: bytes, way: str) -> None:
    """Raise CommandError for the content of a packed file; `way`: what is read, and the remedy."""
    from tokenizer_core.documents import CONTENT_NAMES, format_of_content

    if (packing := format_of_content(beginning)) in ("gz", "zst", "parquet"):
        named = f"{shown} is {CONTENT_NAMES[packing]}"
        raise CommandError(f"{named}, and this command reads {way}") from None


def parse_special_token(text: str) -> tuple[str, int]:
    """Parse `TOKEN=ID` into `(TOKEN, ID)`; the token may contain `=`."""
    token, separator, number = text.rpartition("=")
    if not separator or not token or not (number.isascii() and number.isdigit()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not TOKEN=ID, for instance '<|endoftext|>=50256'"
        )
    return token, int(number)
