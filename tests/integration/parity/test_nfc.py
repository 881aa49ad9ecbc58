"""NFC equals Hugging Face's on every code point, alone and among marks, on this Python."""

import pytest

from tests.parity.test_nfc import REFERENCE
from tokenizer_core.normalize import normalize_nfc

CONTEXTS = [
    "{}",
    "a{}\u0301\u0323",
    "a\u0301{}\u0334",
    "{0}{0}",
    "\u1100{}\u11a8",
    "e\u0345{}\u0301",
    "{}\u0307\u0338",
]


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_code_point(context):
    different = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        text = context.format(chr(code))
        if normalize_nfc(text) != REFERENCE.normalize_str(text):
            different.append(hex(code))
    assert different == []
