"""`tokenizer counts make`, `merge`, `prune`, `inspect`: counts of pre-tokens as files."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from tokenizer_core.documents import corpus_file_names
from tokenizer_core.errors import counted
from tokenizer_core.splitting.patterns import SplitPattern, resolve_pattern
from tokenizer_core.training import (
    PretokenCounts,
    TrainingProgress,
    combine_counts,
    count_pretokens,
    prune_counts,
)
from tokenizer_service.commands.command_line import (
    CommandParser,
    UsageError,
    add_command,
    add_group,
    parse_place,
    print_warnings,
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
from tokenizer_service.commands.outputs import print_json, require_folder_of, require_other_files
from tokenizer_service.commands.progress import ProgressBars, add_quiet
from tokenizer_service.commands.run_options import add_run_options, check_run_options, open_executor

_WEIGHT: Final = re.compile(r"[0-9]{1,18}(?:[/.][0-9]{1,18})?")


def add_parsers(subcommands: Any) -> None:
    """Count the pre-tokens of a corpus once and keep the counts in a file. tokenizer train
    --from-counts learns from them exactly what it learns from the text. A file of
    counts may also be at an address: s3://bucket/news.counts.

    examples:
      tokenizer counts make news.txt --output news.counts
      tokenizer counts merge news.counts=2 code.counts=1/3 --output mixed.counts
      tokenizer counts prune mixed.counts --min-count 2 --output pruned.counts
      tokenizer train --from-counts mixed.counts --vocab-size 8000,32000 --name mixed
    """
    below = add_group(subcommands, "counts", add_parsers)

    make = add_command(below, run_make, help="count corpus files")
    make.add("inputs INPUT", INPUTS_HELP, nargs="+", type=parse_place)
    _add_output(make)
    add_counting_options(make)
    add_run_options(make)
    _add_json(make)
    add_quiet(make)

    merge = add_command(below, run_merge, help="add counts, each with a weight")
    merge.add("counts COUNTS[=WEIGHT]", "files of counts", nargs="+", type=parse_weighted)
    _add_output(merge)
    _add_json(merge)

    about = "leave out rare pre-tokens, and bound the effect"
    prune = add_command(below, run_prune, help=about)
    prune.add("counts COUNTS", "a file of counts", type=parse_place)
    about = "keep pre-tokens that occur at least N times (2 or more), weights included"
    prune.add("--min-count N", about, required=True)
    _add_output(prune)
    _add_json(prune)

    about = "show the content and the sources of a file of counts"
    inspect = add_command(below, run_inspect, help=about)
    inspect.add("counts COUNTS", "a file of counts", type=parse_place)
    _add_json(inspect)


def _add_output(parser: CommandParser) -> None:
    parser.add("-o --output FILE", "file to write", type=parse_place, required=True)


def _add_json(parser: CommandParser) -> None:
    parser.add("--json", "print the figures as JSON")


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
    r"""Count the pre-tokens of text, JSONL or Parquet, as tokenizer train does.

    examples:
      tokenizer counts make news.txt --output news.counts
      tokenizer counts make data/*.jsonl.gz --field story --output stories.counts
      tokenizer counts make *.txt --pattern cl100k --no-special-token --output x.counts
      tokenizer counts make s3://corpora/1.txt s3://corpora/2.txt --executor ray \
          --ray-address head:6379 --checkpoint-dir s3://runs/news --output news.counts
    """
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
    print_warnings(*separator_warnings(arguments, counts.n_documents, len(files)))


def run_merge(arguments: argparse.Namespace) -> None:
    """Add several counts. A weight is a whole number, a fraction or a decimal. Weights are
    scaled to the smallest whole numbers in the same ratio, so nothing is rounded.

    examples:
      tokenizer counts merge a.counts b.counts --output both.counts
      tokenizer counts merge news.counts=2 code.counts=0.5 --output mixed.counts
    """
    require_files([path for path, _ in arguments.counts])
    require_folder_of(arguments.output)
    require_other_files([arguments.output], [path for path, _ in arguments.counts])
    counts = combine_counts(
        [(PretokenCounts.load(path), weight) for path, weight in arguments.counts]
    )
    counts.save(arguments.output)
    _print(counts, arguments.output, arguments)


def run_prune(arguments: argparse.Namespace) -> None:
    """Leave out rare pre-tokens, which are most of those that learning holds in memory.
    The merges may then differ. The file records the bound: how many times less often
    than the best merge a learned merge may occur in the whole text.

    example:
      tokenizer counts prune news.counts --min-count 2 --output pruned.counts
    """
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
    """Check a file of counts and show its content.

    example:
      tokenizer counts inspect news.counts
    """
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
        f"{path}: {counted(counts.n_pre_tokens, 'pre-token')}, {len(counts.counts):,} distinct, "
        f"of {counts.n_bytes:,} bytes, {counted(counts.n_documents, 'document')}"
    )
    specials = ", ".join(map(repr, counts.special_tokens)) or "none"
    print(f"  pattern  {counts.pattern.name} ({counts.unicode_tables}); special tokens {specials}")
    names = corpus_file_names([source.path for source in counts.sources])
    for name, source, weight in zip(names, counts.sources, counts.source_weights, strict=True):
        times = f"{weight} times " if weight > 1 else ""
        if not name.isprintable():  # a name from a foreign file may hold terminal escapes
            name = ascii(name)
        print(f"  corpus   {times}{name}, {source.size_bytes:,} bytes, sha256 {source.sha256[:16]}")
    if counts.pruning is not None:
        print(f"  pruned   {describe_pruning(counts.pruning, counts.n_bytes)}")
    if counts.bad_documents.count:
        print(f"  left out {counts.bad_documents}")
    if counts.n_spills:
        times = counted(counts.n_spills, "time")
        print(f"  memory   the ceiling was reached {times}; the disk took the rest")


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
