r"""The `pre_tokenizer` of a `tokenizer.json`: how text is split, read step by step.

Oniguruma runs the expressions of this file. In Oniguruma, `{1,3}+` repeats a repetition (in `regex`
it is possessive), and `$` also matches before every newline. The spellings that are published for
Hugging Face become named patterns, and a named pattern is written in such a spelling. Any other
expression is read in the dialect `oniguruma`, which translates it exactly or refuses it, and is
written as it is. A custom expression of another dialect is written if Oniguruma reads it alike.

In a vocabulary of characters the merges decide how text is split, and a pre-tokenizer does no more
than to write spaces as U+2581.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tokenizer_core.errors import FormatError, UnknownPatternError
from tokenizer_core.formats.tokenizer_json.fields import (
    check_byte_level,
    check_fields,
    kind_of,
    render_byte_level,
    steps_of,
)
from tokenizer_core.normalizers.spaces import METASPACE_CHARACTER
from tokenizer_core.splitting.patterns import (
    CUSTOM,
    DEEPSEEK,
    DIGITS_THEN_GPT2,
    MAX_STEPS,
    NUMERIC,
    PATTERNS,
    PUBLISHED_SPELLINGS,
    Behavior,
    SplitPattern,
    Unmatched,
    resolve_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokenizer_core.spec import TokenizerSpec

SPELLINGS: Final = MappingProxyType(
    {
        **{name: expression for expression, name in PUBLISHED_SPELLINGS.items()},
        # Our own: published files contain Llama 3's cl100k, not tiktoken's.
        "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s",
        "o200k": PATTERNS["o200k"].expression,
    }
)
"""Pattern name -> its expression for Oniguruma."""

_NAMES: Final = {expression: name for name, expression in SPELLINGS.items()}

_DIGITS: Final = MappingProxyType(
    {
        True: SplitPattern(CUSTOM, f"[{NUMERIC}]"),
        False: SplitPattern(CUSTOM, f"[{NUMERIC}]++"),
    }
)
"""Whether Digits isolates each digit -> Digits as a step among others."""

_THREE_DIGITS: Final = "[0-9][0-9][0-9]"
_NUMERIC_BYTES: Final = frozenset(b"0123456789\xb2\xb3\xb9\xbc\xbd\xbe")
"""The bytes whose characters in the alphabet are digits to Digits."""

_DEEPSEEK_SPLITS: Final = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)
"""The three Splits of DeepSeek V3 and R1, each of which sees one piece of the one before it."""

# Of Hugging Face's two sources of Unicode, both older than this one.
_NOT_YET_PUNCTUATION: Final = (
    r"\u061d\u09fd\u0a76\u0c77\u0c84\u1b4e-\u1b4f\u1b7d-\u1b7f\u2e43-\u2e4f\u2e52-\u2e5d"
    r"\U00010d6e\U00010ead\U00010f55-\U00010f59\U00010f86-\U00010f89\U000113d4-\U000113d5"
    r"\U000113d7-\U000113d8\U0001144b-\U0001144f\U0001145a-\U0001145b\U0001145d"
    r"\U00011660-\U0001166c\U000116b9\U0001183b\U00011944-\U00011946\U000119e2"
    r"\U00011a3f-\U00011a46\U00011a9a-\U00011a9c\U00011a9e-\U00011aa2\U00011b00-\U00011b09"
    r"\U00011be1\U00011c41-\U00011c45\U00011c70-\U00011c71\U00011ef7-\U00011ef8"
    r"\U00011f43-\U00011f4f\U00011fff\U00012ff1-\U00012ff2\U00016d6d-\U00016d6f"
    r"\U00016e97-\U00016e9a\U00016fe2\U0001e5ff\U0001e95e-\U0001e95f"
)
_PUNCTUATION: Final = SplitPattern(
    CUSTOM, rf"(?![{_NOT_YET_PUNCTUATION}])[\p{{P}}!-/:-@\[-`{{-~\u166d\U000111c9]"
)
"""The characters that Punctuation takes for such, one by one."""

_WORD: Final = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"
_WORDS: Final = MappingProxyType(
    {
        "Whitespace": SplitPattern(CUSTOM, rf"[{_WORD}]++|[^{_WORD}\s]++", unmatched="drop"),
        "WhitespaceSplit": SplitPattern(CUSTOM, r"\s++", behavior="removed"),
    }
)
_WHOLE_TEXT: Final = SplitPattern(CUSTOM, r"[\s\S]+", "oniguruma")
"""What a ByteLevel with `use_regex: false` alone does."""

_META: Final = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")
_BEHAVIOR_OF: Final[Mapping[str, Behavior]] = MappingProxyType(
    {
        "Isolated": "isolated",
        "Removed": "removed",
        "Contiguous": "contiguous",
        "MergedWithPrevious": "merged-with-previous",
        "MergedWithNext": "merged-with-next",
    }
)

_UNMATCHED: Final[Mapping[tuple[Behavior, bool], Unmatched]] = MappingProxyType(
    {("isolated", False): "keep", ("isolated", True): "keep", ("removed", True): "drop"}
)
"""Behavior and `invert` of a Split -> what becomes of text without a match. The named patterns
match every character, so for them all three are equal."""

AT_SPACES: Final[dict[str, object]] = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
SCHEMES: Final[Mapping[str, str]] = MappingProxyType(
    {"first": "metaspace-first", "always": "metaspace-always", "never": "metaspace"}
)
"""`prepend_scheme` of a Metaspace -> what it does in place of a normalizer."""


class PreTokenizer(NamedTuple):
    """What a pre-tokenizer does.

    - `pattern`: where it splits; None where the merges of characters decide.
    - `puts_space`: whether it puts a space before a text, which is no part of the pattern.
    - `cuts`: where its steps after a ByteLevel cut a pre-token: between a byte of the set and any
      other byte, and with True between any two of the set.
    - `spaces`: how a vocabulary of characters treats spaces: one of SCHEMES, `none` (it has no
      pre-tokenizer), `idle` (it splits at spaces, which the normalizer replaced), or `other`.
    """

    pattern: SplitPattern | None = None
    puts_space: bool = False
    cuts: tuple[frozenset[int], bool] | None = None
    spaces: str = ""


def parse_pre_tokenizer(value: object, *, by_characters: bool = False) -> PreTokenizer:
    """Parse a `pre_tokenizer`: ByteLevel, alone or among other steps; of a vocabulary of
    characters, Metaspace or steps that change nothing. Raises FormatError: any other value (named).
    """
    where = "pre_tokenizer"
    if by_characters:
        return PreTokenizer(spaces=_parse_spaces(value, where))
    if kind_of(value) == "ByteLevel":
        return _parse_byte_level(value, where)
    table = check_fields(
        value, where, {"type": ("Sequence",)}, ("pretokenizers",), ("type", "pretokenizers")
    )
    steps = table["pretokenizers"]
    if isinstance(steps, list) and len(steps) == 1 and kind_of(steps[0]) == "ByteLevel":
        return _parse_byte_level(steps[0], f"{where}.pretokenizers[0]")
    if not isinstance(steps, list) or len(steps) < 2:
        raise FormatError(
            "tokenizer.json: pre_tokenizer.pretokenizers must be Splits or Digits, and one "
            "ByteLevel at the end"
        )
    if len(steps) > MAX_STEPS:
        raise FormatError(f"tokenizer.json: {where} has {len(steps)} steps, more than {MAX_STEPS}")
    return _parse_steps(steps, where)


def _parse_spaces(value: object, where: str) -> str:
    steps = steps_of(value, "pretokenizers")
    if len(steps) == 1 and kind_of(steps[0]) == "Metaspace":
        table = check_fields(
            steps[0],
            where,
            {
                "type": ("Metaspace",),
                "replacement": (METASPACE_CHARACTER,),
                "prepend_scheme": tuple(SCHEMES),
                "split": (False,),
            },
            required=("type", "replacement", "prepend_scheme", "split"),
        )
        return str(table["prepend_scheme"])
    if all(step in (AT_SPACES, render_metaspace("never")) for step in steps):
        return "idle" if steps else "none"
    return "other"


def _parse_byte_level(value: object, where: str) -> PreTokenizer:
    """A ByteLevel without other steps."""
    table = check_byte_level(value, where, "add_prefix_space")
    pattern = PATTERNS["gpt2"] if table.get("use_regex", True) is True else _WHOLE_TEXT
    return PreTokenizer(pattern, table["add_prefix_space"] is True)


def _parse_steps(steps: list[object], where: str) -> PreTokenizer:
    """Several Splits and Digits, and a ByteLevel, which may split too."""
    placed = [(step, f"{where}.pretokenizers[{index}]") for index, step in enumerate(steps)]
    kinds = list(map(kind_of, steps))
    n_before = kinds.index("ByteLevel") if "ByteLevel" in kinds else len(steps) - 1
    parsed = [_parse_step(step, at) for step, at in placed[:n_before]]
    byte_level = check_byte_level(*placed[n_before], "add_prefix_space", add_prefix_space=(False,))
    uses_regex = byte_level.get("use_regex", True) is True
    if not uses_regex and n_before == len(steps) - 1 and _are_splits_of_deepseek(steps[:-1]):
        return PreTokenizer(DEEPSEEK)
    parsed += [PATTERNS["gpt2"]] if uses_regex else []
    for individually, digits in _DIGITS.items():
        if len(steps) == 2 and parsed == [digits, PATTERNS["gpt2"]]:
            return PreTokenizer(DIGITS_THEN_GPT2[individually])
    after, cuts = _parse_steps_of_bytes(placed[n_before + 1 :])
    parsed += after
    if not parsed:
        raise FormatError(
            f"tokenizer.json: {where} splits between the bytes of characters alone, which cannot "
            f"be read exactly"
        )
    if len(parsed) == 1:
        return PreTokenizer(parsed[0], cuts=cuts)
    *before, end = map(_as_step, parsed)
    return PreTokenizer(resolve_pattern(replace(end, before=tuple(before))), cuts=cuts)


def _parse_steps_of_bytes(
    placed: list[tuple[object, str]],
) -> tuple[list[SplitPattern], tuple[frozenset[int], bool] | None]:
    """The steps after a ByteLevel (Falcon), as steps before it that split alike, and the cuts of
    its Digits, where the model must prove that no merge joins.

    Digits sees the alphabet of bytes, in which bytes of other characters are digits too: the last
    byte of U+00F2 is a superscript two. Three digits in a row are the same characters before and
    after. Digits cuts no run of digits, unless it isolates each, after which no Split finds three.
    """
    are_individual = [_are_individual(step, at) for step, at in placed if kind_of(step) == "Digits"]
    splits = [(step, at) for step, at in placed if kind_of(step) != "Digits"]
    for step, at in splits:
        if step != _render_split(_THREE_DIGITS) or any(are_individual):
            raise FormatError(
                f"tokenizer.json: {at} is a step after a ByteLevel, where it splits the alphabet "
                f"of bytes; only Digits, or Digits of runs and a Split of {_THREE_DIGITS} "
                f"(Falcon), can be read exactly there"
            )
    cuts = (_NUMERIC_BYTES, any(are_individual)) if are_individual else None
    return [_parse_split(step, at) for step, at in splits], cuts


def _parse_step(value: object, where: str) -> SplitPattern:
    kind = kind_of(value)
    return _PARSERS.get(kind if isinstance(kind, str) else "", _parse_split)(value, where)


def _are_individual(value: object, where: str) -> bool:
    fixed = {"type": ("Digits",), "individual_digits": (True, False)}
    digits = check_fields(value, where, fixed, required=("individual_digits",))
    return digits["individual_digits"] is True


def _parse_punctuation(value: object, where: str) -> SplitPattern:
    table = check_fields(value, where, {"type": ("Punctuation",)}, ("behavior",))
    return replace(_PUNCTUATION, behavior=_parse_behavior(table.get("behavior", "Isolated"), where))


def _parse_words(value: object, where: str) -> SplitPattern:
    table = check_fields(value, where, {"type": tuple(_WORDS)})
    return _WORDS[str(table["type"])]


def _parse_split(value: object, where: str) -> SplitPattern:
    fields = ("type", "pattern", "behavior", "invert")
    split = check_fields(value, where, {"type": ("Split",)}, fields[1:], fields)
    invert = split["invert"]
    if not isinstance(invert, bool):
        raise FormatError(f"tokenizer.json: {where}.invert is {invert!r:.40}, not true or false")
    expression = _parse_expression(split["pattern"], f"{where}.pattern")
    behavior = _parse_behavior(split["behavior"], where)
    unmatched = _UNMATCHED.get((behavior, invert))
    if unmatched is None:
        pattern = SplitPattern(CUSTOM, expression, "oniguruma", behavior=behavior, invert=invert)
    elif expression in _NAMES:
        return PATTERNS[_NAMES[expression]]
    else:
        pattern = SplitPattern(CUSTOM, expression, "oniguruma", unmatched)
    try:
        return resolve_pattern(pattern)
    except UnknownPatternError as error:
        raise FormatError(f"tokenizer.json: {where}.pattern.Regex: {error}") from None


def _parse_behavior(value: object, where: str) -> Behavior:
    if not isinstance(value, str) or value not in _BEHAVIOR_OF:
        known = ", ".join(_BEHAVIOR_OF)
        raise FormatError(f"tokenizer.json: {where}.behavior is {value!r:.40}, none of {known}")
    return _BEHAVIOR_OF[value]


def _parse_expression(value: object, where: str) -> str:
    pattern = check_fields(value, where, {}, ("Regex", "String"))
    if len(pattern) != 1:
        raise FormatError(f"tokenizer.json: {where} must have a Regex or a String")
    ((kind, expression),) = pattern.items()
    if not isinstance(expression, str):
        raise FormatError(f"tokenizer.json: {where}.{kind} is no text")
    if kind == "Regex":
        return expression
    if not expression:
        raise FormatError(f"tokenizer.json: {where}.String is empty")
    return _META.sub(r"\\\g<0>", expression)


_PARSERS: Final[Mapping[str, Callable[[object, str], SplitPattern]]] = MappingProxyType(
    {
        "Digits": lambda value, where: _DIGITS[_are_individual(value, where)],
        "Punctuation": _parse_punctuation,
        "Split": _parse_split,
        **dict.fromkeys(_WORDS, _parse_words),
    }
)


def _as_step(pattern: SplitPattern) -> SplitPattern:
    return replace(pattern, name=CUSTOM)


def _are_splits_of_deepseek(steps: list[Any]) -> bool:
    """Whether checked steps are DeepSeek's, for which one expression is faster. The published files
    hold the line breaks themselves."""

    def with_escapes(step: dict[str, Any]) -> dict[str, Any]:
        expression = step.get("pattern", {}).get("Regex", "")
        escaped = expression.replace("\r", r"\r").replace("\n", r"\n")
        return step | {"pattern": {"Regex": escaped}}

    return list(map(with_escapes, steps)) == list(map(_render_split, _DEEPSEEK_SPLITS))


def render_pre_tokenizer(spec: TokenizerSpec) -> dict[str, object] | None:
    """The `pre_tokenizer` of a spec. Raises FormatError: as `render_pattern`; or a space before a
    text, which this file cannot put there."""
    if spec.alphabet.has_characters:
        scheme = spec.normalizer.name.removeprefix("metaspace-")
        return render_metaspace(scheme) if scheme in SCHEMES else None
    rendered = render_pattern(spec.pattern)
    if spec.alphabet.missing and spec.alphabet.missing.ends:
        # No merge joins across a cut, so that isolating each digit makes no difference.
        steps = [*steps_of(rendered, "pretokenizers"), _render_digits(individually=False)]
        rendered = {"type": "Sequence", "pretokenizers": steps}
    if spec.normalizer.name != "prefix-space":
        return rendered
    if rendered["type"] != "ByteLevel":
        raise FormatError(
            f"with the split pattern {spec.pattern.name}, a tokenizer.json puts a space before "
            f"each pre-token, and this tokenizer before a text (prefix-space)"
        )
    return rendered | {"add_prefix_space": True}


def render_pattern(pattern: SplitPattern) -> dict[str, object]:
    """The `pre_tokenizer` that splits like `pattern`. Raises FormatError: a custom pattern of
    another dialect, which Oniguruma might read otherwise, unless it is DeepSeek's or that of other
    steps than Splits."""
    if pattern == _WHOLE_TEXT:
        return render_byte_level(use_regex=False)
    steps = [*pattern.before, pattern.alone()]
    for individually, digits in DIGITS_THEN_GPT2.items():
        if pattern == digits:
            steps = [_DIGITS[individually], PATTERNS["gpt2"]]
    splits = _as_step(steps[-1]) == _as_step(PATTERNS["gpt2"])
    if pattern == DEEPSEEK:
        rendered = list(map(_render_split, _DEEPSEEK_SPLITS))
    else:
        what = "step {} of the split pattern has the dialect"
        if not pattern.has_steps:
            known = ", ".join(SPELLINGS)
            what = f"split pattern {{}} is not one of {known}, and its dialect is"
        rendered = [_render_step(step, what) for step in (steps[:-1] if splits else steps)]
    byte_level = render_byte_level(use_regex=splits)
    return (
        {"type": "Sequence", "pretokenizers": [*rendered, byte_level]} if rendered else byte_level
    )


def _render_step(step: SplitPattern, what: str) -> dict[str, object]:
    for individually, digits in _DIGITS.items():
        if step == digits:
            return _render_digits(individually=individually)
    for kind, known in _WORDS.items():
        if step == known:
            return {"type": kind}
    behavior = next(name for name, known in _BEHAVIOR_OF.items() if known == step.behavior)
    if replace(step, behavior="isolated") == _PUNCTUATION:
        return {"type": "Punctuation", "behavior": behavior}
    for name, named in PATTERNS.items():
        if _as_step(step) == _as_step(named):
            return _render_split(SPELLINGS[name])
    if step.dialect != "oniguruma" and not _is_alike_in_oniguruma(step):
        found = what.format(format(repr(step.expression), ".120"))
        raise FormatError(
            f"the {found} {step.dialect}; Hugging Face runs expressions in Oniguruma, which might "
            f"split otherwise"
        )
    split = _render_split(step.expression, drops=step.unmatched == "drop")
    if step.behavior == "isolated":
        return split
    return split | {"behavior": behavior, "invert": step.invert}


def _is_alike_in_oniguruma(step: SplitPattern) -> bool:
    """Whether Oniguruma certainly reads the expression as its dialect does, like a Tekken's."""
    # Imported here: few processes need it.
    from tokenizer_core.splitting.dialects import translate

    try:
        own, other = (translate(step.expression, each) for each in (step.dialect, "oniguruma"))
    except UnknownPatternError:
        return False
    return own == other and not own.matches_empty  # engines go on differently after nothing


def render_metaspace(scheme: str) -> dict[str, object]:
    """A Metaspace object that does not split."""
    return {
        "type": "Metaspace",
        "replacement": METASPACE_CHARACTER,
        "prepend_scheme": scheme,
        "split": False,
    }


def _render_digits(*, individually: bool) -> dict[str, object]:
    return {"type": "Digits", "individual_digits": individually}


def _render_split(expression: str, *, drops: bool = False) -> dict[str, object]:
    return {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Removed" if drops else "Isolated",
        "invert": drops,
    }
