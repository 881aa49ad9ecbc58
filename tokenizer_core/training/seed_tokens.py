"""Seed tokens: tokens a vocabulary is to have from the start, as the merges that make them.

Byte-level BPE has no tokens without merges: text comes to a token only by merging two smaller ones.
So a seed is given the merges that are missing between the bytes and it, and these are applied
before any is learned; each costs an id. As they stand first and each is applied before those after
it, a seed that is a pre-token by itself always becomes one token, whatever is learned later, and
each product is new, as with merges that are learned.

What cannot be had this way is refused, by name: what the split pattern divides (no merge reaches
over the ends of a pre-token), what holds a special token (which is cut out first), a single byte.
A seed inside a longer pre-token is made only where no other merge takes its bytes first: that is
how BPE works, and no vocabulary can promise more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tokenizer_core.errors import InvalidSpecError
from tokenizer_core.patterns import SplitPattern
from tokenizer_core.pretokenize import split

Merge = tuple[bytes, bytes]


def make_seed_merges(
    seed_tokens: Sequence[str],
    *,
    pattern: SplitPattern,
    special_tokens: Sequence[str] = (),
    max_token_length: int | None = None,
) -> list[Merge]:
    """The merges that make one token of each seed, in the order of the seeds.

    What the merges so far make of a seed is joined from the left, so a seed costs one id less than
    it has parts: `ing` before `king` makes it cheaper.

    Raises:
        InvalidSpecError: a seed cannot be had; says which and why.

    Example:
        >>> from tokenizer_core.patterns import PATTERNS
        >>> make_seed_merges(["ing", "king"], pattern=PATTERNS["gpt2"])
        [(b'i', b'n'), (b'in', b'g'), (b'k', b'ing')]
    """
    if isinstance(seed_tokens, str):
        raise InvalidSpecError(f"seed_tokens must be a list of strings: [{seed_tokens!r:.60}]")
    if len(set(seed_tokens)) != len(seed_tokens):
        twice = next(seed for seed in seed_tokens if list(seed_tokens).count(seed) > 1)
        raise InvalidSpecError(f"the seed token {twice!r:.60} is given twice")
    ranks: dict[Merge, int] = {}
    for seed in seed_tokens:
        _check_seed(seed, pattern, special_tokens, max_token_length)
        parts = _apply(ranks, seed.encode())
        while len(parts) > 1:
            pair = parts[0], parts[1]
            ranks[pair] = len(ranks)
            parts = _join(parts, pair)  # the last of the merges: no other has anything left to do
    return list(ranks)


def _check_seed(
    seed: str, pattern: SplitPattern, special_tokens: Sequence[str], max_token_length: int | None
) -> None:
    if not isinstance(seed, str) or not seed:
        raise InvalidSpecError(f"the seed token {seed!r:.60} must be a string that is not empty")
    try:
        n_bytes = len(seed.encode())
    except UnicodeEncodeError:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} holds a lone surrogate, which is no text"
        ) from None
    if n_bytes == 1:
        raise InvalidSpecError(f"the seed token {seed!r} is a single byte and has an id already")
    if max_token_length is not None and n_bytes > max_token_length:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} has {n_bytes} bytes, more than max_token_length "
            f"{max_token_length}; leave it out or allow longer tokens"
        )
    special = next((token for token in special_tokens if token in seed), None)
    if special is not None:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} holds the special token {special!r:.60}, which is cut "
            f"out of the text first; leave it out"
        )
    pre_tokens = split(seed, pattern)
    if len(pre_tokens) > 1:
        raise InvalidSpecError(
            f"the seed token {seed!r:.60} cannot be one token: the pattern {pattern.name} splits "
            f"it into {pre_tokens!r:.80}, and merges stay inside a pre-token; leave it out, or "
            f"make it a special token"
        )


def _apply(ranks: dict[Merge, int], data: bytes) -> list[bytes]:
    """What the merges make of these bytes."""
    parts = [data[i : i + 1] for i in range(len(data))]
    while found := [pair for pair in pairwise(parts) if pair in ranks]:
        parts = _join(parts, min(found, key=ranks.__getitem__))
    return parts


def _join(parts: Sequence[bytes], pair: Merge) -> list[bytes]:
    """The parts with this pair merged wherever it stands, left to right."""
    left, right = pair
    joined: list[bytes] = []
    is_open = False  # the last part may still take the next one
    for part in parts:
        if is_open and part == right:
            joined[-1] = left + right
            is_open = False
        else:
            joined.append(part)
            is_open = part == left
    return joined
