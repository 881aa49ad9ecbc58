"""Round trips: whether a text returns unchanged, and where it first differs.

`Tokenizer.first_drift` is the same for ids. Between their steps both look at the flag of
`engines.stoppable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tokenizer_core.specials.matchers import matcher_of_spec
from tokenizer_core.specials.parts import text_as_decoded
from tokenizer_core.specials.policy import resolve_policy
from tokenizer_core.stopping import check_stop

if TYPE_CHECKING:
    from tokenizer_core.specials.policy import Allowed, Disallowed
    from tokenizer_core.tokenizer import Tokenizer

_WINDOW_CHARS: Final = 1 << 16


class TextRoundTrip(NamedTuple):
    """The first difference after encoding and decoding a text, in characters (None: none), and
    whether the tokenizer loses some of the text, as its split pattern and vocabulary say."""

    first_difference: int | None
    is_lossy: bool


def check_text(
    tokenizer: Tokenizer,
    text: str,
    *,
    allowed_special: Allowed = "all",
    disallowed_special: Disallowed = (),
) -> TextRoundTrip:
    """Compare `decode(encode(text))` with the normalized `text`, without what the tokenizer loses.
    If one is a prefix of the other, the first difference is its length.

    NFC applies to the text between special tokens, as in encoding, and white space that a special
    token includes is left out. Text that the split pattern drops, and bytes that the vocabulary
    lacks, are no difference.

    Raises:
        SpecialTokenForbiddenError: the text contains a disallowed special token.
        UnicodeEncodeError: the text contains a lone surrogate.
        CancelledError: another thread cancelled the call.
    """
    ids = tokenizer.encode_to_numpy(
        text, allowed_special=allowed_special, disallowed_special=disallowed_special
    )
    spec = tokenizer.spec
    whole = expected = text
    recognised, _ = resolve_policy(spec.added_tokens, allowed_special, ())
    if spec.normalizer.name != "none" or spec.has_flags or spec.alphabet.word_suffix:
        whole = expected = text_as_decoded(spec, matcher_of_spec(spec, recognised), text)
    if spec.loses_text:
        expected = text_as_decoded(spec, matcher_of_spec(spec, recognised), text, with_lost=False)
    check_stop()
    decoded = tokenizer.decode(ids)
    check_stop()
    return TextRoundTrip(_first_difference(decoded, expected), expected != whole)


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
