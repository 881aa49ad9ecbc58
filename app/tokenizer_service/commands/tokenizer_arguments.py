"""Tokenizers on a command line: one named by options, or several named by words."""

from __future__ import annotations

import argparse
import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizer_core.compat.other_models import LibraryTokenizer, load_library_tokenizer
from tokenizer_core.errors import (
    ArtifactNotFoundError,
    FormatError,
    MissingPatternError,
    OtherModelError,
)
from tokenizer_core.presets import PRESETS, load_path_spec, other_way
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_service.commands.coders import Coder, LocalCoder, ServedCoder, Specials
from tokenizer_service.commands.command_line import (
    CommandError,
    CommandParser,
    UsageError,
    add_artifacts_dir,
    error_of_file,
    open_store,
    parse_path,
    parse_special_token,
    require_files,
    resolve_tokenizer,
)

if TYPE_CHECKING:
    from tokenizer_core.registry import ArtifactRef

TOKENIZER: Final = (
    "NAME or NAME@VERSION of a published one, its alias, a preset (gpt2, cl100k_base, ...), or a "
    "path: ./FOLDER of a model, tokenizer.json, tekken.json, tokenizer.model, VOCAB,MERGES or "
    "FILE.tiktoken:PATTERN"
)
TOKENIZER_HELP: Final = f"{TOKENIZER}; LABEL= before it names it in the output"

_DEFAULT: Final = "the promoted one, else starter where no folder or store is named"

_LABEL: Final = re.compile(r"([\w.@-]+)=(.+)", flags=re.DOTALL)
_SUFFIXES: Final = re.compile(r"(\.(json|tiktoken|pkl|txt|tokenizer|vocab|model))+$")


def add_tokenizer_arguments(
    parser: CommandParser, *, has_server: bool = False, default: str = _DEFAULT
) -> None:
    """Add the options that `load_tokenizer`, `find_tokenizer` and `find_coder` read."""
    group = parser.add_argument_group("which tokenizer")
    group.add_argument("--tokenizer", metavar="TOKENIZER", help=f"{TOKENIZER} (default: {default})")
    group.add_argument(
        "--files",
        nargs="+",
        type=parse_path,
        metavar="FILE",
        help="as --tokenizer, for files that need --pattern or --special",
    )
    group.add_argument("--pattern", help="split pattern, if the files do not name it")
    group.add_argument(
        "--special",
        action="append",
        type=parse_special_token,
        default=[],
        metavar="TOKEN=ID",
        help="a special token, if the files do not name it; repeat for more",
    )
    add_artifacts_dir(group)
    if has_server:
        group.add_argument(
            "--server",
            metavar="URL",
            help="use a tokenizer of this service (key: TOKENIZER_API_KEY)",
        )


def find_coder(arguments: argparse.Namespace) -> Coder:
    """The tokenizer that `load_tokenizer` gives, or the one of `--server`."""
    if arguments.server is None:
        tokenizer, ref = find_tokenizer(arguments)
        named = arguments.tokenizer or ",".join(map(str, arguments.files or ()))
        return LocalCoder(tokenizer, str(ref) if ref else named)
    for option in ("files", "pattern", "special", "artifacts_dir"):
        if getattr(arguments, option):
            raise UsageError(
                f"--{option.replace('_', '-')} names a tokenizer of this machine, and --server one "
                f"of a service; leave one of them out"
            )
    return ServedCoder(arguments.server, arguments.tokenizer)


def load_tokenizer(arguments: argparse.Namespace) -> Tokenizer:
    """The tokenizer that the arguments name, or the active one."""
    return find_tokenizer(arguments)[0]


def find_tokenizer(arguments: argparse.Namespace) -> tuple[Tokenizer, ArtifactRef | None]:
    """As `load_tokenizer`, with the name and version if it is published."""
    if arguments.files:
        if arguments.tokenizer:
            raise UsageError("--tokenizer and --files exclude each other")
        first, *others = arguments.files
        if others and first.exists() and not others[-1].exists():
            raise CommandError(
                f"{others[-1]} is not there; check the path, and put a text before --files, "
                "which takes all following words"
            )
        require_files(arguments.files)
        special = dict(arguments.special) or None
        return _warned(_load_files(arguments.files, arguments.pattern, special)), None
    if arguments.pattern or arguments.special:
        raise UsageError("--pattern and --special belong to --files; a published tokenizer has its")
    tokenizer, ref, _ = load_one(arguments, arguments.tokenizer)
    return tokenizer if ref else _warned(tokenizer), ref


def _warned(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer of a rank file, after a warning if nobody named its special tokens."""
    if isinstance(tokenizer, LibraryTokenizer):
        return tokenizer
    if tokenizer.spec.kind == "ranks" and not tokenizer.spec.added_tokens:
        warnings.warn(
            "a .tiktoken file names no special tokens, so text such as <|endoftext|> has none; "
            "name them: --files FILE --pattern PATTERN --special TOKEN=ID",
            stacklevel=2,
        )
    return tokenizer


def tokenizer_files(arguments: argparse.Namespace) -> list[Path]:
    """The files that `--tokenizer` or `--files` name, which no output may replace."""
    named = named_files([arguments.tokenizer]) if arguments.tokenizer else []
    return [*named, *(arguments.files or ())]


def allowed_special(coder: Coder | Tokenizer, text: str) -> Any:
    """Parse `--allowed-special`; raise UsageError for tokens that the tokenizer lacks."""
    return text if text in ("all", "none", "ordinary") else _tokens_in(coder, text)


def specials_of(coder: Coder, arguments: argparse.Namespace) -> Specials:
    """`--allowed-special` and `--disallowed-special`; raises as `allowed_special`."""
    allowed = allowed_special(coder, arguments.allowed_special)
    named: str = arguments.disallowed_special
    disallowed = named if named == "all" else _tokens_in(coder, named)
    return {"allowed_special": allowed, "disallowed_special": disallowed}


def _tokens_in(coder: Coder | Tokenizer, text: str) -> set[str]:
    wanted = {token for token in text.split(",") if token}
    if not wanted:
        return wanted
    added = coder.spec.added_ids if isinstance(coder, Tokenizer) else coder.added_ids
    unknown = sorted(wanted - added.keys())
    if unknown:
        known = ", ".join(coder.special_tokens) or "none"
        raise UsageError(f"{unknown[0]!r} is no special token of this tokenizer; it has: {known}")
    return wanted


def load_named_tokenizers(arguments: argparse.Namespace, words: list[str]) -> dict[str, Tokenizer]:
    """The tokenizers that the words name, by label, in order."""
    found: dict[str, Tokenizer] = {}
    for word in words:
        label, what = split_label(word)
        tokenizer, _, name = load_one(arguments, what)
        if (label or name) in found:
            raise UsageError(
                f"two tokenizers are called {label or name}; tell them apart: LABEL={what}"
            )
        found[label or name] = tokenizer
    return found


def named_files(words: list[str]) -> list[Path]:
    """The files among the tokenizers that `words` name."""
    return [path for word in words for path in _files_of(split_label(word)[1])[0]]


def split_label(word: str) -> tuple[str | None, str]:
    """Split `LABEL=WHAT` into `(LABEL, WHAT)`.

    Returns `(None, word)` if the word has no label, or is the name of an existing file.
    """
    match = _LABEL.fullmatch(word)
    if match is None or Path(word).exists():
        return None, word
    return match[1], match[2]


def load_one(
    arguments: argparse.Namespace, what: str | None
) -> tuple[Tokenizer, ArtifactRef | None, str]:
    """The tokenizer that a word names, or the active one; its version if it is published, and its
    name in the output.
    """
    files, pattern = find_files(arguments, what) if what else ([], None)
    if not files:
        open_store(arguments)  # a wrong folder is an error also for a preset
        try:
            store, ref = resolve_tokenizer(arguments, what)
            return store.load(ref), ref, what or str(ref)
        except CommandError:
            if what is not None and what in PRESETS:
                return Tokenizer.from_preset(what), None, what
            raise
    if what and not files[0].exists() and (hint := other_way(what)):
        raise CommandError(f"{what} is not there; check the path{hint}")
    if len(files) > 1 or not files[0].is_dir():
        require_files(files)
    try:
        tokenizer = _load_files(files, pattern)
    except MissingPatternError as error:
        raise error_of_file(
            files[0], f"{error} (the pattern follows a colon: {what}:cl100k)"
        ) from error
    except FormatError as error:
        raise error_of_file(what or "", error) from error
    return tokenizer, None, _SUFFIXES.sub("", files[0].name) or files[0].name


def _load_files(
    files: list[Path], pattern: str | None, special: dict[str, int] | None = None
) -> Tokenizer:
    if len(files) == 1 and not (pattern or special):
        return Tokenizer.load(files[0])
    try:
        return Tokenizer.from_spec(load_path_spec(*files, pattern=pattern, special_tokens=special))
    except OtherModelError as error:
        return load_library_tokenizer(files[0], error)


def find_files(arguments: argparse.Namespace, what: str) -> tuple[list[Path], str | None]:
    """The files and the pattern that a word names; no files for the name of a tokenizer.

    Raises:
        UsageError: the word is an address.
    """
    if "://" in what and not Path(what).exists():
        raise UsageError(f"{what} is an address, and a tokenizer is read from files; copy it first")
    files, pattern = _files_of(what)
    if files and not files[0].exists():
        with suppress(ArtifactNotFoundError):  # as the alias Qwen/Qwen3-8B
            open_store(arguments).resolve_named(what)
            return [], None
    return files, pattern


def _files_of(what: str) -> tuple[list[Path], str | None]:
    """The files, and the pattern after a colon; none for a word without a separator, a suffix or a
    comma, which is a name.

    Example:
        >>> _files_of("r50k.tiktoken:gpt2")[1], _files_of("gpt2"), len(_files_of("v.json,m.txt")[0])
        ('gpt2', ([], None), 2)
    """
    named, _, pattern = what.partition(":")
    is_path = {*what} & {"/", os.sep, ","} or what in (".", "..") or _SUFFIXES.search(named)
    if not is_path:
        return [], None
    if Path(what).exists():
        return [Path(what)], None
    return [Path(name) for name in named.split(",") if name], pattern or None
