"""`tokenizer train`: corpus files to a published tokenizer, with progress on the terminal.

May import `command_line`, `artifacts` and the core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from app.commands.artifacts import command_text
from app.commands.command_line import (
    CommandError,
    UsageError,
    add_artifacts_dir,
    open_store,
    require_files,
)
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import (
    PretokenCounts,
    TrainingProgress,
    TrainingResult,
    train,
    train_from_counts,
)

_DEFAULT_SPECIAL_TOKENS = ("<|endoftext|>",)


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser(
        "train",
        help="learn a tokenizer from text files",
        description=(
            "Learn a byte-level BPE tokenizer from UTF-8 text files and publish it as an\n"
            "artifact. The result is the same for any number of workers. Files are taken as\n"
            "they are; a special token in them ends a document."
        ),
        epilog=(
            "examples:\n"
            "  tokenizer train news.txt --vocab-size 10000 --name news\n"
            "  tokenizer train corpora/*.txt --vocab-size 32000 --workers 8 --promote\n"
            "  tokenizer train news.txt --vocab-size 10000 --save-counts news.counts\n"
            "  tokenizer train --from-counts news.counts --vocab-size 50000 --name news50k\n\n"
            "The counts of a corpus are most of the work: save them to train other sizes without\n"
            "reading it again."
        ),
    )
    parser.add_argument("inputs", nargs="*", type=Path, metavar="INPUT", help="UTF-8 text files")
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=10_000,
        metavar="N",
        help="all entries: 256 bytes, special tokens, merges (default: 10000)",
    )
    parser.add_argument(
        "--special-token",
        action="append",
        metavar="TOKEN",
        help="once for each, in order (default: <|endoftext|>)",
    )
    parser.add_argument(
        "--no-special-token", action="store_true", help="train without any special token"
    )
    parser.add_argument(
        "--pattern",
        help=f"how text is split: {', '.join(PATTERNS)}, or a regular expression (default: gpt2)",
    )
    parser.add_argument("--name", default="trained", help="name to publish it under")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that count (default: all processors)"
    )
    parser.add_argument(
        "--save-counts", type=Path, metavar="FILE", help="keep the counts of the corpus"
    )
    parser.add_argument(
        "--from-counts", type=Path, metavar="FILE", help="train from saved counts, not from files"
    )
    parser.add_argument(
        "--promote", action="store_true", help="serve it from now on (running servers follow)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    add_artifacts_dir(parser)
    parser.set_defaults(run=run_train)


def run_train(arguments: argparse.Namespace) -> None:
    """Train, publish, report."""
    _check(arguments)
    store = open_store(arguments)
    with _ProgressBars(quiet=arguments.quiet) as bars:
        result = _learn(arguments, bars)
    if arguments.save_counts and not arguments.from_counts:
        result.counts.save(arguments.save_counts)
    ref = store.publish(
        result.spec,
        name=arguments.name,
        training=result.report.to_dict(),
        provenance=[
            {"name": Path(s.path).name, "size_bytes": s.size_bytes, "sha256": s.sha256}
            for s in result.counts.sources
        ],
        command=command_text(),
    )
    _report(result)
    print(f"published {ref}")
    if arguments.promote:
        store.promote(ref)
        print("it is the one being served from now on")
    else:
        print(f"try it:    tokenizer encode --tokenizer {ref.name} 'some text'")
        print(f"serve it:  tokenizer promote {ref.name}")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.from_counts:
        if arguments.inputs:
            raise UsageError("--from-counts takes the place of the input files; leave them out")
        if arguments.save_counts:
            raise UsageError("--save-counts with --from-counts would only copy the file")
        require_files([arguments.from_counts])
    elif not arguments.inputs:
        raise UsageError("no input; name one or more text files")
    if arguments.no_special_token and arguments.special_token:
        raise UsageError("--no-special-token and --special-token exclude each other")
    if arguments.workers is not None and arguments.workers < 1:
        raise UsageError("--workers must be at least 1")
    require_files(arguments.inputs)
    target: Path | None = arguments.save_counts
    if target is not None and not target.absolute().parent.is_dir():
        raise CommandError(f"the folder of {target} is not there; make it first")


def _learn(arguments: argparse.Namespace, bars: _ProgressBars) -> TrainingResult:
    if arguments.from_counts:
        asked = _special_tokens(arguments) if _names_special_tokens(arguments) else None
        counts = PretokenCounts.load(
            arguments.from_counts, pattern=arguments.pattern, special_tokens=asked
        )
        return train_from_counts(counts, arguments.vocab_size, progress=bars.show)
    return train(
        arguments.inputs,
        vocab_size=arguments.vocab_size,
        special_tokens=_special_tokens(arguments),
        pattern=arguments.pattern or "gpt2",
        num_workers=arguments.workers,
        progress=bars.show,
    )


def _names_special_tokens(arguments: argparse.Namespace) -> bool:
    return bool(arguments.special_token) or bool(arguments.no_special_token)


def _special_tokens(arguments: argparse.Namespace) -> list[str]:
    if arguments.no_special_token:
        return []
    return list(arguments.special_token or _DEFAULT_SPECIAL_TOKENS)


def _report(result: TrainingResult) -> None:
    report = result.report
    longest = report.longest_token_text
    print(
        f"{report.vocab_size} tokens ({report.n_merges} merges) from {report.n_bytes} bytes, "
        f"{report.n_documents} documents, {report.n_distinct_pre_tokens} distinct pre-tokens"
    )
    print(
        f"{report.bytes_per_token:.3f} bytes per token on this text; longest token "
        f"{report.longest_token_bytes} bytes: {longest!r}"
    )
    print(
        f"{report.engine} engine: "
        f"{report.seconds_counting:.1f} s counting with {report.num_workers} workers, "
        f"{report.seconds_learning:.1f} s learning, "
        f"peak memory {report.peak_memory_bytes / 1e6:.0f} MB with the workers"
    )
    if report.stopped_early:
        print(f"ended early: {report.stopped_early}")


class _ProgressBars:
    """One bar a phase on standard error; none when that is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._is_shown = not quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._phase = ""

    def __enter__(self) -> _ProgressBars:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def show(self, progress: TrainingProgress) -> None:
        """Show where training is."""
        if not self._is_shown:
            return
        if progress.phase != self._phase:
            self._close()
            self._phase = progress.phase
            in_bytes = progress.phase == "count"
            self._bar = tqdm(
                total=progress.total,
                desc=progress.message,
                unit="B" if in_bytes else " merges",
                unit_scale=in_bytes,
                file=sys.stderr,
            )
        self._bar.total = progress.total
        self._bar.update(progress.done - self._bar.n)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
