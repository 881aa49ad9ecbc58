r"""Parts of a `tokenizer.json`: its `pre_tokenizer` and `post_processor`, read field by field.

`check_fields` refuses an unknown field, or a value whose effect on ids is not supported, and names
the field.

**Split expressions.** Oniguruma runs the expressions of this file. In Oniguruma, `{1,3}+` repeats a
repetition (in `regex` it is possessive), and `$` also matches before every newline. The spellings
that are published for Hugging Face become named patterns, and a named pattern is written in such a
spelling. Any other expression is read in the dialect `oniguruma`, which translates it exactly or
refuses it, and is written as it is. A custom expression of another dialect is not written.

**Templates.** Only the template for a single text matters; the library has no pairs of texts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from tokenizer_core.errors import FormatError, UnknownPatternError
from tokenizer_core.formats.gpt2_files import check_id, render_token
from tokenizer_core.splitting.patterns import (
    CUSTOM,
    DEEPSEEK,
    DIGITS_THEN_GPT2,
    MAX_STEPS,
    NUMERIC,
    PATTERNS,
    Behavior,
    SplitPattern,
    Unmatched,
    resolve_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizer_core.engines.protocol import PackedModel
    from tokenizer_core.spec import TokenizerSpec

    Entries = dict[str, int] | PackedModel


def check_fields(
    table: object,
    where: str,
    fixed: dict[str, tuple[object, ...]],
    free: tuple[str, ...] = (),
    required: tuple[str, ...] = (),
) -> dict[str, object]:
    """Return `table` if it is an object with all `required` fields, whose `fixed` fields have one
    of the given values and whose other fields are in `free`; else a FormatError names the field."""
    if not isinstance(table, dict):
        raise FormatError(f"tokenizer.json: {where} is no object")
    for key, value in table.items():
        if key in free:
            continue
        if key not in fixed:
            shown = ascii(key)[1:-1]  # escapes line breaks, which would break the log
            raise FormatError(f"tokenizer.json: the field {where}.{shown:.60} is not known here")
        # Compare the type too: True == 1 in Python, but not in JSON.
        if not any(type(value) is type(known) and value == known for known in fixed[key]):
            known = " or ".join(repr(known) for known in fixed[key])
            raise FormatError(
                f"tokenizer.json: {where}.{key} is {value!r:.120}; only {known} can be read exactly"
            )
    for key in required:
        if key not in table:
            raise FormatError(f"tokenizer.json: the field {where}.{key} is missing")
    return table


def check_byte_level(table: object, where: str, **fixed: tuple[object, ...]) -> dict[str, object]:
    """Check a ByteLevel object, whose `fixed` fields have one of the given values."""
    either: dict[str, tuple[object, ...]] = dict.fromkeys(
        ("add_prefix_space", "trim_offsets", "use_regex"), (True, False)
    )
    return check_fields(
        table, where, {"type": ("ByteLevel",), **either, **fixed}, required=("type",)
    )


def is_vocab(value: object) -> TypeGuard[Entries]:
    """Whether a value may be the `vocab` of a model: an object, or entries that are packed."""
    return isinstance(value, dict) or hasattr(value, "entries")


def is_byte_level(root: Mapping[str, Any]) -> bool:
    """Whether the pre-tokenizer or the decoder of a file knows the alphabet of bytes."""
    return any(_has_byte_level(root[part]) for part in ("pre_tokenizer", "decoder"))


def _has_byte_level(value: object) -> bool:
    """Whether a pre-tokenizer or decoder is a ByteLevel, or a Sequence with one."""
    if not isinstance(value, dict):
        return False
    steps = value.get("pretokenizers") or value.get("decoders")
    parts = [value, *steps] if isinstance(steps, list) else [value]
    return any(isinstance(part, dict) and part.get("type") == "ByteLevel" for part in parts)


def render_byte_level(*, use_regex: bool = True) -> dict[str, object]:
    """A ByteLevel object without a prefix space."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": use_regex,
    }


_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Final = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}", 1)
# Our own spelling: published tokenizer.json files contain Llama 3's cl100k, not tiktoken's.
_CL100K: Final = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++\z|\s*[\r\n]|\s+(?!\S)|\s"
)
_O200K: Final = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
SPELLINGS: Final = MappingProxyType(
    {"gpt2": _GPT2, "cl100k": _CL100K, "llama3": _LLAMA3, "qwen2": _QWEN2, "o200k": _O200K}
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
_STEP_OF: Final = MappingProxyType(
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

_UNMATCHED: Final[dict[tuple[object, object], Unmatched]] = {
    ("Isolated", False): "keep",
    ("Isolated", True): "keep",
    ("Removed", True): "drop",
}
"""Behavior and `invert` of a Split -> what becomes of text without a match. The named patterns
match every character, so for them all three are equal."""


def parse_pre_tokenizer(value: object) -> SplitPattern:
    """The split pattern of a `pre_tokenizer`: ByteLevel, alone or after Splits and Digits. Whether
    it puts a space before a text is not part of the pattern: see `puts_prefix_space`.

    Raises:
        FormatError: any other value (named).

    Example:
        >>> parse_pre_tokenizer({"type": "ByteLevel", "add_prefix_space": False}).name
        'gpt2'
    """
    where = "pre_tokenizer"
    if _is_byte_level(value):
        return _pattern_of_byte_level(value, where)
    table = check_fields(
        value, where, {"type": ("Sequence",)}, ("pretokenizers",), ("type", "pretokenizers")
    )
    steps = table["pretokenizers"]
    if isinstance(steps, list) and len(steps) == 1 and _is_byte_level(steps[0]):
        return _pattern_of_byte_level(steps[0], f"{where}.pretokenizers[0]")
    if not isinstance(steps, list) or len(steps) < 2:
        raise FormatError(
            "tokenizer.json: pre_tokenizer.pretokenizers must be Splits or Digits, and one "
            "ByteLevel at the end"
        )
    if len(steps) > MAX_STEPS:
        raise FormatError(f"tokenizer.json: {where} has {len(steps)} steps, more than {MAX_STEPS}")
    return _parse_steps(steps, where)


def puts_prefix_space(value: object) -> bool:
    """Whether a checked `pre_tokenizer` is a ByteLevel with `add_prefix_space`. After other steps,
    that puts a space before each of their pieces, and `parse_pre_tokenizer` refuses it."""
    steps = value.get("pretokenizers") if isinstance(value, dict) else None
    last = steps[-1] if isinstance(steps, list) else value
    return isinstance(last, dict) and last.get("add_prefix_space") is True


def cuts_between_bytes(value: object) -> tuple[frozenset[int], bool] | None:
    """Where the steps after a ByteLevel cut a pre-token of a checked `pre_tokenizer`: between a
    byte of the set and any other byte, and with True between any two of the set. None: nowhere.

    Digits there sees the alphabet of bytes, in which bytes of other characters are digits too: the
    last byte of U+00F2 is a superscript two.
    """
    steps = value.get("pretokenizers") if isinstance(value, dict) else None
    steps = steps if isinstance(steps, list) else []
    after = filter(_is_digits, steps[_n_before_bytes(steps) :])
    found = [step["individual_digits"] for step in after]
    return (_NUMERIC_BYTES, any(found)) if found else None


def with_digits_between_bytes(rendered: dict[str, Any]) -> dict[str, object]:
    """A written `pre_tokenizer` with Digits after its ByteLevel: that of merges which join across
    no cut, so that isolating each digit makes no difference."""
    steps = rendered["pretokenizers"] if rendered["type"] == "Sequence" else [rendered]
    digits = {"type": "Digits", "individual_digits": False}
    return {"type": "Sequence", "pretokenizers": [*steps, digits]}


def _n_before_bytes(steps: list[Any]) -> int:
    """The number of steps before the first ByteLevel; all of them without one."""
    return next((i for i, step in enumerate(steps) if _is_byte_level(step)), len(steps))


def _is_digits(step: object) -> bool:
    return isinstance(step, dict) and step.get("type") == "Digits"


def _parse_steps_of_bytes(steps: list[object], places: list[str]) -> list[SplitPattern]:
    """The steps after a ByteLevel (Falcon), as steps before it that split alike.

    Digits cuts where the caller must prove that no merge joins; see `cuts_between_bytes`. Three
    digits in a row are the same characters before and after. Digits cuts no run of digits, unless
    it isolates each, after which no Split finds three.
    """
    placed = list(zip(steps, places, strict=True))
    are_individual = [_are_individual(step, at) for step, at in placed if _is_digits(step)]
    splits = [(step, at) for step, at in placed if not _is_digits(step)]
    for step, at in splits:
        if step != _render_split(_THREE_DIGITS) or any(are_individual):
            raise FormatError(
                f"tokenizer.json: {at} is a step after a ByteLevel, where it splits the alphabet "
                f"of bytes; only Digits, or Digits of runs and a Split of {_THREE_DIGITS} "
                f"(Falcon), can be read exactly there"
            )
    return [_parse_split(step, at) for step, at in splits]


def _parse_steps(steps: list[object], where: str) -> SplitPattern:
    """The pattern of several Splits and Digits, and a ByteLevel, which may split too."""
    places = [f"{where}.pretokenizers[{index}]" for index in range(len(steps))]
    n_before = min(_n_before_bytes(steps), len(steps) - 1)
    parsed = [_parse_step(steps[i], places[i]) for i in range(n_before)]
    last = check_byte_level(steps[n_before], places[n_before], add_prefix_space=(False,))
    _require(last, places[n_before], "add_prefix_space")
    if n_before < len(steps) - 1:
        parsed += [PATTERNS["gpt2"]] if last.get("use_regex", True) is True else []
        parsed += _parse_steps_of_bytes(steps[n_before + 1 :], places[n_before + 1 :])
        if not parsed:
            raise FormatError(
                f"tokenizer.json: {where} splits between the bytes of characters alone, which "
                f"cannot be read exactly"
            )
    elif last.get("use_regex", True) is True:
        for individually, digits in _DIGITS.items():
            if parsed == [digits]:
                return DIGITS_THEN_GPT2[individually]
        parsed.append(PATTERNS["gpt2"])
    elif _are_splits_of_deepseek(steps[:-1]):
        return DEEPSEEK
    if len(parsed) == 1:
        return parsed[0]
    *before, end = map(_as_step, parsed)
    return resolve_pattern(replace(end, before=tuple(before)))


def _parse_step(value: object, where: str) -> SplitPattern:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "Digits":
        return _DIGITS[_are_individual(value, where)]
    if kind == "Punctuation":
        table = check_fields(value, where, {"type": ("Punctuation",)}, ("behavior",))
        behavior = _parse_behavior(table.get("behavior", "Isolated"), where)
        return replace(_PUNCTUATION, behavior=behavior)
    if isinstance(kind, str) and kind in _STEP_OF:
        check_fields(value, where, {"type": (kind,)})
        return _STEP_OF[kind]
    return _parse_split(value, where)


def _parse_behavior(value: object, where: str) -> Behavior:
    if not isinstance(value, str) or value not in _BEHAVIOR_OF:
        known = ", ".join(_BEHAVIOR_OF)
        raise FormatError(f"tokenizer.json: {where}.behavior is {value!r:.40}, none of {known}")
    return _BEHAVIOR_OF[value]


def _as_step(pattern: SplitPattern) -> SplitPattern:
    return replace(pattern, name=CUSTOM)


def _are_individual(value: object, where: str) -> bool:
    digits = check_fields(
        value,
        where,
        {"type": ("Digits",), "individual_digits": (True, False)},
        required=("individual_digits",),
    )
    return digits["individual_digits"] is True


def _are_splits_of_deepseek(steps: list[object]) -> bool:
    """Whether checked steps are DeepSeek's, for which one expression is faster."""
    if any("Regex" not in step.get("pattern", {}) for step in steps if isinstance(step, dict)):
        return False
    # The published files hold the line breaks themselves.
    return [
        {**step, "pattern": _with_escapes(step["pattern"])}
        for step in steps
        if isinstance(step, dict) and step["type"] == "Split"
    ] == [_render_split(expression) for expression in _DEEPSEEK_SPLITS] and len(steps) == len(
        _DEEPSEEK_SPLITS
    )


def _with_escapes(pattern: dict[str, str]) -> dict[str, str]:
    return {"Regex": pattern["Regex"].replace("\r", r"\r").replace("\n", r"\n")}


def _is_byte_level(value: object) -> bool:
    return isinstance(value, dict) and value.get("type") == "ByteLevel"


def _pattern_of_byte_level(value: object, where: str) -> SplitPattern:
    """The pattern of a ByteLevel without other steps."""
    table = check_byte_level(value, where)
    _require(table, where, "add_prefix_space")
    return PATTERNS["gpt2"] if table.get("use_regex", True) is True else _WHOLE_TEXT


def _fields_of_split(value: object, where: str) -> dict[str, object]:
    fields = ("type", "pattern", "behavior", "invert")
    return check_fields(value, where, {"type": ("Split",)}, fields[1:], fields)


def _expression_of_split(split: dict[str, object], where: str) -> str:
    pattern = check_fields(split["pattern"], f"{where}.pattern", {}, ("Regex", "String"))
    if len(pattern) != 1:
        raise FormatError(f"tokenizer.json: {where}.pattern must have a Regex or a String")
    ((kind, expression),) = pattern.items()
    if not isinstance(expression, str):
        raise FormatError(f"tokenizer.json: {where}.pattern.{kind} is no text")
    if kind == "Regex":
        return expression
    if not expression:
        raise FormatError(f"tokenizer.json: {where}.pattern.String is empty")
    return _META.sub(r"\\\g<0>", expression)


def _parse_split(value: object, where: str) -> SplitPattern:
    split = _fields_of_split(value, where)
    invert = split["invert"]
    if not isinstance(invert, bool):
        raise FormatError(f"tokenizer.json: {where}.invert is {invert!r:.40}, not true or false")
    expression = _expression_of_split(split, where)
    unmatched = _UNMATCHED.get((split["behavior"], invert))
    if unmatched is None:
        behavior = _parse_behavior(split["behavior"], where)
        pattern = SplitPattern(CUSTOM, expression, "oniguruma", behavior=behavior, invert=invert)
    elif expression in _NAMES:
        return PATTERNS[_NAMES[expression]]
    else:
        pattern = SplitPattern(CUSTOM, expression, "oniguruma", unmatched)
    try:
        return resolve_pattern(pattern)
    except UnknownPatternError as error:
        raise FormatError(f"tokenizer.json: {where}.pattern.Regex: {error}") from None


def _require(table: dict[str, object], where: str, *fields: str) -> None:
    for key in fields:
        if key not in table:
            raise FormatError(f"tokenizer.json: the field {where}.{key} is missing")


def render_pre_tokenizer(pattern: SplitPattern) -> dict[str, object]:
    """The `pre_tokenizer` that splits like `pattern`.

    Raises:
        FormatError: a custom pattern of another dialect than Oniguruma, unless it is DeepSeek's or
            that of Digits and ByteLevel.
    """
    if pattern.has_steps or pattern in (_PUNCTUATION, *_STEP_OF.values(), *_DIGITS.values()):
        return _render_steps(pattern)
    for individually, digits in DIGITS_THEN_GPT2.items():
        if pattern == digits:
            step = {"type": "Digits", "individual_digits": individually}
            return {"type": "Sequence", "pretokenizers": [step, render_byte_level()]}
    byte_level = render_byte_level(use_regex=pattern.name == "gpt2")
    if pattern in (PATTERNS["gpt2"], _WHOLE_TEXT):
        return byte_level
    if pattern == DEEPSEEK:
        splits = [_render_split(expression) for expression in _DEEPSEEK_SPLITS]
        return {"type": "Sequence", "pretokenizers": [*splits, byte_level]}
    if pattern == PATTERNS.get(pattern.name):
        expression = SPELLINGS[pattern.name]
    elif pattern.dialect == "oniguruma":
        expression = pattern.expression
    else:
        raise FormatError(
            f"the split pattern {pattern.expression!r:.120} is not one of {', '.join(SPELLINGS)}, "
            f"and its dialect is {pattern.dialect}; Hugging Face runs expressions in Oniguruma, "
            f"which might split otherwise"
        )
    split = _render_split(expression, drops=pattern.drops)
    return {"type": "Sequence", "pretokenizers": [split, byte_level]}


def _render_steps(pattern: SplitPattern) -> dict[str, object]:
    steps = [*pattern.before, pattern.alone()]
    does_byte_level_split = steps[-1] == _as_step(PATTERNS["gpt2"])
    rendered = [_render_step(step) for step in (steps[:-1] if does_byte_level_split else steps)]
    byte_level = render_byte_level(use_regex=does_byte_level_split)
    return {"type": "Sequence", "pretokenizers": [*rendered, byte_level]}


def _render_step(step: SplitPattern) -> dict[str, object]:
    for individually, digits in _DIGITS.items():
        if step == digits:
            return {"type": "Digits", "individual_digits": individually}
    for kind, known in _STEP_OF.items():
        if step == known:
            return {"type": kind}
    behavior = next(name for name, known in _BEHAVIOR_OF.items() if known == step.behavior)
    if replace(step, behavior="isolated") == _PUNCTUATION:
        return {"type": "Punctuation", "behavior": behavior}
    for name, named in PATTERNS.items():
        if step == _as_step(named):
            return _render_split(SPELLINGS[name])
    if step.dialect != "oniguruma":
        raise FormatError(
            f"the step {step.expression!r:.120} of the split pattern has the dialect "
            f"{step.dialect}; Hugging Face runs expressions in Oniguruma, which might split "
            f"otherwise"
        )
    split = _render_split(step.expression, drops=step.unmatched == "drop")
    if step.behavior == "isolated":
        return split
    return split | {"behavior": behavior, "invert": step.invert}


def _render_split(expression: str, *, drops: bool = False) -> dict[str, object]:
    return {
        "type": "Split",
        "pattern": {"Regex": expression},
        "behavior": "Removed" if drops else "Isolated",
        "invert": drops,
    }


def parse_post_processor(value: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids to insert before and after a single text.

    Raises:
        FormatError: a post-processor other than ByteLevel, TemplateProcessing, RobertaProcessing
            and BertProcessing (named).

    Example:
        >>> parse_post_processor({"type": "ByteLevel", "trim_offsets": False})
        ((), ())
    """
    where = "post_processor"
    if value is None:
        return (), ()
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "ByteLevel":  # trims offsets, changes no id
        check_byte_level(value, where)
        return (), ()
    if kind == "TemplateProcessing":
        return _parse_template(value)
    if kind in ("RobertaProcessing", "BertProcessing"):
        return _parse_pair_of_ends(value, kind)
    table = check_fields(
        value, where, {"type": ("Sequence",)}, ("processors",), ("type", "processors")
    )
    steps = table["processors"]
    if not isinstance(steps, list):
        raise FormatError("tokenizer.json: post_processor.processors is no list")
    if any(isinstance(step, dict) and step.get("type") == "Sequence" for step in steps):
        raise FormatError("tokenizer.json: post_processor nests one Sequence in another")
    found = [ids for step in steps if any(ids := parse_post_processor(step))]
    if len(found) > 1:
        raise FormatError(
            "tokenizer.json: post_processor has more than one step that adds tokens; only one can "
            "be read exactly"
        )
    return found[0] if found else ((), ())


def _parse_pair_of_ends(value: object, kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of `cls`, before a text, and of `sep`, after it."""
    where = "post_processor"
    fixed: dict[str, tuple[object, ...]] = {"type": (kind,)}
    if kind == "RobertaProcessing":  # both change offsets, and no id
        fixed |= dict.fromkeys(("trim_offsets", "add_prefix_space"), (True, False))
    table = check_fields(value, where, fixed, ("cls", "sep"), ("cls", "sep", *fixed))
    ids: list[tuple[int, ...]] = []
    for name in ("cls", "sep"):
        match table[name]:
            case [str(content), id_]:
                check_id(id_, content)
                ids.append((cast("int", id_),))
            case other:
                raise FormatError(
                    f"tokenizer.json: {where}.{name} is {other!a:.60}, not a token and its id"
                )
    return ids[0], ids[1]


def _parse_template(value: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    where = "post_processor"
    fields = ("single", "pair", "special_tokens")
    # Cohere's files have the fields of a ByteLevel here, which tokenizers does not read.
    idle = dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), (True, False))
    table = check_fields(value, where, {"type": ("TemplateProcessing",), **idle}, fields, fields)
    single, tokens = table["single"], table["special_tokens"]
    if not isinstance(single, list) or not isinstance(tokens, dict):
        raise FormatError("tokenizer.json: post_processor.single or .special_tokens is malformed")
    sides: list[list[int]] = [[]]
    for piece in single:
        match piece:
            case {"Sequence": {"id": "A"}}:
                sides.append([])
            case {"SpecialToken": {"id": str(name)}} if name in tokens:
                sides[-1] += _ids_of_template_token(tokens[name], name)
            case _:
                raise FormatError(f"tokenizer.json: post_processor.single holds {piece!r:.100}")
    if len(sides) != 2:
        raise FormatError("tokenizer.json: post_processor.single must hold sequence A once")
    return tuple(sides[0]), tuple(sides[1])


def _ids_of_template_token(value: object, name: str) -> list[int]:
    ids = value.get("ids") if isinstance(value, dict) else None
    if not isinstance(ids, list):
        raise FormatError(f"tokenizer.json: post_processor.special_tokens[{name!r:.60}] has no ids")
    for id_ in ids:
        check_id(id_, name)
    return ids


def render_post_processor(spec: TokenizerSpec) -> dict[str, object] | None:
    """The `post_processor` that adds the prefix and suffix ids of `spec` around a text."""
    byte_level = None if spec.byte_ids else render_byte_level()
    if not spec.prefix_ids and not spec.suffix_ids:
        return byte_level
    names = {id_: render_token(spec.vocab[id_]) for id_ in (*spec.prefix_ids, *spec.suffix_ids)}
    names.update(
        {token.id: token.content for token in reversed(spec.added_tokens) if token.id in names}
    )

    def single(sequence: str, type_id: int) -> list[object]:
        def special(id_: int) -> object:
            return {"SpecialToken": {"id": names[id_], "type_id": type_id}}

        return [
            *map(special, spec.prefix_ids),
            {"Sequence": {"id": sequence, "type_id": type_id}},
            *map(special, spec.suffix_ids),
        ]

    template: dict[str, object] = {
        "type": "TemplateProcessing",
        "single": single("A", 0),
        "pair": single("A", 0) + single("B", 1),
        "special_tokens": {
            name: {"id": name, "ids": [id_], "tokens": [name]} for id_, name in names.items()
        },
    }
    if byte_level is None:
        return template
    return {"type": "Sequence", "processors": [byte_level, template]}
