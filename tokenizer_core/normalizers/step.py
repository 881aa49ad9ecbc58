"""NormalizerStep: one step of a general normalizer, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.splitting.patterns import CUSTOM, SplitPattern, resolve_pattern

StepKind = Literal[
    "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Replace", "Prepend"
]

MAX_STEPS: Final = 64
MAX_GROWTH: Final = 1024
"""All `Replace` steps together may make a character at most this many characters: a chain of small
steps could make gigabytes of one letter."""


@dataclass(frozen=True, slots=True)
class NormalizerStep:
    """A step, named as in Hugging Face's `tokenizers`.

    - `pattern`, `is_regex`: what `Replace` looks for: a text, or an expression for Oniguruma.
    - `content`: what `Replace` writes instead, and what `Prepend` puts before a text.
    - `strips_left`, `strips_right`: the sides at which `Strip` removes white space.
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
