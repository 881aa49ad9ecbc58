"""The golden text: every tokenizer must return it unchanged before it is published or served.

Hashes prove that the files are unchanged; this test proves that they work. The text holds input
that has broken tokenizers: every script of the corpora, marks, joiners, runs of spaces and
newlines, NUL, the byte order mark, astral code points, and text that looks like a special token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokenizer_core.errors import ArtifactCorruptError
from tokenizer_core.specials.matchers import matcher_of_spec
from tokenizer_core.specials.parts import NO_TOKENS, normalized_parts, text_as_decoded

if TYPE_CHECKING:
    from tokenizer_core.tokenizer import Tokenizer

GOLDEN_TEXT: Final = (
    "The quick brown fox, don't DON'T we'LL it’s 12,345.67 €½ ①٣\r\n\n\n\t  x  \x00\ufeff\uffff\x85"
    "中文字。ひらがなカタカナ 한국어 각 Привет Ελλάδα נץ نص क्षि ไทย ʰǅʰ e\u0323\u0301 ﬁÅ\u212b"
    "🙂👩\u200d👩\u200d👧🇩🇪👍🏽𝔘\U0010ffff<|endoftext|><|end<|"
    "<think>/* if (a/b) */ {}[]\\ \u3000\n "
) + "".join(map(chr, range(0x250)))
"""Hand-picked text, then the first 592 code points in order."""


def check_round_trip(tokenizer: Tokenizer) -> None:
    """Check that decoding the encoded golden text returns the golden text; where a pattern, a token
    or a missing byte loses text, all that remains. Each special token must come back, too.

    Raises:
        ArtifactCorruptError: it does not; the message names the first difference.
    """
    spec = tokenizer.spec
    normalize = spec.normalizer.normalize if spec.normalizer.name == "nfc" else str
    text = text_as_decoded(spec, NO_TOKENS, GOLDEN_TEXT, with_lost=False)
    encoded = [(tokenizer.encode_ordinary(GOLDEN_TEXT), text)]
    if not spec.loses_text and not spec.normalizer.fields() and not spec.alphabet.word_suffix:
        # The others change the text beside a special token. A normalizer may put a space before
        # each part between added tokens.
        text = text_as_decoded(spec, matcher_of_spec(spec, spec.added_ids), GOLDEN_TEXT)
        encoded.append((tokenizer.encode(GOLDEN_TEXT), text))
    for ids, expected in encoded:
        text = normalize(expected)
        # Normalize again: a special token may separate a letter from its mark.
        found = normalize(tokenizer.decode(ids))
        if found != text:
            pairs = enumerate(zip(found, text, strict=False))
            index = next((i for i, (a, b) in pairs if a != b), min(len(found), len(text)))
            raise ArtifactCorruptError(
                f"decoding does not undo encoding: the golden text comes back changed at character "
                f"{index}, {text[index : index + 8]!a}"
            )
    every = matcher_of_spec(spec, spec.added_ids)
    for content, id_ in spec.special_tokens.items():
        # A second name decodes to the first (o200k_harmony, 200018).
        first_name = spec.added_bytes[id_].decode()
        if spec.normalizer.strips_space:
            first_name = first_name.removeprefix(" ")
        # Of tokens with flags, one may hide another.
        first_part = next(normalized_parts(spec, every, content))
        is_hidden = spec.has_flags and first_part != ("", content)
        is_found = is_hidden or tokenizer.encode(content) == [id_]
        if not is_found or tokenizer.decode([id_]) != first_name:
            raise ArtifactCorruptError(f"the special token with id {id_} does not come back")
