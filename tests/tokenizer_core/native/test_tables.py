"""The compiled tables and the stub are those of the sources, on every code point."""

import random
import subprocess
import sys
import unicodedata

import pytest

from tests.conftest import REPOSITORY
from tokenizer_core.normalize import normalize_nfc
from tokenizer_core.patterns import UNICODE_TABLES
from tokenizer_core.unicode_sets import RELEASE, ranges_of, version_of_regex

SCRIPTS = REPOSITORY / "tokenizer_core" / "native"
# In the order of the bits; repeated here so that the generator does not check itself.
CLASSES = ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", r"\s"]


def test_every_code_point_is_in_the_classes_of_the_tables(native):
    found = native.unicode_classes()
    assert len(found) == 0x110000
    assert native.UNICODE_TABLES == UNICODE_TABLES
    expected = bytearray(0x110000)
    for bit, name in enumerate(CLASSES):
        for first, last in ranges_of(name):
            for code in range(first, last + 1):
                expected[code] |= 1 << bit
    different = [hex(code) for code in range(0x110000) if found[code] != expected[code]]
    assert different == []


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


def test_texts_that_pass_the_nfc_check_are_nfc(native):
    rng = random.Random(4)
    pool = [*map(chr, range(0x20, 0x250)), *"\u0301\u0323\u212b\u11a8\uac00\u4e2d\u3042\u3099🙂"]
    n_settled = 0
    for _ in range(20_000):
        text = "".join(rng.choices(pool, k=rng.randrange(90)))
        if native.nfc_runs(text, 0) == []:
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
