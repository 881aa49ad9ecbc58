"""Aligns the tokens of two tokenizers: groups of both that cover the same bytes of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.specials.policy import Allowed, Disallowed
    from tokenizer_core.tokenizer import Tokenizer


class Alignment(NamedTuple):
    """The ids of a text by two tokenizers, in the smallest groups that cover the same bytes.

    - `ids_a`, `ids_b`: shape (n_tokens,), uint32.
    - `offsets_a`, `offsets_b`: group `i` is `ids_a[offsets_a[i]:offsets_a[i + 1]]`, and the same of
      b; shape (n_groups + 1,), uint32.
    - `byte_offsets`: the group covers these bytes of the text in UTF-8,
      `byte_offsets[i]:byte_offsets[i + 1]`; shape (n_groups + 1,), uint32.

    A group has no ids of a tokenizer that gives none for its bytes.
    """

    ids_a: NDArray[np.uint32]
    ids_b: NDArray[np.uint32]
    offsets_a: NDArray[np.uint32]
    offsets_b: NDArray[np.uint32]
    byte_offsets: NDArray[np.uint32]


def align(
    a: Tokenizer,
    b: Tokenizer,
    text: str,
    *,
    allowed_special: Allowed = "all",
    disallowed_special: Disallowed = (),
) -> Alignment:
    """Align the tokens of a text. Each tokenizer recognises its own special tokens, as `encode`.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"lo", 257: b"ow", 258: b"wer"}
        >>> a = Tokenizer(vocab, [(b"l", b"o")])
        >>> b = Tokenizer(vocab, [(b"o", b"w")])
        >>> found = align(a, b, "slower")
        >>> found.offsets_a.tolist(), found.offsets_b.tolist(), found.byte_offsets.tolist()
        ([0, 1, 3, 4, 5], [0, 1, 3, 4, 5], [0, 1, 4, 5, 6])
    """
    if any(isinstance(tokenizer, str) for tokenizer in (a, b)):
        raise TypeError("two tokenizers come before the text: align(a, b, text)")
    encoded = [
        t.encode_with_offsets(
            text, allowed_special=allowed_special, disallowed_special=disallowed_special
        )
        for t in (a, b)
    ]
    ids_a, ids_b = (np.array(ids, dtype=np.uint32) for ids, _ in encoded)
    offsets = align_spans(encoded[0][1], encoded[1][1], len(text.encode()))
    return Alignment(ids_a, ids_b, *offsets)


def align_spans(
    a: NDArray[Any], b: NDArray[Any], n_bytes: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """The offsets of an `Alignment`, of tokens with these starts and ends in a text of `n_bytes`,
    each of shape (n_tokens, 2)."""
    (at_a, n_a), (at_b, n_b) = _find_cuts(a, n_bytes), _find_cuts(b, n_bytes)
    at, in_a, in_b = np.intersect1d(at_a, at_b, assume_unique=True, return_indices=True)
    cuts = np.stack([n_a[in_a], n_b[in_b], at])
    cuts = np.concatenate([np.zeros((3, 1), np.int64), cuts], axis=1)
    # Where both leave out text, a second cut follows with no token between them.
    is_new = np.append(True, (np.diff(cuts[:2]) != 0).any(axis=0))
    cuts = cuts[:, is_new]
    cuts[2, 1:][-1:] = n_bytes
    offsets_a, offsets_b, byte_offsets = cuts.astype(np.uint32)
    return offsets_a, offsets_b, byte_offsets


def _find_cuts(spans: NDArray[Any], n_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions in the text, ascending, that no token crosses, and the tokens before each. Tokens
    may overlap, as the parts of a composed character do, or leave out text between them."""
    starts, ends = spans.astype(np.int64).T
    end_before = np.append(0, np.maximum.accumulate(ends))
    start_after = np.append(np.minimum.accumulate(starts[::-1])[::-1], n_bytes)
    (n_before,) = np.nonzero(end_before <= start_after)
    # In order, because a token ends at or after its start.
    at = np.stack([end_before[n_before], start_after[n_before]], axis=1).ravel()
    tokens = n_before.repeat(2)
    is_last = np.append(np.diff(at) != 0, True)  # tokens without text belong to those before them
    return at[is_last], tokens[is_last]
