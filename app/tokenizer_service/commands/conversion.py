"""`tokenizer convert`: write a tokenizer in another format, and verify it before it appears."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from tokenizer_core.conversion import FILE_NAMES, convert_spec, loading_lines, not_carried
from tokenizer_core.errors import FormatError
from tokenizer_core.spec import TokenizerSpec
from tokenizer_service.commands.command_line import (
    CommandError,
    UsageError,
    add_artifacts_dir,
    add_command,
    parse_path,
)
from tokenizer_service.commands.outputs import STANDARD_OUTPUT, print_json, write_output
from tokenizer_service.commands.vocabulary_files import (
    add_reading_options,
    read_source,
    with_chat_option,
)


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = add_command(subcommands, run_convert)
    parser.add("source SOURCE", "NAME[@VERSION], one file, or vocabulary and merges", nargs="+")
    parser.add("--to", "the format", required=True, choices=tuple(FILE_NAMES))
    parser.add(
        "-o --output PATH",
        "the file to write, - for standard output; for transformers, gpt2 and pickle the "
        "folder, made where it is missing",
        required=True,
        type=parse_path,
    )
    parser.add("--force", "replace existing files")
    parser.add("--json", "print what was written as JSON")
    add_reading_options(parser)
    add_artifacts_dir(parser)


def run_convert(arguments: argparse.Namespace) -> None:
    r"""Write a tokenizer in another format. SOURCE is a published tokenizer, or files in any of
    the formats, as `tokenizer import` takes them.

      tokenizer.json  Hugging Face tokenizers and transformers; holds everything
      transformers    a folder for AutoTokenizer of transformers: tokenizer.json,
                      tokenizer_config.json, special_tokens_map.json, with the chat templates,
                      and for stop tokens generation_config.json
      tiktoken        tiktoken; holds neither split pattern nor special tokens
      gpt2            vocab.json and merges.txt, into a folder; hold neither split pattern nor
                      which tokens are special
      pickle          vocab.pkl and merges.pkl as the course has them, into a folder; mean the
                      pattern gpt2 and do not say which tokens are special

    What was written is read back and compared before it gets its name, and the lines of
    Python that load it are printed, with what the format does not hold. What it cannot hold
    and no one could add (a normalizer, for example) is refused by name.

    examples:
      tokenizer convert starter --to tokenizer.json --output tokenizer.json
      tokenizer convert starter --to transformers --output starter-model
      tokenizer convert starter@20261121T041500Z-1a2b3c4d --to tiktoken --output starter.tiktoken
      tokenizer convert Llama-3.1/tokenizer.json --to tiktoken --output llama3.tiktoken
      tokenizer convert vocab.json merges.txt --special '<|endoftext|>=50256' \
          --to tokenizer.json --output tokenizer.json
      tokenizer convert r50k_base.tiktoken --to gpt2 --output gpt2-files --force

    to publish it instead:  tokenizer import --help
    """
    if arguments.chat_template and arguments.to != "transformers":
        raise UsageError(f"{arguments.to} has no chat template; convert to transformers")
    if arguments.output == STANDARD_OUTPUT:
        _convert_to_standard_output(arguments)
        return
    spec = with_chat_option(read_source(arguments.source, arguments), arguments)
    paths, is_same = _convert(arguments, spec, arguments.output)
    if arguments.json:
        files = [{"path": str(path), "size_bytes": path.stat().st_size} for path in paths]
        print_json(
            {
                "files": files,
                "is_same": is_same,
                "not_carried": not_carried(spec, arguments.to),
                "load": loading_lines(spec, arguments.to, paths),
            }
        )
        return
    print(f"read: {len(spec.vocab)} tokens, pattern {spec.pattern.name}, {_specials(spec)}")
    for path in paths:
        print(f"wrote {path}: {path.stat().st_size} bytes")
    print(f"read back: {_agreement(spec, is_same=is_same)}")
    print(f"left out: {_left_out(arguments, spec)}")
    print("load it:")
    for line in loading_lines(spec, arguments.to, paths):
        print(f"  {line}")


def _convert_to_standard_output(arguments: argparse.Namespace) -> None:
    """Write only the file to standard output, and what it leaves out to standard error."""
    if len(FILE_NAMES[arguments.to]) > 1 or arguments.json:
        raise UsageError("--output - is for the one file of a format; name a folder for more")
    spec = read_source(arguments.source, arguments)
    with tempfile.TemporaryDirectory() as aside:
        (path,), _ = _convert(arguments, spec, Path(aside) / FILE_NAMES[arguments.to][0])
        write_output(STANDARD_OUTPUT, path.read_bytes())
    print(f"left out: {_left_out(arguments, spec)}", file=sys.stderr)


def _convert(
    arguments: argparse.Namespace, spec: TokenizerSpec, output: Path
) -> tuple[list[Path], bool]:
    try:
        return convert_spec(spec, arguments.to, output, overwrite=arguments.force)
    except FormatError as error:
        raise CommandError(f"{arguments.to} cannot hold this tokenizer: {error}") from error
    except OSError as error:
        raise CommandError(
            f"{output} could not be written ({error.strerror or error}); what was there "
            f"still is; make room, or choose another folder"
        ) from error


def _left_out(arguments: argparse.Namespace, spec: TokenizerSpec) -> str:
    return ", ".join(not_carried(spec, arguments.to)) or "nothing that decides ids"


def _specials(spec: TokenizerSpec) -> str:
    shown = [repr(token.content) for token in spec.added_tokens[:3]]
    if len(spec.added_tokens) > len(shown):
        shown.append(f"{len(spec.added_tokens) - len(shown)} more")
    return f"special tokens {', '.join(shown)}" if shown else "no special tokens"


def _agreement(spec: TokenizerSpec, *, is_same: bool) -> str:
    if is_same:
        return f"same fingerprint, {spec.fingerprint[:16]}"
    return f"same ids for all {len(spec.vocab)} tokens and for texts made to differ"
