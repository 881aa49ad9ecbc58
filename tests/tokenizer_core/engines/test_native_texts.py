"""What the native engine makes of a str as Python keeps it: in one byte a character, two, four."""

import random
import unicodedata

import numpy as np
import pytest

from tests.native_module import native_module
from tests.tokenizer_core.engines.random_specs import random_character_merges, spec_of
from tokenizer_core.engines import create_engine

WIDTHS = {  # what Python keeps in one byte a character, two, four
    "ascii": "plain words, 12 of them\n",
    "one byte": "Größe à ½ \xff\x80 ",
    "two bytes": "“Größe” 中文 Жук \u07ff\u0800\uffff ",
    "four bytes": "x 🙂 “Größe” \U00010000\U0010ffff ",
}


@pytest.fixture(scope="module", params=["gpt2", "o200k"])
def both(request):
    native_module()
    merges = random_character_merges(random.Random(3), "Größe中文Жук“🙂 ", 60)
    spec = spec_of(merges, pattern=request.param)
    return create_engine(spec, "native"), create_engine(spec, "python")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("n_before", [0, 1, 15, 16, 17, 5_000])
def test_texts_of_each_width_are_the_bytes_they_encode_to(both, width, n_before):
    native, python = both
    parts = WIDTHS[width]
    for n_parts in (1, 7, 300):
        text = "a" * n_before + parts * n_parts
        ids = python.encode(text)
        assert native.encode(text) == ids
        assert native.encode_to_numpy(text).tolist() == ids
        assert native.count(text) == len(ids)
        assert native.decode_bytes(ids) == text.encode()
        assert native.is_nfc(text) == unicodedata.is_normalized("NFC", text)
    texts = ["a" * n_before + part * 99 for part in WIDTHS.values()] * 3
    ids, ends = native.encode_batch_to_numpy(texts)
    assert native.decode_bytes(ids) == "".join(texts).encode()
    assert np.array_equal(np.diff(ends), [native.count(text) for text in texts])
    assert native.encode_batch(texts) == [native.encode(text) for text in texts]


class Sly(str):
    """A str that says the wrong thing of itself."""

    __slots__ = ()

    def isascii(self) -> bool:
        return not super().isascii()

    def encode(self, *_: object) -> bytes:
        return b"something else"


@pytest.mark.parametrize("text", ["a" * 2_000, "é" * 2_000, "é" * 10, "🙂" * 2_000])
def test_what_a_subclass_says_of_itself_is_of_no_account(both, text):
    native, python = both
    assert native.encode(Sly(text)) == python.encode(text)


@pytest.mark.parametrize("n_before", [0, 15, 4_095, 4_096, 20_000])
@pytest.mark.parametrize("around", ["a", "é", "中", "🙂"])
def test_a_surrogate_anywhere_in_a_long_text_is_an_error_that_names_its_place(
    both, around, n_before
):
    native, _ = both
    text = around * n_before + "\udc80" + around * 9
    for call in (native.encode, native.encode_to_numpy, native.count):
        with pytest.raises(UnicodeEncodeError) as error:
            call(text)
        assert error.value.start == n_before
    with pytest.raises(UnicodeEncodeError) as error:
        native.encode_batch(["fine", around, text, "fine"])
    assert error.value.start == n_before
