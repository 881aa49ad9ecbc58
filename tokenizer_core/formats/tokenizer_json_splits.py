r"""The `pre_tokenizer` of a `tokenizer.json`: which split pattern it is, and how to write one.

It stands apart from `tokenizer_json` because spelling matters: the file's expressions are run by
Oniguruma, where `{1,3}+` repeats a repetition (it is possessive in `regex`) and `$` also matches
before every newline. So an expression is read only where it is one of the spellings published for
Hugging Face, and a named pattern is written in the spelling Oniguruma reads as we do. An
expression of one's own has no such proof and is refused both ways.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tokenizer_core.errors import FormatError
from tokenizer_core.formats.tokenizer_json_fields import (
    check_byte_level,
    check_fields,
    render_byte_level,
)
from tokenizer_core.patterns import PATTERNS, SplitPattern

_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Final = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}", 1)
# Our own spelling: no published tokenizer.json has tiktoken's cl100k, they all have Llama 3's.
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

# All our patterns cover every character, so removing what is not matched removes nothing: these
# two ways to split are the same, and both are in use.
_BEHAVIORS: Final = (("Isolated", False), ("Removed", True))


def parse_pre_tokenizer(value: object) -> SplitPattern:
    """The split pattern of a `pre_tokenizer`: ByteLevel, or a sequence of Split and ByteLevel.

    Raises:
        FormatError: anything else, by name.

    Example:
        >>> parse_pre_tokenizer({"type": "ByteLevel", "add_prefix_space": False}).name
        'gpt2'
    """
    where = "pre_tokenizer"
    if isinstance(value, dict) and value.get("type") == "ByteLevel":
        check_byte_level(value, where, add_prefix_space=(False,), use_regex=(True,))
        _require(value, where, "add_prefix_space")
        return PATTERNS["gpt2"]
    table = check_fields(
        value, where, {"type": ("Sequence",)}, ("pretokenizers",), ("type", "pretokenizers")
    )
    steps = table["pretokenizers"]
    if not isinstance(steps, list) or len(steps) != 2:
        raise FormatError(
            "tokenizer.json: pre_tokenizer.pretokenizers must be one Split and one ByteLevel"
        )
    last = check_byte_level(
        steps[1], f"{where}.pretokenizers[1]", add_prefix_space=(False,), use_regex=(False,)
    )
    _require(last, f"{where}.pretokenizers[1]", "add_prefix_space", "use_regex")
    return _parse_split(steps[0], f"{where}.pretokenizers[0]")


def _parse_split(value: object, where: str) -> SplitPattern:
    fields = ("type", "pattern", "behavior", "invert")
    split = check_fields(value, where, {"type": ("Split",)}, fields[1:], fields)
    if not any(
        split["behavior"] == behavior and split["invert"] is invert
        for behavior, invert in _BEHAVIORS
    ):
        raise FormatError(
            f"tokenizer.json: {where} splits with behavior {split['behavior']!r:.40} and invert "
            f"{split['invert']!r:.10}; only 'Isolated' and false can be read exactly"
        )
    pattern = check_fields(split["pattern"], f"{where}.pattern", {}, ("Regex",), ("Regex",))
    name = _NAMES.get(str(pattern["Regex"]))
    if name is None:
        raise FormatError(
            f"tokenizer.json: the split expression {pattern['Regex']!r:.200} is none of those "
            f"whose exact meaning is known here ({', '.join(SPELLINGS)})"
        )
    return PATTERNS[name]


def _require(table: dict[str, object], where: str, *fields: str) -> None:
    for key in fields:
        if key not in table:
            raise FormatError(f"tokenizer.json: the field {where}.{key} is missing")


def render_pre_tokenizer(pattern: SplitPattern) -> dict[str, object]:
    """The `pre_tokenizer` that splits as `pattern` does.

    Raises:
        FormatError: a custom pattern.
    """
    if pattern.name not in SPELLINGS or pattern != PATTERNS[pattern.name]:
        raise FormatError(
            f"the split pattern {pattern.expression!r:.120} is not one of {', '.join(SPELLINGS)}; "
            f"Hugging Face runs expressions in another engine, which might split otherwise"
        )
    byte_level = render_byte_level(use_regex=pattern.name == "gpt2")
    if pattern.name == "gpt2":
        return byte_level
    split = {
        "type": "Split",
        "pattern": {"Regex": SPELLINGS[pattern.name]},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, byte_level]}
