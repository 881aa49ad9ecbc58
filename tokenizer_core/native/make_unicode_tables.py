r"""Writes `src/unicode/tables.rs`: the classes of the split patterns, from the pinned `regex`.

The tables of the `regex` release are part of the contract (see `patterns.py`), and Rust's own
differ from them; so the compiled scanner takes its classes from here. Run it after changing the
pin, with the package's dependencies installed:

    python tokenizer_core/native/make_unicode_tables.py

A test compares the compiled classes with `regex` on every code point, and another that the file
is what this script writes. It imports `regex` only.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import regex

TARGET = Path(__file__).parent / "src" / "unicode" / "tables.rs"

CLASSES = {
    "LU": r"\p{Lu}",
    "LL": r"\p{Ll}",
    "LT": r"\p{Lt}",
    "LM": r"\p{Lm}",
    "LO": r"\p{Lo}",
    "M": r"\p{M}",
    "N": r"\p{N}",
    "S": r"\s",
}
"""Constant -> class; bit i of a code point's byte says that it is in the i-th. The scanner rests
on no code point being in two of them, which is checked here."""

SHIFT = 7
"""Code points of a block, as a power of two: 128 is the largest for which the number of a block
fits a byte, and the tables are 38 kB."""

N_CODE_POINTS = 0x110000


def classes_of_all_code_points() -> bytearray:
    """One byte for each code point, surrogates included."""
    bits = bytearray(N_CODE_POINTS)
    everything = "".join(map(chr, range(N_CODE_POINTS)))
    for number, expression in enumerate(CLASSES.values()):
        for run in regex.finditer(f"{expression}+", everything):
            for code in range(*run.span()):
                if bits[code]:
                    raise SystemExit(f"U+{code:04X} is in two classes; the scanner cannot hold it")
                bits[code] = 1 << number
    return bits


def render() -> str:
    """The Rust source."""
    bits = classes_of_all_code_points()
    size = 1 << SHIFT
    numbers: dict[bytes, int] = {}
    index = [
        numbers.setdefault(bytes(bits[first : first + size]), len(numbers))
        for first in range(0, N_CODE_POINTS, size)
    ]
    if len(numbers) > 256:
        raise SystemExit(f"{len(numbers)} blocks do not fit a byte; choose a smaller SHIFT")
    lines = [
        "//! Made by make_unicode_tables.py; not by hand.",
        "",
        f'pub const UNICODE_TABLES: &str = "regex {version("regex")}";',
        "",
    ]
    for number, (name, expression) in enumerate(CLASSES.items()):
        lines += [f"/// `{expression}`", f"pub const {name}: u8 = {1 << number};"]
    lines += ["", f"pub const SHIFT: u32 = {SHIFT};", ""]
    lines += _render_array("INDEX", index, "The block that holds code points `i << SHIFT` and on.")
    lines += _render_array("BLOCKS", list(b"".join(numbers)), "Blocks of `1 << SHIFT` classes.")
    return "\n".join(lines)


def _render_array(name: str, values: list[int], says: str) -> list[str]:
    rows = [
        "    " + " ".join(f"{value}," for value in values[first : first + 32])
        for first in range(0, len(values), 32)
    ]
    head = ["#[rustfmt::skip]", f"pub static {name}: [u8; {len(values)}] = ["]
    return [f"/// {says}", *head, *rows, "];", ""]


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(TARGET.read_text(encoding="utf-8") != render())
    TARGET.write_text(render(), encoding="utf-8")
