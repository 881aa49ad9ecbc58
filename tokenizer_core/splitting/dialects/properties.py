r"""The character classes of the two foreign dialects, as sets of `regex`.

A name is here only if its set equals the library's on all 1,114,112 code points with the pinned
release of `regex`; `tests/integration/parity/test_regex_dialects.py` compares every one of them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from tokenizer_core.splitting.dialects.syntax import CharacterSet, Complement, Item, Union
from tokenizer_core.splitting.unicode_data import RANGES
from tokenizer_core.splitting.unicode_sets import loose

_CATEGORIES: Final = {
    "c": "Other", "cc": "Control", "cf": "Format", "cn": "Unassigned", "co": "Private_Use",
    "l": "Letter", "ll": "Lowercase_Letter", "lm": "Modifier_Letter", "lo": "Other_Letter",
    "lt": "Titlecase_Letter", "lu": "Uppercase_Letter", "m": "Mark", "mc": "Spacing_Mark",
    "me": "Enclosing_Mark", "mn": "Nonspacing_Mark", "n": "Number", "nd": "Decimal_Number",
    "nl": "Letter_Number", "no": "Other_Number", "p": "Punctuation",
    "pc": "Connector_Punctuation", "pd": "Dash_Punctuation", "pe": "Close_Punctuation",
    "pf": "Final_Punctuation", "pi": "Initial_Punctuation", "po": "Other_Punctuation",
    "ps": "Open_Punctuation", "s": "Symbol", "sc": "Currency_Symbol", "sk": "Modifier_Symbol",
    "sm": "Math_Symbol", "so": "Other_Symbol", "z": "Separator", "zl": "Line_Separator",
    "zp": "Paragraph_Separator", "zs": "Space_Separator",
}  # fmt: skip

_BINARY: Final = (
    "Alphabetic", "Emoji", "Emoji_Presentation", "Extended_Pictographic", "ID_Start",
    "Ideographic", "Lowercase", "Uppercase", "White_Space",
)  # fmt: skip

_SCRIPTS: Final = [key.removeprefix("Script=") for key in RANGES if key.startswith("Script=")]


def _by_name() -> dict[str, str]:
    table = {short: rf"\p{{{short.capitalize()}}}" for short in _CATEGORIES}
    table |= {loose(long): table[short] for short, long in _CATEGORIES.items()}
    table |= {loose(name): rf"\p{{{name}}}" for name in _BINARY}
    return table | {loose(name): rf"\p{{Script={name}}}" for name in _SCRIPTS}


PROPERTIES: Final = MappingProxyType(_by_name())
r"""Name in loose form -> what `regex` writes for it: `\p{...}` means the same in both libraries."""

SCRIPTS: Final = frozenset(map(loose, _SCRIPTS))
CATEGORIES: Final = frozenset(_CATEGORIES) | frozenset(map(loose, _CATEGORIES.values()))

WORD_FANCY: Final = Item(r"\w")
WORD_ONIGURUMA: Final = Item(r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE")
r"""`\w` and `\b` outside brackets; inside, `\w` is `[[:word:]]`."""

SHORTHANDS: Final[dict[str, CharacterSet]] = {
    "s": Item(r"\s"),
    "d": Item(r"\d"),
    "h": Item("0-9A-Fa-f"),
}
r"""`\s \d \h`, equal in both libraries; `\w` is not."""

_VISIBLE: Final = Complement(Item(r"\s\p{Cc}\p{Cn}\p{Cs}"))

POSIX_FANCY: Final[dict[str, CharacterSet]] = {
    "alnum": Item("0-9A-Za-z"),
    "alpha": Item("A-Za-z"),
    "ascii": Item(r"\x00-\x7F"),
    "blank": Item(r"\t\x20"),
    "cntrl": Item(r"\x00-\x1F\x7F"),
    "digit": Item("0-9"),
    "graph": Item(r"\x21-\x7E"),
    "lower": Item("a-z"),
    "print": Item(r"\x20-\x7E"),
    "punct": Item(r"\x21-\x2F\x3A-\x40\x5B-\x60\x7B-\x7E"),
    "space": Item(r"\x09-\x0D\x20"),
    "upper": Item("A-Z"),
    "word": Item("0-9A-Za-z_"),
    "xdigit": Item("0-9A-Fa-f"),
}
"""`[[:alpha:]]` and the others in Rust: ASCII alone."""

POSIX_ONIGURUMA: Final[dict[str, CharacterSet]] = {
    "alnum": Item(r"\p{Alphabetic}\p{Nd}"),
    "alpha": Item(r"\p{Alphabetic}"),
    "ascii": Item(r"\x00-\x7F"),
    "blank": Item(r"\p{Zs}\t"),
    "cntrl": Item(r"\p{Cc}"),
    "digit": Item(r"\p{Nd}"),
    "graph": _VISIBLE,
    "lower": Item(r"\p{Lowercase}"),
    "print": Union((_VISIBLE, Item(r"\p{Zs}"))),
    "punct": Item(r"\p{P}\p{S}"),
    "space": Item(r"\s"),
    "upper": Item(r"\p{Uppercase}"),
    "word": Item(r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"),
    "xdigit": Item("0-9A-Fa-f"),
}
"""The same in Oniguruma: by Unicode."""
