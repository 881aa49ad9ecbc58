"""Generate any amount of text that hardly repeats itself, reproducibly from a seed.

Real text repeats words, so it does not show the speed of a tokenizer whose caches overflow. Here
almost every word is new, in ten scripts including code and digits, with the white space,
contractions and marks that split patterns treat differently. Rates measured on this text are rates
of cache misses, not of real text.
"""

import numpy as np

PIECE_CHARS = 1 << 18
"""Characters per piece, approximately; a piece has one script."""


def _syllables(consonants, vowels):
    return [c + v for c in consonants for v in vowels]


def _code_points(first, last):
    return [chr(code) for code in range(first, last)]


# For each script: the characters of words, and a separator used about every third time.
_SPACES = [" "] * 12 + [", ", ". ", "\n", " - ", "'s ", "  ", "\n\n", " (", ") ", "’", "? "]
_LATIN = _syllables("bcdfghjklmnprstvwz", "aeiou") + _syllables("aeiou", "nrst") + list("xyqAEST")
_CODE = [" ", " = ", "(", ");\n    ", ".", "\n\t", "[", "] ", " {\n", "}\n\n", "::", " // ", "->"]
_SCRIPTS = [
    (_LATIN, _SPACES),
    (_LATIN + _syllables("BDKMRT", "aeio") + list("éüñçøğ"), [*_SPACES, "'ll ", "'re "]),
    (_syllables("бвгджзклмнпрстфхцчш", "аеиоуыя"), _SPACES),
    (_syllables("βγδζθκλμνπρστφχψ", "αειου"), _SPACES),
    (_code_points(0x4E00, 0x9F00), ["，", "。", "\n", "、", "“", "”"]),
    (_code_points(0x3041, 0x3094) + _code_points(0x30A1, 0x30F6) + _code_points(0x4E00, 0x5200),
     ["、", "。", "\n", "「", "」", "　"]),
    (_code_points(0xAC00, 0xD7A0), _SPACES),
    ([*_syllables("بتثجحخدذرزسشصض", "ايو"), "َ", "ِ"], _SPACES),
    ([*_syllables("कखगघचछजझटठडढत", "ािीुूेै"), "्"], _SPACES),
    ([*_LATIN, "_", "Get", "Set", "Id"], _CODE),
    ([str(number) for number in range(1000)], [" ", ".", ",", "\n", "-", ":", "/", " €"]),
    ([*_code_points(0x1F300, 0x1F640), "\u200d", "\ufe0f", "\u0301", "a", "ok"], [" ", "!", "\n"]),
]  # fmt: skip


def _table(words, spaces):
    """The population to draw from uniformly: about three of `words` for one of `spaces`."""
    n_spaces = max(1, round(len(words) / (3 * len(spaces))))
    n_words = max(1, round(3 * n_spaces * len(spaces) / len(words)))
    return [*words * n_words, *spaces * n_spaces]


def distinct_text(n_bytes, seed=2026):
    """Yield pieces of text, in total `n_bytes` of UTF-8 or a little more."""
    rng = np.random.default_rng(seed)
    tables = [_table(words, spaces) for words, spaces in _SCRIPTS]
    made = 0
    while made < n_bytes:
        table = tables[rng.integers(len(tables))]
        mean_chars = sum(map(len, table)) / len(table)
        places = rng.integers(len(table), size=int(PIECE_CHARS / mean_chars))
        piece = "".join(map(table.__getitem__, places.tolist()))
        made += len(piece.encode())
        yield piece


def write_distinct_text(path, n_bytes):
    """Write this much text."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(distinct_text(n_bytes))
