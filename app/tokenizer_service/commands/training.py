"""`tokenizer train`: corpus files to a published tokenizer, with progress on the terminal."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

from tokenizer_core.documents import corpus_file_names
from tokenizer_core.errors import counted
from tokenizer_core.registry import ArtifactRef
from tokenizer_core.registry.versions import checked_name
from tokenizer_core.spec import TokenizerSpec
from tokenizer_core.splitting.patterns import SplitPattern, resolve_pattern
from tokenizer_core.training import (
    IdMap,
    PretokenCounts,
    TrainingOptions,
    TrainingResult,
    VocabularyOptions,
    train,
    train_from_counts,
)
from tokenizer_core.training.vocabulary_plan import (
    LLAMA3_RESERVED_NAME,
    plan_extension,
    plan_vocabulary,
)
from tokenizer_service.commands.command_line import (
    CommandError,
    CommandParser,
    UsageError,
    add_artifacts_dir,
    add_command,
    open_store,
    parse_count,
    parse_place,
    print_how_to_serve,
    print_warnings,
    publish,
    require_files,
)
from tokenizer_service.commands.corpus_options import (
    corpus_format_of,
    files_in_order,
    max_bad_of,
    separator_warnings,
)
from tokenizer_service.commands.counting_options import (
    INPUTS_HELP,
    add_counting_options,
    check_counting_options,
    describe_pruning,
    special_tokens_of,
)
from tokenizer_service.commands.outputs import (
    STANDARD_OUTPUT,
    add_id_maps,
    add_reports,
    check_outputs,
    write_id_map,
    write_output,
)
from tokenizer_service.commands.progress import ProgressBars, add_quiet
from tokenizer_service.commands.tokenizer_arguments import load_one, named_files

_REPORT_SCHEMA: Final = "tokenizer-training/1"
_OF_COUNTING: Final = (
    *("format", "field", "separator", "skip_bad", "max_bad"),
    *("workers", "memory_limit", "temp_dir"),
)
"""Options that have no effect with --from-counts."""
_OF_NEW_TOKENIZERS: Final = (
    "special_token",
    "no_special_token",
    "pattern",
    "seed_token",
    "seed_file",
)


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = add_command(subcommands, run_train)
    parser.add("inputs INPUT", INPUTS_HELP, nargs="*", type=parse_place)
    parser.add(
        "--vocab-size N[,N...]",
        "all entries: 256 bytes, special, learned and reserved tokens (default: 10000)",
        type=_parse_sizes,
        default=[10_000],
    )
    add_counting_options(parser)
    _add_vocabulary_options(parser)
    parser.add_argument(
        "--name", default="trained", help="name to publish it under (default: trained)"
    )
    parser.add(
        "--extend TOKENIZER",
        "keep all of this tokenizer, with its pattern and special tokens, and learn more tokens: "
        "NAME or NAME@VERSION of a published one, a preset, or a path",
    )
    add_id_maps(parser)
    parser.add("--save-counts FILE", "write the counts of the corpus", type=parse_place)
    parser.add("--from-counts FILE", "train from saved counts instead of files", type=parse_place)
    parser.add("--promote", "promote the result; running servers switch to it")
    add_reports(parser, html="a report as a page, with the curve of sizes")
    add_quiet(parser)
    add_artifacts_dir(parser)


def _add_vocabulary_options(parser: CommandParser) -> None:
    parser.add("--min-frequency N", "ignore pairs that occur less often (default: 1)", default=1)
    parser.add("--max-token-length BYTES", "learn no token longer than this", type=int)
    parser.add(
        "--superwords-from N",
        "SuperBPE: from this size on, learn tokens that join words of a line",
    )
    parser.add(
        "--seed-token TEXT",
        "text that becomes one token before any is learned; repeat for more, in order",
        action="append",
        default=[],
    )
    parser.add("--seed-file FILE", "more seed tokens, one per line")
    parser.add(
        "--reserved N", "number of special tokens for later use, counted in --vocab-size", default=0
    )
    parser.add(
        "--reserved-name TOKEN",
        f"their name, with {{}} for the number (default: {LLAMA3_RESERVED_NAME})",
        default=LLAMA3_RESERVED_NAME,
    )
    parser.add(
        "--pad-to-multiple N",
        "add reserved tokens until the vocabulary is a multiple of N, for instance 128",
        default=1,
    )


def _parse_sizes(text: str) -> list[int]:
    """Parse `8000,16k` into ascending numbers without duplicates."""
    sizes = sorted(set(map(parse_count, text.split(","))))
    if len(sizes) > 1 and sizes[0] < 256:  # as of 10,000
        raise argparse.ArgumentTypeError(
            f"{text} is several sizes, and {sizes[0]} is too small for one; commas stand between "
            f"sizes, and not between thousands: {text.replace(',', '')}"
        )
    return sizes


def run_train(arguments: argparse.Namespace) -> None:
    """Learn a byte-level BPE tokenizer from text, JSONL or Parquet files and publish it as
    an artifact. The result is the same for any number of workers. Text is read as it
    is; a special token in it ends a document.

    examples:
      tokenizer train news.txt --vocab-size 10000 --name news
      tokenizer train corpora/*.txt --vocab-size 32000 --workers 8 --promote
      tokenizer train stories.jsonl.gz more.parquet --field story --vocab-size 32000
      tokenizer train news.txt --vocab-size 10000 --save-counts news.counts
      tokenizer train --from-counts news.counts --vocab-size 50000 --name news50k
      tokenizer train news.txt --vocab-size 8000,16000,32000 --html news.html
      tokenizer train news.txt --min-frequency 2 --reserved 16 --pad-to-multiple 128
      tokenizer train news.txt --vocab-size 50000 --superwords-from 40000
      tokenizer train news.txt --extend gpt2 --vocab-size 52000 --name gpt2-news

    One run trains several sizes and publishes them as NAME-SIZE. Counting a corpus is
    most of the work: save the counts to train again without it.
    """
    files = _check(arguments)
    store = open_store(arguments)
    sizes = arguments.vocab_size
    names = {
        size: arguments.name if len(sizes) == 1 else f"{arguments.name}-{size}" for size in sizes
    }
    for name in names.values():
        store.check_may_publish(checked_name(name))
    base = None
    if arguments.extend:
        base = load_one(arguments, arguments.extend)[0].spec
    with ProgressBars(quiet=arguments.quiet) as bars:
        result = _learn(arguments, files, base, bars)
    if arguments.save_counts and not arguments.from_counts:
        result.counts.save(arguments.save_counts)
    refs: list[ArtifactRef] = []
    reports: dict[str, dict[str, Any]] = {}
    is_told = STANDARD_OUTPUT not in (arguments.json, arguments.html)
    for size, name in names.items():
        cut = result.at_size(size)
        ref, said = publish(
            store,
            cut.spec,
            name=name,
            training=cut.report.to_dict(),
            provenance=_provenance(result.counts),
        )
        refs.append(ref)
        reports[str(ref)] = cut.report.to_dict()
        if is_told:
            _report(cut)
            print(said)
        print_warnings(*cut.warnings)
    n_documents, n_files = result.counts.n_documents, len(result.counts.sources)
    print_warnings(*separator_warnings(arguments, n_documents, n_files))
    _write_reports(arguments, reports)
    if base is not None:
        write_id_map(arguments, IdMap.of_extension(base, result.spec, result.merges))
    if arguments.promote:
        store.promote(refs[-1])
    if is_told:
        _print_what_to_do(refs[-1], is_served=arguments.promote)


def _print_what_to_do(ref: ArtifactRef, *, is_served: bool) -> None:
    if is_served:
        print("it now serves; running services follow within a second")
        return
    print(f"try it:    tokenizer encode --tokenizer {ref.name} 'some text'")
    print_how_to_serve(ref)


def _write_reports(arguments: argparse.Namespace, reports: dict[str, dict[str, Any]]) -> None:
    if arguments.json:
        rendered = json.dumps({"schema": _REPORT_SCHEMA, "runs": reports}, indent=1)
        write_output(arguments.json, f"{rendered}\n".encode())
    if arguments.html:
        # Imported here because most runs write no page.
        from tokenizer_core.evaluation.pages import render_training_page

        by_name = {ref.partition("@")[0]: report for ref, report in reports.items()}
        write_output(arguments.html, render_training_page(by_name).encode())


def _provenance(counts: PretokenCounts) -> list[dict[str, Any]]:
    weights = [{"weight": weight} for weight in counts.weights] or [{}] * len(counts.sources)
    names = corpus_file_names([source.path for source in counts.sources])
    return [
        {"name": name, "size_bytes": s.size_bytes, "sha256": s.sha256, **weight}
        for name, s, weight in zip(names, counts.sources, weights, strict=True)
    ]


def _check(arguments: argparse.Namespace) -> list[str]:
    """Check the options and return the corpus files, each once."""
    if arguments.from_counts:
        if arguments.inputs:
            raise UsageError("--from-counts takes the place of the input files; leave them out")
        if arguments.save_counts:
            raise UsageError("--save-counts with --from-counts would only copy the file")
        given = [name for name in _OF_COUNTING if getattr(arguments, name) is not None]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(
                f"--from-counts counts nothing; leave out {options}, or give them to counts make"
            )
    elif not arguments.inputs:
        raise UsageError("no input; name one or more files")
    if arguments.superwords_from is not None and (arguments.from_counts or arguments.save_counts):
        raise UsageError("--superwords-from counts text twice; leave out counts as files")
    check_counting_options(arguments)
    if arguments.reserved_name != LLAMA3_RESERVED_NAME and not (
        arguments.reserved or arguments.pad_to_multiple > 1
    ):
        raise UsageError("--reserved-name names the tokens of --reserved or --pad-to-multiple")
    maps = [arguments.id_map, arguments.embedding_parts]
    if arguments.extend:
        given = [name for name in _OF_NEW_TOKENIZERS if getattr(arguments, name)]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(f"--extend keeps what the tokenizer has; leave out {options}")
        if len(arguments.vocab_size) > 1 and maps != [None, None]:
            raise UsageError("--id-map and --embedding-parts are of one size; give one")
    elif maps != [None, None]:
        raise UsageError("--id-map and --embedding-parts belong to --extend")
    if arguments.promote and len(arguments.vocab_size) > 1:
        raise UsageError("only one size can serve; omit --promote and promote one afterwards")
    others = [path for path in (arguments.seed_file, arguments.from_counts) if path is not None]
    require_files(others)
    files = [] if arguments.from_counts else files_in_order(arguments.inputs)
    read = [*files, *others, *(named_files([arguments.extend]) if arguments.extend else [])]
    check_outputs([arguments.save_counts, arguments.html, arguments.json, *maps], read)
    return files


def _learn(
    arguments: argparse.Namespace,
    files: Sequence[str],
    base: TokenizerSpec | None,
    bars: ProgressBars,
) -> TrainingResult:
    if arguments.from_counts:
        is_asked = arguments.special_token or arguments.no_special_token
        asked = special_tokens_of(arguments) if is_asked else None
        counts = PretokenCounts.load(
            arguments.from_counts, pattern=arguments.pattern, special_tokens=asked
        )
        _check_smallest(arguments, counts.special_tokens, counts.pattern, base)
        return train_from_counts(
            counts,
            arguments.vocab_size[-1],
            options=_options(arguments),
            extend=base,
            progress=bars.show,
        )
    special_tokens: list[str] = []
    pattern: SplitPattern | None = None
    if base is None:
        special_tokens = special_tokens_of(arguments)
        pattern = resolve_pattern("gpt2" if arguments.pattern is None else arguments.pattern)
    _check_smallest(arguments, special_tokens, pattern, base)
    return train(
        files,
        TrainingOptions(
            vocab_size=arguments.vocab_size[-1],
            special_tokens=special_tokens,
            pattern=pattern,
            extend=base,
            num_workers=arguments.workers,
            vocabulary=_options(arguments),
            max_memory_bytes=arguments.memory_limit,
            scratch_folder=arguments.temp_dir,
            corpus_format=corpus_format_of(arguments, files),
            max_bad=max_bad_of(arguments),
        ),
        progress=bars.show,
    )


def _check_smallest(
    arguments: argparse.Namespace,
    special_tokens: Sequence[str],
    pattern: SplitPattern | None,
    base: TokenizerSpec | None,
) -> None:
    """Raise VocabSizeError before training, not after the largest size is learned."""
    options = _options(arguments)
    if base is not None:
        plan = plan_extension(base, options)
    elif pattern is not None:
        plan = plan_vocabulary(special_tokens, pattern, options)
    plan.n_merges(arguments.vocab_size[0])


def _options(arguments: argparse.Namespace) -> VocabularyOptions:
    seeds = list(arguments.seed_token)
    if arguments.seed_file is not None:
        try:
            # Editors on Windows begin a file with a byte order mark.
            text = arguments.seed_file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise CommandError(
                f"{arguments.seed_file} is not UTF-8 at byte {error.start}; convert it first"
            ) from None
        seeds += [line for line in text.split("\n") if line]
    return VocabularyOptions(
        min_frequency=arguments.min_frequency,
        max_token_length=arguments.max_token_length,
        seed_tokens=tuple(seeds),
        n_reserved=arguments.reserved,
        reserved_name=arguments.reserved_name,
        pad_to_multiple=arguments.pad_to_multiple,
        superwords_from=arguments.superwords_from,
    )


def _report(result: TrainingResult) -> None:
    report = result.report
    text = "this text" if report.pruning is None else "the text that pruning kept"
    print(
        f"{report.vocab_size:,} tokens ({counted(report.n_merges, 'merge')}) from "
        f"{report.n_bytes:,} bytes, {counted(report.n_documents, 'document')}, "
        f"{counted(report.n_distinct_pre_tokens, 'distinct pre-token')}"
    )
    longest = f"; longest token {report.longest_token_bytes} bytes: {report.longest_token_text!r}"
    longest = longest if report.n_merges else ""
    print(f"{report.bytes_per_token:.3f} bytes per token on {text}{longest}")
    print(
        f"{report.engine} engine: "
        f"{report.seconds_counting:.1f} s counting with {counted(report.num_workers, 'worker')}, "
        f"{report.seconds_learning:.1f} s learning, "
        f"peak memory {report.peak_memory_bytes / 1e6:,.0f} MB with the workers"
    )
    if report.pruning:
        print(describe_pruning(report.pruning, report.n_bytes))
