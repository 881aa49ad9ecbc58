"""Parquet: a column of strings as documents, from any writer; damage is an error."""

import random
import sys

import pyarrow
import pytest
from pyarrow import parquet

from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core.documents import parquet_rows
from tokenizer_core.documents.archives import FREE_BYTES
from tokenizer_core.documents.corpus_files import open_corpus_file
from tokenizer_core.documents.parquet_rows import read_parquet_rows
from tokenizer_core.errors import CorpusError

DOCUMENTS = ["", "a", "zwei\r\n", "", "\ufeffthree 🙂 é", "x" * 30, "a", "b"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.parquet"


def read(path, max_expansion: float = 200.0, max_piece_chars: int = 4) -> list[str]:
    source = open_corpus_file(path)
    with source.file:
        return join(list(read_parquet_rows(source, "text", max_expansion, max_piece_chars)))


@pytest.mark.parametrize(
    ("kind", "compression"),
    [
        (pyarrow.string(), "none"),
        (pyarrow.large_string(), "snappy"),
        (pyarrow.string_view(), "gzip"),
        (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), "zstd"),
    ],
    ids=str,
)
def test_documents_come_back_in_order(path, kind, compression):
    table = pyarrow.table(
        {
            "id": list(range(len(DOCUMENTS))),
            "meta": [{"text": "no", "n": 1}] * len(DOCUMENTS),
            "text": pyarrow.array(DOCUMENTS, kind),
        }
    )
    parquet.write_table(table, path, row_group_size=3, compression=compression)
    assert read(path) == DOCUMENTS
    documents = [f"document {number} " * (number % 50) for number in range(1_000)]
    many = pyarrow.table({"text": pyarrow.array(documents, kind)})
    parquet.write_table(many, path, row_group_size=300, compression=compression)
    assert read(path) == documents
    parquet.write_table(many.slice(0, 0), path)
    assert read(path) == []


def test_the_position_is_the_share_of_the_rows(path):
    parquet.write_table(pyarrow.table({"text": ["a", "b", "c", "d"]}), path)
    source = open_corpus_file(path)
    positions = []
    for _ in read_parquet_rows(source, "text", 200.0, 4):
        positions.append(source.position_bytes)
    positions.append(source.position_bytes)
    assert positions == [source.size_bytes * quarter // 4 for quarter in range(5)]


def test_a_column_that_is_not_text_is_an_error(path):
    wrong = pyarrow.array([b"good", b"bad\xff"]).view(pyarrow.string())
    for columns, told in (
        ({"texts": ["a"]}, r"has no column 'text', or several; .*\(`field`, "),
        ({"text": [1]}, r"'text' is of type int64, not of strings; .*\(`field`, "),
        ({"text": [b"a"]}, "'text' is of type binary"),
        ({"text": [["a"]]}, "'text' is of type list"),
        ({"text": ["a", "b", None]}, "row 2: the column 'text' is null"),
        ({"text": wrong}, "row 1: byte 3 of the column 'text' is not UTF-8"),
    ):
        parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(CorpusError, match=f"some.parquet'.*{told}"):
            read(path)


def test_a_file_cut_anywhere_is_an_error(path):
    parquet.write_table(pyarrow.table({"text": DOCUMENTS}), path, compression="none")
    data = path.read_bytes()
    for size in [*range(0, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(CorpusError, match="is no Parquet file, or is damaged"):
            read(path)


def test_fewer_rows_than_promised_are_an_error(path, monkeypatch):
    # pyarrow checks that itself; this is for a release that does not.
    parquet.write_table(pyarrow.table({"text": DOCUMENTS}), path)
    values = parquet_rows._values
    monkeypatch.setattr(parquet_rows, "_values", lambda *given: [*values(*given)][:-1])
    with pytest.raises(CorpusError, match=r"is damaged .'7 rows of 8'"):
        read(path)


def test_a_changed_byte_of_a_page_with_a_checksum_is_an_error(path):
    text = "".join(random.Random(3).choices("abcdefgh", k=2_000))
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(pyarrow.table({"text": [text]}), path, write_page_checksum=True, **plain)
    data = path.read_bytes()
    start = data.index(text.encode())
    for place in range(start, start + 2_000, 191):
        path.write_bytes(data[:place] + b"z" + data[place + 1 :])
        with pytest.raises(CorpusError, match="is damaged"):
            read(path)


@pytest.mark.row(26)
def test_a_bomb_is_refused_before_it_is_unpacked(path):
    table = pyarrow.table({"text": ["a" * (FREE_BYTES + 1)]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    with pytest.raises(CorpusError, match="more than 200 times as much text"):
        read(path)
    assert [len(text) for text in read(path, 1e9, 1 << 24)] == [FREE_BYTES + 1]


@pytest.mark.row(26)
def test_a_large_value_in_every_row_is_refused_in_little_memory(path):
    indices = pyarrow.array([0] * 1_000, pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(indices, ["a" * (8 << 20)])
    # Without Arrow's schema: with it, the reader would keep the dictionary.
    parquet.write_table(
        pyarrow.table({"text": column}),
        path,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
    )
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(CorpusError, match="more than 200 times as much text"):
        read(path, max_piece_chars=1 << 20)
    assert pyarrow.default_memory_pool().max_memory() <= max(before, 4 * FREE_BYTES)


def test_without_its_library_the_error_names_the_extra(path, monkeypatch):
    parquet.write_table(pyarrow.table({"text": ["a"]}), path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match=r"pip install 'tokenizer-service\[parquet\]'"):
        read(path)
