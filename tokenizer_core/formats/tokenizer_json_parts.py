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

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from tokenizer_core.errors import FormatError, UnknownPatternError
from tokenizer_core.formats.gpt2_files import check_id, render_token
from tokenizer_core.patterns import CUSTOM, PATTERNS, SplitPattern, Unmatched, resolve_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokenizer_core.spec import TokenizerSpec


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

# Digits splits by Rust's `char::is_numeric`: 13 characters of Unicode 17 more than `\p{N}` here,
# which ByteLevel does not count among the digits.
_NEW_NUMERIC: Final = r"\U00011DE0-\U00011DE9\U00016FF4-\U00016FF6"
_NUMERIC: Final = rf"\p{{N}}{_NEW_NUMERIC}"


def _after_digits(digits: str) -> SplitPattern:
    """GPT-2's pattern on the text between `digits`, which Digits has cut out before.

    There a run of white space ends with the text before a digit, so that none of it is kept for the
    next word; and a digit never takes a space.
    """
    return SplitPattern(
        "custom",
        rf"'(?:[sdmt]|ll|ve|re)| ?\p{{L}}++|{digits}| ?[^\s\p{{L}}{_NUMERIC}]++"
        rf"|\s++(?=[{_NUMERIC}]|\Z)|\s+(?!\S)|\s",
    )


_DIGITS_THEN_GPT2: Final = MappingProxyType(
    {True: _after_digits(f"[{_NUMERIC}]"), False: _after_digits(rf"\p{{N}}++|[{_NEW_NUMERIC}]++")}
)
"""Whether Digits isolates each digit -> the pattern of Digits followed by ByteLevel (StarCoder,
SmolLM, Granite, Command R)."""

_DIGITS: Final = MappingProxyType(
    {
        True: SplitPattern(CUSTOM, f"[{_NUMERIC}]"),
        False: SplitPattern(CUSTOM, f"[{_NUMERIC}]++"),
    }
)
"""Whether Digits isolates each digit -> Digits as a step among others."""

_DEEPSEEK_SPLITS: Final = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)
"""The three Splits of DeepSeek V3 and R1, each of which sees one piece of the one before it."""

# The second Split isolates runs of kana and ideographs. The third splits each run, and each text
# between runs, by itself. A run has letters and marks, punctuation and symbols, and three
# unassigned code points; one of these may begin a word.
_KANA: Final = r"ぁ-ゖ\u3099\u309Aゝ-ゟァ-ヺー-ヿ一-龥"
_HOLES: Final = r"\u3040\u3097\u3098"
_CUT_OUT: Final = r"一-龥\u3040-ヿ"

_DEEPSEEK: Final = SplitPattern(
    "custom",
    "|".join(
        (
            r"\p{N}{1,3}+",
            rf"[{_HOLES}]?[{_KANA}]++",
            r"[゛゜゠・]++",
            rf"[{_HOLES}]++(?![{_KANA}])|[{_HOLES}]+(?=[{_HOLES}])",
            r"[!-/:-@\[-`{-~][A-Za-z]++",
            rf"[^\r\n\p{{L}}\p{{P}}\p{{S}}\p{{N}}{_CUT_OUT}]?"
            rf"[^\p{{N}}\p{{P}}\p{{S}}\p{{Z}}\p{{C}}{_CUT_OUT}]+",
            rf" ?[^\p{{L}}\p{{M}}\p{{N}}\p{{Z}}\p{{C}}{_CUT_OUT}]++[\r\n]*+",
            r"\s*[\r\n]+",
            rf"\s++(?=[\p{{N}}{_CUT_OUT}]|\Z)|\s+(?!\S)|\s+",
        )
    ),
)
"""The same in one expression. A run of white space before a digit or an ideograph ends its piece,
so that none of it is kept for the next word."""

_UNMATCHED: Final[dict[tuple[object, object], Unmatched]] = {
    ("Isolated", False): "keep",
    ("Isolated", True): "keep",
    ("Removed", True): "drop",
}
"""Behavior and `invert` of a Split -> what becomes of text without a match. The named patterns
match every character, so for them all three are equal."""


def parse_pre_tokenizer(value: object) -> SplitPattern:
    """The split pattern of a `pre_tokenizer`: ByteLevel, alone or after Splits and Digits.

    Raises:
        FormatError: any other value (named).

    Example:
        >>> parse_pre_tokenizer({"type": "ByteLevel", "add_prefix_space": False}).name
        'gpt2'
    """
    where = "pre_tokenizer"
    if _is_byte_level(value):
        return _gpt2_of(value, where)
    table = check_fields(
        value, where, {"type": ("Sequence",)}, ("pretokenizers",), ("type", "pretokenizers")
    )
    steps = table["pretokenizers"]
    if isinstance(steps, list) and len(steps) == 1 and _is_byte_level(steps[0]):
        return _gpt2_of(steps[0], f"{where}.pretokenizers[0]")
    if not isinstance(steps, list) or len(steps) < 2:
        raise FormatError(
            "tokenizer.json: pre_tokenizer.pretokenizers must be Splits or Digits, and one "
            "ByteLevel at the end"
        )
    if len(steps) > 2 or _splits_by_regex_after_split(steps):
        return _parse_steps(steps, where)
    if isinstance(steps[0], dict) and steps[0].get("type") == "Digits":
        are_individual = _are_individual(steps[0], f"{where}.pretokenizers[0]")
        _gpt2_of(steps[1], f"{where}.pretokenizers[1]")
        return _DIGITS_THEN_GPT2[are_individual]
    _check_alphabet_alone(steps[1], f"{where}.pretokenizers[1]")
    return _parse_split(steps[0], f"{where}.pretokenizers[0]")


def _check_alphabet_alone(value: object, where: str) -> None:
    """Check a ByteLevel that does not split."""
    last = check_byte_level(value, where, add_prefix_space=(False,), use_regex=(False,))
    _require(last, where, "add_prefix_space", "use_regex")


def _splits_by_regex_after_split(steps: list[object]) -> bool:
    first, last = steps[0], steps[-1]
    is_split = isinstance(first, dict) and first.get("type") == "Split"
    return (
        is_split
        and _is_byte_level(last)
        and cast("dict[str, object]", last).get("use_regex", True) is True
    )


def _parse_steps(steps: list[object], where: str) -> SplitPattern:
    """The pattern of several Splits and Digits, and a ByteLevel, which may split too."""
    places = [f"{where}.pretokenizers[{index}]" for index in range(len(steps))]
    parsed = [_parse_step(step, at) for step, at in zip(steps[:-1], places, strict=False)]
    last = check_byte_level(steps[-1], places[-1], add_prefix_space=(False,))
    _require(last, places[-1], "add_prefix_space")
    if last.get("use_regex", True) is True:
        parsed.append(_as_step(PATTERNS["gpt2"]))
    elif _are_splits_of_deepseek(steps[:-1]):
        return _DEEPSEEK
    return resolve_pattern(replace(parsed[-1], before=tuple(parsed[:-1])))


def _parse_step(value: object, where: str) -> SplitPattern:
    if isinstance(value, dict) and value.get("type") == "Digits":
        return _DIGITS[_are_individual(value, where)]
    return _as_step(_parse_split(value, where))


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


def _gpt2_of(value: object, where: str) -> SplitPattern:
    """The pattern of a ByteLevel that splits."""
    table = check_byte_level(value, where, add_prefix_space=(False,), use_regex=(True,))
    _require(table, where, "add_prefix_space")
    return PATTERNS["gpt2"]


def _fields_of_split(value: object, where: str) -> dict[str, object]:
    fields = ("type", "pattern", "behavior", "invert")
    return check_fields(value, where, {"type": ("Split",)}, fields[1:], fields)


def _expression_of_split(split: dict[str, object], where: str) -> str:
    pattern = check_fields(split["pattern"], f"{where}.pattern", {}, ("Regex",), ("Regex",))
    expression = pattern["Regex"]
    if not isinstance(expression, str):
        raise FormatError(f"tokenizer.json: {where}.pattern.Regex is no text")
    return expression


def _parse_split(value: object, where: str) -> SplitPattern:
    split = _fields_of_split(value, where)
    behavior, invert = split["behavior"], split["invert"]
    is_known = isinstance(behavior, str) and isinstance(invert, bool)
    unmatched = _UNMATCHED.get((behavior, invert)) if is_known else None
    if unmatched is None:
        raise FormatError(
            f"tokenizer.json: {where} splits with behavior {behavior!r:.40} and invert "
            f"{invert!r:.10}; only 'Isolated', or 'Removed' and true, can be read exactly"
        )
    expression = _expression_of_split(split, where)
    if expression in _NAMES:
        return PATTERNS[_NAMES[expression]]
    try:
        return resolve_pattern(SplitPattern(CUSTOM, expression, "oniguruma", unmatched))
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
    if pattern.before:
        return _render_steps(pattern)
    for individually, digits in _DIGITS_THEN_GPT2.items():
        if pattern == digits:
            step = {"type": "Digits", "individual_digits": individually}
            return {"type": "Sequence", "pretokenizers": [step, render_byte_level()]}
    byte_level = render_byte_level(use_regex=pattern.name == "gpt2")
    if pattern == PATTERNS["gpt2"]:
        return byte_level
    if pattern == _DEEPSEEK:
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
    steps = [*pattern.before, replace(pattern, before=())]
    does_byte_level_split = steps[-1] == _as_step(PATTERNS["gpt2"])
    rendered = [_render_step(step) for step in (steps[:-1] if does_byte_level_split else steps)]
    byte_level = render_byte_level(use_regex=does_byte_level_split)
    return {"type": "Sequence", "pretokenizers": [*rendered, byte_level]}


def _render_step(step: SplitPattern) -> dict[str, object]:
    for individually, digits in _DIGITS.items():
        if step == digits:
            return {"type": "Digits", "individual_digits": individually}
    for name, named in PATTERNS.items():
        if step == _as_step(named):
            return _render_split(SPELLINGS[name])
    if step.dialect != "oniguruma":
        raise FormatError(
            f"the step {step.expression!r:.120} of the split pattern has the dialect "
            f"{step.dialect}; Hugging Face runs expressions in Oniguruma, which might split "
            f"otherwise"
        )
    return _render_split(step.expression, drops=step.drops)


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
        FormatError: a post-processor other than ByteLevel and TemplateProcessing (named).

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
        raise FormatError("tokenizer.json: post_processor has more than one TemplateProcessing")
    return found[0] if found else ((), ())


def _parse_template(value: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    where = "post_processor"
    fields = ("single", "pair", "special_tokens")
    table = check_fields(value, where, {"type": ("TemplateProcessing",)}, fields, fields)
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
