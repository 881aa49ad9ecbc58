"""`tokenizer counts make`, `extend`, `merge`, `prune`, `inspect`: counts of pre-tokens as files."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from tokenizer_core.blobs.locks import locked_folder
from tokenizer_core.splitting.patterns import SplitPattern, resolve_pattern
from tokenizer_core.training import (
    PretokenCounts,
    TrainingProgress,
    combine_counts,
    count_pretokens,
    prune_counts,
)
from tokenizer_service.commands.command_line import UsageError, parse_place, require_files
from tokenizer_service.commands.corpus_options import (
    add_bad_documents,
    add_corpus_format,
    corpus_format_of,
    files_in_order,
    max_bad_of,
)
from tokenizer_service.commands.counting_options import (
    INPUTS_HELP,
    add_counting_options,
    add_memory_options,
    check_counting_options,
    describe_pruning,
    special_tokens_of,
)
from tokenizer_service.commands.outputs import print_json, require_folder_of, require_other_files
from tokenizer_service.commands.progress import ProgressBars, add_quiet
from tokenizer_service.commands.run_options import add_run_options, check_run_options, open_executor

_WEIGHT: Final = re.compile(r"[0-9]{1,18}(?:[/.][0-9]{1,18})?")


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand and its own subcommands."""
    counts = subcommands.add_parser(
        "counts",
        description=(
            "Count the pre-tokens of a corpus once and keep the counts in a file. tokenizer train\n"
            "--from-counts learns from them exactly what it learns from the text. A file of\n"
            "counts may also be at an address: s3://bucket/news.counts."
        ),
        epilog=(
            "examples:\n"
            "  tokenizer counts make news.txt --output news.counts\n"
            "  tokenizer counts extend news.counts more-news.txt\n"
            "  tokenizer counts merge news.counts=2 code.counts=1/3 --output mixed.counts\n"
            "  tokenizer counts prune mixed.counts --min-count 2 --output pruned.counts\n"
            "  tokenizer train --from-counts mixed.counts --vocab-size 8000,32000 --name mixed"
        ),
    )
    below = counts.add_subparsers(dest="counts_command", metavar="COMMAND", required=True)
    _add_make(below)
    _add_extend(below)
    _add_merge(below)
    _add_prune(below)
    _add_inspect(below)


def _add_make(subcommands: Any) -> None:
    make = subcommands.add_parser(
        "make",
        help="count corpus files",
        description="Count the pre-tokens of text, JSONL or Parquet, as tokenizer train does.",
        epilog=(
            "examples:\n"
            "  tokenizer counts make news.txt --output news.counts\n"
            "  tokenizer counts make data/*.jsonl.gz --field story --output stories.counts\n"
            "  tokenizer counts make *.txt --pattern cl100k --no-special-token --output x.counts\n"
            "  tokenizer counts make s3://corpora/1.txt s3://corpora/2.txt --executor ray \\\n"
            "      --ray-address head:6379 --checkpoint-dir s3://runs/news --output news.counts"
        ),
    )
    make.add_argument("inputs", nargs="+", type=parse_place, metavar="INPUT", help=INPUTS_HELP)
    _add_output(make)
    add_counting_options(make)
    add_run_options(make)
    _add_json(make)
    add_quiet(make)
    make.set_defaults(run=run_make)


def _add_extend(subcommands: Any) -> None:
    extend = subcommands.add_parser(
        "extend",
        help="count more text files into counts",
        description=(
            "Count more files with the options of the existing counts and add them. The file of\n"
            "counts is replaced once all files are counted."
        ),
        epilog="example:\n  tokenizer counts extend news.counts more-news.txt",
    )
    extend.add_argument("counts", type=parse_place, metavar="COUNTS", help="a file of counts")
    extend.add_argument("inputs", nargs="+", type=parse_place, metavar="INPUT", help=INPUTS_HELP)
    add_corpus_format(extend, separator=None)
    add_bad_documents(extend)
    extend.add_argument(
        "--workers", type=int, metavar="N", help="processes that count (default: all processors)"
    )
    add_memory_options(extend)
    _add_json(extend)
    add_quiet(extend)
    extend.set_defaults(run=run_extend, special_token=None, no_special_token=False)


def _add_merge(subcommands: Any) -> None:
    merge = subcommands.add_parser(
        "merge",
        help="add counts, each with a weight",
        description=(
            "Add several counts. A weight is a whole number, a fraction or a decimal. Weights are\n"
            "scaled to the smallest whole numbers in the same ratio, so nothing is rounded."
        ),
        epilog=(
            "examples:\n"
            "  tokenizer counts merge a.counts b.counts --output both.counts\n"
            "  tokenizer counts merge news.counts=2 code.counts=0.5 --output mixed.counts"
        ),
    )
    merge.add_argument(
        "counts", nargs="+", type=parse_weighted, metavar="COUNTS[=WEIGHT]", help="files of counts"
    )
    _add_output(merge)
    _add_json(merge)
    merge.set_defaults(run=run_merge)


def _add_prune(subcommands: Any) -> None:
    prune = subcommands.add_parser(
        "prune",
        help="leave out rare pre-tokens, and bound the effect",
        description=(
            "Leave out rare pre-tokens, which are most of those that learning holds in memory.\n"
            "The merges may then differ. The file records the bound: how many times less often\n"
            "than the best merge a learned merge may occur in the whole text."
        ),
        epilog=(
            "example:\n  tokenizer counts prune news.counts --min-count 2 --output pruned.counts"
        ),
    )
    prune.add_argument("counts", type=parse_place, metavar="COUNTS", help="a file of counts")
    prune.add_argument(
        "--min-count",
        type=int,
        required=True,
        metavar="N",
        help="keep pre-tokens that occur at least N times (2 or more), weights included",
    )
    _add_output(prune)
    _add_json(prune)
    prune.set_defaults(run=run_prune)


def _add_inspect(subcommands: Any) -> None:
    inspect = subcommands.add_parser(
        "inspect",
        help="show the content and the sources of a file of counts",
        description="Check a file of counts and show its content.",
        epilog="example:\n  tokenizer counts inspect news.counts",
    )
    inspect.add_argument("counts", type=parse_place, metavar="COUNTS", help="a file of counts")
    _add_json(inspect)
    inspect.set_defaults(run=run_inspect)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=parse_place, required=True, metavar="FILE", help="file to write"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def parse_weighted(text: str) -> tuple[Path | str, Fraction]:
    """Parse `FILE=WEIGHT`, or `FILE` with the weight 1.

    Example:
        >>> parse_weighted("news.counts=1/3")[1], str(parse_weighted("a=b.counts")[0])
        (Fraction(1, 3), 'a=b.counts')
    """
    path, _, weight = text.rpartition("=")
    if not path or not _WEIGHT.fullmatch(weight):
        if path and Path(path).is_file() and not Path(text).exists():
            raise argparse.ArgumentTypeError(
                f"the weight of {text!r} is no whole number and no fraction, such as 2 or 1/3"
            )
        return parse_place(text), Fraction(1)
    try:
        parsed = Fraction(weight)
    except ZeroDivisionError:
        parsed = Fraction(0)
    if not parsed:
        raise argparse.ArgumentTypeError(f"the weight of {text!r} must be above 0")
    return parse_place(path), parsed


def run_make(arguments: argparse.Namespace) -> None:
    """Count corpora, write the counts, and print a summary."""
    check_counting_options(arguments)
    check_run_options(arguments)
    files = files_in_order(arguments.inputs)
    require_folder_of(arguments.output)
    require_other_files([arguments.output], files)
    pattern = resolve_pattern("gpt2" if arguments.pattern is None else arguments.pattern)
    special_tokens = special_tokens_of(arguments)
    if arguments.checkpoint_dir is not None:
        counts = _count_in_run(arguments, files, pattern, special_tokens)
    else:
        counts = _count(arguments, files, pattern, special_tokens)
        counts.save(arguments.output)
    _print(counts, arguments.output, arguments)


def run_extend(arguments: argparse.Namespace) -> None:
    """Count new files with the pattern of existing counts, and replace those with the sum."""
    check_counting_options(arguments)
    require_files([arguments.counts])
    files = files_in_order(arguments.inputs)
    before = PretokenCounts.load(arguments.counts)
    pattern, special_tokens = before.pattern, before.special_tokens
    del before  # counting may need its memory
    more = _count(arguments, files, pattern, special_tokens)
    with _only_writer(arguments.counts):
        # Another command may have extended the file while this one counted.
        counts = combine_counts([(PretokenCounts.load(arguments.counts), 1), (more, 1)])
        counts.save(arguments.counts)
    _print(replace(counts, bad_documents=more.bad_documents), arguments.counts, arguments)


def _only_writer(counts: Path | str) -> AbstractContextManager[None]:
    """Let no other command extend a file of counts; at an address (`str`) others can."""
    return locked_folder(counts.resolve().parent) if isinstance(counts, Path) else nullcontext()


def run_merge(arguments: argparse.Namespace) -> None:
    """Add weighted counts, write the sum, and print a summary."""
    require_files([path for path, _ in arguments.counts])
    require_folder_of(arguments.output)
    require_other_files([arguments.output], [path for path, _ in arguments.counts])
    counts = combine_counts(
        [(PretokenCounts.load(path), weight) for path, weight in arguments.counts]
    )
    counts.save(arguments.output)
    _print(counts, arguments.output, arguments)


def run_prune(arguments: argparse.Namespace) -> None:
    """Drop rare pre-tokens, write the rest, and print the effect."""
    if arguments.min_count < 2:
        raise UsageError("--min-count must be at least 2: everything occurs once")
    require_files([arguments.counts])
    require_folder_of(arguments.output)
    require_other_files([arguments.output], [arguments.counts])
    before = PretokenCounts.load(arguments.counts, on_disk=True)
    counts = prune_counts(before, min_count=arguments.min_count)
    counts.save(arguments.output)
    _print(counts, arguments.output, arguments)


def run_inspect(arguments: argparse.Namespace) -> None:
    """Read counts, which verifies them, and print a summary."""
    require_files([arguments.counts])
    counts = PretokenCounts.load(arguments.counts)
    _print(counts, arguments.counts, arguments)


def _count(
    arguments: argparse.Namespace,
    files: Sequence[str],
    pattern: SplitPattern,
    special_tokens: Sequence[str],
) -> PretokenCounts:
    with ProgressBars(quiet=arguments.quiet) as bars:
        return count_pretokens(
            files,
            pattern=pattern,
            special_tokens=special_tokens,
            num_workers=arguments.workers,
            max_memory_bytes=arguments.memory_limit,
            scratch_folder=arguments.temp_dir,
            corpus_format=corpus_format_of(arguments, files),
            max_bad=max_bad_of(arguments),
            progress=lambda done, total: bars.show(TrainingProgress("count", done, total)),
        )


def _count_in_run(
    arguments: argparse.Namespace,
    files: Sequence[str],
    pattern: SplitPattern,
    special_tokens: Sequence[str],
) -> PretokenCounts:
    from tokenizer_core.distributed import count_distributed  # most commands do not need it

    with ExitStack() as stack:
        output = arguments.output
        if not isinstance(output, Path):
            folder = tempfile.TemporaryDirectory(dir=arguments.temp_dir)
            output = Path(stack.enter_context(folder), "counts")
        executor = stack.enter_context(open_executor(arguments))
        bars = stack.enter_context(ProgressBars(quiet=arguments.quiet))
        bad = count_distributed(
            files,
            pattern=pattern,
            special_tokens=special_tokens,
            storage=arguments.checkpoint_dir,
            executor=executor,
            output=output,
            max_memory_bytes=arguments.memory_limit,
            scratch_folder=arguments.temp_dir,
            corpus_format=corpus_format_of(arguments, files),
            max_bad=max_bad_of(arguments),
            progress=lambda *reached: bars.show(TrainingProgress(*reached)),
        )
        counts = PretokenCounts.load(output)
        if output is not arguments.output:
            counts.save(arguments.output)
    return replace(counts, bad_documents=bad)


def _print(counts: PretokenCounts, path: Path | str, arguments: argparse.Namespace) -> None:
    if arguments.json:
        bad = {"bad_documents": counts.bad_documents.to_fields()} if "skip_bad" in arguments else {}
        print_json(_figures(counts) | bad)
        return
    print(
        f"{path}: {counts.n_pre_tokens:,} pre-tokens, {len(counts.counts):,} distinct, of "
        f"{counts.n_bytes:,} bytes, {counts.n_documents:,} documents"
    )
    specials = ", ".join(map(repr, counts.special_tokens)) or "none"
    print(f"  pattern  {counts.pattern.name} ({counts.unicode_tables}); special tokens {specials}")
    for source, weight in zip(counts.sources, counts.source_weights, strict=True):
        times = f"{weight} times " if weight > 1 else ""
        name = Path(source.path).name
        if not name.isprintable():  # a name from a foreign file may hold terminal escapes
            name = ascii(name)
        print(f"  corpus   {times}{name}, {source.size_bytes:,} bytes, sha256 {source.sha256[:16]}")
    if counts.pruning is not None:
        print(f"  pruned   {describe_pruning(counts.pruning, counts.n_bytes)}")
    if counts.bad_documents.count:
        print(f"  left out {counts.bad_documents}")
    if counts.n_spills:
        print(f"  memory   the ceiling was reached {counts.n_spills} times; the disk took the rest")


def _figures(counts: PretokenCounts) -> dict[str, Any]:
    sources = zip(counts.sources, counts.source_weights, strict=True)
    return {
        "pattern": counts.pattern.fields(),
        "unicode_tables": counts.unicode_tables,
        "special_tokens": list(counts.special_tokens),
        "n_bytes": counts.n_bytes,
        "n_documents": counts.n_documents,
        "n_pre_tokens": counts.n_pre_tokens,
        "n_distinct_pre_tokens": len(counts.counts),
        "pruning": None if counts.pruning is None else asdict(counts.pruning),
        "sources": [asdict(source) | {"weight": weight} for source, weight in sources],
    }
