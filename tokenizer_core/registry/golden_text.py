"""The golden text: what every tokenizer must give back before it is published or served.

Hashes show that files are what they were; this shows that they work. It holds what has been seen to
break tokenizers: every script of the corpora, marks, joiners, runs of spaces and newlines, NUL,
the byte order mark, astral code points, and text that looks like a special token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import ArtifactCorruptError
from tokenizer_core.normalize import normalize_nfc
from tokenizer_core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizer_core.spec import TokenizerSpec

GOLDEN_TEXT: Final = (
    "The quick brown fox, don't DON'T we'LL it’s 12,345.67 €½ ①٣\r\n\n\n\t  x  \x00\ufeff\uffff\x85"
    "中文字。ひらがなカタカナ 한국어 각 Привет Ελλάδα נץ نص क्षि ไทย ʰǅʰ e\u0323\u0301 ﬁÅ\u212b"
    "🙂👩\u200d👩\u200d👧🇩🇪👍🏽𝔘\U0010ffff<|endoftext|><|end<|"
    "<think>/* if (a/b) */ {}[]\\ \u3000\n "
) + "".join(map(chr, range(0x250)))
"""The text; it ends in the first 592 code points, one after the other."""


def check_golden_text(spec: TokenizerSpec) -> None:
    """Refuse a spec whose decoding does not undo its encoding of the golden text.

    Raises:
        ArtifactCorruptError: it does not; the first place is named.
    """
    tokenizer = Tokenizer.from_spec(spec)
    normalize = normalize_nfc if spec.normalizer == "nfc" else str
    text = normalize(GOLDEN_TEXT)
    for ids in (tokenizer.encode_ordinary(GOLDEN_TEXT), tokenizer.encode(GOLDEN_TEXT)):
        # Normalized again: a special token may stand between a letter and its mark.
        found = normalize(tokenizer.decode(ids))
        if found != text:
            pairs = enumerate(zip(found, text, strict=False))
            place = next((index for index, (a, b) in pairs if a != b), min(len(found), len(text)))
            raise ArtifactCorruptError(
                f"decoding does not undo encoding: the golden text comes back changed at character "
                f"{place}, {text[place : place + 8]!a}"
            )
