r"""Writes the Unicode tables from `regex`: `src/unicode/tables.rs` for the scanners, and
`tokenizer_core/splitting/unicode_data.py` for everything else.

The classes of `RELEASE` are part of the contract (see `patterns.py`): they decide ids. Rust's
and those of other releases differ, so both engines read these files instead. Run it with that
release installed:

    python tokenizer_core/native/make_unicode_tables.py

Tests compare the tables with `regex` on every code point, and the files with what this script
writes. It imports `regex` only.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import regex

RELEASE = "2025.9.18"
TARGET = Path(__file__).parent / "src" / "unicode" / "tables.rs"
PYTHON_TARGET = Path(__file__).parent.parent / "splitting" / "unicode_data.py"

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

CATEGORIES = (
    "Cc Cf Cn Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs"
)
PROPERTIES = (
    "Alphabetic Emoji Emoji_Presentation Extended_Pictographic ID_Start Ideographic Join_Control "
    "Lowercase Uppercase White_Space"
)
SCRIPTS = """
Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali
Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian
Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret
Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay
Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul
Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B
Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi
Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian
Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu
Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic
Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Ol_Onal Oriya Osage Osmanya
Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan
Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese
Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut
Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
Wancho Warang_Citi Yezidi Yi Zanabazar_Square
"""

SHIFT = 7
"""Code points of a block, as a power of two: 128 is the largest for which the number of a block
fits a byte, and the tables are 38 kB."""

N_CODE_POINTS = 0x110000
EVERYTHING = "".join(map(chr, range(N_CODE_POINTS)))


def classes_of_all_code_points() -> bytearray:
    """One byte for each code point, surrogates included."""
    bits = bytearray(N_CODE_POINTS)
    for number, expression in enumerate(CLASSES.values()):
        for run in regex.finditer(f"{expression}+", EVERYTHING):
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
        f'pub const UNICODE_TABLES: &str = "regex {RELEASE}";',
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


def render_python() -> str:
    """The Python source: property -> the categories that it has whole, and its other ranges, each
    as `first-last` or one code point, in hex."""
    lines = [
        '"""The code points of each Unicode property; `unicode_sets.ranges_of` reads them. Made by',
        "make_unicode_tables.py.",
        "",
        "A property is the categories that it names and these ranges. `Cn` is all that no other",
        "category has.",
        '"""',
        "",
        "from types import MappingProxyType",
        "from typing import Final",
        "",
        f'RELEASE: Final = "{RELEASE}"',
        '"""The release of `regex` whose classes these are."""',
        "",
        "# fmt: off",
        "RANGES: Final = MappingProxyType({",
    ]
    categories = {name: _members(rf"\p{{{name}}}") for name in CATEGORIES.split()}
    for name, members in categories.items():
        lines += _render_property(name, [] if name == "Cn" else members)
    for name in (*PROPERTIES.split(), *(f"Script={name}" for name in SCRIPTS.split()), "word"):
        members = _members(r"\w" if name == "word" else rf"\p{{{name}}}")
        whole = [] if "=" in name else [one for one in categories if members >= categories[one]]
        others = members.difference(*(categories[one] for one in whole))
        lines += _render_property(name, others, whole)
    return "\n".join([*lines, "})", "# fmt: on", ""])


def _members(expression: str) -> set[int]:
    return {match.start() for match in regex.finditer(expression, EVERYTHING)}


def _render_property(name: str, members: Iterable[int], whole: Sequence[str] = ()) -> list[str]:
    ranges = list(whole)
    for _, run in groupby(enumerate(sorted(members)), lambda pair: pair[1] - pair[0]):
        first, *others = (code for _, code in run)
        ranges.append(f"{first:x}-{others[-1]:x}" if others else f"{first:x}")
    line = f'    "{name}": "{" ".join(ranges)}",'
    if len(line) <= 100:
        return [line]
    wrapped = textwrap.wrap(" ".join(ranges), 86, break_on_hyphens=False)
    return [f'    "{name}": (', *(f'        "{line} "' for line in wrapped), "    ),"]


if __name__ == "__main__":
    if version("regex") != RELEASE:
        sys.exit(f"the tables are those of regex {RELEASE}; installed is {version('regex')}")
    made = {TARGET: render(), PYTHON_TARGET: render_python()}
    if sys.argv[1:] == ["--check"]:
        sys.exit(any(path.read_text(encoding="utf-8") != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
