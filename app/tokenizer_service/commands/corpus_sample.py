"""`tokenizer corpus sample`: draw documents at random from corpora into one file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tokenizer_core.documents import (
    DEFAULT_FIELD,
    CorpusFormat,
    DocumentSample,
    corpus_file_size,
    find_corpus_files,
)
from tokenizer_service.commands.command_line import CommandError, UsageError, add_command
from tokenizer_service.commands.corpus_options import (
    CHAT,
    add_corpus_format,
    corpus_format_of,
    field_of,
)
from tokenizer_service.commands.outputs import (
    print_json,
    require_folder_of,
    require_other_files,
    write_output,
)
from tokenizer_service.commands.progress import add_quiet, progress_bar

_WRITTEN: Final = (".txt", ".jsonl")


def add_sample(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = add_command(subcommands, run_sample, help="draw documents at random into one file")
    parser.add(
        "inputs FILE",
        "files, addresses (s3://...), or patterns of them in quotes",
        type=str,
        nargs="+",
    )
    parser.add(
        "--fraction FRACTION",
        "fraction of the documents to draw: 0.01 is a hundredth",
        required=True,
    )
    parser.add("--seed SEED", "seed of the draw (default: 0)", default=0)
    parser.add(
        "-o --output FILE",
        "name ending in .txt (a separator after each document) or .jsonl",
        required=True,
    )
    add_corpus_format(parser, may_be_empty=False, conversations=True)
    parser.add("--json", "print the figures as JSON")
    add_quiet(parser)


def run_sample(arguments: argparse.Namespace) -> None:
    """Draw each document of the files with the same probability, and write those drawn to
    one file. The same seed draws the same documents, in whatever order the files come.
    Conversations (--format chat) stay whole records, of Parquet the columns of them.

    examples:
      tokenizer corpus sample 'data/*.jsonl.gz' --fraction 0.01 --seed 7 -o sample.txt
      tokenizer corpus sample 's3://bucket/*.parquet' --fraction 0.001 -o news.jsonl
      tokenizer corpus sample chats.jsonl --format chat --fraction 0.1 -o some-chats.jsonl
      tokenizer train sample.txt --vocab-size 32000 --name from-a-sample
    """
    output: Path = arguments.output
    if not 0 < arguments.fraction <= 1:
        raise UsageError(
            f"--fraction must be above 0 and at most 1 (0.01 is a hundredth), not "
            f"{arguments.fraction:g}"
        )
    if output.suffix not in _WRITTEN:
        raise UsageError(
            f"{output} must end in {' or '.join(_WRITTEN)}, which is how it is written"
        )
    if not arguments.separator:
        raise UsageError("--separator is empty, and all of a file would be one document; name one")
    require_folder_of(output)
    files = find_corpus_files(arguments.inputs)
    require_other_files([output], map(Path, files))
    if arguments.format == CHAT:
        if output.suffix == ".txt":
            raise UsageError(f"conversations are written as JSON lines; {output} ends in .txt")
        corpus_format = corpus_format_of(arguments, files)
    else:
        field = field_of(arguments, files, writes_text=output.suffix == ".txt")
        corpus_format = CorpusFormat(arguments.format, field, arguments.separator)
    total = sum(corpus_file_size(file) for file in files)
    with progress_bar(quiet=arguments.quiet, total=total, desc="sampling", leave=True) as bar:
        sample = DocumentSample(
            files,
            arguments.fraction,
            arguments.seed,
            corpus_format,
            progress=lambda done: bar.update(done - bar.n),
        )
        write_output(output, _render(sample, arguments))
    _print(sample, arguments)


def _render(sample: DocumentSample, arguments: argparse.Namespace) -> Iterator[bytes]:
    if arguments.format == CHAT:  # a document is a whole record
        for text, is_last in sample:
            yield f"{text}\n".encode() if is_last else text.encode()
    elif arguments.output.suffix == ".jsonl":
        yield from _as_json_lines(sample)
    else:
        yield from _as_text(sample, arguments.separator)
    if not sample.n_documents:  # before the output file appears
        raise CommandError("the files have no document; check the paths")
    if not sample.n_drawn:
        raise CommandError(
            f"no document of {sample.n_documents:,} was drawn; give a larger --fraction"
        )


def _as_text(pieces: DocumentSample, separator: str) -> Iterator[bytes]:
    before = ""  # the end of the previous piece, in which a separator may begin
    for text, is_last in pieces:
        known = before + text
        # Also refuse a text whose end makes the separator match early: `xa`, then `aa`.
        if 0 <= (known + separator if is_last else known).find(separator) < len(known):
            raise CommandError(
                f"a document holds {separator!r:.60}, which ends documents in plain text; write "
                f"to a name that ends in .jsonl, or name another --separator"
            )
        before = "" if is_last else known[len(known) - len(separator) + 1 :]
        yield (text + separator if is_last else text).encode()


def _as_json_lines(pieces: DocumentSample) -> Iterator[bytes]:
    start = first = f'{{"{DEFAULT_FIELD}": "'
    for text, is_last in pieces:
        rendered = json.dumps(text, ensure_ascii=False)[1:-1]
        yield (start + rendered + ('"}\n' if is_last else "")).encode()
        start = first if is_last else ""


def _print(sample: DocumentSample, arguments: argparse.Namespace) -> None:
    size = arguments.output.stat().st_size
    if arguments.json:
        drawn = {"documents": sample.n_drawn, "documents_read": sample.n_documents}
        print_json(drawn | {"bytes": size, "share": arguments.fraction, "seed": arguments.seed})
        return
    print(
        f"{arguments.output}: {sample.n_drawn:,} of {sample.n_documents:,} documents, "
        f"{size:,} bytes, drawn with seed {arguments.seed}"
    )
