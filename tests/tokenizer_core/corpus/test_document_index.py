"""The document ends and Megatron's `.idx`: their bytes, written in pieces, read strictly."""

import struct

import numpy as np
import pytest

from tokenizer_core.corpus.document_index import (
    check_megatron_header,
    iterate_ends,
    render_megatron_index,
)
from tokenizer_core.errors import TokenFilesCorruptError


def render(lengths, dtype="<u2", piece=3):
    array = np.array(lengths, np.int64)
    pieces = [array[start : start + piece] for start in range(0, len(array), piece)]
    return b"".join(render_megatron_index(len(lengths), lambda: iter(pieces), np.dtype(dtype)))


def test_the_bytes_of_an_index_by_hand():
    expected = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
    expected += struct.pack("<2i", 3, 2) + struct.pack("<2q", 0, 6) + struct.pack("<3q", 0, 1, 2)
    assert render([3, 2]) == expected
    wide = render([3, 2], "<i4")
    assert wide[17] == 4
    assert struct.unpack_from("<2q", wide, 42) == (0, 12)


def test_offsets_over_four_gigabytes():
    data = render([(1 << 31) - 1] * 5, "<i4")
    places = struct.unpack_from("<5q", data, 34 + 20)
    assert places == tuple(4 * ((1 << 31) - 1) * index for index in range(5))


@pytest.mark.parametrize("n_documents", [1, 7, 65_536, 150_000])
def test_any_pieces_give_the_same_bytes(n_documents):
    lengths = [index % 5 for index in range(n_documents)]
    assert render(lengths, piece=1 + n_documents // 3) == render(lengths, piece=n_documents)
    assert len(render(lengths, piece=n_documents)) == 34 + 20 * n_documents + 8


def test_index_headers(tmp_path):
    path = tmp_path / "a.idx"
    data = render([1, 2, 3])
    path.write_bytes(data)
    assert check_megatron_header(path, np.dtype("<u2")) == 3
    with pytest.raises(TokenFilesCorruptError, match=r"a.idx is no Megatron index of int32 ids"):
        check_megatron_header(path, np.dtype("<i4"))
    wrong = [data[:-1], data + b"\0", data[:33], b""]
    wrong += [data[:place] + b"\x7f" + data[place + 1 :] for place in range(34)]
    for changed in wrong:
        path.write_bytes(changed)
        with pytest.raises(TokenFilesCorruptError):
            check_megatron_header(path, np.dtype("<u2"))


def test_ends_that_are_too_few_are_refused(tmp_path):
    np.array([1, 2, 3], "<u8").tofile(tmp_path / "ends")
    assert [ends.tolist() for ends in iterate_ends(tmp_path / "ends", 1, 3)] == [[2, 3]]
    with pytest.raises(TokenFilesCorruptError, match="ends before document 4"):
        list(iterate_ends(tmp_path / "ends", 0, 4))
