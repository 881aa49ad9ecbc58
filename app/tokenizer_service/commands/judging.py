"""`tokenizer judge`: compare tokenizers by the bits per byte of small language models."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizer_core.errors import JudgeError
from tokenizer_core.evaluation.judge import BUDGETS, SIZES, JudgeOptions, judge
from tokenizer_core.evaluation.judge_data import Judgement
from tokenizer_core.evaluation.judge_page import render_judge_page
from tokenizer_core.evaluation.tables import render_judgement
from tokenizer_service.commands.command_line import UsageError, add_artifacts_dir, require_files
from tokenizer_service.commands.corpus_options import add_corpus_format, field_of
from tokenizer_service.commands.outputs import (
    STANDARD_OUTPUT,
    add_reports,
    check_outputs,
    write_output,
)
from tokenizer_service.commands.progress import add_quiet, progress_bar
from tokenizer_service.commands.tokenizer_arguments import (
    TOKENIZER_HELP,
    load_named_tokenizers,
    named_files,
)

_DEFAULTS = JudgeOptions()


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = subcommands.add_parser(
        "judge",
        description=(
            "Train the same small Transformer on the ids of each tokenizer, with equal budgets,\n"
            "and compare the losses on the same documents in bits per byte. Lower is better.\n"
            "Needs the extra judge: pip install 'tokenizer-service[judge]'"
        ),
        epilog=(
            "examples:\n"
            "  tokenizer judge news-1000 news-4000 --corpus stories.txt\n"
            "  tokenizer judge starter r50k.tiktoken:gpt2 --corpus news.txt --seeds 3 \\\n"
            "      --json judge.json --html judge.html\n"
            "  tokenizer judge a=a.json b=b.json --corpus news.txt --budget bytes --amount 2e6\n"
            "  tokenizer judge news-1000 news-4000 --corpus news.txt --size medium\n\n"
            "With --budget flops each model has the same number of floating-point operations, and\n"
            "a tokenizer with fewer tokens reads more text. With --budget bytes each model reads\n"
            "the same amount of text. What the figures show and what they do not is in\n"
            "docs/evaluation.md."
        ),
    )
    parser.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help=TOKENIZER_HELP)
    parser.add_argument(
        "--corpus",
        type=Path,
        required=True,
        metavar="FILE",
        help="documents to train and validate on: text, JSONL or Parquet, also packed",
    )
    add_corpus_format(parser)
    parser.add_argument(
        "--validation-bytes",
        type=int,
        default=_DEFAULTS.validation_bytes,
        metavar="N",
        help=f"whole documents of about N bytes validate (default: {_DEFAULTS.validation_bytes})",
    )
    parser.add_argument(
        "--budget",
        choices=BUDGETS,
        default=_DEFAULTS.budget,
        help=f"what is equal for all models (default: {_DEFAULTS.budget})",
    )
    parser.add_argument(
        "--amount",
        type=_parse_amount,
        metavar="N",
        help="budget of one model, such as 2e12 (default: that of the size)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=_DEFAULTS.n_seeds,
        metavar="N",
        help=f"models for each tokenizer (default: {_DEFAULTS.n_seeds})",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=_DEFAULTS.seed,
        metavar="N",
        help="first seed; it also chooses the documents to validate (default: 0)",
    )
    _add_size(parser)
    add_reports(parser, html="the run as a page with plots", json_about="write the run as JSON")
    add_quiet(parser)
    add_artifacts_dir(parser)
    parser.set_defaults(run=run_judge)


def _add_size(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the model, the same for all tokenizers")
    group.add_argument(
        "--size",
        choices=tuple(SIZES),
        default=_DEFAULTS.size.name,
        help=f"sizes, which the options below change (default: {_DEFAULTS.size.name})",
    )
    for option, field, kind, what in (
        ("--width", "width", int, "width of the residual stream"),
        ("--layers", "n_layers", int, "number of blocks"),
        ("--heads", "n_heads", int, "heads of attention"),
        ("--context", "context_length", int, "tokens that a model sees at once"),
        ("--batch-size", "batch_size", int, "contexts in a step"),
        ("--learning-rate", "learning_rate", float, "highest rate of AdamW"),
    ):
        given = ", ".join(f"{getattr(size, field):g}" for size in SIZES.values())
        group.add_argument(
            option, dest=field, type=kind, metavar="N", help=f"{what} ({', '.join(SIZES)}: {given})"
        )
    group.add_argument(
        "--device",
        default=_DEFAULTS.device,
        metavar="NAME",
        help="cpu, cuda, or auto: a GPU if there is one (default: auto)",
    )
    group.add_argument(
        "--compile",
        dest="compiles",
        action="store_true",
        help="compile each model: faster from a minute of training on a GPU; needs a C++ compiler",
    )


def _parse_amount(text: str) -> int:
    """Parse a whole number that may have an exponent.

    Example:
        >>> _parse_amount("2.5e12")
        2500000000000
    """
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not (1 <= amount < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number such as 2000000 or 2e12")
    return int(amount)


def run_judge(arguments: argparse.Namespace) -> None:
    """Judge the tokenizers; print or write the run."""
    options = _options(arguments)
    require_files([arguments.corpus])
    check_outputs(
        [arguments.html, arguments.json],
        [arguments.corpus, *named_files(arguments.tokenizers)],
    )
    tokenizers = load_named_tokenizers(arguments, arguments.tokenizers)
    # Steps differ in size, so tqdm cannot learn how many of them to skip between two updates.
    shown = {"bar_format": "{desc} {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left"}
    with progress_bar(quiet=arguments.quiet, total=1.0, miniters=0, **shown) as bar:

        def show(word: str, fraction: float) -> None:
            bar.set_description(word, refresh=False)
            bar.update(fraction - bar.n)

        judgement = judge(tokenizers, arguments.corpus, options, show)
    _write(arguments, judgement)


def _options(arguments: argparse.Namespace) -> JudgeOptions:
    fields = ("width", "n_layers", "n_heads", "context_length", "batch_size", "learning_rate")
    given = {name: getattr(arguments, name) for name in fields}
    changed = {name: value for name, value in given.items() if value is not None}
    try:
        return JudgeOptions(
            budget=arguments.budget,
            amount=arguments.amount,
            size=replace(SIZES[arguments.size], **changed),
            n_seeds=arguments.seeds,
            seed=arguments.seed,
            validation_bytes=arguments.validation_bytes,
            separator=arguments.separator,
            format=arguments.format,
            field=field_of(arguments, [arguments.corpus]),
            device=arguments.device,
            compiles=arguments.compiles,
        )
    except JudgeError as error:
        raise UsageError(str(error)) from None


def _write(arguments: argparse.Namespace, judgement: Judgement) -> None:
    if arguments.html:
        write_output(arguments.html, render_judge_page(judgement).encode())
    if arguments.json:
        rendered = json.dumps(judgement.to_dict(), ensure_ascii=False, indent=1) + "\n"
        write_output(arguments.json, rendered.encode())
    if STANDARD_OUTPUT not in (arguments.json, arguments.html):
        print(render_judgement(judgement), end="")
