"""Byte-level BPE by its definition, slow and obvious: the oracle for small cases."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import regex

GPT2_AS_PUBLISHED = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


def merge_pre_token(data: bytes, merges: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Join the neighbours whose merge stands first in the list, the leftmost first, until none is.

    For a list that was trained this is the same as applying each merge once, in order. It is not
    where two merges make the same token: the second may make a pair whose turn has passed. There
    the libraries that run such lists do as is done here.
    """
    rank = {merge: place for place, merge in enumerate(merges)}
    parts = [data[i : i + 1] for i in range(len(data))]
    while found := [(rank[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in rank]:
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def merge_by_ranks(data: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Join the neighbours whose bytes have the lowest rank, the leftmost first, until none has."""
    if data in ranks:
        return [data]
    parts = [data[i : i + 1] for i in range(len(data))]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def encode(
    text: str, vocab: Mapping[int, bytes], merges: Sequence[tuple[bytes, bytes]]
) -> list[int]:
    """Ids of a text without special tokens, GPT-2 pattern."""
    ids = {token: id_ for id_, token in sorted(vocab.items(), reverse=True)}
    return [
        ids[part]
        for pre_token in regex.findall(GPT2_AS_PUBLISHED, text)
        for part in merge_pre_token(pre_token.encode(), merges)
    ]
