"""Training by its definition, slow and obvious: every step counts every pair of every word again.

Shares no code with the library: symbols are bytes, the split is GPT-2's published expression,
special tokens are found by trying every place.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import regex

from tests.naive_bpe import GPT2_AS_PUBLISHED

Merge = tuple[bytes, bytes]

_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_ALPHABET_ORDER = {
    bytes([byte]): place
    for place, byte in enumerate(
        _PRINTABLE + [byte for byte in range(256) if byte not in _PRINTABLE]
    )
}


def plain_stretches(text: str, special_tokens: Sequence[str]) -> list[str]:
    """The text between special tokens; leftmost, then longest."""
    stretches = [""]
    place = 0
    while place < len(text):
        found = max(
            (token for token in special_tokens if text.startswith(token, place)),
            key=len,
            default=None,
        )
        if found is None:
            stretches[-1] += text[place]
            place += 1
        else:
            stretches.append("")
            place += len(found)
    return stretches


def count_naively(
    text: str, special_tokens: Sequence[str], expression: str = GPT2_AS_PUBLISHED
) -> Counter[str]:
    """Pre-token -> occurrences."""
    counts: Counter[str] = Counter()
    for stretch in plain_stretches(text, special_tokens):
        counts.update(regex.findall(expression, stretch))
    return counts


def learn_naively(
    counts: Mapping[str, int],
    n_merges: int,
    tie_break: str = "lexicographic",
    *,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    first_merges: Sequence[Merge] = (),
) -> list[Merge]:
    """The merges, in order."""
    words = {pre_token: [bytes([b]) for b in pre_token.encode()] for pre_token in counts}
    merges: list[Merge] = []
    order = dict(_ALPHABET_ORDER)
    while len(merges) < max(n_merges, len(first_merges)):
        pairs: Counter[Merge] = Counter()
        for pre_token, word in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += counts[pre_token]
        for pair, count in list(pairs.items()):
            too_long = max_token_length is not None and len(pair[0] + pair[1]) > max_token_length
            if count < min_frequency or too_long:
                del pairs[pair]
        if len(merges) < len(first_merges):
            best = first_merges[len(merges)]
        elif not pairs:
            break
        elif tie_break == "lexicographic":
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
        else:
            best = min(pairs, key=lambda pair: (-pairs[pair], order[pair[0]], order[pair[1]]))
        merges.append(best)
        order.setdefault(best[0] + best[1], len(order))
        words = {pre_token: merge_word(word, best) for pre_token, word in words.items()}
    return merges


def merge_word(word: list[bytes], pair: Merge) -> list[bytes]:
    """Left to right, no overlap."""
    merged: list[bytes] = []
    place = 0
    while place < len(word):
        if tuple(word[place : place + 2]) == pair:
            merged.append(pair[0] + pair[1])
            place += 2
        else:
            merged.append(word[place])
            place += 1
    return merged


def train_naively(
    text: str, vocab_size: int, special_tokens: Sequence[str], tie_break: str = "lexicographic"
) -> tuple[dict[int, bytes], list[Merge]]:
    """(vocab, merges) of a text."""
    n_merges = vocab_size - 256 - len(special_tokens)
    merges = learn_naively(count_naively(text, special_tokens), n_merges, tie_break)
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [token.encode() for token in special_tokens]
    for left, right in merges:
        if left + right not in tokens:
            tokens.append(left + right)
    return dict(enumerate(tokens)), merges
