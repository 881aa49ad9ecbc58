"""Words in a text, and how many tokens each of them has.

Tokenizers are compared by fertility, and most figures in circulation do not say what a word is.
Here it is a run of letters, marks and digits, with apostrophes inside it, of scripts that put
spaces between words; punctuation is no word, nor part of one. Chinese, Japanese, Thai, Lao, Khmer
and Burmese text has no words in this sense: only a dictionary could tell.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import regex

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNSPACED: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_LETTER, _UNSPACED_LETTER = 1, 2


def word_spans(text: str) -> NDArray[np.int64]:
    """Where the words of `text` stand, in UTF-8 bytes: shape (n_words, 2), start and end.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.

    Example:
        >>> word_spans("naïve, don't 世界").tolist()
        [[0, 6], [8, 13]]
    """
    # Arrays of a whole text: matching one word after the other took ten times as long as encoding.
    points = _code_points(text)
    is_letter = _classes()[points] == _LETTER
    is_word = is_letter.copy()
    is_between = is_letter[:-2] & is_letter[2:]
    inner = points[1:-1]
    is_word[1:-1] |= is_between & ((inner == ord("'")) | (inner == ord("’")))
    steps = np.diff(is_word.astype(np.int8), prepend=0, append=0)
    spans = np.flatnonzero(steps).astype(np.int64).reshape(-1, 2)
    if text.isascii():
        return spans
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000).astype(np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    placed: NDArray[np.int64] = starts[spans]
    return placed


def count_unspaced_letters(text: str) -> int:
    """Letters of scripts that do not put spaces between words, and so belong to no word here.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.

    Example:
        >>> count_unspaced_letters("in 世界")
        2
    """
    if text.isascii():
        return 0
    return int(np.count_nonzero(_classes()[_code_points(text)] == _UNSPACED_LETTER))


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


@cache
def _classes() -> NDArray[np.uint8]:
    """For each code point whether it is a letter, mark or digit, and of which kind of script."""
    points = np.arange(0x110000, dtype="<u4")
    points[0xD800:0xE000] = ord(" ")  # surrogates are no text
    every = points.tobytes().decode("utf-32-le")
    table = np.zeros(len(points), dtype=np.uint8)
    for expression, kind in (
        (r"[\p{L}\p{M}\p{N}]+", _LETTER),
        (f"[{_UNSPACED}]+", _UNSPACED_LETTER),
    ):
        for match in regex.finditer(expression, every):
            table[match.start() : match.end()] = kind
    return table


def tokens_of_words(
    spans: NDArray[np.integer], token_ends: NDArray[np.integer]
) -> NDArray[np.int64]:
    """How many tokens hold a byte of each word: shape (n_words,).

    `token_ends` are where the tokens of the same text end, in bytes, rising.

    Example:
        >>> tokens_of_words(np.array([[0, 3], [4, 6]]), np.array([2, 3, 6])).tolist()
        [2, 1]
    """
    first = np.searchsorted(token_ends, spans[:, 0], side="right")
    last = np.searchsorted(token_ends, spans[:, 1] - 1, side="right")
    return (last - first + 1).astype(np.int64)
