"""`tokenizer shrink`: publish the part of a tokenizer that a text uses."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizer_core.documents import corpus_file_names, corpus_file_size, open_documents
from tokenizer_core.registry.versions import checked_name
from tokenizer_core.training import shrink, used_ids
from tokenizer_service.commands.command_line import (
    CommandError,
    add_artifacts_dir,
    add_command,
    open_store,
    publish,
)
from tokenizer_service.commands.corpus_options import (
    add_corpus_format,
    corpus_format_of,
    files_in_order,
)
from tokenizer_service.commands.counting_options import INPUTS_HELP
from tokenizer_service.commands.outputs import add_id_maps, check_outputs, write_id_map
from tokenizer_service.commands.progress import add_quiet, progress_bar
from tokenizer_service.commands.tokenizer_arguments import TOKENIZER, load_one, named_files


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = add_command(subcommands, run_shrink)
    parser.add("tokenizer TOKENIZER", TOKENIZER)
    parser.add("inputs INPUT", INPUTS_HELP, nargs="+", type=str)
    parser.add("--name NAME", "name of the published tokenizer", required=True)
    add_id_maps(parser)
    add_corpus_format(parser)
    add_quiet(parser)
    add_artifacts_dir(parser)


def run_shrink(arguments: argparse.Namespace) -> None:
    """Keep the tokens of a tokenizer that a text uses, and those that its merges pass
    through, all bytes and added tokens, and publish the result. On that text it gives the
    same tokens, under new ids.

    examples:
      tokenizer shrink gpt2 'law/*.jsonl.gz' --name gpt2-law --id-map ids.npy
      tokenizer shrink starter news.txt --name small --embedding-parts parts.npy
    """
    files = files_in_order(arguments.inputs)
    corpus_format = corpus_format_of(arguments, files)
    read: list[Path | str] = [*files, *named_files([arguments.tokenizer])]
    check_outputs([arguments.id_map, arguments.embedding_parts], read)
    store = open_store(arguments)
    store.check_may_publish(checked_name(arguments.name))
    tokenizer, _, label = load_one(arguments, arguments.tokenizer)
    sources: list[dict[str, Any]] = []
    total = sum(map(corpus_file_size, files))
    with progress_bar(quiet=arguments.quiet, total=total, desc="encoding") as bar:

        def pieces() -> Iterator[tuple[str, bool]]:
            for file, name in zip(files, corpus_file_names(files), strict=True):
                done = bar.n
                with open_documents(file, corpus_format, hash_source=True) as reader:
                    for piece in reader:
                        yield piece
                        bar.update(done + reader.position_bytes - bar.n)
                    size = reader.size_bytes
                    sources.append({"name": name, "size_bytes": size, "sha256": reader.sha256})

        used = used_ids(tokenizer, pieces())
    if not used:
        raise CommandError("the text is empty, so it uses no token; name one with text")
    spec, id_map = shrink(tokenizer.spec, used)
    _, said = publish(store, spec, name=arguments.name, provenance=sources)
    write_id_map(arguments, id_map)
    print(
        f"{len(spec.vocab)} of the {tokenizer.vocab_size} tokens of {label}: the text uses "
        f"{len(used)}"
    )
    print(said)
