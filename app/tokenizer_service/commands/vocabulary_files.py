"""Reads tokenizer files for `import` and `convert`, with `--preset`, `--pattern` and `--special` if
needed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizer_core.errors import FormatError, MissingPatternError
from tokenizer_core.formats.chat_template_files import read_template_file
from tokenizer_core.formats.model_folder import IDS
from tokenizer_core.presets import PRESETS, load_path_spec, load_preset_spec
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.spec.chat_templates import DEFAULT
from tokenizer_core.splitting.patterns import PATTERN_NAMES
from tokenizer_service.commands.command_line import (
    DEFAULT_TOKENIZER,
    CommandError,
    UsageError,
    error_of_file,
    open_packaged_store,
    open_store,
    parse_special_token,
    require_files,
    resolve_tokenizer,
)
from tokenizer_service.commands.tokenizer_arguments import find_files


def add_reading_options(parser: Any) -> None:
    """Add `--preset`, `--pattern`, `--special`, `--no-special`, `--ids` and
    `--chat-template`."""
    parser.add(
        "--preset PRESET",
        "the file is this published vocabulary, which sets pattern and special tokens: "
        + ", ".join(PRESETS),
        choices=tuple(PRESETS),
    )
    parser.add(
        "--pattern PATTERN",
        f"how text is split: {', '.join(PATTERN_NAMES)}, or a regular expression",
    )
    parser.add(
        "--special TOKEN=ID",
        "a special token and its id; repeat for more",
        action="append",
        type=parse_special_token,
        default=[],
    )
    parser.add("--no-special", "the .tiktoken vocabulary has no special tokens")
    parser.add(
        "--ids CHOICE",
        "whose ids a model folder has if they differ (tokenizer doctor FOLDER): tokenizer.json "
        "alone, or a release of transformers",
        choices=IDS,
    )
    parser.add(
        "--chat-template [NAME=]FILE",
        "add or replace a chat template (Jinja; NAME: default); repeat for more. Those of a "
        "model folder are kept",
        action="append",
        default=[],
    )


def read_source(
    words: list[str],
    arguments: argparse.Namespace,
    *,
    name: str | None = None,
    has_packaged: bool = False,
) -> TokenizerSpec:
    """The tokenizer in the files, or the one that a single word names.

    `name`, for hints, is by default that of the file. With `has_packaged`, a store without the
    starter gives that of the package.
    """
    files = [Path(word) for word in words]
    if len(files) == 1:
        files, pattern = find_files(arguments, words[0])
        if pattern is not None:
            if arguments.pattern is not None:
                raise UsageError(f"{words[0]} names a pattern; leave --pattern out")
            arguments = argparse.Namespace(**vars(arguments) | {"pattern": pattern})
    if files:
        return read_files(files, arguments, name=name or files[0].stem)
    word = words[0]
    no_file = "" if Path(word).exists() else f"there is no file {word}, and "
    options = (arguments.preset, arguments.pattern, arguments.special, arguments.ids)
    if any(options) or arguments.no_special:
        raise UsageError(
            f"{no_file}{word} is a name and ./{word} a path; --preset, --pattern, --special and "
            f"--ids belong to files; a published tokenizer has its own"
        )
    open_store(arguments)  # a wrong folder is an error also for a preset
    try:
        store, ref = resolve_tokenizer(arguments, word)
    except CommandError as error:  # it is not published
        if word in PRESETS:
            return load_preset_spec(word)
        packaged = open_packaged_store() if has_packaged and word == DEFAULT_TOKENIZER else None
        if packaged is None:
            raise CommandError(f"{no_file}{error}") from error
        store, ref = packaged, packaged.resolve(word)
    return store.open(ref)


def read_files(files: list[Path], arguments: argparse.Namespace, *, name: str) -> TokenizerSpec:
    """The tokenizer in `files`, completed from the options; `name` is used only in error hints."""
    require_files([path for path in files if not path.is_dir()])
    if arguments.preset:
        return _read_preset(files, arguments)
    special = dict(arguments.special)
    if len(special) != len(arguments.special):
        raise UsageError("a --special token is given twice")
    if arguments.no_special and special:
        raise UsageError("--no-special and --special exclude each other")
    no_tokens = () if special or arguments.no_special else ("--special TOKEN=ID (or --no-special)",)
    try:
        spec = load_path_spec(
            *files,
            pattern=arguments.pattern,
            special_tokens=special or ({} if arguments.no_special else None),
            ids=arguments.ids,
        )
    except MissingPatternError as error:
        raise _missing_options(files[0], name, "--pattern", *no_tokens) from error
    except FormatError as error:
        raise error_of_file(files[0], error) from error
    # Of the kind `ranks`, only a .tiktoken file takes a pattern.
    if no_tokens and arguments.pattern and spec.kind == "ranks" and not spec.added_tokens:
        raise _missing_options(files[0], name, *no_tokens)
    return spec


def with_chat_option(spec: TokenizerSpec, arguments: argparse.Namespace) -> TokenizerSpec:
    """`spec` with the chat templates of `--chat-template` added."""
    if not arguments.chat_template:
        return spec
    given: dict[str, str] = {}
    for word in arguments.chat_template:
        name, path = _split_template(word)
        if name in given:
            raise UsageError(f"--chat-template gives {name} twice")
        require_files([path])
        given[name] = read_template_file(path)
        _check_template(given[name], path)
    return spec.with_chat(replace(spec.chat, sources={**spec.chat.sources, **given}))


def with_control_option(spec: TokenizerSpec, arguments: argparse.Namespace) -> TokenizerSpec:
    """`spec` with the control tokens of `--control-token` added."""
    named = dict.fromkeys([*spec.chat.control_tokens, *arguments.control_token])
    return spec.with_chat(replace(spec.chat, control_tokens=tuple(named)))


def _check_template(source: str, path: Path) -> None:
    from jinja2 import TemplateSyntaxError

    from tokenizer_core.chat.template import parse

    try:
        parse(source)
    except TemplateSyntaxError as error:
        raise CommandError(f"{path} is no chat template: line {error.lineno}: {error}") from None
    except RecursionError:
        raise CommandError(f"{path} is no chat template: it is nested too deep") from None


def _split_template(word: str) -> tuple[str, Path]:
    """The name and the file of `[NAME=]FILE`."""
    name, equals, path = word.partition("=")
    if not equals or Path(word).exists():
        return DEFAULT, Path(word)
    return name, Path(path)


def _read_preset(files: list[Path], arguments: argparse.Namespace) -> TokenizerSpec:
    if arguments.pattern or arguments.special or arguments.no_special or arguments.ids:
        raise UsageError("--preset sets pattern, special tokens and ids; leave their options out")
    if len(files) > 1:
        raise UsageError("a preset has one file; leave the others out")
    try:
        return load_preset_spec(arguments.preset, files[0] if files else None)
    except FormatError as error:
        raise error_of_file(files[0], error) from error


def _missing_options(path: Path, name: str, *missing: str) -> UsageError:
    message = (
        f"a .tiktoken file says neither how text is split nor which tokens are special; "
        f"give {' and '.join(missing)}"
    )
    known = _guess(name, path)
    if known is not None:
        preset = PRESETS[known]
        options = " ".join(f"--special '{t}={id_}'" for t, id_ in preset.special_tokens.items())
        message += f". For {known} as published: --pattern {preset.pattern} {options}"
    return UsageError(message)


def _guess(name: str, path: Path) -> str | None:
    """The preset that the names suggest, or None; used only in a hint."""
    for text in (path.name.lower(), name.lower()):
        for known in ("r50k_base", "p50k_base", "cl100k_base", "o200k_base"):
            if known.removesuffix("_base") in text:
                return known
        if "gpt2" in text:
            return "r50k_base"
    return None
