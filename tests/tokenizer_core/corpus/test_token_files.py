"""Reading token files: layouts, ranges, documents, counts, and the index of documents."""

import struct
from itertools import chain

import numpy as np
import pytest

from tests.tokenizer_core.corpus.small_corpora import (
    LAYOUT_NAMES,
    NARROW,
    TEXTS,
    WIDE,
    encode_all,
    write_texts,
)
from tokenizer_core.corpus import (
    LAYOUTS,
    TokenFiles,
    token_layouts,
)
from tokenizer_core.corpus.document_index import (
    check_megatron_header,
    iterate_ends,
    render_megatron_index,
)
from tokenizer_core.corpus.token_counts import TokenCounts
from tokenizer_core.errors import (
    TokenFilesCorruptError,
    TokenFilesError,
    TokenFilesPlanError,
    TokenizerMismatchError,
)


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_documents_and_ranges_of_ids_are_read_and_counted(layout, tmp_path):
    tokenizer = WIDE if layout in ("npy", "megatron") else NARROW
    write_texts(tmp_path / "t", layout, tokenizer)
    files = TokenFiles.open(tmp_path / "t", tokenizer)
    assert files.n_documents() == len(TEXTS)
    for index, text in enumerate(TEXTS):
        assert files.decode_document(index, tokenizer) == text
        ids = files.document(index)
        assert ids.dtype == np.uint32
        assert ids.tolist() == tokenizer.encode(text)
    assert files.decode_document(0, tokenizer, "validation") == "hi"
    for index in (-1, 5, 1 << 70):
        with pytest.raises(IndexError, match=f"no document {index}: train has documents 0 to 4"):
            files.document(index)
    whole = list(chain.from_iterable(encode_all(tokenizer, TEXTS)))
    n_tokens = files.n_tokens()
    assert n_tokens == len(whole)
    for start in range(n_tokens + 1):
        for stop in range(start, n_tokens + 1):
            out = np.empty(stop - start, np.uint32)
            files.copy_tokens(start, out)
            assert out.tolist() == whole[start:stop]
    for start in (-1, n_tokens - 1):
        with pytest.raises(IndexError, match="train has no ids"):
            files.copy_tokens(start, np.empty(2, np.uint32))
    with pytest.raises(TypeError, match="uint8 cannot hold the id"):
        files.copy_tokens(0, np.empty(2, np.uint8))
    largest_id = tokenizer.spec.special_tokens["<|end|>"]
    for split, ids in (("train", whole), ("validation", [104, 105])):
        expected = np.bincount(ids, minlength=largest_id + 1)
        assert files.token_counts(split).tolist() == expected.tolist()


@pytest.mark.parametrize(("place", "value"), [(0, 1 << 40), (1, 0), (1, (1 << 64) - 1)])
def test_a_damaged_document_index_is_refused(place, value, tmp_path):
    write_texts(tmp_path / "t")
    ends = np.memmap(tmp_path / "t" / "train.document-ends.u64", "<u8", mode="r+")
    ends[place] = value
    ends.flush()
    with pytest.raises(TokenFilesCorruptError, match="write the token files anew"):
        TokenFiles.open(tmp_path / "t").document(1)


def test_a_folder_without_token_files_is_refused(tmp_path):
    write_texts(tmp_path / "t")
    (tmp_path / "t" / "manifest.json").rename(tmp_path / "manifest.json")
    (tmp_path / "file").write_bytes(b"")
    for name in ("t", "absent", "file"):
        with pytest.raises(TokenFilesError, match=f"'{name}' holds no token files.*write them"):
            TokenFiles.open(tmp_path / name)
    (tmp_path / "t" / "manifest.json").symlink_to(tmp_path / "manifest.json")
    with pytest.raises(TokenFilesError, match="symbolic link"):
        TokenFiles.open(tmp_path / "t")


def test_sizes_are_checked_when_opening(tmp_path):
    write_texts(tmp_path / "t")
    path = tmp_path / "t" / "val_000000.bin"
    path.write_bytes(b"\0\0\0\0\0\0")
    with pytest.raises(TokenFilesCorruptError, match=r"val_000000.bin has 6 bytes, the manifest"):
        TokenFiles.open(tmp_path / "t")
    path.unlink()
    with pytest.raises(TokenFilesCorruptError, match=r"val_000000.bin is missing"):
        TokenFiles.open(tmp_path / "t")


def test_another_tokenizer_is_refused(tmp_path):
    write_texts(tmp_path / "t")
    files = TokenFiles.open(tmp_path / "t", NARROW)
    with pytest.raises(TokenizerMismatchError, match="open that tokenizer, or write the files"):
        TokenFiles.open(tmp_path / "t", WIDE)
    with pytest.raises(TokenizerMismatchError):
        files.decode_document(0, WIDE)


@pytest.mark.parametrize(
    ("dtype", "magic", "version"), [("<u2", 20240520, 1), ("<u4", 20240801, 7)]
)
def test_the_llmc_header_has_magic_version_and_count(dtype, magic, version):
    header = LAYOUTS["llmc"].render_header(1_000_000, np.dtype(dtype))
    assert header == struct.pack("<3i", magic, version, 1_000_000) + bytes(253 * 4)


def test_a_numpy_with_other_headers_is_refused(monkeypatch):
    monkeypatch.setattr(token_layouts, "_NPY_HEADER_BYTES", 80)
    with pytest.raises(TokenFilesPlanError, match="headers of 128 bytes, not 80; install"):
        LAYOUTS["npy"].render_header(1, np.dtype("<u2"))


@pytest.mark.parametrize("name", ["raw", "npy", "llmc"])
def test_a_shard_that_is_too_short_or_has_another_header_is_refused(name, tmp_path):
    layout, path = LAYOUTS[name], tmp_path / f"a{LAYOUTS[name].suffix}"
    data = layout.render_header(3, np.dtype("<u2")) + np.arange(3, dtype="<u2").tobytes()
    path.write_bytes(data)
    assert layout.map_shard(path, "uint16", 3).tolist() == [0, 1, 2]
    path.write_bytes(data[:-1])
    with pytest.raises(TokenFilesCorruptError, match="fewer than 3 ids"):
        layout.map_shard(path, "uint16", 3)
    if name != "raw":
        path.write_bytes(data)
        for width, n_tokens in (("uint16", 2), ("uint32", 3)):
            with pytest.raises(TokenFilesCorruptError, match="does not begin with the header"):
                layout.map_shard(path, width, n_tokens)


def test_ids_are_counted_again_from_files(tmp_path):
    path = tmp_path / "train.npy"
    path.write_bytes(b"head" + np.array([1, 2, 2, 9], "<u2").tobytes())
    use = TokenCounts(2)
    use.add_file(path, np.dtype("<u2"), 3, 4)
    assert use.counts.tolist() == [0, 1, 2]
    for n_tokens in (4, 5):
        with pytest.raises(TokenFilesCorruptError, match="start anew, without resume"):
            TokenCounts(9 if n_tokens == 5 else 8).add_file(path, np.dtype("<u2"), n_tokens, 4)


def render(lengths, dtype="<u2", piece=3):
    array = np.array(lengths, np.int64)
    pieces = [array[start : start + piece] for start in range(0, len(array), piece)]
    return b"".join(render_megatron_index(len(lengths), lambda: iter(pieces), np.dtype(dtype)))


def test_an_index_has_the_bytes_of_the_format():
    expected = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3)
    expected += struct.pack("<2i", 3, 2) + struct.pack("<2q", 0, 6) + struct.pack("<3q", 0, 1, 2)
    assert render([3, 2]) == expected
    longest = (1 << 31) - 1
    wide = render([longest] * 5, "<i4")
    assert wide[17] == 4
    places = tuple(4 * longest * index for index in range(5))  # over four gigabytes
    assert struct.unpack_from("<5q", wide, 34 + 20) == places


@pytest.mark.parametrize("n_documents", [1, 7, 65_536, 150_000])
def test_an_index_written_in_any_pieces_has_the_same_bytes(n_documents):
    lengths = [index % 5 for index in range(n_documents)]
    assert render(lengths, piece=1 + n_documents // 3) == render(lengths, piece=n_documents)
    assert len(render(lengths, piece=n_documents)) == 34 + 20 * n_documents + 8


def test_an_index_with_another_header_is_refused(tmp_path):
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
