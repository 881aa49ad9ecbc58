"""Writes `src/normalize/nfc_ranges.rs`: the characters that NFC may change.

A text without any of them is in NFC. They are the characters with a combining class, those that NFC
replaces and those that join with a character before them, in Python's tables and in the newer ones
that `normalizers.forms` names; so the list is the same on every Python. Run it after changing that
list, with the package installed:

    python tokenizer_core/native/make_nfc_ranges.py

A test compares the compiled list with `unicodedata` on every code point, and another that the file
is what this script writes.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

from tokenizer_core.normalizers.forms import is_newer

TARGET = Path(__file__).parent / "src" / "normalize" / "nfc_ranges.rs"

HANGUL_VOWELS_AND_FINALS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
"""They compose by arithmetic, so no decomposition names them."""


def restless_code_points() -> set[int]:
    """All code points that NFC may touch."""
    found = set(HANGUL_VOWELS_AND_FINALS)
    for code in range(0x110000):
        character = chr(code)
        changes = unicodedata.normalize("NFC", character) != character
        if unicodedata.combining(character) or changes or is_newer(character):
            found.add(code)
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(int(parts[1], 16))
    return found


def render() -> str:
    """The Rust source."""
    ranges: list[list[int]] = []
    for code in sorted(restless_code_points()):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    cells = [f"(0x{first:x}, 0x{last:x})," for first, last in ranges]
    rows = ["    " + " ".join(cells[start : start + 5]) for start in range(0, len(cells), 5)]
    return "\n".join(
        [
            "//! Made by make_nfc_ranges.py; not by hand.",
            "",
            "/// First and last of each run of characters that NFC may touch.",
            "#[rustfmt::skip]",
            f"pub static RANGES: [(u32, u32); {len(ranges)}] = [",
            *rows,
            "];",
            "",
        ]
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(TARGET.read_text(encoding="utf-8") != render())
    TARGET.write_text(render(), encoding="utf-8")
