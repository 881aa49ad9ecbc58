"""NFC equals Hugging Face's on texts of many marks; the integration tier tries every code point."""

import random

import numpy as np
from tokenizers.normalizers import NFC

from tokenizer_core.normalize import OriginalOffsets, normalize_nfc, settled_length

REFERENCE = NFC()


def mark_heavy_text(rng: random.Random, length: int) -> str:
    pool = [
        *"aeoAEO ",
        *map(chr, range(0x300, 0x370)),
        *"\u1100\u1161\u11a8\uac00\u0958\u09be\u0bd7\u212b\ufb1d",
    ]
    pool += [chr(c) for c in (0x898, 0x1AC0, 0x16D63, 0x16D67, 0x105D2, 0x113C2, 0x11382, 0x113C9)]
    return "".join(rng.choices(pool, k=length))


def test_random_texts_of_marks():
    rng = random.Random(1)
    for _ in range(3000):
        text = mark_heavy_text(rng, rng.randrange(1, 12))
        assert normalize_nfc(text) == REFERENCE.normalize_str(text), ascii(text)


def test_what_is_settled_normalizes_alone():
    rng = random.Random(2)
    for _ in range(3000):
        text = mark_heavy_text(rng, rng.randrange(1, 12))
        for cut in range(len(text)):
            settled = settled_length(text[:cut])
            assert normalize_nfc(text[:settled]) + normalize_nfc(text[settled:]) == normalize_nfc(
                text
            ), (ascii(text), cut)


def test_offsets_lead_back_to_the_characters_they_came_from():
    text = "xe\u0301y\u1100\u1161z"
    normalized = normalize_nfc(text)
    assert normalized == "x\u00e9y\uac00z"
    ends = np.cumsum([len(c.encode()) for c in normalized])
    offsets = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).astype(np.uint64)
    mapped = OriginalOffsets(text).map(offsets).tolist()
    data = text.encode()
    assert [data[a:b].decode() for a, b in mapped] == ["x", "e\u0301", "y", "\u1100\u1161", "z"]
    # Half of a composed character finds the whole character.
    half = OriginalOffsets(text).map(np.array([[1, 2], [2, 3]], dtype=np.uint64)).tolist()
    assert [data[a:b].decode() for a, b in half] == ["e\u0301", "e\u0301"]
