"""The compiled scanners split as the expressions do, and the compiled tables and the stub are those
of the sources, on every code point."""

import itertools
import random
import subprocess
import sys
import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.adversarial import _FRAGMENTS, adversarial_texts, every_code_point_in_context
from tests.conftest import REPOSITORY
from tests.native_module import native_module
from tokenizer_core.normalizers.forms import normalize_nfc
from tokenizer_core.splitting.patterns import PATTERNS, UNICODE_TABLES
from tokenizer_core.splitting.pretokenize import split
from tokenizer_core.splitting.unicode_data import RELEASE
from tokenizer_core.splitting.unicode_sets import version_of_regex

# One character of every kind that an alternative distinguishes, joined in all ways.
KINDS = [*"aAǅʰ中1½s ./", "\u0301", "\n", "\r", "\u3000", "'"]
mixed_text = st.lists(st.sampled_from(_FRAGMENTS) | st.characters(codec="utf-8"), max_size=40).map(
    "".join
)
text_of_bytes = st.binary(max_size=60).map(lambda data: data.decode("utf-8", "replace"))


@pytest.fixture(scope="session")
def native():
    return native_module()


def assert_same_split(native, text, name):
    ours, theirs = native.split(text, name), split(text, PATTERNS[name])
    if ours != theirs:
        pairs = itertools.zip_longest(ours, theirs)
        at = next(i for i, (a, b) in enumerate(pairs) if a != b)
        around = slice(max(0, at - 2), at + 3)
        pytest.fail(f"{name}, pre-token {at}: {ours[around]!a}, not {theirs[around]!a}")


@pytest.mark.thorough
@pytest.mark.parametrize("name", PATTERNS)
def test_every_code_point_in_context(native, name):
    for text in every_code_point_in_context():
        assert_same_split(native, text, name)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PATTERNS)
def test_every_code_point_in_contractions(native, name):
    # One letter folds to an ASCII letter without being one; there must be no other. Only letters
    # fold to letters; the test above has the other characters after an apostrophe.
    everything = "".join(map(chr, range(0x110000)))
    letters = regex.findall(r"\p{L}", everything)
    for first in range(0, len(letters), 0x1000):
        text = "".join(f"a'{c}l.'l{c}.'{c}e.'r{c}.'v{c}y" for c in letters[first : first + 0x1000])
        assert_same_split(native, text, name)


@pytest.mark.parametrize("name", PATTERNS)
def test_adversarial_texts_and_those_of_up_to_four_kinds_of_character(native, name):
    texts = itertools.chain.from_iterable(itertools.product(KINDS, repeat=n) for n in (1, 2, 3))
    for characters in texts:
        assert_same_split(native, "".join(characters), name)
    for text in adversarial_texts(n_random=300, seed=77):
        assert_same_split(native, text, name)
    for characters in itertools.islice(itertools.product(KINDS, repeat=4), 0, None, 11):
        assert_same_split(native, "".join(characters), name)


@pytest.mark.parametrize("name", PATTERNS)
@given(text=mixed_text | text_of_bytes | st.text(KINDS, max_size=80))
def test_random_texts(native, name, text):
    assert_same_split(native, text, name)


SCRIPTS = REPOSITORY / "tokenizer_core" / "native"


def test_the_classes_are_those_of_the_release_that_python_splits_by(native):
    assert native.UNICODE_TABLES == UNICODE_TABLES


def test_settled_characters_never_change_alone_nor_beside_another(native):
    characters = map(chr, (c for c in range(0x110000) if not 0xD800 <= c < 0xE000))
    settled = [character for character in characters if native.nfc_runs(character, 0) == []]
    assert len(settled) > 1_100_000  # else the test would prove nothing
    assert not any(map(unicodedata.combining, settled))
    assert normalize_nfc("".join(settled)) == "".join(settled)
    # One at a time after the characters that compose most: nothing joins.
    for before in ("a", "\u1100", "\uac00", "\u0915", "\u30ab", "\u0cc6", "\U00011131"):
        joined = before + before.join(settled)
        assert normalize_nfc(joined) == joined


def test_the_nfc_check_finds_the_runs_and_texts_that_pass_are_nfc(native):
    rng = random.Random(4)
    pool = [*map(chr, range(0x20, 0x250)), *"\u0301\u0323\u212b\u11a8\uac00\u4e2d\u3042\u3099🙂"]
    changing = regex.compile(f"[{''.join(c for c in pool if native.nfc_runs(c, 0) != [])}]+")
    n_settled = 0
    for _ in range(20_000):
        text = "".join(rng.choices(pool, k=rng.randrange(90)))
        runs = [found.span() for found in changing.finditer(text)]
        assert native.nfc_runs(text, len(runs)) == runs
        with pytest.raises(UnicodeEncodeError):
            native.nfc_runs(text + "\ud800", 0)
        if runs:
            assert native.nfc_runs(text, len(runs) - 1) is None
        else:
            n_settled += 1
            assert normalize_nfc(text) == text
    assert n_settled > 1000


@pytest.mark.skipif(version_of_regex() != RELEASE, reason=f"not regex {RELEASE}")
@pytest.mark.parametrize("script", ["make_unicode_tables.py", "make_nfc_ranges.py"])
def test_the_committed_tables_are_what_the_script_writes(script):
    assert subprocess.run([sys.executable, SCRIPTS / script, "--check"]).returncode == 0


def test_the_stub_is_compiled_into_the_module(native):
    stub = (REPOSITORY / "tokenizer_core" / "_native.pyi").read_text(encoding="utf-8")
    assert native.STUB.splitlines() == stub.splitlines()
