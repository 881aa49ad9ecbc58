"""`tokenizer report` and `compare`: measure tokenizers on text, and show how two of them differ."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tokenizer_core.documents import CorpusFormat
from tokenizer_core.evaluation import (
    ParallelFile,
    Report,
    TextFiles,
    build_report,
    parallel_files,
    save_token_bytes,
)
from tokenizer_core.evaluation.diff import diff_on_text, diff_specs
from tokenizer_core.evaluation.pages import render_report_page
from tokenizer_core.evaluation.tables import render_diff, render_report
from tokenizer_service.commands.command_line import (
    ANSWER_IS_NO,
    CommandParser,
    UsageError,
    add_artifacts_dir,
    add_command,
    is_given,
)
from tokenizer_service.commands.corpus_options import add_corpus_format, field_of, files_in_order
from tokenizer_service.commands.outputs import (
    STANDARD_OUTPUT,
    add_reports,
    check_outputs,
    print_json,
    write_output,
)
from tokenizer_service.commands.progress import add_quiet, progress_bar
from tokenizer_service.commands.tokenizer_arguments import (
    TOKENIZER_HELP,
    load_named_tokenizers,
    named_files,
    split_label,
)

_SAMPLE_BYTES: Final = 4 << 20
_OF_CORPORA: Final = ("sample_bytes", "seed", "format", "field", "separator")
_DIFF_SCHEMA: Final = "tokenizer-diff/1"


def add_parsers(subcommands: Any) -> None:
    """Add the two subcommands."""
    report = add_command(subcommands, run_report)
    report.add("tokenizers TOKENIZER", TOKENIZER_HELP, nargs="+")
    report.add(
        "--corpus NAME=FILE",
        "text, JSONL or Parquet, also packed, or a pattern in quotes, and its name in the report; "
        "repeat for more, and under one NAME for more files of a corpus",
        action="append",
        default=[],
    )
    _add_sampling(report)
    report.add(
        "--parallel",
        "the corpora are translations of each other, line by line: sample the same lines",
    )
    add_reports(report, html="the report as a page with plots")
    report.add(
        "--token-bytes FILE",
        "write the bytes of each id of the one tokenizer as .npy, for bits per byte",
    )

    compare = add_command(subcommands, run_compare)
    compare.add("a A", TOKENIZER_HELP)
    compare.add("b B", "the other one")
    about = "text, JSONL or Parquet to compare on, or a pattern in quotes; repeat for more"
    compare.add("--corpus FILE", about, action="append", default=[])
    _add_sampling(compare)
    compare.add("--examples N", "examples of each difference to show (default: 10)", default=10)
    compare.add("--json", "print all differences as JSON")


def _add_sampling(parser: CommandParser) -> None:
    parser.add(
        "--sample-bytes N",
        f"about how many bytes to sample from each corpus, spread evenly; of JSON lines and "
        f"Parquet whole documents; 0: all (default: {_SAMPLE_BYTES})",
        default=_SAMPLE_BYTES,
    )
    parser.add("--seed N", "seed of the sample (default: 0)", default=0)
    add_corpus_format(parser)
    add_quiet(parser)
    add_artifacts_dir(parser)


def run_report(arguments: argparse.Namespace) -> None:
    r"""Measure one or several tokenizers on one or several corpora, on a sample spread
    evenly over each of them. Special tokens in the text count as plain text. docs/evaluation.md
    and the end of the HTML page explain the figures.

    examples:
      tokenizer report starter --corpus news=news.txt
      tokenizer report starter r50k.tiktoken:gpt2 --corpus en=en.txt --corpus zh=zh.txt
      tokenizer report a=tokenizer.json b=vocab.json,merges.txt --corpus news.txt \
          --json report.json --html report.html
      tokenizer report starter --parallel --corpus en=bible.en --corpus fi=bible.fi
      tokenizer report starter --corpus news='data/news/*.parquet' --corpus news=more.jsonl
      tokenizer report starter --token-bytes token_bytes.npy
    """
    paths = _corpora(arguments)
    _check_report(arguments, paths)
    tokenizers = load_named_tokenizers(arguments, arguments.tokenizers)
    if arguments.token_bytes:
        (tokenizer,) = tokenizers.values()
        save_token_bytes(tokenizer.spec, arguments.token_bytes)
        if not paths:
            print(f"wrote {arguments.token_bytes}: {tokenizer.spec.largest_id + 1} ids, int32")
            return
    corpora = _sources(arguments, paths)
    total = sum(source.read_bytes() for source in corpora.values())
    with progress_bar(
        quiet=arguments.quiet, total=total * len(tokenizers), desc="measuring"
    ) as bar:

        def show(word: str, n_bytes: int) -> None:
            bar.set_description(word, refresh=False)
            bar.update(n_bytes)

        report = build_report(
            tokenizers, corpora, seed=arguments.seed, is_parallel=arguments.parallel, progress=show
        )
    _write(arguments, report)


def _write(arguments: argparse.Namespace, report: Report) -> None:
    # The table first: a page that cannot be written does not lose what was measured.
    if STANDARD_OUTPUT not in (arguments.json, arguments.html):
        print(render_report(report), end="", flush=True)
    if arguments.json:
        rendered = json.dumps(report.to_dict(), ensure_ascii=False, indent=1) + "\n"
        write_output(arguments.json, rendered.encode())
    if arguments.html:
        write_output(arguments.html, render_report_page(report).encode())


def run_compare(arguments: argparse.Namespace) -> int:
    """Compare two tokenizers: their tokens, ids, merges, special tokens and settings, and
    with a corpus also what they make of text. The first line says whether ids were equal.
    The exit code is 0 where the two are the same, and 3 where they differ.

    examples:
      tokenizer compare news@20261121T041500Z-1a2b3c4d news
      tokenizer compare starter tokenizer.json --corpus news.txt
      tokenizer compare starter tokenizer.json --json | jq .tokenizers.is_same
    """
    _refuse_sampling_options(arguments, arguments.corpus)
    files = files_in_order(arguments.corpus) if arguments.corpus else []
    words = [arguments.a, arguments.b]
    if arguments.a == arguments.b:
        words = [f"A={split_label(arguments.a)[1]}", f"B={split_label(arguments.b)[1]}"]
    tokenizers = load_named_tokenizers(arguments, words)
    (name_a, a), (name_b, b) = tokenizers.items()
    found, on_text = diff_specs(a.spec, b.spec), None
    if files:
        source = _text_files(arguments, files, _corpus_format(arguments, files))
        with progress_bar(
            quiet=arguments.quiet, total=source.read_bytes(), desc="comparing"
        ) as bar:
            on_text = diff_on_text(
                a, b, source.pieces(), n_examples=arguments.examples, progress=bar.update
            )
    if arguments.json:
        answer = {
            "schema": _DIFF_SCHEMA,
            "a": name_a,
            "b": name_b,
            "tokenizers": asdict(found),
            "text": on_text and asdict(on_text),
        }
        print_json(answer)
    else:
        print(render_diff((name_a, a.spec), (name_b, b.spec), found, on_text, arguments.examples))
    return 0 if found.is_same else ANSWER_IS_NO


def _corpora(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """The files of each corpus. Only a given name joins files: those of one stem may differ."""
    words: dict[str, list[str]] = {}
    unnamed = set()
    for label, what in map(split_label, arguments.corpus):
        # The stem of a pattern, such as `*`, names nothing.
        name = label or (Path(what).stem if Path(what).exists() else what)
        if label is None:
            unnamed.add(name)
        words.setdefault(name, []).append(what)
        if len(words[name]) > 1 and name in unnamed:
            raise UsageError(
                f"two corpora are called {name}; give another NAME=FILE, or each file of one "
                f"corpus with the same NAME"
            )
    return {name: files_in_order(files) for name, files in words.items()}


def _check_report(arguments: argparse.Namespace, paths: dict[str, list[str]]) -> None:
    if not paths and (arguments.html or arguments.json or not arguments.token_bytes):
        raise UsageError("no text to measure; give --corpus NAME=FILE")
    _refuse_sampling_options(arguments, paths)
    if arguments.token_bytes and len(arguments.tokenizers) != 1:
        raise UsageError("--token-bytes describes one tokenizer; name only one")
    check_outputs(
        [arguments.html, arguments.token_bytes, arguments.json],
        [*chain(*paths.values()), *named_files(arguments.tokenizers)],
    )


def _refuse_sampling_options(arguments: argparse.Namespace, corpora: Collection[Any]) -> None:
    """Raise UsageError for options of corpora that are not there."""
    given = [name for name in _OF_CORPORA if is_given(arguments, name)]
    if given and not corpora:
        raise UsageError(f"--{given[0].replace('_', '-')} belongs to --corpus; give that, too")


def _sources(
    arguments: argparse.Namespace, paths: dict[str, list[str]]
) -> dict[str, TextFiles | ParallelFile]:
    how = _corpus_format(arguments, chain(*paths.values()))
    if not arguments.parallel:
        return {name: _text_files(arguments, files, how) for name, files in paths.items()}
    if len(paths) < 2:
        raise UsageError("--parallel compares languages; give two corpora or more")
    for name, files in paths.items():
        if len(files) > 1:
            raise UsageError(
                f"--parallel compares lines of one file each, and {name} has {len(files)}; join "
                f"them in the order of the other corpora"
            )
    parallel = parallel_files(
        [*chain(*paths.values())], arguments.sample_bytes or None, arguments.seed, how
    )
    return dict(zip(paths, parallel, strict=True))


def _corpus_format(arguments: argparse.Namespace, paths: Iterable[str]) -> CorpusFormat:
    field = field_of(arguments, paths)
    return CorpusFormat(arguments.format, field, arguments.separator or None)


def _text_files(arguments: argparse.Namespace, files: list[str], how: CorpusFormat) -> TextFiles:
    return TextFiles(files, arguments.sample_bytes or None, arguments.seed, how)
