"""The figures a tokenizer is judged by, each a function of counts; where each is defined is said
with it.

It stands alone, away from reading and encoding, so that every figure can be checked by hand. What
a figure says and does not say is in `docs/evaluation.md`. Imports nothing of the package.

In all of them `counts` has shape (largest id + 1,) and holds how often each id came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RENYI_ALPHA: Final = 2.5
"""The order that Zouhar et al. (2023) found to go with translation quality best."""


def bytes_per_token(n_bytes: int, n_tokens: int) -> float:
    """UTF-8 bytes of a text over its tokens: the compression ratio of Stanford's CS336
    (assignment 1, `tokenizer_experiments`). Tokens per byte is one over it. 0 without tokens.

    Example:
        >>> bytes_per_token(12, 4)
        3.0
    """
    return n_bytes / n_tokens if n_tokens else 0.0


def fertility(n_word_tokens: int, n_words: int) -> float:
    """Tokens per word: the mean, over words, of the number of tokens that hold a byte of the word
    (Rust et al. 2021, "How Good is Your Tokenizer?", section 4). 1 is the least; 0 without words.

    What a word is: `words.word_spans`.

    Example:
        >>> fertility(6, 4)
        1.5
    """
    return n_word_tokens / n_words if n_words else 0.0


def single_token_share(n_single: int, n_words: int) -> float:
    """The share of words (each time they come) that are inside one token: one less the "proportion
    of continued words" of Rust et al. (2021). 0 without words.

    Example:
        >>> single_token_share(3, 4)
        0.75
    """
    return n_single / n_words if n_words else 0.0


def renyi_entropy(counts: NDArray[np.integer], alpha: float = RENYI_ALPHA) -> float:
    """The Rényi entropy of order `alpha` of how often each id comes, in bits:
    `log2(sum(p ** alpha)) / (1 - alpha)`; for `alpha` 1 its limit, Shannon's `-sum(p log2 p)`.
    0 where no id came.

    Raises:
        ValueError: `alpha` is negative.

    Example:
        >>> renyi_entropy(np.array([2, 2, 0, 2, 2]))
        2.0
    """
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
    """The Rényi entropy over the most it could be, `log2(vocab_size)`: 1 where all tokens come
    alike, near 0 where few make up the text (Zouhar et al. 2023, "Tokenization and the Noiseless
    Channel"). 0 for a vocabulary of one.

    Both `alpha` and `vocab_size` change it: figures are comparable only where both are the same
    in meaning. The authors' program divides by the number of ids that came unless told otherwise.
    Cognetta et al. (2024) show that it can be raised without any use.

    Example:
        >>> renyi_efficiency(np.array([1, 1, 1, 1]), vocab_size=16)
        0.5
    """
    return renyi_entropy(counts, alpha) / math.log2(vocab_size) if vocab_size > 1 else 0.0


def vocabulary_use(counts: NDArray[np.integer], vocab_size: int) -> float:
    """The share of the vocabulary's ids that came at least once. It grows with the sample: compare
    figures of equal samples only.

    Example:
        >>> vocabulary_use(np.array([5, 0, 1, 0]), vocab_size=4)
        0.5
    """
    return int(np.count_nonzero(counts)) / vocab_size if vocab_size else 0.0


def rank_frequency(counts: NDArray[np.integer], n_points: int = 60) -> list[tuple[int, float]]:
    """`(rank, share)`: the share of all tokens that the id of that rank makes up, the commonest
    being rank 1; at most `n_points` ranks, evenly apart in their logarithm, first and last always
    among them (Zipf's curve).

    Example:
        >>> rank_frequency(np.array([1, 0, 3]))
        [(1, 0.75), (2, 0.25)]
    """
    came = np.sort(counts[counts > 0])[::-1]
    if not len(came):
        return []
    ranks = np.unique(np.geomspace(1, len(came), min(n_points, len(came))).round().astype(np.int64))
    total = int(came.sum())
    return [(int(rank), int(came[rank - 1]) / total) for rank in ranks]


def length_shares(
    lengths: NDArray[np.integer], weights: NDArray[np.integer], longest: int = 16
) -> list[float]:
    """The share, by weight, of tokens of 1, 2, ... bytes; the last place holds all of `longest`
    bytes and more. `lengths` and `weights` (how often each came, or 1 each) have one place an id;
    ids of length 0 (special tokens) are left out.

    Example:
        >>> length_shares(np.array([1, 2, 9, 0]), np.array([2, 1, 1, 5]), longest=3)
        [0.5, 0.25, 0.25]
    """
    kept = (lengths > 0) & (weights > 0)
    places = np.minimum(lengths[kept], longest) - 1
    sums = np.bincount(places, weights=weights[kept].astype(np.float64), minlength=longest)
    total = float(sums.sum())
    return [float(part) / total if total else 0.0 for part in sums]


def parity(n_tokens: Mapping[str, float], reference: str) -> dict[str, float]:
    """For each language the number of tokens over that of the reference, for the same content:
    the tokenization premium of Petrov et al. (2023), "Language Model Tokenizers Introduce
    Unfairness Between Languages".

    Only on parallel text is it that premium. Given tokens *per byte* of unlike texts it is a
    cruder figure: an alphabet of two or three bytes a letter looks better than it is. Languages
    without tokens are left out.

    Example:
        >>> parity({"en": 100, "ja": 230}, "en")
        {'en': 1.0, 'ja': 2.3}
    """
    base = n_tokens.get(reference, 0)
    return {name: n / base for name, n in n_tokens.items() if n} if base else {}


def bytes_per_second(pieces: Sequence[tuple[int, float]]) -> float:
    """The median over pieces `(bytes, seconds)` of their rate, in bytes a second: a pause of the
    machine in one piece does not move it. 0 without pieces. It says something only of the machine
    it was measured on, and there only beside others of the same run.

    Example:
        >>> bytes_per_second([(100, 1.0), (100, 0.5), (100, 50.0)])
        100.0
    """
    rates = [n_bytes / seconds for n_bytes, seconds in pieces if seconds > 0]
    return median(rates) if rates else 0.0
