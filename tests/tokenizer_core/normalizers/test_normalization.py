"""The steps of a normalizer: equal to `tokenizers`, and safe to cut."""

import json
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers as theirs

from tests.adversarial import code_points
from tests.native_module import native_module
from tests.parity.make_normalizer_tables import TARGET, render
from tests.tokenizer_core.formats.tokenizer_json.normalizer_files import file_of, normalizers, texts
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.engines import create_engine, native_unavailable_reason
from tokenizer_core.engines.native_stages import compiled_normalizer, normalize_near_marks
from tokenizer_core.errors import InvalidSpecError, UnknownPatternError
from tokenizer_core.formats.tokenizer_json.document import parse_tokenizer_json
from tokenizer_core.normalizers.forms import (
    form_tables,
    is_newer,
    normalize_form,
    normalize_nfc,
    settled_length,
)
from tokenizer_core.normalizers.nfc import Nfc
from tokenizer_core.normalizers.step import NormalizerStep, check_steps
from tokenizer_core.normalizers.steps import Steps
from tokenizer_core.specials.matcher import SpecialTokenMatcher

needs_native = pytest.mark.skipif(bool(native_unavailable_reason()), reason="no native engine")


def fields_of_sequence(*steps):
    return {"type": "Sequence", "normalizers": [step.fields() for step in steps]}


def run_of(normalizer):
    run = Steps("steps", tuple(map(NormalizerStep.from_fields, normalizer["normalizers"])))
    try:
        check_steps(run.steps)
    except (InvalidSpecError, UnknownPatternError):
        assume(False)
    return run


def theirs_of(normalizer):
    made = theirs.Sequence([])
    made.__setstate__(json.dumps(normalizer).encode())
    return made


@given(normalizer=normalizers, text=texts)
def test_texts_equal_those_of_tokenizers(normalizer, text):
    run = run_of(normalizer)
    assert run.normalize(text) == theirs_of(normalizer).normalize_str(text)
    assert run.align(text).text == run.normalize(text)


@needs_native
@given(normalizer=normalizers, text=texts, begins_part=st.booleans())
def test_compiled_steps_equal_those_in_python(normalizer, text, begins_part):
    run = run_of(normalizer)
    compiled = compiled_normalizer(run.steps)
    assume(compiled)
    assert compiled.normalize(text, begins_part=begins_part) == run.normalize(
        text, continues=not begins_part
    )


@given(normalizer=normalizers, text=texts, after=texts)
def test_the_sides_of_a_cut_normalize_alone(normalizer, text, after):
    run = run_of(normalizer)
    cut = run.find_cut(text)
    first, rest = text[:cut], text[cut:] + after
    joined = run.normalize(first) + run.normalize(rest, continues=bool(cut))
    assert joined == run.normalize(text + after)


@pytest.mark.parametrize(
    ("step", "text", "cut"),
    [
        (NormalizerStep("NFC"), "ab\u0301c", 3),
        (NormalizerStep("Lowercase"), "abc", 2),
        (NormalizerStep("Replace", r"\s+", True, " "), "ab  ", 2),
        (NormalizerStep("Replace", r"\s+", True, "\u0301"), "ab  ", 1),
        (NormalizerStep("Replace", "bc", content=""), "abcde", 4),
        (NormalizerStep("Replace", "(?=b)a", True, ""), "abcde", 0),
        (NormalizerStep("Strip", strips_right=True), "ab  ", 2),
        (NormalizerStep("Replace", r"\s+", True, ""), "ab  ", 1),
        (NormalizerStep("NFKC"), "한국어", 2),
        (NormalizerStep("NFC"), "가\u11a8\u0301", 0),
        (NormalizerStep("StripAccents"), "a\u0301", 0),
    ],
)
def test_cuts_are_found_where_no_step_reaches(step, text, cut):
    assert Steps("steps", (step,)).find_cut(text) == cut


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


JOINING = "\u0301\u0323\u0338\u0345\u3099\u1161\u11a8\u20d2"
CHANGING = "\u212a\u212b\u1fef\u037e\u2126\u0958\ufb1d\U0001d15e"
NEWER = "\u08d3\u0897\u1acf\U00016d63\U00016d67\U000105d2\U00011382\U000113c9"
PLAIN = "aeKk> <|`;中ア\uac00\u1100é🙂\n"
"""Characters that join with the one before, change alone, are newer than Hugging Face's tables, or
never change under NFC."""

SPECIALS = ["<|end|>", "<K>", "<K>>", "e>", "|`|", "\u00e5", "ka\u0301", "\u0301"]
"""Their characters join with marks, or replace single characters."""

BYTES = {i: bytes([i]) for i in range(256)}


@pytest.fixture(scope="module")
def tokenizer(engine):
    spec = TokenizerSpec.from_merges(BYTES, [], SPECIALS, pattern="qwen2", normalizer="nfc")
    return Tokenizer.from_spec(spec, engine=engine)


def marked_texts(seed, n_texts, pieces):
    """Some texts have a mark at every second position, some one in hundreds."""
    rng = random.Random(seed)
    for _ in range(n_texts):
        n_plain = rng.choice([0, 3, 300])
        parts = []
        for _ in range(rng.randrange(1, 12)):
            parts.append("".join(rng.choices(PLAIN, k=rng.randrange(n_plain + 1))))
            parts += rng.choices(pieces, k=rng.randrange(1, 4))
        yield "".join(parts)


@needs_native
def test_normalizing_near_marks_makes_what_normalizing_all_of_the_text_makes():
    n_changed = 0
    for text in marked_texts(1, 800, [*JOINING, *CHANGING, *NEWER, *PLAIN]):
        near, whole = normalize_near_marks(text), normalize_nfc(text)
        assert near == whole == theirs.NFC().normalize_str(text), ascii(text)
        assert (near is text) == (whole == text)
        at = settled_length(text[: len(text) // 2])
        assert normalize_nfc(text[:at]) + normalize_nfc(text[at:]) == whole
        n_changed += near is not text
    assert 200 < n_changed < 800


def test_special_tokens_are_those_of_the_text_before_it_is_normalized(tokenizer):
    matcher = SpecialTokenMatcher(SPECIALS)
    id_of = tokenizer.spec.added_ids
    n_near = 0
    n_texts = 10 * settings().max_examples
    pieces = [*JOINING, *CHANGING, *SPECIALS, "<\u212a>", "|\u1fef|", "a\u030a"]
    runs = ["e\u0301" * 5_000, "ab" * 5_000 + "e\u0301" * 500, "\u1100\u1161\u11a8" * 900]
    for text in [*marked_texts(2, n_texts, pieces), *runs]:
        expected = []
        for plain, token in matcher.split(text):
            expected += normalize_nfc(plain).encode()  # each byte is its own id here
            expected += [] if token is None else [id_of[token]]
        n_near += matcher.find(normalize_nfc(text)) != matcher.find(text)
        assert tokenizer.encode(text) == expected, ascii(text)
        assert tokenizer.encode_to_numpy(text).tolist() == expected
        assert tokenizer.count(text) == len(expected)
        assert tokenizer.encode_ordinary(text) == list(normalize_nfc(text).encode())
    assert n_near > n_texts / 30


def test_offsets_lead_back_to_the_characters_they_came_from():
    text = "xe\u0301y\u1100\u1161z"
    normalized = normalize_nfc(text)
    assert normalized == "x\u00e9y\uac00z"
    ends = np.cumsum([len(c.encode()) for c in normalized])
    offsets = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).astype(np.uint64)
    mapped = Nfc().align(text).sources_of(offsets).tolist()
    data = text.encode()
    assert [data[a:b].decode() for a, b in mapped] == ["x", "e\u0301", "y", "\u1100\u1161", "z"]
    half = Nfc().align(text).sources_of(np.array([[1, 2]], dtype=np.uint64)).tolist()
    assert half == [[1, 4]]
