"""The compiled classes are those of the tables, on every code point."""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tokenizer_core.patterns import UNICODE_TABLES
from tokenizer_core.unicode_sets import RELEASE, ranges_of, version_of_regex

SCRIPT = REPOSITORY / "tokenizer_core" / "native" / "make_unicode_tables.py"
# In the order of the bits; repeated here so that the generator does not check itself.
CLASSES = ["Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", r"\s"]


def test_every_code_point_is_in_the_classes_of_the_tables(native):
    found = native.unicode_classes()
    assert len(found) == 0x110000
    expected = bytearray(0x110000)
    for bit, name in enumerate(CLASSES):
        for first, last in ranges_of(name):
            for code in range(first, last + 1):
                expected[code] |= 1 << bit
    different = [hex(code) for code in range(0x110000) if found[code] != expected[code]]
    assert different == []


def test_the_tables_are_of_the_release_that_specs_name(native):
    assert native.UNICODE_TABLES == UNICODE_TABLES


@pytest.mark.skipif(version_of_regex() != RELEASE, reason=f"not regex {RELEASE}")
def test_the_committed_tables_are_what_the_script_writes():
    assert subprocess.run([sys.executable, SCRIPT, "--check"]).returncode == 0
