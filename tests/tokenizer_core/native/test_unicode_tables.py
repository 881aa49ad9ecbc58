"""The compiled classes are those of the pinned `regex`, on every code point."""

import subprocess
import sys

import regex

from tests.conftest import REPOSITORY
from tokenizer_core.patterns import UNICODE_TABLES

SCRIPT = REPOSITORY / "tokenizer_core" / "native" / "make_unicode_tables.py"
# In the order of the bits; repeated here so that the generator does not check itself.
CLASSES = [r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{N}", r"\s"]


def test_every_code_point_is_in_the_classes_regex_says(native):
    found = native.unicode_classes()
    assert len(found) == 0x110000
    patterns = [regex.compile(expression) for expression in CLASSES]
    different = []
    for code in range(0x110000):
        character = chr(code)
        bits = sum(bool(pattern.match(character)) << i for i, pattern in enumerate(patterns))
        if found[code] != bits:
            different.append((hex(code), found[code], bits))
    assert different == []


def test_the_tables_are_of_the_release_that_specs_name(native):
    assert native.UNICODE_TABLES == UNICODE_TABLES


def test_the_committed_tables_are_what_the_script_writes():
    assert subprocess.run([sys.executable, SCRIPT, "--check"]).returncode == 0
