"""The stages before merging in the form that the compiled module runs: normalizers and split
patterns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tokenizer_core.engines.native_import import native
from tokenizer_core.normalizers.forms import form_tables, normalize_nfc
from tokenizer_core.normalizers.steps import replacements_of
from tokenizer_core.splitting.patterns import PATTERNS, RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokenizer_core.normalizers.step import NormalizerStep
    from tokenizer_core.splitting.patterns import SplitPattern

# With more than one run of marks per this many characters, the whole text is normalized: this is
# about as fast and keeps the list of runs small.
_CHARS_PER_RUN: Final = 128


def normalize_near_marks(text: str, *, is_first: bool = True, continues: bool = False) -> str:
    """As `normalize_nfc`, of the parts that NFC may change; `text` itself if it is in NFC. Requires
    the compiled module.

    Raises:
        UnicodeEncodeError: the text contains a lone surrogate.
    """
    del is_first, continues
    runs = native.nfc_runs(text, len(text) // _CHARS_PER_RUN + 1)
    if runs is None:
        normalized = normalize_nfc(text)
        return text if normalized == text else normalized
    parts, at = [], 0
    for start, end in runs:
        part = text[max(start - 1, 0) : end]
        normalized = normalize_nfc(part)
        if normalized != part:
            parts += [text[at : max(start - 1, 0)], normalized]
            at = end
    return "".join([*parts, text[at:]]) if parts else text


def compiled_pattern(pattern: SplitPattern) -> str | native.NativeAutomaton | None:
    """What the compiled module splits by: the name of a scanner, or the pattern's automaton. None
    if it has neither, so that Python splits."""
    if pattern.name in PATTERNS:
        return pattern.name
    automaton = pattern.automaton
    if automaton is None:
        return None
    steps = zip(automaton.moves, automaton.steps, strict=True)
    return native.NativeAutomaton(
        automaton.firsts.tolist(),
        automaton.numbers.tobytes(),
        [(moves.ravel().tolist(), *settings) for moves, settings in steps],
        automaton.cuts.ravel().tolist(),
        RULES.get(pattern),
    )


def compiled_normalizer(steps: Sequence[NormalizerStep]) -> native.NativeNormalizer | None:
    """What runs these steps in the compiled module; None if there are none, or if Python must find
    the matches of one, whose expression has no automaton."""
    tables = [_tables_of_step(step) for step in steps]
    known = [table for table in tables if table is not None]
    return native.NativeNormalizer(known) if known and len(known) == len(tables) else None


def _tables_of_step(step: NormalizerStep) -> native._StepTables | None:
    match step.kind:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return "form", *form_tables(step.kind)
        case "Lowercase" | "StripAccents":
            return "map", list(replacements_of(step.kind).items())
        case "Strip":
            return "strip", step.strips_left, step.strips_right
        case "Prepend":
            return "prepend", step.content
        case "Replace" if not step.is_regex:
            return "replace", step.pattern, step.content
        case "Replace":
            pattern = compiled_pattern(replace(step.split_pattern, unmatched="drop"))
            return None if pattern is None else ("replace", pattern, step.content)
