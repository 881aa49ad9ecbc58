"""Normalizing only where NFC may change a text gives the same text as normalizing all of it."""

import random

import numpy as np
import pytest
from hypothesis import settings
from tokenizers.normalizers import NFC

from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.normalize import OriginalOffsets, changed, normalize_nfc, settled_length
from tokenizer_core.special_tokens import SpecialTokenMatcher

JOINING = "\u0301\u0323\u0338\u0345\u3099\u1161\u11a8\u20d2"
CHANGING = "\u212a\u212b\u1fef\u037e\u2126\u0958\ufb1d\U0001d15e"
NEWER = "\u08d3\u0897\u1acf\U00016d63\U00016d67\U000105d2\U00011382\U000113c9"
PLAIN = "aeKk> <|`;中ア\uac00\u1100é🙂\n"
"""Characters that join with the one before, change alone, are newer than Hugging Face's tables, or
never change under NFC."""

SPECIALS = ["<|end|>", "<K>", "<K>>", "e>", "|`|", "\u00e5", "ka\u0301", "\u0301"]
"""Their characters join with marks, or replace single characters."""

BYTES = {i: bytes([i]) for i in range(256)}


@pytest.fixture(scope="module")
def tokenizer(engine):
    spec = TokenizerSpec.from_merges(BYTES, [], SPECIALS, pattern="qwen2", normalizer="nfc")
    return Tokenizer.from_spec(spec, engine=engine)


def texts(seed, n_texts, pieces):
    """Some texts have a mark at every second position, some one in hundreds."""
    rng = random.Random(seed)
    for _ in range(n_texts):
        n_plain = rng.choice([0, 3, 300])
        parts = []
        for _ in range(rng.randrange(1, 12)):
            parts.append("".join(rng.choices(PLAIN, k=rng.randrange(n_plain + 1))))
            parts += rng.choices(pieces, k=rng.randrange(1, 4))
        yield "".join(parts)


def test_the_changes_make_the_text_that_normalizing_all_of_it_makes(tokenizer):
    n_changed = 0
    for text in texts(1, 800, [*JOINING, *CHANGING, *NEWER, *PLAIN]):
        changes = tokenizer.engine.nfc_changes(text)
        assert changed(text, changes) == normalize_nfc(text), ascii(text)
        assert bool(changes) == (normalize_nfc(text) != text)
        n_changed += bool(changes)
    assert 200 < n_changed < 800


def test_special_tokens_are_those_of_the_text_before_it_is_normalized(tokenizer):
    matcher = SpecialTokenMatcher(SPECIALS)
    id_of = {token.content: token.id for token in tokenizer.spec.added_tokens}
    n_near = 0
    n_texts = 10 * settings().max_examples
    pieces = [*JOINING, *CHANGING, *SPECIALS, "<\u212a>", "|\u1fef|", "a\u030a"]
    runs = ["e\u0301" * 5_000, "ab" * 5_000 + "e\u0301" * 500, "\u1100\u1161\u11a8" * 900]
    for text in [*texts(2, n_texts, pieces), *runs]:
        expected = []
        for plain, token in matcher.split(text):
            expected += normalize_nfc(plain).encode()  # each byte is its own id here
            expected += [] if token is None else [id_of[token]]
        n_near += matcher.find(normalize_nfc(text)) != matcher.find(text)
        assert tokenizer.encode(text) == expected, ascii(text)
        assert tokenizer.encode_to_numpy(text).tolist() == expected
        assert tokenizer.count(text) == len(expected)
        assert tokenizer.encode_ordinary(text) == list(normalize_nfc(text).encode())
    assert n_near > n_texts / 30


def mark_heavy_texts(seed):
    rng = random.Random(seed)
    pool = [
        *"aeoAEO ",
        *map(chr, range(0x300, 0x370)),
        *"\u1100\u1161\u11a8\uac00\u0958\u09be\u0bd7\u212b\ufb1d",
    ]
    pool += [chr(c) for c in (0x898, 0x1AC0, 0x16D63, 0x16D67, 0x105D2, 0x113C2, 0x11382, 0x113C9)]
    for _ in range(1000):
        yield "".join(rng.choices(pool, k=rng.randrange(1, 12)))


def test_texts_of_marks_are_normalized_as_by_tokenizers_and_settle():
    for text in mark_heavy_texts(1):
        whole = normalize_nfc(text)
        assert whole == NFC().normalize_str(text), ascii(text)
        for cut in range(len(text)):
            settled = settled_length(text[:cut])
            assert normalize_nfc(text[:settled]) + normalize_nfc(text[settled:]) == whole


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
