"""open_documents: every format is read back as written, in little memory."""

import gzip
import hashlib

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.documents.corpus_writer import (
    SEPARATOR,
    render_documents,
    write_corpus,
)
from tests.tokenizer_core.documents.file_changes import CHANGES, add_name
from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core import Tokenizer, train_bpe
from tokenizer_core.documents import (
    FORMATS,
    corpus_files,
    find_corpus_files,
    open_documents,
    open_utf8_documents,
    read_documents,
)
from tokenizer_core.errors import CorpusChangedError, CorpusError

DOCUMENTS = ["one\r\n", "", "zwei é 🙂", "\ufeff", " three ", "x" * 50]


@pytest.mark.parametrize("format_name", FORMATS)
@examples(1 / 10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(st.text(max_size=30)), max_chars=st.integers(1, 40))
def test_any_documents_are_read_back(tmp_path, format_name, documents, max_chars):
    path = write_corpus(tmp_path / f"corpus.{format_name}", documents, format_name)
    with open_documents(path, separator=SEPARATOR, max_piece_chars=max_chars) as reader:
        assert join(list(reader)) == documents
        assert reader.position_bytes == reader.size_bytes == path.stat().st_size
    assert list(read_documents(path, separator=SEPARATOR)) == documents


@pytest.mark.parametrize("format_name", FORMATS[:-1])
def test_blocks_of_any_size_give_the_same_pieces(tmp_path, format_name, monkeypatch):
    path = write_corpus(tmp_path / f"corpus.{format_name}", DOCUMENTS, format_name)
    expected = list(open_documents(path, separator=SEPARATOR, max_piece_chars=3))
    assert join(expected) == DOCUMENTS
    for block_bytes in range(1, path.stat().st_size + 1):
        monkeypatch.setattr(corpus_files, "BLOCK_BYTES", block_bytes)
        assert list(open_documents(path, separator=SEPARATOR, max_piece_chars=3)) == expected


@pytest.mark.parametrize("format_name", FORMATS)
def test_position_and_hash(tmp_path, format_name):
    documents = [f"document {number} " * 3_000 for number in range(40)]
    path = write_corpus(tmp_path / f"corpus.{format_name}", documents, format_name)
    reader = open_documents(path, separator=SEPARATOR, hash_source=True)
    assert (reader.path, reader.format, reader.position_bytes) == (str(path), format_name, 0)
    positions = []
    for _ in reader:
        assert reader.sha256 is None
        positions.append(reader.position_bytes)
    assert positions == sorted(positions)
    assert positions[-1] <= reader.position_bytes == reader.size_bytes == path.stat().st_size
    assert format_name != "parquet" or len(set(positions)) == 40
    assert reader.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert open_documents(path).sha256 is None
    with open_documents(path) as reader:
        list(reader)
        assert reader.sha256 is None


def test_the_format_comes_from_the_name_or_the_argument(tmp_path):
    data = render_documents(DOCUMENTS, "jsonl.gz")
    for name in ("a.jsonl.gz", "B.JSONL.GZ"):
        (tmp_path / name).write_bytes(data)
        assert list(read_documents(tmp_path / name)) == DOCUMENTS
    (tmp_path / "blob").write_bytes(data)
    assert list(read_documents(tmp_path / "blob", format="jsonl.gz")) == DOCUMENTS
    (tmp_path / "bible.en").write_text("In the beginning")
    assert list(read_documents(tmp_path / "bible.en")) == ["In the beginning"]


LINES = b'{"text": "one"}\n{"text": "two"}\n'


@pytest.mark.parametrize("opened", [open_documents, open_utf8_documents])
@pytest.mark.parametrize("name", ["corpus.txt", "corpus.csv", "corpus"])
@pytest.mark.parametrize(
    ("data", "shown", "remedy"),
    [
        (gzip.compress(b"text"), "packed with gzip", "txt.gz or jsonl.gz"),
        (b"\x28\xb5\x2f\xfd and more", "packed with Zstandard", "txt.zst or jsonl.zst"),
        (b"PAR1 and more", "a Parquet file", "parquet"),
        (LINES, "JSON lines", "jsonl"),
        (LINES[:15], "JSON lines", "jsonl"),
        (b'{"a": NaN, "a": "\\ud800"}\n' * 3, "JSON lines", "jsonl"),
        (b'{"text": "' + b"a" * 70_000 + b'"}\n', "JSON lines", "jsonl"),
        (LINES[:16] + b'{"text": "' + b"a" * 70_000 + b'"}\n', "JSON lines", "jsonl"),
    ],
    ids=["gzip", "zstd", "parquet", "lines", "one", "lenient", "long", "long second"],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    tmp_path, opened, name, data, shown, remedy
):
    (tmp_path / name).write_bytes(data)
    message = (
        rf"'.*{name}' is {shown}, and its name does not say so; rename it, or name its "
        rf"format \(--format, in Python format=\): {remedy}; txt reads it as text"
    )
    with pytest.raises(CorpusError, match=message):
        opened(tmp_path / name)
    if data.isascii():
        with open_documents(tmp_path / name, format="txt") as pieces:
            assert "".join(piece.text for piece in pieces) == data.decode()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"{", b"{}x", b"{} {}\n", b"[1]\n[2]\n", b'{\n  "pretty": 1\n}\n',
        LINES[:16] + b"prose\n", b"{name} said:" + b"a" * 70_000, b"PAR",
        b'{"text": "one"}\nprose without end',
    ],
    ids=lambda data: str(len(data)),
)  # fmt: skip
def test_text_that_resembles_another_format_is_text(tmp_path, data):
    (tmp_path / "corpus.txt").write_bytes(data)
    with open_documents(tmp_path / "corpus.txt") as pieces:
        assert "".join(piece.text for piece in pieces) == data.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        {"format": "csv"},
        {"separator": ""},
        {"separator": "\ud800"},
        {"max_piece_chars": 0},
        {"max_piece_chars": 1 << 25},
        {"max_line_bytes": 0},
        {"max_expansion": 0.5},
        {"max_expansion": float("nan")},
    ],
)
def test_arguments_out_of_range(tmp_path, arguments):
    path = write_corpus(tmp_path / "corpus.txt", ["a"], "txt")
    with pytest.raises(ValueError, match=next(iter(arguments))):
        open_documents(path, **arguments)


def test_without_a_separator_a_file_is_one_document_even_empty(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("one<|endoftext|>\n")
    assert list(read_documents(path)) == ["one<|endoftext|>\n"]
    path.write_text("")
    assert list(read_documents(path)) == [""]
    assert list(read_documents(path, separator=SEPARATOR)) == []


@pytest.mark.parametrize("format_name", ["txt.gz", "txt.zst", "jsonl.gz", "jsonl.zst"])
def test_a_truncated_archive_ends_in_an_error(tmp_path, format_name):
    path = write_corpus(tmp_path / f"corpus.{format_name}", ["text" * 100] * 50, format_name)
    data = path.read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(CorpusError, match="ends inside its"):
            list(read_documents(path, separator=SEPARATOR))


@pytest.mark.row(26)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("opener", [open_documents, open_utf8_documents])
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("block_bytes", [64, corpus_files.BLOCK_BYTES])
def test_a_file_that_changes_between_two_pieces_is_an_error(
    tmp_path, format_name, opener, change, block_bytes, monkeypatch
):
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", block_bytes)
    texts = [f"{number} {hashlib.sha256(bytes([number])).hexdigest()}" for number in range(50)]
    path = write_corpus(tmp_path / f"corpus.{format_name}", texts, format_name)
    with opener(path, separator=SEPARATOR) as reader:
        next(reader)
        change(path)
        with pytest.raises(CorpusChangedError, match=r"corpus.* changed while it was read"):
            list(reader)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_further_name_is_no_change(tmp_path, format_name):
    path = write_corpus(tmp_path / f"corpus.{format_name}", DOCUMENTS, format_name)
    with open_documents(path, separator=SEPARATOR) as reader:
        pieces = [next(reader)]
        add_name(path)
        assert join([*pieces, *reader]) == DOCUMENTS


def test_leaving_early_closes_the_file(tmp_path):
    for format_name in FORMATS:
        path = write_corpus(tmp_path / f"corpus.{format_name}", DOCUMENTS, format_name)
        with open_documents(path, separator=SEPARATOR) as reader:
            assert next(reader).text == "one\r\n"
        assert reader._source.file.closed
        assert list(reader) == []
        with open_documents(path) as reader:
            pass
        assert reader._source.file.closed
        reader = open_documents(path, separator=SEPARATOR)
        list(reader)
        assert reader._source.file.closed


@pytest.mark.parametrize("text", ["one<|e|>two\n<|e|>\n", "<|e|><|e|>a", "\ufeffa<|e|>b", "a\r\n"])
def test_documents_have_the_ids_that_the_file_has(tmp_path, text):
    # With the token after each document except an unfinished one, as encoding and training cut.
    path = tmp_path / "corpus.txt"
    path.write_bytes(text.encode())
    tokenizer = Tokenizer(*train_bpe(path, 260, ["<|e|>"]), ["<|e|>"])
    ids = []
    for document in read_documents(path, separator="<|e|>"):
        ids += [*tokenizer.encode(document), 256]
    assert ids == tokenizer.encode(text + ("" if text.endswith("<|e|>") else "<|e|>"))


def test_many_files(tmp_path):
    for number, format_name in enumerate(FORMATS):
        write_corpus(tmp_path / f"{number}.{format_name}", [f"{number}", "b"], format_name)
    files = find_corpus_files(tmp_path / "*")
    read = [text for file in files for text in read_documents(file, separator=SEPARATOR)]
    assert read == [text for number in range(len(FORMATS)) for text in (f"{number}", "b")]
