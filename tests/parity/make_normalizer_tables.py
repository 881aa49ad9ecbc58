"""Writes `tokenizer_core/normalizers/tables.py`: what `Lowercase` and `StripAccents` of Hugging
Face's `tokenizers` do to each code point.

Their Unicode versions differ from each other and from Python's, so the tables are lists. Run it
after a change of the pinned `tokenizers`:

    python -m tests.parity.make_normalizer_tables
"""

import textwrap
from pathlib import Path

from tokenizers import normalizers

import tokenizer_core

TARGET = Path(tokenizer_core.__file__).parent / "normalizers" / "tables.py"
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def render():
    """The Python source of the tables."""
    lines = [
        '"""What the normalizers do to single code points. Made by '
        "tests/parity/make_normalizer_tables.py;",
        'not by hand."""',
        "",
        "from typing import Final",
        "",
        "# fmt: off",
        "LOWERCASE: Final = (",
        *_rows(_lowercase_runs()),
        ")",
        '"""Runs of code points with another lower case: first-last/step, and what is added.',
        'U+0130, which becomes two characters, is left out."""',
        "",
        "MARKS: Final = (",
        *_rows(_ranges(_marks())),
        ")",
        '"""What StripAccents removes."""',
        "# fmt: on",
    ]
    return "\n".join(lines) + "\n"


def _rows(items):
    return [f'    "{row} "' for row in textwrap.wrap(" ".join(items), 90, break_on_hyphens=False)]


def _ranges(codes):
    start = 0
    for i, code in enumerate(codes):
        if i + 1 == len(codes) or codes[i + 1] != code + 1:
            first = codes[start]
            yield f"{first:x}" if first == code else f"{first:x}-{code:x}"
            start = i + 1


def _lowercase_runs():
    lower = normalizers.Lowercase().normalize_str
    changes = {code: lower(chr(code)) for code in CODES if lower(chr(code)) != chr(code)}
    if {code for code, text in changes.items() if len(text) != 1} != {0x130}:
        raise ValueError("another character than U+0130 becomes several")
    del changes[0x130]
    left = {code: ord(text) - code for code, text in changes.items()}
    while left:
        first, added = next(iter(left.items()))
        step = 2 if left.get(first + 1) != added and left.get(first + 2) == added else 1
        last = first
        while left.get(last + step) == added:
            last += step
        for code in range(first, last + 1, step):
            del left[code]
        yield f"{first:x}-{last:x}/{step}{added:+x}"


def _marks():
    strip = normalizers.StripAccents().normalize_str
    return [code for code in CODES if not strip(chr(code))]


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
