"""Every normalizer equals Hugging Face's on every code point, alone and in contexts, on this
Python."""

import unicodedata
from collections.abc import Callable

import pytest
from tokenizers import normalizers

from tests.integration.parity.test_nfc import CONTEXTS
from tests.profiles import first_and_slow
from tokenizer_core.engines import native_unavailable_reason
from tokenizer_core.engines.native import compiled_normalizer
from tokenizer_core.normalizer_steps import NormalizerRun, NormalizerStep

KINDS = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip"]
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def _runs_of(kind: str) -> list[Callable[[str], str]]:
    """What runs the step: Python, and the compiled module."""
    step = NormalizerStep(kind, strips_left=True, strips_right=True)
    runs = [NormalizerRun((step,)).normalize]
    if native_unavailable_reason() is None:
        runs.append(compiled_normalizer((step,)).normalize)
    return runs


def _may_change(code: int) -> bool:
    character = chr(code)
    is_cased = character.lower() != character or character.upper() != character
    joins = unicodedata.combining(character) or unicodedata.category(character)[0] in "MZ"
    return is_cased or bool(joins or unicodedata.decomposition(character))


# Every character that a normalizer may change or join, and some of the others.
SOME_CODES = [code for code in CODES if code % 97 == 0 or _may_change(code)]
CONTEXTS_HERE = ["{}", *CONTEXTS, "Σ{}", "{}Σ ", "\u0315{}\u0f71", "か{}"]


@pytest.mark.parametrize("context", first_and_slow(list(dict.fromkeys(CONTEXTS_HERE))))
@pytest.mark.parametrize("kind", KINDS)
def test_every_code_point(kind, context):
    runs, reference = _runs_of(kind), getattr(normalizers, kind)()
    different = []
    for code in CODES:
        text = context.format(chr(code))
        expected = reference.normalize_str(text)
        if any(run(text) != expected for run in runs):
            different.append(hex(code))
    assert different == []


@pytest.mark.parametrize("context", CONTEXTS_HERE)
@pytest.mark.parametrize("kind", KINDS)
def test_code_points_that_may_change_in_context(kind, context):
    runs, reference = _runs_of(kind), getattr(normalizers, kind)()
    for code in SOME_CODES:
        text = context.format(chr(code))
        expected = reference.normalize_str(text)
        assert all(run(text) == expected for run in runs), hex(code)


@pytest.mark.parametrize("kind", KINDS)
def test_code_points_beside_a_cut(kind):
    """A cut beside a code point must not change what is around it."""
    run = NormalizerRun((NormalizerStep(kind, strips_left=True, strips_right=True),))
    different = []
    for code in SOME_CODES:
        for text in (chr(code) + "x", "x" + chr(code), chr(code) * 2):
            cut = run.find_cut(text)
            if not cut:
                continue
            for after in ("", "\u0301", "\u1161", "\u11a8", "\u3099", " "):
                whole = run.normalize(text + after)
                parts = (
                    run.normalize(text[:cut]),
                    run.normalize(text[cut:] + after, is_first=False),
                )
                if "".join(parts) != whole:
                    different.append(hex(code))
    assert different == []
