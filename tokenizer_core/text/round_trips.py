"""Round trips: whether a text or ids return unchanged, and where they first differ.

Between their steps they look at the flag of `engines.stoppable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tokenizer_core.normalization import text_as_decoded
from tokenizer_core.special_tokens import matcher_for, resolve_policy
from tokenizer_core.stopping import check_stop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenizer_core.special_tokens import Allowed, Disallowed
    from tokenizer_core.tokenizer import Tokenizer

_WINDOW_CHARS: Final = 1 << 16


def first_difference_of_text(
    tokenizer: Tokenizer,
    text: str,
    *,
    allowed_special: Allowed = "all",
    disallowed_special: Disallowed = (),
) -> int | None:
    """The first index where `decode(encode(text))` differs from the normalized `text`, in
    characters; None if they are equal. If one is a prefix of the other, this is its length.

    NFC applies to the text between special tokens, as in encoding, and white space that a special
    token includes is left out. Text that the split pattern drops is missing after decoding, which
    is a difference. So are bytes that the vocabulary lacks.

    Raises:
        SpecialTokenForbiddenError: the text contains a disallowed special token.
        UnicodeEncodeError: the text contains a lone surrogate.
        CancelledError: another thread cancelled the call.
    """
    ids = tokenizer.encode_to_numpy(
        text, allowed_special=allowed_special, disallowed_special=disallowed_special
    )
    expected, spec = text, tokenizer.spec
    if spec.normalizer != "none" or spec.has_flags or spec.word_suffix:
        recognised, _ = resolve_policy(spec.added_tokens, allowed_special, ())
        expected = text_as_decoded(spec, matcher_for(spec, recognised), text)
    check_stop()
    decoded = tokenizer.decode(ids)
    check_stop()
    return _first_difference(decoded, expected)


def first_difference_of_ids(
    tokenizer: Tokenizer,
    ids: NDArray[np.uint32],
    *,
    allowed_special: Allowed = "all",
    disallowed_special: Disallowed = (),
) -> int | None:
    """The first index where `encode(decode(ids))` differs from `ids`, shape (n_tokens,); None if
    they are equal.

    Ids whose bytes are not UTF-8 decode to U+FFFD, so encoding never returns them.

    Raises:
        UnknownTokenIdError: an id is not in the vocabulary; names index and id.
        SpecialTokenForbiddenError: the decoded text contains a disallowed special token.
        CancelledError: another thread cancelled the call.

    Example:
        >>> from tokenizer_core import Tokenizer
        >>> vocab = {i: bytes([i]) for i in range(256)} | {256: b"ab"}
        >>> tokenizer = Tokenizer(vocab, [(b"a", b"b")])
        >>> first_difference_of_ids(tokenizer, np.array([120, 97, 98], dtype=np.uint32))
        1
    """
    text = tokenizer.decode(ids)
    check_stop()
    again = tokenizer.encode_to_numpy(
        text, allowed_special=allowed_special, disallowed_special=disallowed_special
    )
    check_stop()
    n_both = min(len(ids), len(again))
    differing = np.flatnonzero(ids[:n_both] != again[:n_both])
    if len(differing):
        return int(differing[0])
    return None if len(ids) == len(again) else n_both


def _first_difference(one: str, other: str) -> int | None:
    if one == other:
        return None
    n_both = min(len(one), len(other))
    for start in range(0, n_both, _WINDOW_CHARS):
        check_stop()
        end = min(start + _WINDOW_CHARS, n_both)
        if one[start:end] != other[start:end]:
            return next(index for index in range(start, end) if one[index] != other[index])
    return n_both
