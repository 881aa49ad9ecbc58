r"""Unicode normal forms as Hugging Face's `tokenizers` computes them, on any Python, and what each
character that they write came from.

Hugging Face uses the tables of an old Unicode version. Characters that got a combining class or a
decomposition later are plain starters there, which join with no other character. Python's tables
are newer, and differ between Python versions. Normalization never changes for characters that a
version already had. This module therefore cuts the text at the newer characters, leaves these
unchanged, and gets Hugging Face's result from any Python's tables. The list of newer characters
comes from a comparison of both on all code points; the parity tests repeat it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeGuard, get_args

from tokenizer_core.splitting.unicode_sets import compile_exactly

if TYPE_CHECKING:
    import numpy as np
    import regex
    from numpy.typing import NDArray

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

# Characters with a canonical decomposition or combining class in Unicode 18 but not in Hugging
# Face's tables, and the starters that newer versions compose into such characters.
_NEWER: Final = (
    r"\u05c8-\u05c9\u07fd\u0897-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0d3b-\u0d3c\u0eba\u1715"
    r"\u1abf-\u1af0\u1df6-\u1dfa\ua82c\U000105c9\U000105d2\U000105da\U000105e4\U00010d24-\U00010d27"
    r"\U00010d69-\U00010d6d\U00010eab-\U00010eac\U00010ecb-\U00010ecf\U00010ef0-\U00010efb"
    r"\U00010efd-\U00010eff\U00010f46-\U00010f50\U00010f82-\U00010f85\U00011070\U0001133b"
    r"\U00011382-\U00011385\U0001138b\U0001138e\U00011390-\U00011391\U000113c2\U000113c5"
    r"\U000113c7-\U000113c8\U000113ce-\U000113d0\U0001145e\U00011839-\U0001183a\U00011935"
    r"\U00011938\U0001193d-\U0001193e\U00011943\U000119e0\U00011a34\U00011a47\U00011a99"
    r"\U00011d42\U00011d44-\U00011d45\U00011d97\U00011f41-\U00011f42\U0001611e-\U00016129"
    r"\U0001612f\U00016d63\U00016d67-\U00016d6a\U00016ff0-\U00016ff1\U0001d127-\U0001d128"
    r"\U0001d250-\U0001d252\U0001d25b-\U0001d25c\U0001d25f\U0001d280-\U0001d281\U0001e08f"
    r"\U0001e130-\U0001e136\U0001e2ae\U0001e2ec-\U0001e2ef\U0001e4ec-\U0001e4ef"
    r"\U0001e5ee-\U0001e5ef\U0001e6e3\U0001e6e6\U0001e6ee-\U0001e6ef\U0001e6f5"
)
# The same for the compatibility decompositions of NFKC and NFKD alone.
_NEWER_COMPATIBLE: Final = (
    r"\u0558\u058b-\u058c\u209d-\u209f\u32ff\ua7f1-\ua7f4\uab69\U00010781-\U00010785"
    r"\U00010787-\U000107b0\U000107b2-\U000107bf\U0001b123-\U0001b126\U0001ccd6-\U0001ccf9"
    r"\U0001d6a6\U0001df95\U0001dfcd-\U0001dfff\U0001e030-\U0001e06d\U0001f16c"
    r"\U0001fbf0-\U0001fbf9"
)

# Only these interact with the characters before them: marks, and the vowels and trailing
# consonants of Hangul; and in NFKC and NFKD what these change. Every other character starts a piece
# that normalizes on its own.
_JOINING: Final = r"\p{M}\u1161-\u1175\u11a8-\u11c2"
JOINING: Final = (
    _JOINING + r"\u3133\u3135-\u3136\u313a-\u313f\u314f-\u3163\uff9e-\uff9f\uffa3\uffa5-\uffa6"
    r"\uffaa-\uffaf\uffc2-\uffc7\uffca-\uffcf\uffd2-\uffd7\uffda-\uffdc"
)
"""The characters that may join the one before them in some form, as a set of an expression."""


@cache
def _at_newer(form: Form) -> re.Pattern[str]:
    return re.compile(f"([{_NEWER}{_NEWER_COMPATIBLE if 'K' in form else ''}])")


@cache
def _last_start() -> regex.Pattern[str]:
    return compile_exactly(rf"(?rs)[^{_JOINING}]")


@cache
def _piece(form: Form) -> regex.Pattern[str]:
    joining = JOINING if "K" in form else _JOINING
    return compile_exactly(
        rf"(?s)[\x00-\x7f]++(?![{joining}])|[^{joining}][{joining}]*+|[{joining}]++"
    )


def normalize_nfc(text: str) -> str:
    """`text` in NFC, equal to Hugging Face's `NFC()` for every text."""
    if unicodedata.is_normalized("NFC", text):
        return text
    return normalize_form("NFC", text)


def normalize_form(form: Form, text: str) -> str:
    """`text` in a Unicode normal form, equal to Hugging Face's for every text."""
    if text.isascii():
        return text
    pieces = _at_newer(form).split(text)
    # A newer character is a piece of its own.
    pieces[::2] = [unicodedata.normalize(form, piece) for piece in pieces[::2]]
    return "".join(pieces)


FormTables = tuple[list[tuple[str, str]], list[tuple[str, int]], list[tuple[tuple[str, str], str]]]

# All characters with a decomposition or a combining class, and others.
_DECOMPOSING: Final = (
    range(0xA0, 0x3400),
    range(0xA000, 0xD7A4),
    range(0xF900, 0x20000),
    range(0x2F800, 0x2FA20),
)


@cache
def form_tables(form: Form) -> FormTables:
    """What `normalize_form` does, as tables: characters and what they decompose to, combining
    classes other than 0, and two characters and the one that they compose to.
    """
    decompositions, classes, compositions = [], [], []
    decomposing: Form = "NFKD" if "K" in form else "NFD"
    for character in map(chr, chain.from_iterable(_DECOMPOSING)):
        if is_newer(character, form):
            continue
        if mark := unicodedata.combining(character):
            classes.append((character, mark))
        decomposed = unicodedata.normalize(decomposing, character)
        if decomposed != character:
            decompositions.append((character, decomposed))
        if form[-1] == "C":
            pair = _composed_pair(character)
            if pair and not any(is_newer(part, form) for part in pair):
                compositions.append((pair, character))
    return decompositions, classes, compositions


def _composed_pair(whole: str) -> tuple[str, str] | None:
    """The two characters that compose to `whole`, if any do."""
    decomposed = unicodedata.normalize("NFD", whole)
    if decomposed == whole or unicodedata.normalize("NFC", decomposed) != whole:
        return None
    if "\uac00" <= whole <= "\ud7a3":  # a vowel is the last part, or a final consonant
        return unicodedata.normalize("NFC", decomposed[:-1]), decomposed[-1]
    left, right = unicodedata.decomposition(whole).split()
    return chr(int(left, 16)), chr(int(right, 16))


def is_form(kind: str) -> TypeGuard[Form]:
    """Whether `kind` names a normal form."""
    return kind in get_args(Form)


def is_newer(character: str, form: Form = "NFC") -> bool:
    """Whether Hugging Face's tables for a normal form lack a character."""
    return _at_newer(form).match(character) is not None


def settled_length(text: str) -> int:
    """The number of characters of `text` whose normal form no appended text changes."""
    last = _last_start().search(text)
    return last.start() if last else 0


def pieces_of_form(form: Form, text: str) -> tuple[str, NDArray[np.int64]]:
    """`text` in a form, and start and end in `text` of all that each character depends on, shape
    (n_chars, 2): itself, or a piece that changed."""
    import numpy as np

    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    for match in _piece(form).finditer(text):
        (start, end), piece = match.span(), match.group()
        normalized = normalize_form(form, piece)
        parts.append(normalized)
        if normalized == piece:
            spans += zip(range(start, end), range(start + 1, end + 1), strict=True)
        else:
            spans += [(start, end)] * len(normalized)
    return "".join(parts), np.array(spans, dtype=np.int64).reshape(-1, 2)


def sources_of_form(form: Form, text: str) -> list[int]:
    """The index in `text` of what Hugging Face says that each character of its form came from.

    Its algorithm gives each a number: 1 if it is inserted after the one before it, else how many
    characters vanish after the one that it replaces, negative.
    """
    sources, position = [], 0
    for piece in _piece(form).findall(text):
        is_same = normalize_form(form, piece) == piece
        for edit in [0] * len(piece) if is_same else _edits_of_piece(form, piece):
            if edit > 0:
                sources.append(position - 1)
            else:
                sources.append(position)
                position += 1 - edit
    return sources


def _edits_of_piece(form: Form, text: str) -> list[int]:
    """As the algorithm of Unicode makes them: it decomposes, sorts, and composes."""
    parts: list[tuple[str, int]] = []
    for character in text:
        decomposed = normalize_form("NFKD" if "K" in form else "NFD", character)
        parts += zip(decomposed, [0, *[1] * (len(decomposed) - 1)], strict=True)
    parts = _in_canonical_order(parts, form)
    return [edit for _, edit in (_composed(parts, form) if form[-1] == "C" else parts)]


def _combining_class(character: str, form: Form) -> int:
    return 0 if is_newer(character, form) else unicodedata.combining(character)


def _in_canonical_order(parts: list[tuple[str, int]], form: Form) -> list[tuple[str, int]]:
    ordered: list[tuple[str, int]] = []
    marks: list[tuple[int, tuple[str, int]]] = []
    for part in parts:
        mark = _combining_class(part[0], form)
        if mark:
            marks.append((mark, part))
            continue
        ordered += [kept for _, kept in sorted(marks, key=lambda item: item[0])]
        marks = []
        ordered.append(part)
    return ordered + [kept for _, kept in sorted(marks, key=lambda item: item[0])]


def _composed(parts: list[tuple[str, int]], form: Form) -> list[tuple[str, int]]:
    composed: list[tuple[str, int]] = []
    starter, last_class = -1, 0
    for character, edit in parts:
        mark = _combining_class(character, form)
        # A mark is blocked by one of the same class between it and the starter.
        is_near = starter >= 0 and (len(composed) == starter + 1 or 0 < last_class < mark)
        if is_near and (whole := _compose(composed[starter][0], character, form)):
            composed[starter] = whole, composed[starter][1] + edit - 1
            continue
        if not mark:
            starter = len(composed)
        composed.append((character, edit))
        last_class = mark
    return composed


def _compose(left: str, right: str, form: Form) -> str | None:
    """The one character that the two compose to."""
    whole = unicodedata.normalize("NFC", left + right)
    if len(whole) != 1 or is_newer(left, form) or is_newer(right, form):
        return None
    is_syllable = "\uac00" <= whole <= "\ud7a3"
    parts = unicodedata.decomposition(whole)
    return whole if is_syllable or parts == f"{ord(left):04X} {ord(right):04X}" else None
