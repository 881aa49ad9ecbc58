"""Reading token files: any range, any document, nothing else; refusals with their remedy."""

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
from tokenizer_core.corpus import TokenFiles
from tokenizer_core.errors import (
    TokenFilesCorruptError,
    TokenFilesError,
    TokenizerMismatchError,
    UnknownTokenIdError,
)

ALL_IDS = list(chain.from_iterable(encode_all(NARROW, TEXTS)))


@pytest.mark.parametrize("tokenizer", [NARROW, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_each_document_decodes_to_its_text(layout, tokenizer, tmp_path):
    write_texts(tmp_path / "t", layout, tokenizer)
    files = TokenFiles.open(tmp_path / "t", tokenizer)
    assert files.n_documents() == len(TEXTS)
    for index, text in enumerate(TEXTS):
        assert files.decode_document(index, tokenizer) == text
        ids = files.document(index)
        assert ids.dtype == np.uint32
        assert ids.tolist() == tokenizer.encode(text)
    assert files.decode_document(0, tokenizer, "validation") == "hi"


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_any_range_of_ids(layout, tmp_path):
    write_texts(tmp_path / "t", layout)
    files = TokenFiles.open(tmp_path / "t")
    n_tokens = files.n_tokens()
    assert n_tokens == len(ALL_IDS)
    for start in range(n_tokens + 1):
        for stop in range(start, n_tokens + 1):
            out = np.empty(stop - start, np.uint16)
            files.copy_tokens(start, out)
            assert out.tolist() == ALL_IDS[start:stop]
    for start in (-1, n_tokens - 1):
        with pytest.raises(IndexError, match="train has no ids"):
            files.copy_tokens(start, np.empty(2, np.uint16))
    with pytest.raises(TypeError, match="uint8 cannot hold the id"):
        files.copy_tokens(0, np.empty(2, np.uint8))


def test_a_document_is_read_without_the_rest(tmp_path, monkeypatch):
    """Document 0 is in the first shard: the others may be missing."""
    write_texts(tmp_path / "t", "raw")
    files = TokenFiles.open(tmp_path / "t", NARROW)
    for path in (tmp_path / "t").glob("train_00000[1-9].bin"):
        path.unlink()
    assert files.decode_document(0, NARROW) == TEXTS[0]
    with pytest.raises(FileNotFoundError):
        files.decode_document(3, NARROW)


@pytest.mark.parametrize("index", [-1, 5, 1 << 70])
def test_no_such_document(index, tmp_path):
    write_texts(tmp_path / "t")
    with pytest.raises(IndexError, match=f"no document {index}: train has documents 0 to 4"):
        TokenFiles.open(tmp_path / "t").document(index)


@pytest.mark.parametrize(("place", "value"), [(0, 1 << 40), (1, 0), (1, (1 << 64) - 1)])
def test_a_damaged_document_index_is_refused(place, value, tmp_path):
    write_texts(tmp_path / "t")
    ends = np.memmap(tmp_path / "t" / "train.document-ends.u64", "<u8", mode="r+")
    ends[place] = value
    ends.flush()
    with pytest.raises(TokenFilesCorruptError, match="write the token files anew"):
        TokenFiles.open(tmp_path / "t").document(1)


def test_folders_without_token_files(tmp_path):
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
    with pytest.raises(TokenizerMismatchError) as raised:
        files.decode_document(0, WIDE)
    assert raised.value.code == "tokenizer_mismatch"


def test_an_id_that_is_not_in_the_vocabulary_is_no_text(tmp_path):
    write_texts(tmp_path / "t")
    ids = np.memmap(tmp_path / "t" / "train_000000.bin", "<u2", mode="r+")
    ids[0] = 9999
    ids.flush()
    with pytest.raises(UnknownTokenIdError):
        TokenFiles.open(tmp_path / "t").decode_document(0, NARROW)
