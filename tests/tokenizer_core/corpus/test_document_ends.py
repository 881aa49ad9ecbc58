"""The document index, read in pieces."""

import numpy as np
import pytest

from tokenizer_core.corpus.document_ends import document_range, iterate_ends, iterate_lengths
from tokenizer_core.errors import TokenFilesCorruptError


@pytest.fixture
def written(tmp_path):
    def write(ends):
        path = tmp_path / "ends"
        np.array(ends, "<u8").tofile(path)
        return path

    return write


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 150_000), (65_535, 65_537), (5, 5), (149_999, None)]
)
def test_pieces_join_to_the_whole(start, stop, written):
    ends = np.cumsum(np.arange(150_000) % 7)
    stop = 150_000 if stop is None else stop
    path = written(ends)
    pieces = list(iterate_ends(path, start, stop))
    assert [end for piece in pieces for end in piece.tolist()] == ends[start:stop].tolist()
    assert all(len(piece) <= 65_536 for piece in pieces)
    begin = int(ends[start - 1]) if start else 0
    lengths = [n for piece in iterate_lengths(path, start, stop, begin=begin) for n in piece]
    assert lengths == (np.arange(150_000) % 7)[start:stop].tolist()


def test_where_a_document_is(written):
    path = written([3, 3, 10])
    assert [document_range(path, index) for index in range(3)] == [(0, 3), (3, 3), (3, 10)]


def test_damage(written):
    with pytest.raises(TokenFilesCorruptError, match="ends before document 4"):
        list(iterate_ends(written([1, 2, 3]), 0, 4))
    with pytest.raises(TokenFilesCorruptError, match="goes back"):
        list(iterate_lengths(written([1, 5, 4]), 0, 3))
    with pytest.raises(TokenFilesCorruptError, match="goes back"):
        list(iterate_lengths(written([1]), 0, 1, begin=2))
