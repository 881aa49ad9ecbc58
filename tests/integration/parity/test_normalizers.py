"""Every normalizer equals Hugging Face's on code points alone and in contexts, on this Python."""

import unicodedata

import pytest
from tokenizers import normalizers

from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.engines.native_stages import compiled_normalizer
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.normalizers.steps import Steps

KINDS = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip"]
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
CONTEXTS = [
    "{}",
    "a{}\u0301\u0323",
    "a\u0301{}\u0334",
    "{0}{0}",
    "\u1100{}\u11a8",
    "e\u0345{}\u0301",
    "{}\u0307\u0338",
    "Σ{}",
    "{}Σ ",
    "\u0315{}\u0f71",
    "か{}",
]


def _may_change(code):
    character = chr(code)
    is_cased = character.lower() != character or character.upper() != character
    joins = unicodedata.combining(character) or unicodedata.category(character)[0] in "MZ"
    return is_cased or bool(joins or unicodedata.decomposition(character))


# Every character that a normalizer may change or join, and some of the others.
SOME_CODES = [code for code in CODES if code % 97 == 0 or _may_change(code)]


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_code_points_in_context(kind, is_whole):
    step = NormalizerStep(kind, strips_left=True, strips_right=True)
    runs, reference = [Steps("steps", (step,)).normalize], getattr(normalizers, kind)()
    if native_unavailable_reason() is None:
        runs.append(compiled_normalizer((step,)).normalize)
    if kind == "NFC":
        runs.append(normalize_nfc)
    for first, context in enumerate(CONTEXTS):
        some = SOME_CODES[first :: len(CONTEXTS)] if first else SOME_CODES
        for code in CODES if is_whole else some:
            text = context.format(chr(code))
            expected = reference.normalize_str(text)
            assert [run(text) for run in runs] == [expected] * len(runs), hex(code)
