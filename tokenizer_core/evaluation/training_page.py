"""A training run as one HTML page: the curve of bytes per token over the vocabulary size, and
tables.

Its input is the `training` table of manifests, so the page can be made at any time. With a judge
run, it also shows the bits per byte of models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tokenizer_core.evaluation.judge_data import Judgement
from tokenizer_core.evaluation.page import Markup, element, page, section, table
from tokenizer_core.evaluation.plots import lines
from tokenizer_core.evaluation.tables import (
    JUDGE_COLUMNS,
    judge_cells,
    judged_corpus,
    judged_models,
)

_SHOWN_CHARS: Final = 32
_OPTIONS: Final = {
    "min_frequency": ("least frequency of a pair", 1),
    "max_token_length": ("most bytes of a token", None),
    "n_reserved": ("reserved tokens", 0),
    "pad_to_multiple": ("padded to a multiple of", 1),
}


def render_training_page(
    runs: Mapping[str, Mapping[str, Any]],
    judgement: Judgement | None = None,
    fingerprints: Mapping[str, str] | None = None,
) -> str:
    """The page for the sizes of one run, by name.

    With `judgement`, the page shows its bits per byte; `fingerprints` are those of the tokenizers,
    by name, and select their rows. All text from tokenizers, names and files is escaped.

    Raises:
        ValueError: `runs` is empty, or a run has no curve.
    """
    if not all(run.get("curve") for run in runs.values()) or not runs:
        raise ValueError("nothing to show: no run, or one whose report has no curve")
    largest = max(runs.values(), key=lambda run: int(run["curve"][-1]["vocab_size"]))
    names = ", ".join(runs)
    header = element(
        "header",
        element("h1", "Training report"),
        element("p", names, class_="names"),
        element(
            "p",
            f"{largest['n_bytes']:,} bytes, {largest['n_documents']:,} documents, "
            f"{largest['n_pre_tokens']:,} pre-tokens, "
            f"{largest['n_distinct_pre_tokens']:,} distinct",
            class_="quiet",
        ),
    )
    main = element(
        "main",
        section("Bytes per token over the size", _curve(largest["curve"])),
        section("What was made", _sizes(runs)),
        *([_judged(judgement, fingerprints or {})] if judgement else []),
        section("The run", _run(largest)),
    )
    return page(f"Training report: {names}", header, main)


def _curve(curve: Sequence[Mapping[str, Any]]) -> Markup:
    points = [(float(p["vocab_size"]), float(p["bytes_per_token"])) for p in curve if p["n_tokens"]]
    title = (
        "Bytes per token by the size of the vocabulary, on a logarithmic axis; the table has them"
    )
    figure = element(
        "figure",
        lines([("", points)], title, "size of the vocabulary", "bytes per token", y_is_linear=True),
    )
    about = (
        "On the text that was trained on, special tokens left out, each size as if it had been "
        "trained alone. Exact: counted while learning. On other text it is mostly lower. The last "
        "column says what a larger vocabulary brings: by how much fewer tokens the text has than "
        "at the size above."
    )
    ends = (curve[0], curve[-1])
    shown = [point for point in curve if point in ends or _is_round(point["vocab_size"])]
    beside = element("div", element("p", about, class_="quiet"), _points(shown))
    every = element("details", element("summary", f"all {len(curve)} sizes"), _points(curve))
    return element("div", element("div", figure, every), beside, class_="pair")


def _is_round(size: int) -> bool:
    """Whether `size` is one of 500, 1,000, 2,000, 5,000 and so on."""
    return str(size).rstrip("0") in ("1", "2", "5")


def _points(points: Sequence[Mapping[str, Any]]) -> Markup:
    rows = []
    before: int | None = None
    for point in points:
        n_tokens = point["n_tokens"]
        fewer = f"{1 - n_tokens / before:.1%}" if before else ""
        cells = [f"{point['vocab_size']:,}", f"{n_tokens:,}", f"{point['bytes_per_token']:.3f}"]
        rows.append([*cells, fewer])
        before = n_tokens
    return table(["size", "tokens", "bytes/token", "fewer"], rows)


def _sizes(runs: Mapping[str, Mapping[str, Any]]) -> Markup:
    header = ["", "size", "merges", "bytes/token", "tokens", "reserved", "longest", "longest token"]
    rows = [
        [name, f"{run['vocab_size']:,}", f"{run['n_merges']:,}", f"{run['bytes_per_token']:.3f}",
         f"{run['n_tokens']:,}", f"{run['n_reserved']:,}", f"{run['longest_token_bytes']:,} bytes",
         element("code", repr(_short(run["longest_token_text"])))]
        for name, run in runs.items()
    ]  # fmt: skip
    ended = [
        element("p", f"{name} ended early: {run['stopped_early']}.")
        for name, run in runs.items()
        if run["stopped_early"]
    ]
    return element("div", table(header, rows, n_text=1), *ended)


def _judged(judgement: Judgement, fingerprints: Mapping[str, str]) -> Markup:
    rows: list[Sequence[object] | str] = []
    for name, fingerprint in fingerprints.items():
        if (judged := judgement.find(fingerprint)) is not None:
            rows.append([name, *judge_cells(judged)])
    others = [
        judged for judged in judgement.tokenizers if judged.fingerprint not in fingerprints.values()
    ]
    if others:
        rows += ["other tokenizers of the same judge run"]
        rows += [[judged.name, *judge_cells(judged)] for judged in others]
    about = (
        "Small models were trained on the ids of each tokenizer, with equal budgets. Bits per byte "
        "is their loss on text that they did not see; lower is better. "
    )
    return section(
        "Bits per byte",
        element("p", about, f"{judged_corpus(judgement)}.", class_="quiet"),
        table(["", *JUDGE_COLUMNS], rows),
        element("p", judged_models(judgement), class_="quiet"),
    )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def _run(run: Mapping[str, Any]) -> Markup:
    options = run["options"]
    rows = [
        ["engine", run["engine"]],
        ["counted by", run["counting_engine"] or "counts made before"],
        ["ties", run["tie_break"]],
        ["size asked for", f"{run['learned_vocab_size']:,}"],
        *([words, options[k]] for k, (words, default) in _OPTIONS.items() if options[k] != default),
        *_pruning(run["pruning"]),
        *([["merges of seed tokens", run["n_seed_merges"]]] if run["n_seed_merges"] else []),
        ["seconds counting", f"{run['seconds_counting']:.1f}"],
        ["seconds learning", f"{run['seconds_learning']:.1f}"],
        ["peak memory", f"{run['peak_memory_bytes'] / 1e6:,.0f} MB"],
    ]
    return table(["", ""], rows)


def _pruning(pruning: Mapping[str, Any] | None) -> list[list[str]]:
    if pruning is None:
        return []
    about = (
        f"{pruning['n_distinct']:,} distinct, {pruning['n_pre_tokens']:,} pre-tokens, "
        f"{pruning['n_bytes']:,} bytes"
    )
    return [
        [f"omitted, below {pruning['min_count']:,} times", about],
        ["each merge short of the best by at most", f"{pruning['bound']:,} occurrences"],
    ]
