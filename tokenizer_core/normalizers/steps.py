"""The steps of a general normalizer: as data (`NormalizerStep`), and what runs them
(`NormalizerRun`).

A `tokenizer.json` may normalize a text in several steps.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import compress, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
import regex

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.normalizers.normalize import (
    Form,
    form_tables,
    is_form,
    is_newer,
    normalize_form,
)
from tokenizer_core.normalizers.tables import LOWERCASE, MARKS
from tokenizer_core.splitting.patterns import CUSTOM, SplitPattern, resolve_pattern, sets_of_matches
from tokenizer_core.splitting.pretokenize import find_matches
from tokenizer_core.splitting.unicode_sets import compile_exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

StepKind = Literal[
    "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Replace", "Prepend"
]

MAX_STEPS: Final = 64
MAX_GROWTH: Final = 1024
"""All `Replace` steps together may make a character at most this many characters: a chain of small
steps could make gigabytes of one letter."""

# What Rust calls white space; `str.strip` alone strips more.
_WHITE_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True, slots=True)
class NormalizerStep:
    """A step, named as in Hugging Face's `tokenizers`.

    - `pattern`, `is_regex`: what `Replace` looks for: a text, or an expression for Oniguruma.
    - `content`: what `Replace` writes instead, and what `Prepend` puts before a text.
    - `strips_left`, `strips_right`: the sides at which `Strip` removes white space.

    Example:
        >>> NormalizerStep("Replace", pattern=" ", content="_").fields()
        {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '_'}
    """

    kind: StepKind
    pattern: str = ""
    is_regex: bool = False
    content: str = ""
    strips_left: bool = False
    strips_right: bool = False

    @property
    def split_pattern(self) -> SplitPattern:
        """The expression of a `Replace`, whose matches are replaced."""
        return SplitPattern(CUSTOM, self.pattern, "oniguruma")

    def fields(self) -> dict[str, object]:
        """The fields of the step in a `tokenizer.json` and in a manifest."""
        table: dict[str, object] = {"type": self.kind}
        if self.kind == "Replace":
            kind = "Regex" if self.is_regex else "String"
            table |= {"pattern": {kind: self.pattern}, "content": self.content}
        elif self.kind == "Prepend":
            table |= {"prepend": self.content}
        elif self.kind == "Strip":
            table |= {"strip_left": self.strips_left, "strip_right": self.strips_right}
        return table

    @classmethod
    def from_fields(cls, table: dict[str, Any]) -> NormalizerStep:
        """The step of such fields; raises KeyError, TypeError or ValueError for malformed ones."""
        if not isinstance(table, dict) or table["type"] not in get_args(StepKind):
            raise ValueError(f"{table!r:.80} is no step of a normalizer")
        step = cls(table["type"])
        if step.kind == "Replace":
            (kind, pattern), *others = table["pattern"].items()
            if kind not in ("String", "Regex") or others:
                raise ValueError(f"a pattern is a String or a Regex, not {table['pattern']!r:.60}")
            step = cls(step.kind, pattern, kind == "Regex", table["content"])
        elif step.kind == "Prepend":
            step = cls(step.kind, content=table["prepend"])
        elif step.kind == "Strip":
            left, right = table["strip_left"], table["strip_right"]
            step = cls(step.kind, strips_left=left, strips_right=right)
        types = [type(step.pattern), type(step.content), type(step.strips_left)]
        if types != [str, str, bool] or type(step.strips_right) is not bool:
            raise TypeError(f"a field of {table!r:.80} has another type")
        if step.fields() != table:
            raise ValueError(f"{table!r:.80} has fields that no {step.kind} has")
        return step


def check_steps(steps: tuple[NormalizerStep, ...]) -> None:
    """Raise an error unless these steps can run.

    Raises:
        InvalidSpecError: too many steps, a text that grows too much, or a lone surrogate.
        UnknownPatternError: an expression cannot be translated exactly.
    """
    if len(steps) > MAX_STEPS:
        raise InvalidSpecError(f"a normalizer has at most {MAX_STEPS} steps, not {len(steps)}")
    growth = 1
    for step in steps:
        for text in (step.pattern, step.content):
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise InvalidSpecError(f"{step.kind} has a lone surrogate, which is no text")
        if step.kind == "Prepend" and not step.content:
            raise InvalidSpecError(
                "Prepend has an empty text, on which Hugging Face's tokenizers may stop; leave it "
                "out"
            )
        if step.kind == "Replace":
            growth *= max(1, len(step.content))
            _check_pattern(step)
    if growth > MAX_GROWTH:
        raise InvalidSpecError(
            f"the Replace steps of the normalizer make a text up to {growth:.3g} times as long; "
            f"at most {MAX_GROWTH} times is allowed: shorten what they write"
        )


def _check_pattern(step: NormalizerStep) -> None:
    pattern = resolve_pattern(step.split_pattern) if step.is_regex else None
    if not step.pattern or (pattern and pattern.restarts_after_empty_matches):
        raise InvalidSpecError(
            f"Replace looks for {step.pattern!r:.80}, which may match nothing; Hugging Face's "
            f"tokenizers may stop on that: give a pattern that matches at least one character"
        )


@lru_cache(maxsize=64)
def run_of(steps: tuple[NormalizerStep, ...]) -> NormalizerRun:
    """What runs these steps; cached."""
    return NormalizerRun(steps)


class NormalizerRun:
    """Runs the steps of a normalizer, one after the other.

    Example:
        >>> from tokenizer_core.normalizers.steps import NormalizerStep
        >>> run = NormalizerRun((NormalizerStep("Lowercase"), NormalizerStep("NFD")))
        >>> run.normalize("\\u00c9") == "e\\u0301"
        True
    """

    def __init__(self, steps: tuple[NormalizerStep, ...]) -> None:
        self._steps = steps

    def normalize(self, text: str, *, is_first: bool = True) -> str:
        """The whole part of a text, normalized; with `is_first=False`, a part after a cut."""
        for step in self._steps:
            text = _normalized(step, text, is_first=is_first)
        return text

    def normalize_with_spans(
        self, text: str, *, is_first: bool = True
    ) -> tuple[str, NDArray[np.int64]]:
        """Also start and end in `text` of what each character comes from, in characters: shape
        (n_chars, 2), as Hugging Face follows it through each step."""
        spans = np.stack([np.arange(len(text)), np.arange(1, len(text) + 1)], axis=1)
        for step in self._steps:
            text, spans = _normalized_with_spans(step, text, spans, is_first=is_first)
        return text, spans

    def normalize_runs(self, text: str, runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The runs of a text, in characters, as runs of the normalized text: the characters that
        depend on one run alone. Where text between two runs vanished, they may touch."""
        if not runs:
            return []
        if runs[0] == (0, len(text)):
            return [(0, len(self.normalize(text)))]
        spans = np.stack([np.arange(len(text)), np.arange(1, len(text) + 1)], axis=1)
        for step in self._steps:
            text, spans = _normalized_with_sources(step, text, spans)
        starts, ends = np.array(runs).T
        run_of = np.searchsorted(ends, spans[:, 0], side="right")
        is_within = run_of < len(runs)
        is_within &= starts[run_of % len(runs)] <= spans[:, 0]
        is_within &= spans[:, 1] <= ends[run_of % len(runs)]
        run_of[~is_within] = -1
        edges = np.flatnonzero(np.diff(run_of, prepend=-1, append=-1))
        return [(start, end) for start, end in pairwise(edges.tolist()) if run_of[start] >= 0]

    def find_cut(self, text: str, *, is_first: bool = False) -> int:
        """The last index where `text` may be cut, whatever follows it: the two sides, normalized by
        themselves, join to the normalized text. 0 if there is none. With `is_first`, `text` begins
        a part."""
        found = self._cut.search(text) if self._cut else None
        cut = found.start() if found else 0
        return 0 if is_first and not self._prepends_to(text[:cut]) else cut

    def _prepends_to(self, text: str) -> bool:
        """Whether each `Prepend` has some of `text` left to precede: steps may remove all of it."""
        kinds = [step.kind for step in self._steps]
        n_steps = len(kinds) - kinds[::-1].index("Prepend") if "Prepend" in kinds else 0
        for step in self._steps[:n_steps]:
            if step.kind == "Prepend" and not text:
                return False
            text = _normalized(step, text, is_first=True)
        return True

    @cached_property
    def _cut(self) -> regex.Pattern[str] | None:
        return _compile_cut(self._steps)


def _compile_cut(steps: tuple[NormalizerStep, ...]) -> regex.Pattern[str] | None:
    """An expression for the last cut; None if there is no cut.

    The character after a cut begins a piece: no form joins it to what is before it. A `Replace` has
    no match across the cut: no step touches the character after it, or none touches the one
    before it, and what a step writes after the cut begins a piece too. A `Strip` does not reach
    the cut from the left: it does not touch the character before it.
    """
    joining = [f"[{_JOINING}]", f"[{_members(_characters(MARKS))}]"]
    touching = [step for step in steps if step.kind in ("Replace", "Strip")]
    begins = _all_but(joining)
    if not touching:
        return compile_exactly(f"(?r)(?<={_all_but([])}){begins}", regex.VERSION1)
    left_out = joining
    for step in touching:
        sets = _sets_of_touched(step)
        if sets is None:
            return None
        left_out = left_out + sets
    # What changes could become what a step touches.
    touched = compile_exactly("|".join(left_out), regex.VERSION1)
    changing = [f"[{_members(found)}]" for found in _changing(steps, touched) if found]
    untouched = _all_but(left_out + changing)
    before = untouched if any(step.kind == "Strip" for step in steps) else _all_but([])
    pairs = [(before, untouched)]
    written = [step.content for step in touching if step.kind == "Replace"]
    if all(map(compile_exactly(begins, regex.VERSION1).match, written)):
        pairs.append((untouched, begins))
    either = "|".join(f"(?<={one}){other}" for one, other in pairs)
    return compile_exactly(f"(?r)(?:{either})", regex.VERSION1)


def _all_but(sets: list[str]) -> str:
    """An expression for a character that is in none of these sets."""
    return "[" + "--".join([r"[\x00-\U0010FFFF]", *sets]) + "]"


def _sets_of_touched(step: NormalizerStep) -> list[str] | None:
    """The characters that a Replace or a Strip touches, as expressions for one. None if a match
    depends on the text around it."""
    if step.kind == "Strip":
        return [f"[{_members(_WHITE_SPACE)}]"]
    if not step.is_regex:
        return [f"[{_members(step.pattern)}]"]
    return sets_of_matches(step.split_pattern)


def _changing(
    steps: tuple[NormalizerStep, ...], touched: regex.Pattern[str]
) -> tuple[set[str], set[str]]:
    """The characters that a form changes, and those whose lower case is one of these or is
    `touched`."""
    forms = [step.kind for step in steps if is_form(step.kind)]
    by_forms = {
        character
        for form in forms
        for character, _ in form_tables(form)[0]
        if not unicodedata.is_normalized(form, character)
    }
    if not any(step.kind == "Lowercase" for step in steps):
        return by_forms, set()
    lowered = replacements_of("Lowercase").items()
    return by_forms, {c for c, low in lowered if low[0] in by_forms or touched.search(low)}


def _members(characters: Iterable[str]) -> str:
    """Characters as `regex` reads them within brackets."""
    codes = np.array(sorted(set(map(ord, characters))))
    is_first = np.diff(codes, prepend=-2) != 1
    is_last = np.diff(codes, append=codes[-1] + 2) != 1
    bounds = zip(codes[is_first].tolist(), codes[is_last].tolist(), strict=True)
    return "".join(f"\\U{first:08X}-\\U{last:08X}" for first, last in bounds)


def _normalized(step: NormalizerStep, text: str, *, is_first: bool) -> str:
    match step.kind:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return normalize_form(step.kind, text)
        case "Lowercase":
            # `str.lower` writes a final sigma, which Hugging Face does not.
            return text.lower() if text.isascii() else text.translate(_lowercase())
        case "StripAccents":
            return text if text.isascii() else _marks().sub("", text)
        case "Strip":
            return text[slice(*_stripped(step, text, is_first=is_first))]
        case "Prepend":
            return step.content + text if text and is_first else text
        case "Replace" if step.is_regex:
            parts, end = [], 0
            for start, stop in _matches(step, text):
                parts += [text[end:start], step.content]
                end = stop
            return "".join([*parts, text[end:]])
        case "Replace":
            return text.replace(step.pattern, step.content)


def replacements_of(kind: Literal["Lowercase", "StripAccents"]) -> dict[str, str]:
    """What a step that changes single characters makes of each that it changes."""
    if kind == "StripAccents":
        return dict.fromkeys(_characters(MARKS), "")
    return {chr(code): _lower(chr(code)) for code in _lowercase()}


def _stripped(step: NormalizerStep, text: str, *, is_first: bool) -> tuple[int, int]:
    start, end = 0, len(text)
    if step.strips_left and is_first:
        start = end - len(text.lstrip(_WHITE_SPACE))
    if step.strips_right:
        end = len(text.rstrip(_WHITE_SPACE))
    return start, max(start, end)


def _matches(step: NormalizerStep, text: str) -> list[tuple[int, int]]:
    """The spans, none of them empty, that a `Replace` replaces."""
    if step.is_regex:
        return list(find_matches(text, step.split_pattern))
    size = len(step.pattern)
    spans, start = [], text.find(step.pattern)
    while start >= 0:
        spans.append((start, start + size))
        start = text.find(step.pattern, start + size)
    return spans


def _normalized_with_spans(
    step: NormalizerStep, text: str, spans: NDArray[np.int64], *, is_first: bool
) -> tuple[str, NDArray[np.int64]]:
    """The text after a step, and the spans of its characters, from those before."""
    changed = _normalized(step, text, is_first=is_first)
    if step.kind == "Replace":
        return changed, _spans_after_replace(step, text, spans)
    if changed == text or not changed:
        return changed, spans[: len(changed)]
    match step.kind:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return changed, _follow(spans, _edits_of_form(step.kind, text))
        case "Lowercase":
            sizes = [len(_lower(character)) for character in text]
            return changed, np.repeat(spans, sizes, axis=0)
        case "StripAccents":
            return changed, spans[[not _marks().match(character) for character in text]]
        case "Strip":
            return changed, spans[slice(*_stripped(step, text, is_first=is_first))]
        case "Prepend":
            added = np.repeat(spans[:1], len(step.content), axis=0)
            return changed, np.concatenate([added, spans])


def _normalized_with_sources(
    step: NormalizerStep, text: str, spans: NDArray[np.int64]
) -> tuple[str, NDArray[np.int64]]:
    """As `_normalized_with_spans`, where the span of a character has all that it depends on."""
    if step.kind == "Replace":
        changed, edits = _normalized(step, text, is_first=True), _matches(step, text)
        sizes = [len(step.content)] * len(edits)
    elif is_form(step.kind):
        pieces = [(match.span(), match.group()) for match in _PIECE.finditer(text)]
        written = [normalize_form(step.kind, piece) for _, piece in pieces]
        changed = "".join(written)
        is_new = [new != piece for new, (_, piece) in zip(written, pieces, strict=True)]
        edits = list(compress((span for span, _ in pieces), is_new))
        sizes = list(map(len, compress(written, is_new)))
    else:
        return _normalized_with_spans(step, text, spans, is_first=True)
    parts, end = [], 0
    for (start, stop), size in zip(edits, sizes, strict=True):
        source = [[spans[start:stop, 0].min(), spans[start:stop, 1].max()]]
        parts += [spans[end:start], np.repeat(source, size, axis=0)]
        end = stop
    return changed, np.concatenate([*parts, spans[end:]])


def _spans_after_replace(
    step: NormalizerStep, text: str, spans: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Each new character comes from the last character of the match."""
    parts, end = [], 0
    for start, stop in _matches(step, text):
        parts += [spans[end:start], np.repeat(spans[stop - 1 : stop], len(step.content), axis=0)]
        end = stop
    return np.concatenate([*parts, spans[end:]])


def _follow(spans: NDArray[np.int64], edits: Iterable[int]) -> NDArray[np.int64]:
    """The spans of new characters. Each has a number: 1 if it is inserted after the one before it,
    else how many characters vanish after the one that it replaces, negative."""
    sources, position = [], 0
    for edit in edits:
        if edit > 0:
            sources.append(position - 1)
        else:
            sources.append(position)
            position += 1 - edit
    return spans[sources]


# What may join the character before it in some normal form, and parts of a text that begin with
# no such character.
_JOINING: Final = (
    r"\p{M}\u1161-\u1175\u11a8-\u11c2\u3133\u3135-\u3136\u313a-\u313f\u314f-\u3163"
    r"\uff9e-\uff9f\uffa3\uffa5-\uffa6\uffaa-\uffaf\uffc2-\uffc7\uffca-\uffcf\uffd2-\uffd7"
    r"\uffda-\uffdc"
)
_PIECE: Final = compile_exactly(
    rf"[\x00-\x7f]++(?![{_JOINING}])|[^{_JOINING}][{_JOINING}]*+|[{_JOINING}]++", regex.DOTALL
)


def _edits_of_form(form: Form, text: str) -> list[int]:
    """The number of each character that a normal form writes, see `_follow`."""
    edits: list[int] = []
    for piece in _PIECE.findall(text):
        is_same = normalize_form(form, piece) == piece
        edits += [0] * len(piece) if is_same else _edits_of_piece(form, piece)
    return edits


def _edits_of_piece(form: Form, text: str) -> list[int]:
    """As the algorithm of Unicode makes them: it decomposes, sorts, and composes."""
    parts: list[tuple[str, int]] = []
    for character in text:
        decomposed = normalize_form("NFKD" if "K" in form else "NFD", character)
        parts += zip(decomposed, [0, *[1] * (len(decomposed) - 1)], strict=True)
    parts = _in_canonical_order(parts, form)
    return [edit for _, edit in (_composed(parts, form) if form[-1] == "C" else parts)]


def _combining_class(character: str, form: Form) -> int:
    return 0 if is_newer(character, form) else unicodedata.combining(character)


def _in_canonical_order(parts: list[tuple[str, int]], form: Form) -> list[tuple[str, int]]:
    ordered: list[tuple[str, int]] = []
    marks: list[tuple[int, tuple[str, int]]] = []
    for part in parts:
        mark = _combining_class(part[0], form)
        if mark:
            marks.append((mark, part))
            continue
        ordered += [kept for _, kept in sorted(marks, key=lambda item: item[0])]
        marks = []
        ordered.append(part)
    return ordered + [kept for _, kept in sorted(marks, key=lambda item: item[0])]


def _composed(parts: list[tuple[str, int]], form: Form) -> list[tuple[str, int]]:
    composed: list[tuple[str, int]] = []
    starter, last_class = -1, 0
    for character, edit in parts:
        mark = _combining_class(character, form)
        # A mark is blocked by one of the same class between it and the starter.
        is_near = starter >= 0 and (len(composed) == starter + 1 or 0 < last_class < mark)
        if is_near and (whole := _compose(composed[starter][0], character, form)):
            composed[starter] = whole, composed[starter][1] + edit - 1
            continue
        if not mark:
            starter = len(composed)
        composed.append((character, edit))
        last_class = mark
    return composed


def _compose(left: str, right: str, form: Form) -> str | None:
    """The one character that the two compose to."""
    whole = unicodedata.normalize("NFC", left + right)
    if len(whole) != 1 or is_newer(left, form) or is_newer(right, form):
        return None
    is_syllable = "\uac00" <= whole <= "\ud7a3"
    parts = unicodedata.decomposition(whole)
    return whole if is_syllable or parts == f"{ord(left):04X} {ord(right):04X}" else None


def _lower(character: str) -> str:
    found = _lowercase().get(ord(character), character)
    return found if isinstance(found, str) else chr(found)


@cache
def _lowercase() -> dict[int, int | str]:
    """Code point -> its lower case, if that is another one."""
    table: dict[int, int | str] = {0x130: "i\u0307"}
    for run in LOWERCASE.split():
        first, last, step, added = _LOWERCASE_RUN.fullmatch(run).groups()  # type: ignore[union-attr]
        for code in range(int(first, 16), int(last, 16) + 1, int(step)):
            table[code] = code + int(added, 16)
    return table


_LOWERCASE_RUN: Final = regex.compile(r"(\w+)-(\w+)/(\d)([+-]\w+)")


@cache
def _marks() -> regex.Pattern[str]:
    return regex.compile(f"[{_members(_characters(MARKS))}]+")


def _characters(ranges: str) -> Iterator[str]:
    for run in ranges.split():
        first, _, last = run.partition("-")
        yield from map(chr, range(int(first, 16), int(last or first, 16) + 1))
