"""A report, or the differences of two tokenizers, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import counted
from tokenizer_core.evaluation.markup import shorten
from tokenizer_core.evaluation.report import Measurement, Parity, Report

if TYPE_CHECKING:
    from tokenizer_core.evaluation.diff import MergeDifference, SpecDiff, TextDiff
    from tokenizer_core.evaluation.report import ShownToken
    from tokenizer_core.spec import TokenizerSpec


ABSENT: Final = "–"
"""Shown where a figure has no meaning."""

MEASURE_COLUMNS: Final = (
    "bytes/token",
    "tokens/word",
    "one-token words",
    "vocabulary used",
    "Rényi efficiency",
    "MB/s",
)
VOCABULARY_COLUMNS: Final = (
    "entries",
    "special",
    "used here",
    "no text gives",
    "not found",
    "part of a character",
)


def render_report(report: Report) -> str:
    """The report as text, in lines of about a hundred columns, ending with a line break."""
    parts = [sample_of(report), "\n".join(conclusion(report)), _measures(report)]
    if len(report.corpora) > 1 and len(report.tokenizers) > 1:
        parts.append(_matrix(report))
    if report.parity is not None:
        parts.append(_parity(report, report.parity))
    vocabularies = align([["vocabulary", *VOCABULARY_COLUMNS], *vocabulary_rows(report)])
    parts += [vocabularies, _longest(report), _notes(report)]
    return "\n\n".join(parts) + "\n"


def conclusion(report: Report) -> list[str]:
    """The result in sentences: for each corpus the tokenizer that needs the fewest tokens, and how
    many more the others need; of a single tokenizer, its bytes per token."""
    lines = []
    for corpus in report.corpora:
        found = [report.measurement(t.name, corpus.name) for t in report.tokenizers]
        if len(found) == 1:
            per_token = f"{found[0].bytes_per_token:.2f} bytes per token"
            lines.append(f"{corpus.name}: {per_token}, {counted(found[0].n_tokens, 'token')}.")
            continue
        best, *others = sorted(found, key=lambda measured: measured.n_tokens)
        more = [
            f"{m.tokenizer} needs {'as many' if m.n_tokens == best.n_tokens else _more(m, best)}"
            for m in others
        ]
        lines.append(f"{corpus.name}: {best.tokenizer} needs the fewest tokens; {', '.join(more)}.")
    return lines


def _more(measured: Measurement, best: Measurement) -> str:
    ratio = measured.n_tokens / best.n_tokens if best.n_tokens else 1.0
    return f"{ratio - 1:.1%} more" if ratio < 2 else f"{ratio:.2f} times as many"


def measure_cells(measured: Measurement) -> list[str]:
    """The figures of one row under `MEASURE_COLUMNS`."""
    return [
        f"{measured.bytes_per_token:.3f}",
        ABSENT if measured.fertility is None else f"{measured.fertility:.3f}",
        ABSENT if measured.single_token_words is None else f"{measured.single_token_words:.1%}",
        f"{measured.vocabulary_use:.1%}",
        f"{measured.renyi_efficiency:.3f}",
        f"{measured.bytes_per_second / 1e6:,.1f}",
    ]


def vocabulary_rows(report: Report) -> list[list[str]]:
    """The name of each tokenizer and its figures under `VOCABULARY_COLUMNS`."""
    return [
        [
            v.name,
            f"{v.vocab_size:,}",
            f"{v.n_special:,}",
            f"{v.vocabulary_use:.1%}",
            f"{v.n_unreachable:,}",
            f"{v.n_not_found:,}",
            f"{v.n_partial_utf8:,}",
        ]
        for v in report.tokenizers
    ]


def sample_of(report: Report) -> str:
    """A description of the sample: how much text, of files that may be packed."""
    sampled = sum(corpus.sample_bytes for corpus in report.corpora)
    whole = sum(corpus.size_bytes for corpus in report.corpora)
    seeds = ", ".join(str(seed) for seed in sorted({corpus.seed for corpus in report.corpora}))
    n_corpora = f"{len(report.corpora)} corpora" if len(report.corpora) > 1 else "one corpus"
    return (
        f"{show_size(sampled)} of text sampled from {show_size(whole)} of files in {n_corpora}, "
        f"seed {seeds}"
    )


def show_size(n_bytes: int) -> str:
    """A number of bytes in readable form, a small one exactly: a sample may be of a few."""
    if n_bytes < 10_000:
        return f"{n_bytes:,} bytes"
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1_000_000 else f"{n_bytes / 1e3:,.1f} kB"


def parity_title(basis: str, reference: str) -> str:
    """The title of the parity table."""
    if basis == "parallel lines":
        return f"Tokens for the same lines, {reference} = 1"
    return f"Tokens per byte, {reference} = 1 (the texts do not say the same)"


def align(rows: Sequence[Sequence[str]], n_left: int = 1) -> str:
    """The rows as columns two spaces apart; the first `n_left` columns are aligned left.

    Example:
        >>> print(align([["", "a"], ["row", "1.5"]]))
               a
        row  1.5
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index < n_left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _measures(report: Report) -> str:
    rows = [["corpus", "tokenizer", *MEASURE_COLUMNS]]
    for corpus in report.corpora:
        for index, tokenizer in enumerate(report.tokenizers):
            measured = report.measurement(tokenizer.name, corpus.name)
            shown = corpus.name if index == 0 else ""
            rows.append([shown, tokenizer.name, *measure_cells(measured)])
    return align(rows, n_left=2)


def _matrix(report: Report) -> str:
    rows = [["bytes/token", *(corpus.name for corpus in report.corpora)]]
    for tokenizer in report.tokenizers:
        found = (report.measurement(tokenizer.name, corpus.name) for corpus in report.corpora)
        rows.append([tokenizer.name, *(f"{measured.bytes_per_token:.3f}" for measured in found)])
    return align(rows)


def _parity(report: Report, parity: Parity) -> str:
    rows = [["", *(corpus.name for corpus in report.corpora)]]
    for name, ratios in parity.ratios.items():
        shown = [ratios.get(corpus.name) for corpus in report.corpora]
        rows.append([name, *(ABSENT if ratio is None else f"{ratio:.2f}" for ratio in shown)])
    return f"{parity_title(parity.basis, parity.reference)}\n{align(rows)}"


def _longest(report: Report) -> str:
    lines = ["longest tokens"]
    width = max(len(tokenizer.name) for tokenizer in report.tokenizers)
    for tokenizer in report.tokenizers:
        for index, token in enumerate(tokenizer.longest_tokens[:3]):
            name = tokenizer.name if index == 0 else ""
            lines.append(f"{name:<{width}}  {token.n_bytes:>4} bytes  {token.id:>7}  {token.text}")
    return "\n".join(lines)


def _notes(report: Report) -> str:
    lines = [
        f"Rényi efficiency: order {report.renyi_alpha:g}, over all entries of the vocabulary.",
        f"MB/s: one thread, median of the pieces, on this machine ({report.machine}; "
        + ", ".join(f"{t.name}: {t.engine}" for t in report.tokenizers)
        + ").",
    ]
    wordless = [corpus.name for corpus in report.corpora if not corpus.has_words]
    if wordless:
        lines.append(f"No words are counted in {', '.join(wordless)}: no spaces between them.")
    for measured in report.measurements:
        if measured.n_words_left_out and measured.corpus not in wordless:
            n_words = measured.n_words + measured.n_words_left_out
            lines.append(
                f"tokens/word of {measured.tokenizer} on {measured.corpus}: {measured.n_words:,} "
                f"of {n_words:,} words; the tokens of the other texts lack some of their bytes."
            )
    cut = [corpus.name for corpus in report.corpora if corpus.n_pieces_cut_elsewhere]
    if cut:
        lines.append(f"Of {', '.join(cut)} some pieces had to be cut inside a pre-token.")
    return "\n".join(lines)


_cut: Final = partial(shorten, n_chars=60)


def render_diff(
    a: tuple[str, TokenizerSpec],
    b: tuple[str, TokenizerSpec],
    found: SpecDiff,
    on_text: TextDiff | None,
    n_examples: int,
) -> str:
    """Render the results of `diff_specs` and `diff_on_text`, at most `n_examples` of each kind."""
    parts = [_verdict(found, on_text), f"A  {_describe(*a)}\nB  {_describe(*b)}"]
    if not found.is_same:
        settings = [[f"  {s.name}", _cut(s.a), _cut(s.b)] for s in found.settings]
        added = [[f"  {t.content!r:.60}", t.a or ABSENT, t.b or ABSENT] for t in found.added_tokens]
        parts += _side_by_side("settings", settings)
        parts += [_tokens(found, n_examples), *_side_by_side("added tokens", added)]
        if found.merges is not None:
            parts.append(_merges(found.merges, n_examples))
    if on_text is not None:
        parts += _on_text(on_text)
    return "\n\n".join(parts)


def _verdict(found: SpecDiff, on_text: TextDiff | None) -> str:
    """Whether the ids are equal, on what, and what differs."""
    if found.is_same:
        return "A and B are the same: equal ids in every text."
    merges = found.merges
    differing = [
        *(setting.name for setting in found.settings),
        *["tokens"] * bool(found.only_in_a or found.only_in_b),
        *["ids of tokens"] * bool(found.other_ids),
        *["added tokens"] * bool(found.added_tokens),
        *["merges"] * (merges is not None and merges.first_rank is not None),
    ]
    differ = f"A and B differ in {', '.join(differing) or 'their fingerprints'}."
    if found.fingerprint_a == found.fingerprint_b:
        return f"Equal ids in every single text; {differ}"
    if on_text is None:
        return f"No text was compared: --corpus FILE shows whether ids are equal. {differ}"
    size = show_size(on_text.n_bytes)
    if not on_text.n_texts_other_ids:
        return f"Equal ids in all texts compared ({on_text.n_texts:,}, {size}); {differ}"
    other = f"{on_text.n_texts_other_ids:,} of {on_text.n_texts:,}"
    return f"Other ids in {other} texts compared ({size}); {differ}"


def _describe(name: str, spec: TokenizerSpec) -> str:
    return (
        f"{name}: {len(spec.vocab):,} entries, {spec.kind}, pattern {spec.pattern.name}, "
        f"{spec.fingerprint[:16]}"
    )


def _side_by_side(title: str, rows: list[list[str]]) -> list[str]:
    return [f"{title}\n{align([['', 'A', 'B'], *rows], n_left=3)}"] if rows else []


def _tokens(found: SpecDiff, n_examples: int) -> str:
    lines = [
        f"tokens: {found.n_common_tokens:,} in both, {len(found.other_ids):,} of them under other "
        f"ids; {len(found.only_in_a):,} only in A, {len(found.only_in_b):,} only in B",
        *_examples("only in A", found.only_in_a, n_examples),
        *_examples("only in B", found.only_in_b, n_examples),
    ]
    moved = [
        f"{token.text} {_ids(token.ids_a)} → {_ids(token.ids_b)}"
        for token in found.other_ids[:n_examples]
    ]
    return "\n".join([*lines, *([f"  other ids: {', '.join(moved)}"] if moved else [])])


def _examples(title: str, tokens: Sequence[ShownToken], n_examples: int) -> list[str]:
    shown = ", ".join(f"{token.text} {token.id}" for token in tokens[:n_examples])
    return [f"  {title}: {shown}"] if shown else []


def _ids(ids: Sequence[int]) -> str:
    return "/".join(map(str, ids))


def _merges(merges: MergeDifference, n_examples: int) -> str:
    lines = [
        f"merges: {merges.n_common:,} in both, {merges.n_in_other_order:,} of them in another "
        f"order; {len(merges.only_in_a):,} only in A, {len(merges.only_in_b):,} only in B"
    ]
    if merges.first_rank is not None:
        lines.append(f"  the first that differs has rank {merges.first_rank:,}")
    for side, shown in (("A", merges.only_in_a), ("B", merges.only_in_b)):
        if shown and n_examples:
            lines.append(f"  only in {side}: {', '.join(shown[:n_examples])}")
    return "\n".join(lines)


def _on_text(found: TextDiff) -> list[str]:
    rows = [
        ["", "all", "other boundaries", "other ids"],
        [
            "  texts",
            f"{found.n_texts:,}",
            _share(found.n_texts_other_boundaries, found.n_texts - found.n_texts_not_aligned),
            _share(found.n_texts_other_ids, found.n_texts),
        ],
        [
            "  pre-tokens of A",
            f"{found.n_pre_tokens:,}",
            _share(found.n_pre_tokens_other_boundaries, found.n_pre_tokens),
            _share(found.n_pre_tokens_other_ids, found.n_pre_tokens),
        ],
    ]
    heading = (
        f"on {show_size(found.n_bytes)} of text: {counted(found.n_tokens_a, 'token')} of A, "
        f"{found.n_tokens_b:,} of B"
    )
    parts = [f"{heading}\n{align(rows)}"]
    if found.n_texts_not_aligned:
        parts.append(
            f"texts of which boundaries were not compared, because only one of the two normalizes "
            f"them or they are not encoded in full: {found.n_texts_not_aligned:,}"
        )
    if found.examples:
        shown = [
            [f"{e.count:>9,}", _cut(e.pre_token), _cut(" ".join(e.tokens_a)),
             _cut(" ".join(e.tokens_b))]
            for e in found.examples
        ]  # fmt: skip
        table = align([["    times", "pre-token", "A", "B"], *shown], n_left=4)
        parts.append(f"the commonest that differ, where each came first\n{table}")
    return parts


def _share(n: int, n_all: int) -> str:
    return f"{n:,} ({n / n_all:.1%})" if n_all else f"{n:,}"
