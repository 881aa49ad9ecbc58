"""The native engine reads a str of one, two and four bytes a character, and reuses the memory of
arrays only after they are freed."""

import functools
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tests.profiles import examples
from tests.tokenizer_core.engines.random_specs import random_character_merges, spec_of
from tokenizer_core.engines import ARRAY, ARRAYS, COUNT, JSON, LIST, LISTS, create_engine
from tokenizer_core.engines.native_stages import normalize_near_marks
from tokenizer_core.splitting.patterns import RULES

WIDTHS = {  # one string of each PEP 393 width
    "ascii": "plain words, 12 of them\n",
    "one byte": "Größe à ½ \xff\x80 ",
    "two bytes": "“Größe” 中文 Жук \u07ff\u0800\uffff ",
    "four bytes": "x 🙂 “Größe” \U00010000\U0010ffff ",
}


@pytest.fixture(scope="module")
def both():
    native_module()
    merges = random_character_merges(random.Random(3), "Größe中文Жук“🙂 ", 60)
    spec = spec_of(merges, pattern="o200k")
    return create_engine(spec, "native"), create_engine(spec, "python")


# Characters that the rules of published patterns know, and some that they do not.
_MET = st.sampled_from(
    [*"\u0378\U0001adbc\x01שםלו中字かカ가éß\u0301٣½ 　\n“'a1.", "斡", "  ", "'s", "longword"]
)


@pytest.mark.parametrize("name", RULES.values())
@given(parts=st.lists(st.tuples(_MET, st.integers(1, 12)), max_size=14), seed=st.integers(0, 30))
@examples(3)
def test_published_patterns_with_rules_give_the_ids_of_python(name, parts, seed):
    """Merges join characters of every kind, so that a start that is missed changes ids."""
    native_module()
    (pattern,) = (pattern for pattern, known in RULES.items() if known == name)
    native, python = _with_rules(pattern, seed)
    text = "".join(character * n for character, n in parts)
    for whole in (text, text * 5):
        assert native.encode(whole) == python.encode(whole)


@functools.cache
def _with_rules(pattern, seed):
    merges = random_character_merges(random.Random(seed), "שםלו中斡字か가é\u0378\u0301 “'a1.", 150)
    spec = spec_of(merges, pattern=pattern)
    return create_engine(spec, "native"), create_engine(spec, "python")


@pytest.mark.parametrize("width", WIDTHS)
def test_texts_of_each_width_are_the_bytes_they_encode_to(both, width):
    native, python = both
    parts = WIDTHS[width]
    for n_before in (0, 1, 15, 16, 17, 5_000):
        for n_parts in (1, 7, 300):
            text = "a" * n_before + parts * n_parts
            ids = python.encode(text)
            assert native.encode(text) == ids
            assert native.encode(text, None, ARRAY).tolist() == ids
            assert native.encode(text, None, JSON) == python.encode(text, None, JSON)
            assert native.encode(text, None, COUNT) == len(ids)
            assert native.decode(ids, None) == text.encode()
            assert (normalize_near_marks(text) is text) == unicodedata.is_normalized("NFC", text)
    texts = ["a" * 17 + part * 99 for part in WIDTHS.values()] * 3
    ids, ends = native.encode_batch(texts, None, ARRAYS)
    assert native.decode(ids, None) == "".join(texts).encode()
    assert np.array_equal(np.diff(ends), [native.encode(text, None, COUNT) for text in texts])
    assert native.encode_batch(texts) == [native.encode(text) for text in texts]


@pytest.mark.parametrize("width", WIDTHS)
def test_long_text_decodes_in_each_width(both, width):
    """From 64 kB on, the native engine makes the `str`."""
    native, _ = both
    text = WIDTHS[width]
    text *= -(-(1 << 16) // len(text.encode()))
    for data in (text.encode(), text.encode() + b"\xe4\xb8", b"\x80" + text.encode()):
        ids = np.frombuffer(data, np.uint8).astype(np.uint32)
        for form in (ids, ids.tolist()):
            for errors in ("replace", "ignore"):
                assert native.decode(form, errors) == data.decode("utf-8", errors)
            if data == text.encode():
                assert native.decode(form, "strict") == text
            else:
                with pytest.raises(UnicodeDecodeError):
                    native.decode(form, "strict")


@pytest.mark.parametrize("around", ["a", "é", "中", "🙂"])
def test_a_surrogate_anywhere_is_named_with_its_text_and_its_position(both, around):
    native, _ = both
    for n_before in (0, 15, 16_374, 16_375, 20_000):
        text = around * n_before + "\udc80" + around * 9
        for wanted in (LIST, ARRAY, JSON, COUNT):
            with pytest.raises(UnicodeEncodeError) as error:
                native.encode(text, None, wanted)
            assert error.value.start == n_before
        for n_texts, num_threads in ((0, 1), (7, 2), (40, 3)):
            texts = [*([around * 9_000] * n_texts), text, "fine", "\udc81"]
            for wanted in (LISTS, ARRAYS):
                with pytest.raises(UnicodeEncodeError) as error:
                    native.encode_batch(texts, None, wanted._replace(num_threads=num_threads))
                assert (error.value.object, error.value.start) == (text, n_before)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_arrays_in_use_keep_their_ids(num_threads):
    native_module()
    engine = create_engine(spec_of([]), "native")
    kept = []
    for number in range(6):
        data = f"{number:08} ".encode() * 70_000
        array = engine.encode(data.decode(), None, ARRAY._replace(num_threads=num_threads))
        assert not any(np.shares_memory(array, other) for other, _ in kept)
        # A view keeps the whole array alive.
        part = slice(None) if number % 2 else slice(1000, -1000, 3)
        kept.append((array[part], np.frombuffer(data, dtype=np.uint8)[part]))
        del array
    for array, expected in kept:
        np.testing.assert_array_equal(array, expected)
