"""Two tokenizers' groups of tokens cover the same bytes, and no group could be cut again."""

from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.every_way import SHAPES
from tests.tokenizer_core.training.small_bases import BASES, TEXT
from tokenizer_core import Tokenizer, align
from tokenizer_core.text.alignment import align_spans

SPECS = BASES | SHAPES


@pytest.mark.parametrize("name", SPECS)
def test_groups_cover_the_ids_and_the_text(name, engine):
    a = Tokenizer.from_spec(SPECS[name], engine=engine)
    for other in ("merges", "NFC", "left out by the pattern"):
        b = Tokenizer.from_spec(SPECS[other], engine=engine)
        for text in ["", " ", TEXT, "e\u0301\u1e69 ow<|endoftext|> <mask>l 漢🙂w", "1 2,3 4"]:
            found = align(a, b, text)
            for tokenizer, ids, offsets in (
                (a, found.ids_a, found.offsets_a),
                (b, found.ids_b, found.offsets_b),
            ):
                expected, spans = tokenizer.encode_with_offsets(text)
                assert ids.tolist() == expected
                assert (offsets[0], offsets[-1]) == (0, len(ids))
                for i, (first, end) in enumerate(pairwise(offsets.tolist())):
                    inside = spans[first:end]
                    assert (inside[:, 0] >= found.byte_offsets[i]).all()
                    assert (inside[:, 1] <= found.byte_offsets[i + 1]).all()
            n_bytes = len(text.encode())
            assert found.byte_offsets.tolist() == sorted({*found.byte_offsets.tolist()})
            assert (found.byte_offsets[0], found.byte_offsets[-1]) == (0, n_bytes)


def test_groups_end_where_both_have_a_boundary():
    a, b = (Tokenizer.from_spec(SPECS[name]) for name in ("merges", "ranks"))
    found = align(a, b, TEXT)
    ends = [t.encode_with_offsets(TEXT)[1][:, 1].tolist() for t in (a, b)]
    assert found.byte_offsets[1:].tolist() == sorted({*ends[0]} & {*ends[1]})
    assert len(found.byte_offsets) > 50
    plain = align(a, b, "low<|endoftext|>", allowed_special=())
    assert len(plain.ids_a) == len(a.encode("low<|endoftext|>", allowed_special=()))
    for array in plain:
        assert array.dtype == np.uint32


def test_a_tokenizer_of_the_library_is_aligned(tmp_path):
    """WordPiece, which normalizes and drops white space."""
    model = tokenizers.models.WordPiece(
        {"[UNK]": 0, "low": 1, "##er": 2, "wid": 3}, unk_token="[UNK]"
    )
    theirs = tokenizers.Tokenizer(model)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    theirs.save(str(tmp_path / "tokenizer.json"))
    found = align(
        Tokenizer.load(tmp_path / "tokenizer.json"),
        Tokenizer.from_spec(SHAPES["plain"]),
        "low  lower",
    )
    assert found.ids_a.tolist() == [1, 1, 2]
    assert found.offsets_a.tolist() == [0, 1, 1, 2, 3]
    assert found.offsets_b.tolist() == found.byte_offsets.tolist() == [0, 3, 5, 8, 10]


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=9)


@given(a=SPANS, b=SPANS)
def test_groups_are_the_smallest(a, b):
    """Of tokens as (bytes left out before it, bytes): against all pairs of cuts."""

    def spans_of(tokens):
        spans, at = [], 0
        for gap, size in tokens:
            spans.append((at + gap, at + gap + size))
            at += gap + size
        return spans

    spans = [spans_of(tokens) for tokens in (a, b)]
    n_bytes = max((end for side in spans for _, end in side), default=0)
    arrays = [np.array(side, np.uint64).reshape(-1, 2) for side in spans]
    *offsets, at = (found.tolist() for found in align_spans(*arrays, n_bytes))

    def borders(side):
        """Positions where tokens end or begin that none crosses; the number of tokens before."""
        found = {0: 0, n_bytes: len(side)} if n_bytes else {0: len(side)}
        for n in range(len(side) + 1):
            before = max((end for _, end in side[:n]), default=0)
            after = min((start for start, _ in side[n:]), default=n_bytes)
            found |= {before: max(n, found.get(before, 0)), after: max(n, found.get(after, 0))}
        return found

    both = [borders(side) for side in spans]
    expected = [(0, 0)]
    for position in sorted(both[0].keys() & both[1].keys()):
        pair = (both[0][position], both[1][position])
        if pair != expected[-1]:
            expected.append(pair)
    assert list(zip(*offsets, strict=True)) == expected
    assert len(at) == len(expected)
    assert at[-1] == (n_bytes if len(at) > 1 else 0)
