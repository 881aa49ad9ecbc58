"""The steps of a normalizer: equal to `tokenizers`, and safe to cut."""

import json
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import normalizers as theirs

from tests.adversarial import code_points
from tests.native_module import native_module
from tests.parity.make_normalizer_tables import TARGET, render
from tests.tokenizer_core.formats.normalizer_files import file_of, normalizers, texts
from tokenizer_core.engines import create_engine, native_unavailable_reason
from tokenizer_core.engines.native import compiled_normalizer
from tokenizer_core.errors import InvalidSpecError, UnknownPatternError
from tokenizer_core.formats.tokenizer_json import parse_tokenizer_json
from tokenizer_core.normalize import form_tables, is_newer, normalize_form
from tokenizer_core.normalizer_steps import NormalizerRun, NormalizerStep, check_steps

needs_native = pytest.mark.skipif(bool(native_unavailable_reason()), reason="no native engine")


def fields_of_sequence(*steps: NormalizerStep) -> dict:
    return {"type": "Sequence", "normalizers": [step.fields() for step in steps]}


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


@needs_native
@given(normalizer=normalizers, text=texts, is_first=st.booleans())
def test_the_compiled_steps_equal_pythons(normalizer, text, is_first):
    run = run_of(normalizer)
    steps = tuple(map(NormalizerStep.from_fields, normalizer["normalizers"]))
    compiled = compiled_normalizer(steps)
    assume(compiled)
    assert compiled.normalize(text, is_first=is_first) == run.normalize(text, is_first=is_first)


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
        (NormalizerStep("NFC"), "ab\u0301c", 3),
        (NormalizerStep("Lowercase"), "abc", 2),
        (NormalizerStep("Replace", r"\s+", True, " "), "ab  ", 2),
        (NormalizerStep("Replace", "bc", content=""), "abcde", 4),
        (NormalizerStep("Replace", "(?=b)a", True, ""), "abcde", 0),
        (NormalizerStep("Strip", strips_right=True), "ab  ", 2),
        (NormalizerStep("Replace", r"\s+", True, "\u0301"), "ab  ", 1),
        (NormalizerStep("Replace", r"\s+", True, ""), "ab  ", 1),
        (NormalizerStep("NFKC"), "한국어", 2),
        (NormalizerStep("NFC"), "가\u11a8\u0301", 0),
        (NormalizerStep("StripAccents"), "a\u0301", 0),
    ],
)
def test_cuts_are_found_where_no_step_reaches(step, text, cut):
    assert NormalizerRun((step,)).find_cut(text) == cut


@needs_native
def test_the_compiled_steps_and_their_refusals():
    compiled = compiled_normalizer((NormalizerStep("NFKC"), NormalizerStep("Lowercase")))
    text = "some text, \u4e2d\u6587"
    assert compiled.normalize(text) is text
    with pytest.raises(UnicodeEncodeError):
        compiled.normalize("a\ud800")
    # Python must find the matches of this step.
    look_around = NormalizerStep("Replace", "(?<=b)a", True, "")
    assert compiled_normalizer((NormalizerStep("NFC"), look_around)) is None
    spec = parse_tokenizer_json(file_of(fields_of_sequence(look_around)))
    assert create_engine(spec, "native").normalize("aba") == "ab"
    for step in [("form", []), ("map", [("a", "b")]), ("replace", "", "x"), ("reverse",)]:
        with pytest.raises(ValueError):
            native_module().NativeNormalizer([step])


@pytest.mark.thorough
def test_the_tables_of_forms_have_all_code_points():
    codes = [chr(code) for code in code_points()]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        decompositions, classes, _ = map(dict, form_tables(form))
        whole = "NFKD" if "K" in form else "NFD"
        for character in codes:
            if is_newer(character, form):
                assert character not in {*decompositions, *classes}
                continue
            assert decompositions.get(character, character) == normalize_form(whole, character)
            assert classes.get(character, 0) == unicodedata.combining(character)


@pytest.mark.thorough
def test_the_tables_are_those_of_the_script():
    assert TARGET.read_text(encoding="utf-8") == render()
