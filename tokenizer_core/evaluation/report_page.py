"""A report as one HTML page: no script, nothing fetched, light or dark as the reader has it.

May import `report_data`, `report_table`, `markup` and `plots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokenizer_core.evaluation.markup import Markup, element, joined
from tokenizer_core.evaluation.page_style import STYLE
from tokenizer_core.evaluation.plots import bars, columns, lines, swatch
from tokenizer_core.evaluation.report_data import Report, ShownToken
from tokenizer_core.evaluation.report_table import (
    ABSENT,
    MEASURE_COLUMNS,
    VOCABULARY_COLUMNS,
    measure_cells,
    parity_title,
    sample_of,
    vocabulary_rows,
)

# Belt and braces: the page has no script and no address in it, and this keeps it so.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_RANKS: Final = (1, 100, 1000)
_REASONS: Final = {
    "normalizer": "the normalizer changes it",
    "same_bytes": "another id has the same bytes",
    "merges": "merging does not come to it",
    "not_found": "not found in what was tried",
}
_DEFINITIONS: Final = (
    ("bytes/token", "UTF-8 bytes of the sample over its tokens. Higher is shorter text."),
    ("tokens/word", "Mean number of tokens that hold a byte of a word. A word is a run of letters, "
     "marks and digits of a script that puts spaces between words. Lower is better, 1 the least."),
    ("one-token words", "Share of words, each time they come, that are inside one token."),
    ("vocabulary used", "Share of ids that came at least once; it grows with the sample."),
    ("no text gives", "Tokens proven to come out of no text, special tokens aside: 13 single bytes "
     "of every byte-level vocabulary, and those merging never comes to."),
    ("not found", "Tokens that merging makes, but that no text that was tried gives."),
    ("part of a character", "Tokens whose bytes are no whole UTF-8 characters."),
)  # fmt: skip


def render_page(report: Report) -> str:
    """The report as an HTML document.

    Everything that comes from tokenizers, names and files is escaped.
    """
    names = ", ".join(tokenizer.name for tokenizer in report.tokenizers)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", f"Tokenizer report: {names}"),
        element("style", Markup(STYLE)),
    )
    header = element(
        "header",
        element("h1", "Tokenizer report"),
        element("p", names, class_="names"),
        element("p", sample_of(report), class_="quiet"),
    )
    main = element(
        "main",
        _section("Measures", _measures(report)),
        _section("Bytes per token", _bytes_per_token(report)),
        _parity(report),
        _section("How the vocabulary is used", _use(report)),
        _section("Lengths of tokens", _lengths(report)),
        _section("What the vocabulary holds", _vocabulary(report)),
        _section("What the figures are", _definitions(report)),
    )
    body = element("body", header, main)
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _section(title: str, *content: Markup) -> Markup:
    return element("section", element("h2", title), *content)


def _measures(report: Report) -> Markup:
    rows: list[Sequence[object]] = []
    for corpus in report.corpora:
        for place, tokenizer in enumerate(report.tokenizers):
            measured = report.measurement(tokenizer.name, corpus.name)
            rows.append(["" if place else corpus.name, tokenizer.name, *measure_cells(measured)])
    return _table(["corpus", "tokenizer", *MEASURE_COLUMNS], rows, n_left=2)


def _bytes_per_token(report: Report) -> Markup:
    groups = []
    for corpus in report.corpora:
        found = [report.measurement(t.name, corpus.name) for t in report.tokenizers]
        groups.append((corpus.name, [(m.tokenizer, m.bytes_per_token) for m in found]))
    title = "Bars of bytes per token for each corpus and tokenizer; the table has the figures"
    matrix = [
        (tokenizer.name, [report.measurement(tokenizer.name, c.name).bytes_per_token
                          for c in report.corpora])
        for tokenizer in report.tokenizers
    ]  # fmt: skip
    return element(
        "div",
        element("figure", bars(groups, title)),
        element(
            "div",
            element("p", "The darker, the more bytes a token holds.", class_="quiet"),
            _heat_table("tokenizer", [c.name for c in report.corpora], matrix, 2),
        ),
        class_="pair",
    )


def _parity(report: Report) -> Markup:
    parity = report.parity
    if parity is None:
        return Markup("")
    corpora = [corpus.name for corpus in report.corpora]
    matrix = [(name, [ratios.get(c) for c in corpora]) for name, ratios in parity.ratios.items()]
    return _section(
        "Parity",
        element("p", parity_title(parity.basis, parity.reference) + ". The darker, the dearer."),
        _heat_table("tokenizer", corpora, matrix, 2),
    )


def _use(report: Report) -> Markup:
    series = [(t.name, [(float(r), s) for r, s in t.rank_frequency]) for t in report.tokenizers]
    title = "Share of all tokens that each id makes up, by rank, both axes logarithmic"
    rows: list[Sequence[object]] = []
    for tokenizer in report.tokenizers:
        shares = dict(tokenizer.rank_frequency)
        near = [min(shares, key=lambda r: abs(r - rank), default=0) for rank in _RANKS]
        cells = [f"{shares[r]:.3%}" if r in shares else ABSENT for r in near]
        used = round(tokenizer.vocabulary_use * tokenizer.vocab_size)
        rows.append([tokenizer.name, f"{used:,}", f"{tokenizer.vocabulary_use:.1%}", *cells])
    header = ["tokenizer", "ids used", "of all", *(f"rank {rank:,}" for rank in _RANKS)]
    return element(
        "div",
        element(
            "figure",
            lines(series, title, "rank of the id", "share of tokens"),
            _legend(report, are_lines=True),
        ),
        element(
            "div",
            element("p", "All samples together. A curve that ends further right uses more ids; "
                    "ranks in the table are the nearest that were kept."),
            _table(header, rows),
        ),
        class_="pair",
    )  # fmt: skip


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
                    "details",
                    element("summary", "as a table"),
                    _table(["tokenizer", *labels], rows),
                ),
            )
        )
    return element("div", *figures, class_="pair")


def _vocabulary(report: Report) -> Markup:
    parts = [_table(["tokenizer", *VOCABULARY_COLUMNS], vocabulary_rows(report))]
    for tokenizer in report.tokenizers:
        parts.append(element("h3", tokenizer.name))
        about = (
            f"{tokenizer.kind}, split pattern {tokenizer.pattern}, normalizer "
            f"{tokenizer.normalizer}, largest id {tokenizer.largest_id}, fingerprint "
        )
        parts.append(
            element("p", about, element("code", tokenizer.fingerprint[:16]), class_="quiet")
        )
        parts.append(_token_list("Longest tokens", tokenizer.longest_tokens, is_open=True))
        if tokenizer.unreachable_examples:
            parts.append(
                _token_list(
                    "Tokens no text gives, or none that was tried", tokenizer.unreachable_examples
                )
            )
    return joined(*parts)


def _token_list(title: str, tokens: Sequence[ShownToken], *, is_open: bool = False) -> Markup:
    has_reason = any(token.reason for token in tokens)
    header = ["id", "bytes", "token", *(["why"] if has_reason else [])]
    rows: list[Sequence[object]] = [
        [token.id, token.n_bytes, element("code", token.text),
         *([_REASONS.get(token.reason or "", "")] if has_reason else [])]
        for token in tokens
    ]  # fmt: skip
    return element(
        "details",
        element("summary", title),
        _table(header, rows, n_left=0, n_text=2 if has_reason else 1),
        open="" if is_open else None,
    )


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
        element("li", swatch(place, is_line=are_lines), " ", tokenizer.name)
        for place, tokenizer in enumerate(report.tokenizers)
    ]
    return element("ul", *items, class_="legend")


def _table(
    header: Sequence[str], rows: Sequence[Sequence[object]], n_left: int = 1, n_text: int = 0
) -> Markup:
    """A table whose first `n_left` columns are headings of rows and whose last `n_text` are text;
    the others are numbers."""
    end = len(header) - n_text

    def kind(place: int) -> str | None:
        return None if place < n_left or place >= end else "n"

    head = [element("th", text, scope="col", class_=kind(i)) for i, text in enumerate(header)]
    body = [
        element(
            "tr",
            *(
                element("th", cell, scope="row")
                if i < n_left
                else element("td", cell, class_=kind(i))
                for i, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    # Focusable, so that what is wider than the screen can be scrolled with the keyboard.
    return element("div", table, class_="wide", tabindex=0)


def _heat_table(
    corner: str,
    header: Sequence[str],
    matrix: Sequence[tuple[str, Sequence[float | None]]],
    n_digits: int,
) -> Markup:
    """A table whose cells are the darker the larger their figure: a heat map one can read."""
    known = [value for _, values in matrix for value in values if value is not None]
    low, high = min(known, default=0), max(known, default=1)
    span = (high - low) or 1
    rows = []
    for name, values in matrix:
        cells = [element("th", name, scope="row")]
        for value in values:
            if value is None:
                cells.append(element("td", ABSENT, class_="n"))
                continue
            heat = f"--heat: {round(100 * (value - low) / span)}"
            cells.append(element("td", f"{value:.{n_digits}f}", class_="n heat", style=heat))
        rows.append(element("tr", *cells))
    head = [element("th", corner, scope="col")]
    head += [element("th", name, scope="col", class_="n") for name in header]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    return element("div", table, class_="wide", tabindex=0)
