"""The figures of a tokenizer, each a function of counts, words or the vocabulary.

Each docstring cites the definition of the figure; `docs/evaluation.md` explains its meaning.
`counts` has shape (largest id + 1,) and contains the number of occurrences of each id.

**Words.** Most published figures of fertility do not define a word. Here a word is a run of
letters, marks and digits, with apostrophes inside it, in a script that separates words by spaces;
punctuation is never part of a word. Chinese, Japanese, Thai, Lao, Khmer and Burmese text has no
words in this sense: finding them requires a dictionary.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np
import regex

from tokenizer_core.blobs.atomic_files import write_whole_file
from tokenizer_core.normalizers.aligned import characters_of
from tokenizer_core.spec.alphabet import is_utf8

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from tokenizer_core.spec import TokenizerSpec


RENYI_ALPHA: Final = 2.5
"""The order that correlated best with translation quality in Zouhar et al. (2023)."""


def bytes_per_token(n_bytes: int, n_tokens: int) -> float:
    """UTF-8 bytes of a text divided by its tokens: the compression ratio of Stanford's CS336
    (assignment 1, `tokenizer_experiments`), and the inverse of tokens per byte. 0 without tokens.
    """
    return n_bytes / n_tokens if n_tokens else 0.0


def fertility(n_word_tokens: int, n_words: int) -> float:
    """Tokens per word: the mean, over words, of the number of tokens with a byte of the word (Rust
    et al. 2021, "How Good is Your Tokenizer?", section 4). At least 1; 0 without words.

    `word_spans` defines words.
    """
    return n_word_tokens / n_words if n_words else 0.0


def single_token_share(n_single: int, n_words: int) -> float:
    """The fraction of word occurrences within one token: 1 minus the "proportion of continued
    words" of Rust et al. (2021). 0 without words."""
    return n_single / n_words if n_words else 0.0


def renyi_entropy(counts: NDArray[np.integer], alpha: float = RENYI_ALPHA) -> float:
    """The Rényi entropy of order `alpha` of the ids' frequencies, in bits: `log2(sum(p ** alpha)) /
    (1 - alpha)`; for `alpha` 1 its limit, Shannon's `-sum(p log2 p)`. 0 if all counts are 0. Raises
    ValueError: `alpha` is negative."""
    if alpha < 0:
        raise ValueError(f"the order of a Rényi entropy is not negative, and alpha is {alpha}")
    came = counts[counts > 0].astype(np.float64)
    if not len(came):
        return 0.0
    shares = came / came.sum()
    if math.isclose(alpha, 1):
        bits = -float((shares * np.log2(shares)).sum())
    else:
        bits = math.log2(float((shares**alpha).sum())) / (1 - alpha)
    return max(bits, 0.0)


def renyi_efficiency(
    counts: NDArray[np.integer], vocab_size: int, alpha: float = RENYI_ALPHA
) -> float:
    """The Rényi entropy divided by its maximum, `log2(vocab_size)`: 1 if all tokens are equally
    frequent, near 0 if a few make up the text (Zouhar et al. 2023, "Tokenization and the Noiseless
    Channel"). 0 for a vocabulary of one token.

    Compare figures only for the same `alpha` and the same definition of `vocab_size`. By default,
    the authors' program divides by the number of ids that occurred. Cognetta et al. (2024) show
    that the figure can be raised without any benefit.
    """
    return renyi_entropy(counts, alpha) / math.log2(vocab_size) if vocab_size > 1 else 0.0


def vocabulary_use(counts: NDArray[np.integer], vocab_size: int) -> float:
    """The fraction of the vocabulary's ids that occurred. It grows with the sample: compare only
    figures of equal samples."""
    return int(np.count_nonzero(counts)) / vocab_size if vocab_size else 0.0


def rank_frequency(counts: NDArray[np.integer], n_points: int = 60) -> list[tuple[int, float]]:
    """`(rank, fraction)`: the fraction of all tokens with the id of that rank; rank 1 is the most
    frequent. Contains at most `n_points` ranks, evenly spaced in their logarithm, always with the
    first and the last (Zipf's curve)."""
    came = np.sort(counts[counts > 0])[::-1]
    if not len(came):
        return []
    ranks = np.unique(np.geomspace(1, len(came), min(n_points, len(came))).round().astype(np.int64))
    total = int(came.sum())
    return [(int(rank), int(came[rank - 1]) / total) for rank in ranks]


def length_shares(
    lengths: NDArray[np.integer], weights: NDArray[np.integer], longest: int = 16
) -> list[float]:
    """The weighted fraction of tokens of 1, 2, ... bytes; the last element includes all tokens of
    `longest` bytes and more. `lengths` and `weights` (occurrences, or 1 each) have one element per
    id; ids of length 0 (special tokens) are excluded."""
    kept = (lengths > 0) & (weights > 0)
    columns = np.minimum(lengths[kept], longest) - 1
    sums = np.bincount(columns, weights=weights[kept].astype(np.float64), minlength=longest)
    total = float(sums.sum())
    return [float(part) / total if total else 0.0 for part in sums]


def parity(n_tokens: Mapping[str, float], reference: str) -> dict[str, float]:
    """The number of tokens of each language divided by that of the reference, for the same content:
    the tokenization premium of Petrov et al. (2023), "Language Model Tokenizers Introduce
    Unfairness Between Languages".

    Only parallel text gives that premium. Tokens *per byte* of different texts give a cruder
    figure: alphabets with two or three bytes per letter look better than they are. Languages
    without tokens are excluded.
    """
    base = n_tokens.get(reference, 0)
    return {name: n / base for name, n in n_tokens.items() if n} if base else {}


def bytes_per_second(pieces: Sequence[tuple[int, float]]) -> float:
    """The median rate of the pieces `(bytes, seconds)`, in bytes per second, which a pause of the
    machine in one piece does not change. 0 without pieces. Compare it only with other rates of the
    same run on the same machine."""
    rates = [n_bytes / seconds for n_bytes, seconds in pieces if seconds > 0]
    return median(rates) if rates else 0.0


# Han and kana share the marks at the end, whose script is Common or Inherited.
_UNSPACED: Final = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\u3006\u302A-\u302D\u3031-\u3035\u303C\u3099\u309A\u30FC\uFF70\uFF9E\uFF9F"
)
_LETTER, _UNSPACED_LETTER = 1, 2


def word_spans(text: str) -> NDArray[np.int64]:
    """The byte offsets (start, end) of the words of `text` in UTF-8: shape (n_words, 2). Raises
    UnicodeEncodeError: the text contains a lone surrogate."""
    # Arrays of the whole text: matching each word separately took ten times as long as encoding.
    points, starts = characters_of(text)
    is_letter = _classes()[points] == _LETTER
    is_word = is_letter.copy()
    is_between = is_letter[:-2] & is_letter[2:]
    inner = points[1:-1]
    is_word[1:-1] |= is_between & ((inner == ord("'")) | (inner == ord("’")))
    steps = np.diff(is_word.astype(np.int8), prepend=0, append=0)
    spans: NDArray[np.int64] = starts[np.flatnonzero(steps).reshape(-1, 2)]
    return spans


def count_unspaced_letters(text: str) -> int:
    """The number of letters in scripts without spaces between words; words never include them.
    Raises UnicodeEncodeError: the text contains a lone surrogate."""
    if text.isascii():
        return 0
    return int(np.count_nonzero(_classes()[characters_of(text)[0]] == _UNSPACED_LETTER))


@cache
def _classes() -> NDArray[np.uint8]:
    """For each code point: whether it is a letter, mark or digit, and the type of its script."""
    points = np.arange(0x110000, dtype="<u4")
    points[0xD800:0xE000] = ord(" ")  # surrogates are not text
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
    """The number of tokens with a byte of each word: shape (n_words,).

    `token_ends`: the ascending end offsets of the text's tokens, in bytes.

    Example:
        >>> tokens_of_words(np.array([[0, 3], [4, 6]]), np.array([2, 3, 6])).tolist()
        [2, 1]
    """
    first = np.searchsorted(token_ends, spans[:, 0], side="right")
    last = np.searchsorted(token_ends, spans[:, 1] - 1, side="right")
    return (last - first + 1).astype(np.int64)


def token_byte_lengths(spec: TokenizerSpec) -> NDArray[np.int32]:
    """The number of bytes of each id: shape (largest id + 1,), int32; 0 for special tokens and for
    ids without a token.

    These lengths convert a model's loss into bits per byte, which does not depend on the tokenizer:
    `loss_in_nats.sum() / (log(2) * token_bytes[targets].sum())`, without the loss of special
    tokens, as nanochat evaluates. Added tokens that are content count with their bytes. A word
    suffix (CLIP's `</w>`) has none.
    """
    lengths = lengths_in_text(spec).astype(np.int32)
    for id_ in spec.special_tokens.values():
        lengths[id_] = 0
    return lengths


def lengths_in_text(spec: TokenizerSpec) -> NDArray[np.int64]:
    """As `token_byte_lengths`, but with the bytes of special tokens, int64."""
    lengths = np.zeros(spec.largest_id + 1, dtype=np.int64)
    for id_, token in spec.vocab.items():
        lengths[id_] = len(spec.alphabet.bytes_in_text(token))
    for added in spec.added_tokens:
        lengths[added.id] = len(spec.vocab[added.id])
    return lengths


def save_token_bytes(spec: TokenizerSpec, path: str | os.PathLike[str]) -> None:
    """Write `token_byte_lengths` to a `.npy` file of exactly this name, completely or not at all.
    Raises OSError: the file cannot be written."""
    data = io.BytesIO()
    np.save(data, token_byte_lengths(spec))
    write_whole_file(path, data.getvalue())


def longest_tokens(spec: TokenizerSpec, n: int = 10) -> list[tuple[int, bytes]]:
    """`(id, bytes)` of the `n` longest tokens in bytes, without special tokens; among equals, the
    smaller id first."""
    special = set(spec.special_tokens.values())
    ordinary = (item for item in spec.vocab.items() if item[0] not in special)
    return sorted(ordinary, key=lambda item: (-len(item[1]), item[0]))[: max(n, 0)]


def partial_utf8_tokens(spec: TokenizerSpec) -> list[int]:
    """The ascending ids whose bytes alone are not UTF-8 and decode to U+FFFD: "partial UTF-8
    sequences" in Land and Bartolo (2024), "Fishing for Magikarp". Always includes the 128 single
    bytes above 0x7F."""
    return [id_ for id_, token in sorted(spec.vocab.items()) if not is_utf8(token)]
