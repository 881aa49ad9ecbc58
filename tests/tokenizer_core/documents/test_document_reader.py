"""Each format is read back as written, and a sample is drawn by a seed."""

import bz2
import codecs
import gzip
import hashlib
import io
import json
import lzma
import tarfile
import zipfile

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, render_documents, write_corpus
from tests.tokenizer_core.documents.file_changes import CHANGES
from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core.documents import (
    FORMATS,
    CorpusFormat,
    DocumentSample,
    corpus_files,
    open_documents,
    open_utf8_documents,
    read_documents,
)
from tokenizer_core.errors import CorpusChangedError, CorpusError

HOW = CorpusFormat(separator=SEPARATOR)
DOCUMENTS = ["one\r\n", "", "zwei é 🙂", "\ufeff", " three ", "x" * 50]


@pytest.mark.parametrize("format_name", FORMATS)
@examples(1 / 10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(st.text(max_size=30)), max_chars=st.integers(1, 40))
def test_any_documents_are_read_back(tmp_path, format_name, documents, max_chars):
    path = write_corpus(tmp_path / f"corpus.{format_name}", documents, format_name)
    with open_documents(path, HOW, max_piece_chars=max_chars) as reader:
        assert join(list(reader)) == documents
        assert reader.position_bytes == reader.size_bytes == path.stat().st_size
    assert list(read_documents(path, HOW)) == documents


@pytest.mark.parametrize("format_name", FORMATS)
def test_position_and_hash_are_those_of_the_file(tmp_path, format_name):
    documents = [f"document {number} " * 3_000 for number in range(40)]
    path = write_corpus(tmp_path / f"corpus.{format_name}", documents, format_name)
    reader = open_documents(path, HOW, hash_source=True)
    assert (reader.path, reader.format, reader.position_bytes) == (str(path), format_name, 0)
    positions = []
    for _ in reader:
        assert reader.sha256 is None
        positions.append(reader.position_bytes)
    assert positions == sorted(positions)
    assert positions[-1] <= reader.position_bytes == reader.size_bytes == path.stat().st_size
    assert format_name != "parquet" or len(set(positions)) == 40
    assert reader.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    with open_documents(path) as reader:
        list(reader)
        assert reader.sha256 is None


def test_the_format_comes_from_the_name_or_the_argument(tmp_path):
    for name, kind in (
        ("B.JSONL.GZ", "jsonl.gz"),
        ("c.ndjson", "jsonl"),
        ("d.ndjson.zst", "jsonl.zst"),
    ):
        (tmp_path / name).write_bytes(render_documents(DOCUMENTS, kind))
        assert list(read_documents(tmp_path / name)) == DOCUMENTS
    data = render_documents(DOCUMENTS, "jsonl.gz")
    (tmp_path / "blob").write_bytes(data)
    assert list(read_documents(tmp_path / "blob", CorpusFormat("jsonl.gz"))) == DOCUMENTS
    text = tmp_path / "bible.en"
    text.write_text("In the beginning<|endoftext|>\n")
    assert list(read_documents(text)) == ["In the beginning<|endoftext|>\n"]
    text.write_text("")
    assert list(read_documents(text)) == [""]
    assert list(read_documents(text, HOW)) == []


@pytest.mark.parametrize("format_name", ["jsonl", "parquet"])
def test_of_several_fields_exactly_one_is_read(tmp_path, format_name):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / f"a.{format_name}"
    for record, message in (
        ({"body": "a", "other": "b"}, None),
        ({"text": "a", "other": "b"}, None),
        ({"other": "b"}, r"no (field|column) 'text' or 'body'; name the one .*\['other'\]"),
        ({"body": "a", "text": "b"}, "it has the (field|column)s 'body' and 'text'; a document is"),
    ):
        if format_name == "jsonl":
            path.write_text(json.dumps(record))
        else:
            parquet.write_table(pa.Table.from_pylist([record]), path)
        how = CorpusFormat(field=["text", "body"])
        if message is None:
            assert list(read_documents(path, how)) == ["a"]
        else:
            with pytest.raises(CorpusError, match=message):
                list(read_documents(path, how))
    # Which of both it is may be known for each file.
    for field, expected in (("body", "a"), ("text", "b")):
        assert list(read_documents(path, CorpusFormat(field={str(path): field}))) == [expected]
    with pytest.raises(ValueError, match=r"no field for the file '.*a\."):
        list(read_documents(path, CorpusFormat(field={"a": "body"})))


LINES = b'{"text": "one"}\n{"text": "two"}\n'
TWO_MEMBERS = gzip.compress(LINES[:9]) + gzip.compress(LINES[9:])


@pytest.mark.parametrize("opened", [open_documents, open_utf8_documents])
def test_a_file_of_another_format_than_its_name_is_refused(tmp_path, opened):
    long = b'{"text": "' + b"a" * 70_000 + b'"}\n'
    for name, data, shown, remedy in (
        ("corpus.txt", gzip.compress(b"text"), "packed with gzip", "txt.gz or jsonl.gz$"),
        ("corpus.csv", b"\x28\xb5\x2f\xfd and more", "packed with Zstandard", "txt.zst or jsonl"),
        ("corpus", b"PAR1 and more", "a Parquet file", "parquet"),
        ("corpus", LINES, "JSON lines", "jsonl"),
        ("corpus.txt", b'{"a": NaN, "a": "\\ud800"}\n' * 3, "JSON lines", "jsonl"),
        ("corpus.txt", long, "JSON lines", "jsonl"),
        ("corpus.txt", LINES[:16] + long, "JSON lines", "jsonl"),
        ("corpus.json", LINES[:16], "JSON lines", "jsonl"),
        ("corpus.txt.gz", TWO_MEMBERS, "JSON lines", "jsonl.gz"),
        ("corpus.txt.gz", gzip.compress(long), "JSON lines", "jsonl.gz;"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        message = rf"'.*{name}' is {shown}, and its name .*--format, .*: {remedy}"
        with pytest.raises(CorpusError, match=message):
            list(opened(path))
        if data.isascii():
            with open_documents(path, CorpusFormat("txt")) as pieces:
                assert join(pieces) == [data.decode()]
    member, tar, zipped = tarfile.TarInfo("one.txt"), io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(member)
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("one.txt", "One.")
    web = b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 4\r\n\r\nOne.\r\n\r\n"
    for name, data, message in (
        ("corpus.jsonl", gzip.compress(LINES), "packed with gzip, .* says JSON lines; rename it"),
        ("corpus.tar.gz", gzip.compress(LINES), "an archive of files; unpack it"),
        ("shard-000.tar", tar.getvalue(), "an archive of files; unpack it"),
        ("corpus.zip", zipped.getvalue(), "an archive of files; unpack it"),
        ("corpus.txt", web, "a WARC file, which is not read; write JSON lines, or"),
        ("CC-0.warc.wet.gz", gzip.compress(web), "a WARC file, which is not read"),
        ("lines.jsonl.bz2", bz2.compress(LINES), "packed with bzip2, .* read; unpack it$"),
        ("lines.jsonl.xz", lzma.compress(LINES), "packed with xz, which is not read; unpack it$"),
        ("twice.txt.gz", gzip.compress(gzip.compress(b"One.")), "gzip, within the .gz of its name"),
        ("data-0.arrow", b"\xff\xff\xff\xff", "an Arrow file, which is not read"),
        ("corpus.txt", "Eins.\n".encode("utf-16-le"), "UTF-16, .* not read; write UTF-8, or"),
        ("corpus.txt.gz", gzip.compress(web), "a WARC file, which is not read"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CorpusError, match=message):
            list(opened(tmp_path / name))
    for name, data in (
        ("pandas.JSON", b'[{"text":"one"},{"text":"two"}]'),
        ("duckdb.json", b'[\n\t{"text":"one"},\n\t{"text":"two"}\n]\n'),
        ("pretty.json", b'{\n  "text": "one"\n}\n'),
        ("polars.csv", b"text\none\n"),
        ("some.tsv", b"text\tid\none\t1\n"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(
            CorpusError, match=rf"'.*{name}' is (JSON, but|a table).* write JSON lines, or"
        ):
            opened(path)
        assert list(read_documents(path, CorpusFormat("txt"))) == [data.decode()]
    (tmp_path / "mark.txt").write_bytes(codecs.BOM_UTF8 + LINES)
    with pytest.raises(CorpusError, match="is JSON lines, and its name"):
        opened(tmp_path / "mark.txt")
    for data in (
        b"",
        b"[1]\n[2]\n",
        b'{\n  "pretty": 1\n}\n',
        LINES[:16] + b"prose\n",
        b"{name} said:" + b"a" * 70_000,
        b"PAR",
        b'{"text": "one"}\nprose without end',
    ):
        (tmp_path / "corpus.txt").write_bytes(data)
        with opened(tmp_path / "corpus.txt") as pieces:
            assert join(pieces) == [data.decode()]


def test_arguments_out_of_range_are_refused(tmp_path):
    path = write_corpus(tmp_path / "corpus.txt", ["a"], "txt")
    wrong = [{"format": "csv"}, {"separator": ""}, {"separator": "\ud800"}]
    for how in (*wrong, {"field": []}, {"field": ["text", "text"]}):
        with pytest.raises(ValueError, match=next(iter(how))):
            open_documents(path, CorpusFormat(**how))
    for name, value in (
        ("max_piece_chars", 1 << 25),
        ("max_line_bytes", 0),
        ("max_expansion", 0.5),
        ("max_expansion", float("nan")),
    ):
        with pytest.raises(ValueError, match=name):
            open_documents(path, **{name: value})


# Every change meets every format once; the opener and the size of a block alternate.
@pytest.mark.row(26)
@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_file_that_changes_between_two_pieces_is_an_error(
    tmp_path, format_name, change, monkeypatch
):
    number = CHANGES.index(change) + FORMATS.index(format_name)
    if number % 2:
        monkeypatch.setattr(corpus_files, "BLOCK_BYTES", 64)
    opener = open_utf8_documents if number % 4 > 1 else open_documents
    texts = [f"{number} {hashlib.sha256(bytes([number])).hexdigest()}" for number in range(50)]
    path = write_corpus(tmp_path / f"corpus.{format_name}", texts, format_name)
    with opener(path, HOW) as reader:
        next(reader)
        change(path)
        with pytest.raises(CorpusChangedError, match=r"corpus.* changed while it was read"):
            list(reader)


def test_the_reader_closes_the_file(tmp_path):
    for format_name in FORMATS:
        path = write_corpus(tmp_path / f"corpus.{format_name}", DOCUMENTS, format_name)
        with open_documents(path, HOW) as reader:
            assert next(reader).text == "one\r\n"
        assert reader._source.file.closed
        assert list(reader) == []
        reader = open_documents(path, HOW)
        pieces = [next(reader)]
        path.with_name(f"link.{format_name}").hardlink_to(path)  # no change
        assert join([*pieces, *reader]) == DOCUMENTS
        assert reader._source.file.closed


MANY = [f"document {i * 7919 % 4001}" for i in range(4000)]


def drawn(*files, share=0.05, seed=3):
    return join(DocumentSample(files, share, seed, HOW))


def test_order_names_and_formats_do_not_change_the_sample(tmp_path):
    a, b = MANY[:1500], MANY[1500:]
    first = write_corpus(tmp_path / "a.txt", a, "txt")
    second = write_corpus(tmp_path / "b.jsonl", b, "jsonl")
    moved = write_corpus(tmp_path / "z.jsonl", a, "jsonl")
    packed = write_corpus(tmp_path / "b.txt.gz", b, "txt.gz")
    expected = drawn(first) + drawn(second)
    assert drawn(first, second) == expected
    assert sorted(drawn(second, first)) == sorted(expected)
    assert drawn(moved, packed) == expected
    copies = write_corpus(tmp_path / "a.txt", ["the same"] * 1000, "txt")
    assert 60 < len(drawn(copies, share=0.1)) < 140
    files = [write_corpus(tmp_path / f"{i}.txt", [f"copy {i % 2}"], "txt") for i in range(400)]
    texts = drawn(*files, share=0.1)
    assert all(6 < texts.count(text) < 40 for text in ("copy 0", "copy 1"))
    assert sorted(drawn(*reversed(files), share=0.1)) == sorted(texts)


def test_each_document_is_drawn_with_about_the_share(tmp_path):
    file = write_corpus(tmp_path / "a.txt", MANY, "txt")
    for share in (0.01, 0.3, 0.9):
        n = len(drawn(file, share=share))
        spread = (len(MANY) * share * (1 - share)) ** 0.5
        assert abs(n - len(MANY) * share) < 4 * spread
    seeds = [set(drawn(file, share=0.1, seed=seed)) for seed in (1, 2)]
    assert 15 < len(seeds[0] & seeds[1]) < 80  # 40 by chance
    assert set(drawn(file, share=0.05)) < set(drawn(file, share=0.1)), "a larger share has more"
    for share in (0.0, -0.1, 2.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            drawn(file, share=share)


def test_a_long_document_is_drawn_whole_and_documents_are_counted(tmp_path):
    long = "0123456789" * 60_000
    file = write_corpus(tmp_path / "a.txt", [long, "short", ""] * 20, "txt")
    done = []
    sample = DocumentSample([file], 0.5, 1, HOW, progress=done.append)
    texts = join(sample)
    assert set(texts) == {long, "short", ""}
    assert (sample.n_drawn, sample.n_documents) == (len(texts), 60)
    assert done == sorted(done)
    assert (len(done), done[-1]) == (60, file.stat().st_size)
