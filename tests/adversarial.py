"""Texts made to find differences: every construct on which tokenizers are known to differ."""

import random
from collections.abc import Iterable, Iterator

import regex

_FRAGMENTS = [
    *" \t\n\r\x0b\x0c\x85\xa0\u2003\u3000\u200b\u200d\ufeff\x00",
    "\r\n", "\n\n", "  ", "   ", " \n", "\n ", " \r\n ",
    *"aAzZſsSıİßǅʰªéÉ", "'s", "'S", "'ſ", "'ll", "'LL", "'re", "'", "''", "’s", "'l", "'r", "'v",
    *"0123456789", "12", "1234", "Ⅷ", "①", "٣", "²",
    *".,!?/\\-_()[]{}<>|#@$%^&*+=~`\"", "//", "!!", "...", "/\n", "!\n\n", "/\r/",
    "中", "文字", "。", "，", "ひらがな", "カタカナ", "한국어", "가", "ᄀ", "ᅡ", "ᆨ", "각",
    "д", "Привет", "ö", "o\u0308", "\u0308", "\u0301", "\u0323", "e\u0323\u0301", "ﬁ", "Å", "\u212b",
    "🙂", "👩‍👩‍👧", "🇩🇪", "👍🏽", "\U0001e947", "𝔘", "\u0e33", "क्षि", "نص", "\u0898", "\u1ac0", "\U00016d63",
    "\U00016d67", "\U000105d2\u0307", "\U000113c2",
    "<|endoftext|>", "<|endofprompt|>", "<|im_start|>", "<think>", "</think>", "<|begin_of_text|>",
    "<|endoftext", "<|", "<|end", "|>", "<thi", "<|end<|endoftext|>", "<|endoftext|><|endoftext|>",
    "camelCaseWord", "ALLCAPS", "ALLCAPSthen", "中ABCd", "中ABC", "ʰABC", "aʰB",
]  # fmt: skip

_WHOLE = [
    "",
    " ",
    "a",
    "a\n ",
    "a \n",
    "\n \n  \n",
    "don't DON'T don'ſ we'LL we'l",
    "x" * 300,
    " " * 300,
    "^" * 300,
    "\n" * 300,
    "\u0301" * 300,
    "a\u200d" * 150,
    "ab" * 150,
    "中" * 200,
    "12345678901234567890",
    "foo(bar);\n\n\n\treturn 0;\r\n}\r\n",
    "if (a/b)\n/* c */\r\n//d\n",
    "    def f(self):\n        return self.x  \n\n",
    "The quick brown fox, aged 12½, paid €3.50 (≈$4)…",
]


def adversarial_texts(longest: int = 300, n_random: int = 150, seed: int = 2026) -> list[str]:
    """Fixed texts and seeded random joins of fragments, each at most `longest` characters."""
    rng = random.Random(seed)
    texts = [text[:longest] for text in _WHOLE]
    for _ in range(n_random):
        n_fragments = rng.choice([2, 3, 5, 8, 20, 60])
        texts.append("".join(rng.choices(_FRAGMENTS, k=n_fragments))[:longest])
    return texts


def code_points() -> list[int]:
    """All code points of the planes that have characters, except surrogates. Of the other planes,
    in which all code points are alike, every 256th and the last 256.
    """
    codes: list[int] = []
    for first in range(0, 0x110000, 0x10000):
        if first >> 16 in (0, 1, 2, 3, 14):
            codes.extend(range(first, first + 0x10000))
        else:
            codes.extend(
                [*range(first, first + 0xFF00, 0x100), *range(first + 0xFF00, first + 0x10000)]
            )
    return [code for code in codes if not 0xD800 <= code < 0xE000]


def every_code_point_in_context() -> Iterator[str]:
    """Each of `code_points` among letters, digits, marks and spaces."""
    codes = code_points()
    for first in range(0, len(codes), 0x1000):
        yield in_context(codes[first : first + 0x1000])


def class_borders_in_context() -> Iterator[str]:
    """The first and last code points of every run of a class that any pattern uses."""
    everything = "".join(map(chr, range(0x110000)))
    borders: set[int] = set()
    for name in (r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\s"):
        for run in regex.finditer(f"{name}+", everything):
            borders.update((run.start() - 1, run.start(), run.end() - 1, run.end()))
    kept = sorted(c for c in borders if 0 <= c < 0x110000 and not 0xD800 <= c < 0xE000)
    for first in range(0, len(kept), 0x400):
        yield in_context(kept[first : first + 0x400])


def in_context(codes: Iterable[int]) -> str:
    """Code points between characters that the patterns treat differently."""
    return "".join(f"a{c} {c}B1{c}{c}.\u0301{c}'{c}\n" for c in map(chr, codes))
