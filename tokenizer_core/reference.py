r"""Byte-level BPE as in a textbook: train, encode and decode, without optimisations.

Read this file first. The rest of the package computes the same results in less time, and the tests
compare it with the functions below.

    text     low lowest<|end|>low
               |  cut at special tokens: leftmost first, then longest
    plain    [low lowest]                [low]     and between them <|end|>
               |  split with the pattern
    words    [low] [ lowest]             [low]
               |  write as UTF-8, one symbol per byte
    symbols  l o w  _ l o w e s t        l o w
               |  join pairs, the earliest merge of the list first
    tokens   low    _low e st            low
               |  look up in the vocabulary
    ids      258    259 101 260    256   258

Training finds the list of merges. It counts the words of a corpus once. Then it repeats one step:
count every adjacent pair of symbols, choose the pair with the highest count, and join that pair
everywhere. On equal counts it chooses the greatest `(left, right)`; Python compares these tuples of
bytes one side after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import regex

Vocab = Mapping[int, bytes]
Stretch = tuple[str, str | None]
Merge = tuple[bytes, bytes]

GPT2_EXPRESSION = r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The split pattern of GPT-2, as OpenAI published it."""
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
GPT2_ALPHABET = sorted(range(256), key=lambda byte: (byte not in _PRINTABLE, byte))
"""The bytes in Hugging Face's order: bytes that GPT-2's files print unchanged come first."""


def train(
    text: str, vocab_size: int, special_tokens: Sequence[str] = (), tie_break: str = "lexicographic"
) -> tuple[dict[int, bytes], list[Merge]]:
    """Return (vocab, merges): 256 bytes, then the special tokens, then one token per merge.

    Raises:
        ValueError: `vocab_size` has no room for the bytes and the special tokens.

    Example:
        >>> vocab, merges = train("low low lower newest newest widest widest widest", 264)
        >>> [left.decode() + "+" + right.decode() for left, right in merges]
        ['s+t', 'e+st', 'w+i', 'wi+d', 'wid+est', 'o+w', 'l+ow', ' +widest']
        >>> vocab[256], vocab[263]
        (b'st', b' widest')
    """
    tokens = [bytes([byte]) for byte in range(256)] + [token.encode() for token in special_tokens]
    if vocab_size < len(tokens):
        raise ValueError(f"vocab_size must be at least {len(tokens)}, not {vocab_size}")
    merges = learn(count_words(text, special_tokens), vocab_size - len(tokens), tie_break)
    for left, right in merges:
        if left + right not in tokens:
            tokens.append(left + right)
    return dict(enumerate(tokens)), merges


def count_words(
    text: str, special_tokens: Sequence[str] = (), expression: str = GPT2_EXPRESSION
) -> Counter[str]:
    """Return how often each word occurs. Special tokens are boundaries, not words."""
    words: Counter[str] = Counter()
    for stretch, _ in split_at_special_tokens(text, special_tokens):
        words.update(regex.findall(expression, stretch))
    return words


def learn(
    counts: Mapping[str, int],
    n_merges: int,
    tie_break: str = "lexicographic",
    *,
    first_merges: Sequence[Merge] = (),
    may_merge: Callable[[Merge, int], bool] = lambda pair, count: True,
) -> list[Merge]:
    """Return at most `n_merges` merges for counted words, fewer when no pair is left.

    `first_merges` are applied and returned before any is learned. `may_merge(pair, count)` decides
    whether a pair may be chosen. With `tie_break="huggingface"` the smallest pair of ids wins.
    """
    words = {word: [bytes([byte]) for byte in word.encode()] for word in counts}
    merges: list[Merge] = []
    ids = {bytes([byte]): id_ for id_, byte in enumerate(GPT2_ALPHABET)}
    while len(merges) < max(n_merges, len(first_merges)):
        pairs: Counter[Merge] = Counter()
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        allowed = [pair for pair, count in pairs.items() if may_merge(pair, count)]
        if len(merges) < len(first_merges):
            best = first_merges[len(merges)]
        elif not allowed:
            break
        elif tie_break == "lexicographic":
            best = max(allowed, key=lambda pair: (pairs[pair], pair))
        else:
            best = min(allowed, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merges.append(best)
        ids.setdefault(best[0] + best[1], len(ids))
        words = {word: join(symbols, best) for word, symbols in words.items()}
    return merges


def encode(
    text: str, vocab: Vocab, merges: Sequence[Merge], special_tokens: Sequence[str] = ()
) -> list[int]:
    """Return the ids of a text; for tokens with the same bytes, the smallest id.

    Example:
        >>> vocab, merges = train("low low lowest<|end|>", 261, ["<|end|>"])
        >>> encode("low lowest<|end|>low", vocab, merges, ["<|end|>"])
        [258, 259, 101, 260, 256, 258]
    """
    ids = {token: id_ for id_, token in sorted(vocab.items(), reverse=True)}
    result: list[int] = []
    for stretch, special_token in split_at_special_tokens(text, special_tokens):
        for word in regex.findall(GPT2_EXPRESSION, stretch):
            result += [ids[token] for token in apply_merges(word.encode(), merges)]
        if special_token is not None:
            result.append(ids[special_token.encode()])
    return result


def decode(ids: Iterable[int], vocab: Vocab, errors: str = "replace") -> str:
    """Return the text of the joined bytes of these ids; a token may end inside a character."""
    return b"".join([vocab[id_] for id_ in ids]).decode("utf-8", errors)


def split_at_special_tokens(text: str, special_tokens: Sequence[str]) -> list[Stretch]:
    """Return pairs (plain text, the special token after it); the last pair has None.

    Example:
        >>> split_at_special_tokens("x<a><a><a>y", ["<a>", "<a><a>"])
        [('x', '<a><a>'), ('', '<a>'), ('y', None)]
    """
    pairs: list[Stretch] = []
    start = position = 0
    while position < len(text):
        found = [token for token in special_tokens if text.startswith(token, position)]
        if found:
            token = max(found, key=len)
            pairs.append((text[start:position], token))
            start = position + len(token)
        position = max(position + 1, start)
    return [*pairs, (text[start:], None)]


def apply_merges(word: bytes, merges: Sequence[Merge]) -> list[bytes]:
    """Return the tokens of a word: join the first pair of the list that occurs, until none occurs.

    For a trained list this equals applying each merge once, in order. It differs where two merges
    give the same token: the second may make a pair that comes earlier in the list.
    """
    order = {merge: index for index, merge in enumerate(merges)}
    return _join_lowest_first(word, order.get)


def apply_ranks(word: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Return the tokens of a word as tiktoken finds them: a word with a rank is one token, else
    the pair whose joined bytes have the lowest rank is joined until none has one."""
    if word in ranks:
        return [word]
    return _join_lowest_first(word, lambda pair: ranks.get(pair[0] + pair[1]))


def _join_lowest_first(word: bytes, order: Callable[[Merge], int | None]) -> list[bytes]:
    symbols = [bytes([byte]) for byte in word]
    while True:
        keys = [(order(pair), i) for i, pair in enumerate(pairwise(symbols))]
        found = [(key, i) for key, i in keys if key is not None]
        if not found:
            return symbols
        _, i = min(found)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


def join(symbols: Sequence[bytes], pair: Merge) -> list[bytes]:
    """Return the symbols with this pair joined, left to right: `aaa` with `(a, a)` is `aa a`."""
    joined: list[bytes] = []
    position = 0
    while position < len(symbols):
        is_pair = tuple(symbols[position : position + 2]) == pair
        joined.append(pair[0] + pair[1] if is_pair else symbols[position])
        position += 2 if is_pair else 1
    return joined
