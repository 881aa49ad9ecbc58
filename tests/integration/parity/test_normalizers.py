"""Every normalizer equals Hugging Face's on code points alone and in contexts, on this Python."""

import unicodedata
from collections.abc import Callable

import pytest
from tokenizers import normalizers

from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.engines.native import compiled_normalizer
from tokenizer_core.normalize import normalize_nfc
from tokenizer_core.normalizer_steps import NormalizerRun, NormalizerStep

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


def _runs_of(kind: str) -> list[Callable[[str], str]]:
    """The functions that run the step: Python's, and the compiled module's."""
    step = NormalizerStep(kind, strips_left=True, strips_right=True)
    runs = [NormalizerRun((step,)).normalize]
    if native_unavailable_reason() is None:
        runs.append(compiled_normalizer((step,)).normalize)
    return [*runs, normalize_nfc] if kind == "NFC" else runs


def _may_change(code: int) -> bool:
    character = chr(code)
    is_cased = character.lower() != character or character.upper() != character
    joins = unicodedata.combining(character) or unicodedata.category(character)[0] in "MZ"
    return is_cased or bool(joins or unicodedata.decomposition(character))


# Every character that a normalizer may change or join, and some of the others.
SOME_CODES = [code for code in CODES if code % 97 == 0 or _may_change(code)]


def _different(kind: str, context: str, codes: list[int]) -> list[str]:
    runs, reference = _runs_of(kind), getattr(normalizers, kind)()
    different = []
    for code in codes:
        text = context.format(chr(code))
        expected = reference.normalize_str(text)
        if any(run(text) != expected for run in runs):
            different.append(hex(code))
    return different


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_point(kind, context):
    assert _different(kind, context, CODES) == []


@pytest.mark.parametrize("kind", KINDS)
def test_code_points_that_may_change_in_context(kind):
    assert _different(kind, "{}", SOME_CODES) == []
    for first, context in enumerate(CONTEXTS):
        assert _different(kind, context, SOME_CODES[first :: len(CONTEXTS)]) == [], context


@pytest.mark.parametrize("kind", KINDS)
def test_code_points_beside_a_cut(kind):
    """A cut beside a code point must not change what is around it."""
    run = NormalizerRun((NormalizerStep(kind, strips_left=True, strips_right=True),))
    different = []
    for code in SOME_CODES[::5]:
        for text in (chr(code) + "x", "x" + chr(code), chr(code) * 2):
            cut = run.find_cut(text)
            for after in ("", "\u0301", "\u1161", "\u11a8", "\u3099", " ") if cut else ():
                first, rest = text[:cut], text[cut:] + after
                joined = run.normalize(first) + run.normalize(rest, is_first=False)
                if joined != run.normalize(text + after):
                    different.append(hex(code))
    assert different == []
