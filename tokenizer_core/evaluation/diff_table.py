"""The differences of two tokenizers as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tokenizer_core.evaluation.report_table import ABSENT, align, show_size

if TYPE_CHECKING:
    from tokenizer_core.evaluation.report_data import ShownToken
    from tokenizer_core.evaluation.spec_diff import MergeDifference, SpecDiff
    from tokenizer_core.evaluation.text_diff import TextDiff
    from tokenizer_core.spec import TokenizerSpec

_CELL_CHARS: Final = 60


def render_diff(
    a: tuple[str, TokenizerSpec],
    b: tuple[str, TokenizerSpec],
    found: SpecDiff,
    on_text: TextDiff | None,
    n_examples: int,
) -> str:
    """What `diff_specs` and `diff_on_text` found, with at most `n_examples` of each kind."""
    parts = [f"A  {_describe(*a)}\nB  {_describe(*b)}"]
    if found.is_same:
        parts.append("They are the same: every text has the same ids.")
    else:
        parts += [*_settings(found), _tokens(found, n_examples), *_added(found)]
        if found.merges is not None:
            parts.append(_merges(found.merges, n_examples))
    if on_text is not None:
        parts += _on_text(on_text)
    return "\n\n".join(parts)


def _describe(name: str, spec: TokenizerSpec) -> str:
    return (
        f"{name}: {len(spec.vocab):,} entries, {spec.kind}, pattern {spec.pattern.name}, "
        f"{spec.fingerprint[:16]}"
    )


def _settings(found: SpecDiff) -> list[str]:
    if not found.settings:
        return []
    rows = [[f"  {s.name}", _cut(s.a), _cut(s.b)] for s in found.settings]
    return ["settings\n" + align([["", "A", "B"], *rows], n_left=3)]


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


def _added(found: SpecDiff) -> list[str]:
    if not found.added_tokens:
        return []
    rows = [[f"  {t.content!r:.60}", t.a or ABSENT, t.b or ABSENT] for t in found.added_tokens]
    return ["added tokens\n" + align([["", "A", "B"], *rows], n_left=3)]


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
        f"on {show_size(found.n_bytes)} of text: {found.n_tokens_a:,} tokens of A, "
        f"{found.n_tokens_b:,} of B"
    )
    parts = [f"{heading}\n{align(rows)}"]
    if found.n_texts_not_aligned:
        parts.append(
            f"{found.n_texts_not_aligned:,} texts are normalized by one of the two only; of them "
            f"boundaries were not compared"
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


def _cut(text: str) -> str:
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"
