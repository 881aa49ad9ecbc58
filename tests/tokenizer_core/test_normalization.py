"""The steps of a normalizer: equal to `tokenizers`, and safe to cut."""

import json

import pytest
from hypothesis import assume, given
from tokenizers import normalizers as theirs

from tests.parity.make_normalizer_tables import TARGET, render
from tests.tokenizer_core.formats.normalizer_files import normalizers, texts
from tokenizer_core.errors import InvalidSpecError, UnknownPatternError
from tokenizer_core.normalization import NormalizerRun
from tokenizer_core.normalizer_steps import NormalizerStep, check_steps


def run_of(normalizer: dict) -> NormalizerRun:
    steps = tuple(map(NormalizerStep.from_fields, normalizer["normalizers"]))
    try:
        check_steps(steps)
    except (InvalidSpecError, UnknownPatternError):
        assume(False)
    return NormalizerRun(steps)


def theirs_of(normalizer: dict) -> theirs.Normalizer:
    made = theirs.Sequence([])
    made.__setstate__(json.dumps(normalizer).encode())
    return made


@given(normalizer=normalizers, text=texts)
def test_texts_equal_hugging_faces(normalizer, text):
    run = run_of(normalizer)
    assert run.normalize(text) == theirs_of(normalizer).normalize_str(text)
    normalized, spans = run.normalize_with_spans(text)
    assert normalized == run.normalize(text)
    assert spans.shape == (len(normalized), 2)


@given(normalizer=normalizers, text=texts, after=texts)
def test_the_sides_of_a_cut_normalize_alone(normalizer, text, after):
    run = run_of(normalizer)
    cut = run.find_cut(text)
    first, rest = text[:cut], text[cut:] + after
    joined = run.normalize(first) + run.normalize(rest, is_first=not cut)
    assert joined == run.normalize(text + after)


@pytest.mark.parametrize(
    ("step", "text", "cut"),
    [
        (NormalizerStep("NFC"), "ab\u0301c", 1),
        (NormalizerStep("Lowercase"), "abc", 2),
        (NormalizerStep("Replace", r"\s+", True, " "), "ab  ", 1),
        (NormalizerStep("Replace", "bc", content=""), "abcde", 4),
        (NormalizerStep("Replace", "(?=b)a", True, ""), "abcde", 0),
        (NormalizerStep("Strip", strips_right=True), "ab  ", 1),
    ],
)
def test_cuts_are_found_where_no_step_reaches(step, text, cut):
    assert NormalizerRun((step,)).find_cut(text) == cut


def test_the_final_sigma_is_no_exception():
    run = NormalizerRun((NormalizerStep("Lowercase"),))
    assert run.normalize("ΑΣ Σ İ") == "ας σ i̇".replace("ς", "σ")


@pytest.mark.thorough
def test_the_tables_are_those_of_the_script():
    assert TARGET.read_text(encoding="utf-8") == render()
