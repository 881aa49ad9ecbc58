"""A report of tokenizers, or of a training run, as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tokenizer_core.errors import counted
from tokenizer_core.evaluation.markup import (
    Markup,
    element,
    joined,
    page,
    section,
    shorten,
    table,
    wide,
)
from tokenizer_core.evaluation.plots import bars, columns, lines, swatch
from tokenizer_core.evaluation.report import Report, ShownToken
from tokenizer_core.evaluation.tables import (
    ABSENT,
    MEASURE_COLUMNS,
    VOCABULARY_COLUMNS,
    conclusion,
    measure_cells,
    parity_title,
    sample_of,
    vocabulary_rows,
)

_RANKS: Final = (1, 100, 1000)
_REASONS: Final = {
    "normalizer": "the normalizer changes it",
    "same_bytes": "another id has the same bytes",
    "merges": "no sequence of merges makes it",
    "not_found": "not found in the texts that were tried",
}
_DEFINITIONS: Final = (
    ("bytes/token", "UTF-8 bytes of the sample divided by its tokens. Higher means fewer tokens."),
    ("tokens/word", "Mean number of tokens that hold a byte of a word. A word is a run of letters, "
     "marks and digits of a script that puts spaces between words. Lower is better, 1 the least."),
    ("one-token words", "Share of word occurrences that lie inside one token."),
    ("vocabulary used", "Share of ids that occur at least once; it grows with the sample."),
    ("no text gives", "Tokens proven to come out of no text, special tokens aside: 13 single bytes "
     "of most byte-level vocabularies, and tokens that no sequence of merges makes."),
    ("not found", "Tokens that merges can make but that occur in none of the texts tried."),
    ("part of a character", "Tokens whose bytes are no whole UTF-8 characters."),
)  # fmt: skip
_SHOWN_CHARS: Final = 32
_OPTIONS: Final = {
    "min_frequency": ("least frequency of a pair", 1),
    "max_token_length": ("most bytes of a token", None),
    "superwords_from": ("words join from size", None),
    "n_reserved": ("reserved tokens", 0),
    "pad_to_multiple": ("padded to a multiple of", 1),
}


def render_report_page(report: Report) -> str:
    """The report as an HTML document.

    All text from tokenizers, names and files is escaped.
    """
    names = ", ".join(tokenizer.name for tokenizer in report.tokenizers)
    header = element(
        "header",
        element("h1", "Tokenizer report"),
        element("p", names, class_="names"),
        element("p", sample_of(report), class_="quiet"),
        element("ul", *(element("li", line) for line in conclusion(report)), class_="conclusion"),
    )
    main = element(
        "main",
        section("Measures", _measures(report)),
        section("Bytes per token", _bytes_per_token(report)),
        _parity(report),
        section("How the vocabulary is used", _use(report)),
        section("Lengths of tokens", _lengths(report)),
        section("What the vocabulary holds", _vocabulary(report)),
        section(
            "What the figures are",
            element("details", element("summary", "definitions"), _definitions(report)),
        ),
    )
    return page(f"Tokenizer report: {names}", header, main)


def _measures(report: Report) -> Markup:
    rows: list[Sequence[object] | str] = []
    for corpus in report.corpora:
        rows.append(corpus.name)
        for tokenizer in report.tokenizers:
            measured = report.measurement(tokenizer.name, corpus.name)
            rows.append([tokenizer.name, *measure_cells(measured)])
    return table(["", *MEASURE_COLUMNS], rows)


def _bytes_per_token(report: Report) -> Markup:
    groups = []
    for corpus in report.corpora:
        found = [report.measurement(t.name, corpus.name) for t in report.tokenizers]
        groups.append((corpus.name, [(m.tokenizer, m.bytes_per_token) for m in found]))
    title = "Bars of bytes per token for each corpus and tokenizer; the table has the figures"
    matrix = [(corpus, [value for _, value in group]) for corpus, group in groups]
    about = element("p", "The stronger the colour, the more bytes a token holds.", class_="quiet")
    beside = element("div", about, _heat_table([t.name for t in report.tokenizers], matrix))
    return element("div", element("figure", bars(groups, title)), beside, class_="pair")


def _parity(report: Report) -> Markup:
    parity = report.parity
    if parity is None:
        return Markup("")
    matrix = [
        (corpus.name, [parity.ratios[t.name].get(corpus.name) for t in report.tokenizers])
        for corpus in report.corpora
    ]
    about = parity_title(parity.basis, parity.reference)
    return section(
        "Parity",
        element("p", f"{about}. The stronger the colour, the more tokens.", class_="quiet"),
        _heat_table([t.name for t in report.tokenizers], matrix),
    )


def _use(report: Report) -> Markup:
    series = [
        (t.name, [(float(rank), share * 1e6) for rank, share in t.rank_frequency])
        for t in report.tokenizers
    ]
    title = "How many of a million tokens each id makes up, by its rank, on logarithmic axes"
    rows = []
    for tokenizer, (name, points) in zip(report.tokenizers, series, strict=True):
        used = round(tokenizer.vocabulary_use * tokenizer.vocab_size)
        near = [
            min(points, key=lambda point: abs(point[0] - rank), default=(0, 0)) for rank in _RANKS
        ]
        rows.append([name, f"{used:,}", *(f"{amount:,.0f}" for _, amount in near)])
    header = ["tokenizer", "ids used", *(f"rank {rank:,}" for rank in _RANKS)]
    about = (
        "All samples together: how many of a million tokens the commonest id makes up, the next, "
        "and so on. A curve that ends further right uses more ids. Ranks in the table are the "
        "nearest that were kept."
    )
    figure = element(
        "figure",
        lines(series, title, "rank of the id", "of a million tokens"),
        _legend(report, are_lines=True),
    )
    beside = element("div", element("p", about), table(header, rows))
    return element("div", figure, beside, class_="pair")


def _lengths(report: Report) -> Markup:
    longest = len(report.tokenizers[0].length_shares)
    labels = [*map(str, range(1, longest)), f"{longest}+"]
    figures = []
    for caption, in_text in (("of the vocabulary", False), ("of the sampled text", True)):
        series = [
            (t.name, t.text_length_shares if in_text else t.length_shares)
            for t in report.tokenizers
        ]
        title = f"Share of the tokens {caption} by their length in bytes"
        rows = [[name, *(f"{share:.1%}" for share in shares)] for name, shares in series]
        figures.append(
            element(
                "figure",
                element("figcaption", f"Share of the tokens {caption}"),
                columns(labels, series, title, "bytes of a token"),
                _legend(report, are_lines=False),
                element(
                    "details", element("summary", "as a table"), table(["tokenizer", *labels], rows)
                ),
            )
        )
    return element("div", *figures, class_="pair")


def _vocabulary(report: Report) -> Markup:
    parts = [table(["tokenizer", *VOCABULARY_COLUMNS], vocabulary_rows(report))]
    for tokenizer in report.tokenizers:
        parts.append(element("h3", tokenizer.name))
        about = (
            f"{tokenizer.kind}, split pattern {tokenizer.pattern}, normalizer "
            f"{tokenizer.normalizer}, largest id {tokenizer.largest_id}, fingerprint "
        )
        parts.append(
            element("p", about, element("code", tokenizer.fingerprint[:16]), class_="quiet")
        )
        parts.append(_token_list("Longest tokens", tokenizer.longest_tokens))
        if tokenizer.unreachable_examples:
            parts.append(
                _token_list(
                    "Tokens that no text gives, or none of the texts tried",
                    tokenizer.unreachable_examples,
                )
            )
    return joined(*parts)


def _token_list(title: str, tokens: Sequence[ShownToken]) -> Markup:
    has_reason = any(token.reason for token in tokens)
    header = ["id", "bytes", "token", *(["why"] if has_reason else [])]
    rows = [
        [token.id, token.n_bytes, element("code", token.text),
         *([_REASONS.get(token.reason or "", "")] if has_reason else [])]
        for token in tokens
    ]  # fmt: skip
    listed = table(header, rows, n_left=0, n_text=2 if has_reason else 1)
    return element("details", element("summary", f"{title} ({len(tokens)})"), listed)


def _definitions(report: Report) -> Markup:
    engines = ", ".join(f"{t.name}: {t.engine} engine" for t in report.tokenizers)
    items = [
        *_DEFINITIONS,
        ("Rényi efficiency", f"Rényi entropy of order {report.renyi_alpha:g} of how often each id "
         "comes, over the logarithm of the number of entries of the vocabulary (Zouhar et al. "
         "2023)."),
        ("MB/s", f"One thread, the median of the pieces of all samples, on one machine "
         f"({report.machine}; {engines}). Only ratios of one run say something."),
    ]  # fmt: skip
    parts = [joined(element("dt", term), element("dd", text)) for term, text in items]
    return element("dl", *parts)


def _legend(report: Report, *, are_lines: bool) -> Markup:
    items = [
        element("li", swatch(index, is_line=are_lines), " ", tokenizer.name)
        for index, tokenizer in enumerate(report.tokenizers)
    ]
    return element("ul", *items, class_="legend")


def _heat_table(
    header: Sequence[str], matrix: Sequence[tuple[str, Sequence[float | None]]]
) -> Markup:
    """A heat map as a readable table: the larger the figure of a cell, the stronger its colour."""
    known = [value for _, values in matrix for value in values if value is not None]
    low, high = min(known, default=0), max(known, default=1)
    span = (high - low) or 1
    body = []
    for name, values in matrix:
        cells = [element("th", name, scope="row")]
        for value in values:
            if value is None:
                cells.append(element("td", ABSENT, class_="n"))
                continue
            heat = f"--heat: {round(100 * (value - low) / span)}"
            cells.append(element("td", f"{value:.2f}", class_="n heat", style=heat))
        body.append(element("tr", *cells))
    head = [element("th", "corpus", scope="col")]
    head += [element("th", name, scope="col", class_="n") for name in header]
    return wide(head, body)


def render_training_page(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The HTML page for the sizes of one training run, by name; each is the `training` table of a
    manifest. All text from tokenizers, names and files is escaped. Raises ValueError: `runs` is
    empty, or a run has no curve."""
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
            f"{largest['n_bytes']:,} bytes, {counted(largest['n_documents'], 'document')}, "
            f"{counted(largest['n_pre_tokens'], 'pre-token')}, "
            f"{largest['n_distinct_pre_tokens']:,} distinct",
            class_="quiet",
        ),
    )
    main = element(
        "main",
        section("Bytes per token over the size", _curve(largest["curve"])),
        section("What was made", _sizes(runs)),
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
    # 500, 1,000, 2,000, 5,000 and so on.
    shown = [p for p in curve if p in ends or str(p["vocab_size"]).rstrip("0") in ("1", "2", "5")]
    beside = element("div", element("p", about, class_="quiet"), _points(shown))
    every = element("details", element("summary", f"all {len(curve)} sizes"), _points(curve))
    return element("div", element("div", figure, every), beside, class_="pair")


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
         element("code", repr(shorten(run["longest_token_text"], _SHOWN_CHARS)))]
        for name, run in runs.items()
    ]  # fmt: skip
    ended = [
        element("p", f"{name} ended early: {run['stopped_early']}.")
        for name, run in runs.items()
        if run["stopped_early"]
    ]
    return element("div", table(header, rows, n_text=1), *ended)


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
