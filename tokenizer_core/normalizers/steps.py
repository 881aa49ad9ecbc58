"""Steps: a normalizer of several steps, as a `tokenizer.json` may have."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

from tokenizer_core.errors import InvalidSpecError, UnknownPatternError
from tokenizer_core.normalizers.forms import (
    JOINING,
    form_tables,
    is_form,
    normalize_form,
    pieces_of_form,
    sources_of_form,
)
from tokenizer_core.normalizers.protocol import Normalizer
from tokenizer_core.normalizers.spaces import with_spaces
from tokenizer_core.normalizers.step import NormalizerStep, check_steps
from tokenizer_core.normalizers.tables import LOWERCASE, MARKS
from tokenizer_core.splitting.patterns import sets_of_matches
from tokenizer_core.splitting.pretokenize import find_matches
from tokenizer_core.splitting.unicode_sets import WHITE_SPACE, compile_exactly, join, set_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import regex
    from numpy.typing import NDArray

    from tokenizer_core.normalizers.aligned import Aligned


@dataclass(frozen=True)
class Steps(Normalizer):
    """Runs steps, one after the other; `normalized` tokens are searched in the result.

    Most steps have the name `steps`. Those of SentencePiece have the name `metaspace-steps`: the
    result is searched for the content of `normalized` tokens, not for what the steps make of it. A
    normalizer that `normalizer_for` turned into steps keeps its own name.
    """

    def check(self) -> None:
        """Raise InvalidSpecError unless the steps can run."""
        if self.name in OF_STEPS and self.steps in ((), NFC_ALONE):
            raise step_error(self.name, len(self.steps))
        try:
            check_steps(self.steps)
        except UnknownPatternError as error:
            raise InvalidSpecError(f"a Replace step of the normalizer: {error}") from None

    def fields(self) -> list[dict[str, object]]:
        """The fields of each step; none if the name defines the steps."""
        return [step.fields() for step in self.steps] if self.name in OF_STEPS else []

    def spell(self, content: str) -> str:
        """As the steps make it; those of SentencePiece search it as it is."""
        return with_spaces(content) if self.name == "metaspace-steps" else self.normalize(content)

    def normalize(self, text: str, *, is_first: bool = True, continues: bool = False) -> str:
        """Alike in all parts of a text."""
        for step in self.steps:
            text = _normalized(step, text, begins_part=not continues)
        return text

    def align(self, text: str, *, is_first: bool = True, continues: bool = False) -> Aligned:
        """As Hugging Face follows each character through each step."""
        from tokenizer_core.normalizers.aligned import Aligned

        return Aligned.of(text, *self._follow(text, begins_part=not continues, whole=False))

    def normalize_runs(self, text: str, runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The runs of a part, in characters, as runs of the normalized part: the characters that
        depend on one run alone. Where text between two runs vanished, they may touch."""
        import numpy as np

        from tokenizer_core.normalizers.aligned import each_character

        if not runs:
            return []
        if runs[0] == (0, len(text)):
            return [(0, len(self.normalize(text)))]
        _, spans = self._follow(text, begins_part=True, whole=True)
        if spans is None:
            spans = each_character(len(text))
        starts, ends = np.array(runs).T
        run_of = np.searchsorted(ends, spans[:, 0], side="right")
        is_within = run_of < len(runs)
        is_within &= starts[run_of % len(runs)] <= spans[:, 0]
        is_within &= spans[:, 1] <= ends[run_of % len(runs)]
        run_of[~is_within] = -1
        edges = np.flatnonzero(np.diff(run_of, prepend=-1, append=-1))
        return [(start, end) for start, end in pairwise(edges.tolist()) if run_of[start] >= 0]

    def _follow(
        self, text: str, *, begins_part: bool, whole: bool
    ) -> tuple[str, NDArray[np.int64] | None]:
        """The normalized text, and start and end in `text` of what each character came from, shape
        (n_chars, 2); None if it is the one at the same index. With `whole`, that is all that it
        depends on."""
        import numpy as np

        spans = None
        for step in self.steps:
            text, sources = _followed(step, text, begins_part=begins_part, whole=whole)
            if sources is not None and spans is None:
                spans = sources
            elif sources is not None and spans is not None:
                spans = np.stack([spans[sources[:, 0], 0], spans[sources[:, 1] - 1, 1]], axis=1)
        return text, spans

    def find_cut(self, text: str, *, continues: bool = True) -> int:
        """Where no step reaches from one side to the other."""
        expression = _compile_cut(self.steps)
        found = expression.search(text) if expression else None
        cut = found.start() if found else 0
        return cut if continues or self._prepends_to(text[:cut]) else 0

    def _prepends_to(self, text: str) -> bool:
        """Whether each `Prepend` has some of `text` left to precede: steps may remove all of it."""
        kinds = [step.kind for step in self.steps]
        n_steps = len(kinds) - kinds[::-1].index("Prepend") if "Prepend" in kinds else 0
        for step in self.steps[:n_steps]:
            if step.kind == "Prepend" and not text:
                return False
            text = _normalized(step, text, begins_part=True)
        return True

    @property
    def cuts_documents(self) -> bool:
        """Each part would begin with what is put before a text."""
        return not self.strips_space and all(step.kind != "Prepend" for step in self.steps)


OF_STEPS: Final = ("steps", "metaspace-steps")
NFC_ALONE: Final = (NormalizerStep("NFC"),)


def step_error(name: str, n_steps: int) -> InvalidSpecError:
    """For steps without their name, or the other way round."""
    return InvalidSpecError(
        f"the normalizers `steps` and `metaspace-steps` have steps, and no other has; NFC "
        f"alone is `nfc`. The normalizer is {name}, with {n_steps} steps"
    )


@lru_cache(maxsize=64)
def _compile_cut(steps: tuple[NormalizerStep, ...]) -> regex.Pattern[str] | None:
    """An expression for the last cut; None if there is no cut.

    The character after a cut begins a piece: no form joins it to what is before it. A `Replace` has
    no match across the cut: no step touches the character after it, or none touches the one
    before it, and what a step writes after the cut begins a piece too. A `Strip` does not reach
    the cut from the left: it does not touch the character before it.
    """
    import regex

    joining = [f"[{JOINING}]", f"[{_members(_characters(MARKS))}]"]
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
        return [f"[{_members(WHITE_SPACE)}]"]
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
    return set_members(join(((code, code),) for code in map(ord, characters)))


def _normalized(step: NormalizerStep, text: str, *, begins_part: bool) -> str:
    match step.kind:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return normalize_form(step.kind, text)
        case "Lowercase":
            # `str.lower` writes a final sigma, which Hugging Face does not.
            return text.lower() if text.isascii() else text.translate(_lowercase())
        case "StripAccents":
            return text if text.isascii() else _marks().sub("", text)
        case "Strip":
            return text[slice(*_stripped(step, text, begins_part=begins_part))]
        case "Prepend":
            return step.content + text if text and begins_part else text
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


def _stripped(step: NormalizerStep, text: str, *, begins_part: bool) -> tuple[int, int]:
    start, end = 0, len(text)
    if step.strips_left and begins_part:
        start = end - len(text.lstrip(WHITE_SPACE))
    if step.strips_right:
        end = len(text.rstrip(WHITE_SPACE))
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


def _followed(
    step: NormalizerStep, text: str, *, begins_part: bool, whole: bool
) -> tuple[str, NDArray[np.int64] | None]:
    """The text after a step, and the spans of what its characters came from, as
    `Steps._follow`."""
    import numpy as np

    changed = _normalized(step, text, begins_part=begins_part)
    if step.kind == "Replace":
        matches = _matches(step, text)
        return changed, _around(matches, len(text), len(step.content), whole) if matches else None
    if changed == text:
        return text, None

    sources = np.arange(len(text))
    match step.kind:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            if whole:
                return pieces_of_form(step.kind, text)
            sources = np.array(sources_of_form(step.kind, text), dtype=np.int64)
        case "Lowercase":
            if len(changed) == len(text):
                return changed, None
            sources = np.repeat(sources, [len(_lower(character)) for character in text])
        case "StripAccents":
            sources = sources[[not _marks().match(character) for character in text]]
        case "Strip":
            sources = sources[slice(*_stripped(step, text, begins_part=begins_part))]
        case "Prepend":
            sources = np.concatenate([sources[:1].repeat(len(step.content)), sources])
    return changed, np.stack([sources, sources + 1], axis=1)


def _around(
    matches: list[tuple[int, int]], n_chars: int, size: int, whole: bool
) -> NDArray[np.int64]:
    """The spans of the characters after a `Replace` that writes `size` characters for each match.
    They come from its last character, or with `whole` from all of it."""
    import numpy as np

    from tokenizer_core.normalizers.aligned import each_character

    starts, ends = np.array(matches).T
    depth = np.zeros(n_chars + 1, dtype=np.int64)
    depth[starts] += 1
    depth[ends] -= 1
    counts = 1 - np.cumsum(depth[:-1])
    counts[ends - 1] = size
    spans = each_character(n_chars)
    if whole:
        spans[ends - 1, 0] = starts
    return np.repeat(spans, counts, axis=0)


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


_LOWERCASE_RUN: Final = re.compile(r"(\w+)-(\w+)/(\d)([+-]\w+)")


@cache
def _marks() -> regex.Pattern[str]:
    import regex

    return regex.compile(f"[{_members(_characters(MARKS))}]+")


def _characters(ranges: str) -> Iterator[str]:
    for run in ranges.split():
        first, _, last = run.partition("-")
        yield from map(chr, range(int(first, 16), int(last or first, 16) + 1))
