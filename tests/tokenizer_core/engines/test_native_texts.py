"""The native engine reads a str in every PEP 393 width: one, two and four bytes a character."""

import functools
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native_module import native_module
from tests.profiles import examples
from tests.tokenizer_core.engines.random_specs import random_character_merges, spec_of
from tokenizer_core.engines import create_engine
from tokenizer_core.normalize import changed
from tokenizer_core.patterns import RULES

WIDTHS = {  # one string of each PEP 393 width
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


# Characters that the rules of published patterns know, and some that they do not.
_MET = st.sampled_from(
    [*"\u0378\U0001adbc\x01שםלו中字かカ가éß\u0301٣½ 　\n“'a1.", "斡", "  ", "'s"]
)


@pytest.mark.parametrize("name", RULES.values())
@given(parts=st.lists(st.tuples(_MET, st.integers(1, 12)), max_size=14), seed=st.integers(0, 30))
@examples(10)
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
@pytest.mark.parametrize("n_before", [0, 1, 15, 16, 17, 5_000])
def test_texts_of_each_width_are_the_bytes_they_encode_to(both, width, n_before):
    native, python = both
    parts = WIDTHS[width]
    for n_parts in (1, 7, 300):
        text = "a" * n_before + parts * n_parts
        ids = python.encode(text)
        assert native.encode(text) == ids
        assert native.encode_to_numpy(text).tolist() == ids
        assert native.encode_to_json(text) == python.encode_to_json(text)
        assert native.count(text) == len(ids)
        assert native.decode_bytes(ids) == text.encode()
        assert (not native.nfc_changes(text)) == unicodedata.is_normalized("NFC", text)
    texts = ["a" * n_before + part * 99 for part in WIDTHS.values()] * 3
    ids, ends = native.encode_batch_to_numpy(texts)
    assert native.decode_bytes(ids) == "".join(texts).encode()
    assert np.array_equal(np.diff(ends), [native.count(text) for text in texts])
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
            assert native.decode(form) == data.decode("utf-8", "replace")
            assert native.decode(form, "ignore") == text
            if data == text.encode():
                assert native.decode(form, "strict") == text
            else:
                with pytest.raises(UnicodeDecodeError):
                    native.decode(form, "strict")


@pytest.mark.parametrize("width", WIDTHS)
def test_lists_of_any_length_are_the_arrays_and_each_call_has_its_own(both, width):
    # Short texts share the memory of their thread, texts of 16,385 characters and more do not.
    native, _ = both
    text = (WIDTHS[width] * 2_000)[:20_000]
    lengths = [*range(40), 16_383, 16_384, 16_385, len(text), 3, 0]
    lists = [native.encode(text[:n]) for n in lengths]
    arrays = [native.encode_to_numpy(text[:n]) for n in lengths]
    batch = native.encode_batch([text[:n] for n in lengths])
    for n, ids, array, of_batch in zip(lengths, lists, arrays, batch, strict=True):
        assert ids == array.tolist() == of_batch, n
        assert array.dtype == np.uint32
        with pytest.raises(UnicodeEncodeError):
            native.encode(text[:n] + "\ud800")
        assert native.encode(text[:n]) == ids, n


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("n_changes", [1, 2, 40])
def test_changes_come_before_encoding_in_texts_of_each_width(both, width, n_changes):
    rng = random.Random(n_changes)
    for n_parts in (1, 30, 700):
        text = WIDTHS[width] * n_parts
        places = sorted(rng.choices(range(len(text) + 1), k=2 * n_changes))
        instead = [rng.choice(["", "a", "Ж", "🙂🙂", "中" * 40]) for _ in range(n_changes)]
        changes = list(zip(places[::2], places[1::2], instead, strict=True))
        expected = both[1].encode(changed(text, changes))
        for engine in both:
            ids = engine.encode_to_numpy(text, None, None, changes)
            assert ids.tolist() == expected


@pytest.mark.parametrize("changes", [[(1, 4, "")], [(2, 1, "")], [(1, 2, "x"), (0, 3, "")]])
def test_changes_that_are_not_of_the_text_are_refused(both, changes):
    for text in ("abc", "é", "中文字", "a🙂b"):
        with pytest.raises(ValueError, match="in no order or beyond the text"):
            both[0].encode_to_numpy(text, None, None, changes)


def test_a_surrogate_beside_a_change_is_refused(both):
    text = "中" * 5000 + "\ud800 e\u0301"
    with pytest.raises(UnicodeEncodeError) as refused:
        both[0].encode_to_numpy(text, None, None, [(5002, 5004, "é")])
    assert refused.value.start == 5000


class Sly(str):
    """A str whose header misdescribes its content."""

    __slots__ = ()

    def isascii(self) -> bool:
        return not super().isascii()

    def encode(self, *_: object) -> bytes:
        return b"something else"

    def __len__(self) -> int:
        raise RuntimeError("how should I know")


@pytest.mark.parametrize("text", ["a" * 2_000, "é" * 2_000, "é" * 10, "🙂" * 2_000])
def test_what_a_subclass_says_of_itself_is_of_no_account(both, text):
    native, python = both
    assert native.encode(Sly(text)) == python.encode(text)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("n_before", [0, 7, 70])
def test_of_several_texts_with_surrogates_the_first_is_named(both, num_threads, n_before):
    native, _ = both
    texts = ["中文字 a, " * 9_000] * n_before
    texts += ["é" * 9 + "\udc80", *texts, "\udc81"]
    for call in (native.encode_batch, native.encode_batch_to_numpy):
        with pytest.raises(UnicodeEncodeError) as refused:
            call(texts, num_threads)
        assert (refused.value.object, refused.value.start) == (texts[n_before], 9)


@pytest.mark.parametrize("n_before", [0, 15, 16_374, 16_375, 20_000])
@pytest.mark.parametrize("around", ["a", "é", "中", "🙂"])
def test_a_surrogate_anywhere_in_a_long_text_is_an_error_that_names_its_place(
    both, around, n_before
):
    native, _ = both
    text = around * n_before + "\udc80" + around * 9
    for call in (native.encode, native.encode_to_numpy, native.encode_to_json, native.count):
        with pytest.raises(UnicodeEncodeError) as error:
            call(text)
        assert error.value.start == n_before
    with pytest.raises(UnicodeEncodeError) as error:
        native.encode_batch(["fine", around, text, "fine"])
    assert error.value.start == n_before


def test_a_surrogate_keeps_its_place_where_nfc_is_asked_for(both):
    native, _ = both
    for text in ("e\u0301\ud800", "a" * 99 + "\ud800", "中\udfff🙂"):
        with pytest.raises(UnicodeEncodeError) as error:
            native.nfc_changes(text)
        assert error.value.object == text


NO_MEMORY = """
import hashlib, random, resource
import numpy as np
from tokenizer_core.engines import create_engine
from tokenizer_core.normalize import changed
from tests.tokenizer_core.engines.random_specs import spec_of

def limit(n_bytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, -1))

spec = spec_of([(b"a", b"b")], pattern="gpt2")
native, python = (create_engine(spec, name) for name in ("native", "python"))
native.encode_to_numpy("cd" * 60 + " piece")  # makes what a call keeps for the next
rng = random.Random(1)
words = [" " + "".join(rng.choices("cdefghij", k=9)) for _ in range(100_000)]
texts = ["".join(words[i : i + 1_000]) for i in range(0, len(words), 1_000)]

def digest(ids):
    return hashlib.sha256(np.asarray(ids, np.uint32).tobytes()).digest()

expected = [digest(python.encode(text)) for text in texts]
limit(3_000_000)  # less than the next table needs
digests = [digest(native.encode_to_numpy(text)) for text in texts]
n_kept = native.cache_statistics().entries
limit(10**10)
assert digests == expected
assert 1_000 < n_kept < 60_000, n_kept
for text in texts:
    native.encode_to_numpy(text)
assert native.cache_statistics().entries > n_kept  # it grows once there is memory
half, whole = " cdcdcdcd" * 660_000, " abababab" * 2_200_000
limit(50_000_000)  # there could be 79 MB of ids, and are 44; twice the usual would be 53
assert len(native.encode_to_numpy(whole, 1)) == len(whole) * 5 / 9
limit(10**10)
kept = [native.encode_to_numpy(half) for _ in range(2)]
assert all(len(ids) == len(half) for ids in kept)
del kept  # twice 24 MB wait for others
limit(50_000_000)
assert len(native.encode_to_numpy(whole, 1)) == len(whole) * 5 / 9
# Two threads may need more: while one waits for the processor, the other goes on, and its ids wait.
try:
    assert len(native.encode_to_numpy(whole, 2)) == len(whole) * 5 / 9
except MemoryError:
    pass
limit(10**10)
large = "\\xff" * 60_000_000
limit(30_000_000)
for call in (native.count, native.encode, native.encode_to_numpy):
    try:
        call(large)
    except MemoryError:
        print("refused")
for num_threads in (1, 2):
    try:
        native.encode_batch_to_numpy(["a", large], num_threads)
    except MemoryError:
        print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what is used")
def test_without_memory_the_full_cache_answers_and_a_text_is_refused():
    native_module()
    done = subprocess.run(
        [sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, 5 * "refused\n"), done.stderr
