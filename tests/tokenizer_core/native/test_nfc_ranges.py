"""Text that the compiled module treats as NFC is NFC, for every code point and among marks."""

import random
import subprocess
import sys
import unicodedata

from tests.conftest import REPOSITORY
from tokenizer_core.normalize import normalize_nfc

SCRIPT = REPOSITORY / "tokenizer_core" / "native" / "make_nfc_ranges.py"


def settled_code_points(native) -> list[str]:
    characters = map(chr, (c for c in range(0x110000) if not 0xD800 <= c < 0xE000))
    return [character for character in characters if native.nfc_runs(character, 0) == []]


def test_settled_characters_never_change_alone_nor_beside_another(native):
    settled = settled_code_points(native)
    assert len(settled) > 1_100_000  # else the test would prove nothing
    assert not any(map(unicodedata.combining, settled))
    assert normalize_nfc("".join(settled)) == "".join(settled)
    # One at a time after the characters that compose most: nothing joins.
    for before in ("a", "\u1100", "\uac00", "\u0915", "\u30ab", "\u0cc6", "\U00011131"):
        joined = before + before.join(settled)
        assert normalize_nfc(joined) == joined


def test_texts_taken_for_nfc_are(native):
    rng = random.Random(4)
    pool = [*map(chr, range(0x20, 0x250)), *"\u0301\u0323\u212b\u11a8\uac00\u4e2d\u3042\u3099🙂"]
    n_settled = 0
    for _ in range(20_000):
        text = "".join(rng.choices(pool, k=rng.randrange(90)))
        if native.nfc_runs(text, 0) == []:
            n_settled += 1
            assert normalize_nfc(text) == text
    assert n_settled > 1000


def test_the_committed_ranges_are_what_the_script_writes():
    assert subprocess.run([sys.executable, SCRIPT, "--check"]).returncode == 0
