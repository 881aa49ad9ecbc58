"""Byte-level BPE by its definition, slow and obvious: the oracle for small cases."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import regex

GPT2_AS_PUBLISHED = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


def merge_pre_token(data: bytes, merges: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Apply each merge in order, everywhere, left to right."""
    parts = [data[i : i + 1] for i in range(len(data))]
    for left, right in merges:
        i = 0
        while i < len(parts) - 1:
            if parts[i] == left and parts[i + 1] == right:
                parts[i : i + 2] = [left + right]
            i += 1
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
