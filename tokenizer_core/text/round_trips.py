"""Round trips: whether a text returns unchanged, and where it first differs.

`Tokenizer.first_drift` is the same for ids. Between their steps both look at the flag of
`engines.stoppable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizer_core.normalization import text_as_decoded
from tokenizer_core.special_tokens import matcher_for, resolve_policy
from tokenizer_core.stopping import check_stop

if TYPE_CHECKING:
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
