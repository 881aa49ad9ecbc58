"""JSON lines, Parquet rows and archives: the whole content, or an error that names its place."""

import gzip
import json
import random
import sys
import tracemalloc
import zlib
from types import SimpleNamespace

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.profiles import examples
from tests.tokenizer_core.documents.corpus_writer import PACKERS, zstd
from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core.documents import archives, parquet_rows
from tokenizer_core.documents.archives import FREE_BYTES, unpack_gzip, unpack_zstd
from tokenizer_core.documents.corpus_files import open_corpus_file
from tokenizer_core.documents.json_lines import read_json_lines
from tokenizer_core.documents.parquet_rows import read_parquet_rows
from tokenizer_core.errors import CorpusError


def read(data, block_bytes=1 << 20, field="text", limit=1 << 20):
    blocks = (data[start : start + block_bytes] for start in range(0, len(data), block_bytes))
    source = SimpleNamespace(name="some.jsonl", n_blank_lines=0, count_lines=lambda: 0)
    return join(list(read_json_lines(blocks, source, field, limit, 7)))


@given(
    st.lists(st.text(max_size=30)),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n", "\n \r\n\n"]),
    st.booleans(),
    st.integers(1, 60),
)
def test_any_documents_are_read_back(documents, ascii_only, line_end, is_ended, block_bytes):
    lines = [json.dumps({"n": 1, "text": text}, ensure_ascii=ascii_only) for text in documents]
    data = line_end.join(lines) + (line_end if is_ended and lines else "")
    assert read(data.encode(), block_bytes) == documents


WRONG_LINES = [
    (b"[1]", "it holds no JSON object"),
    (b"null", "it holds no JSON object"),
    (b"{", "it is not JSON: .* at character 1;"),
    (b'{"text": "a"} {"text": "b"}', "it is not JSON: Extra data"),
    (b'{"text": "a\tb"}', "it is not JSON: Invalid control character"),
    (b'{"texts": "a"}', r"no field 'text'; .* \(`field`, .* of \['texts'\]"),
    (b'{"messages": []}', "corpus encode and corpus sample read conversations with --format chat"),
    (b'{"text": null}', "its field 'text' is no string"),
    (b'{"text": ["a"]}', "its field 'text' is no string"),
    (b'{"text": "a", "text": "b"}', "the same key twice"),
    (b'{"text": NaN}', "its field 'text' is no string"),
    (b'{"text": "a", "n": ' + b"9" * 5_000 + b"}", "4,300 digits"),
    (b'{"text": "\xff"}', "it is not UTF-8: invalid bytes at offset 10;"),
    (b'{"text": "\xed\xa0\x80"}', "it is not UTF-8: invalid bytes at offset 10"),
    (b'{"text": "\\ud800"}', "half of a surrogate pair"),
    (b'{"text": "\\udc00\\ud800"}', "half of a surrogate pair"),
    (b'{"text": "a"' + b" " * 9_990 + b"}", "longer than 10000 bytes;"),
]


@pytest.mark.parametrize("line_number", [1, 3])
def test_a_line_without_a_text_is_an_error(line_number):
    before = b'{"text": "a"}\n' * (line_number - 1)
    after = b'\n{"text": "b"}'
    for line, told in WRONG_LINES:
        for block_bytes in (5, 1 << 20):
            with pytest.raises(CorpusError, match=rf"', line {line_number}: .*{told}") as caught:
                read(before + line + after, block_bytes, limit=10_000)
            assert str(caught.value).startswith("the corpus file 'some.jsonl'")
            assert str(caught.value).isprintable()


def test_lines_at_the_limits_are_read():
    text = "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert read(json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "strict")) == [text]
    assert read(b'{"text": 1, "story": "a", "meta": {"text": []}}', field="story") == ["a"]
    other = b'{"a": NaN, "b": [-Infinity, {"c": Infinity}], "d": -1e400, "text": "a"}'
    assert read(other + b"\n" + other[:-1] + b" " * (1 << 14) + b"}") == ["a", "a"]
    deep = b'{"text": "a", "deep": ' + b"[" * 400 + b"1" + b"]" * 400 + b"}"
    assert read(deep + b'\n{"text": "\\ud83d\\ude00"}') == ["a", "😀"]
    with pytest.raises(CorpusError, match="line 1: it is nested too deep"):
        read(b'{"text": "a", "deep": ' + b"[" * 200_000 + b"]" * 200_000 + b"}")
    # A byte order mark is refused only in front.
    with pytest.raises(CorpusError, match="line 1: it begins with a byte order mark"):
        read(b'\xef\xbb\xbf{"text": "a"}')
    with pytest.raises(CorpusError, match=r"line 1: it is not UTF-8: .*; convert the file"):
        read('{"text": "a"}'.encode("utf-16"))  # as PowerShell redirects
    assert read(b'{"text": "\xef\xbb\xbfa"}') == ["\ufeffa"]
    line = b'{"text": "abcdefg"}'
    assert read(line + b"\n" + line, limit=len(line)) == ["abcdefg", "abcdefg"]
    with pytest.raises(CorpusError, match="line 2: it is longer"):
        read(line + b"\n" + line + b" ", limit=len(line))


DOCUMENTS = ["", "a", "zwei\r\n", "", "\ufeffthree 🙂 é", "x" * 30, "a", "b"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.parquet"


def read_rows(path, max_expansion=200.0, max_piece_chars=4, column="text"):
    source = open_corpus_file(path)
    with source.file:
        return join(list(read_parquet_rows(source, column, max_expansion, max_piece_chars)))


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
def test_parquet_documents_are_read_back_in_order(path, kind, compression):
    documents = [f"document {number} " * (number % 50) for number in range(1_000)]
    for texts, size in ((DOCUMENTS, 3), (documents, 300), ([], 3)):
        meta = [{"text": "no", "n": 1}] * len(texts)
        table = pyarrow.table({"meta": meta, "text": pyarrow.array(texts, kind)})
        parquet.write_table(table, path, row_group_size=size, compression=compression)
        assert read_rows(path) == texts
    parquet.write_table(pyarrow.table({"text": []}), path)  # has the type null
    assert read_rows(path) == []


def test_a_column_that_is_not_text_is_an_error(path):
    wrong = pyarrow.array([b"good", b"bad\xff"]).view(pyarrow.string())
    for columns, told in (
        ({"texts": ["a"]}, r"has no column 'text'; .*\(`field`, .* of \['texts'\]"),
        ({"text": [1]}, r"'text' is of type int64, not of strings; .*\(`field`, "),
        ({"text": [b"a"]}, "'text' is of type binary"),
        ({"text": [["a"]]}, "'text' is of type list"),
        ({"text": as_json('"a"')}, "'text' is of type extension<arrow.json>, not of strings"),
        ({"text": [None]}, r"row 1 \(from 1\): the column 'text' is null"),
        ({"text": ["a", "b", None]}, r"row 3 \(from 1\): the column 'text' is null"),
        ({"text": wrong}, r"row 2 \(from 1\): byte 3 of the column 'text' is not UTF-8"),
    ):
        parquet.write_table(pyarrow.table(columns), path)
        with pytest.raises(CorpusError, match=f"some.parquet'.*{told}"):
            read_rows(path)


def as_json(*values):
    """Values of Parquet's logical type JSON."""
    return pyarrow.ExtensionArray.from_storage(pyarrow.json_(), pyarrow.array(values))


def listed(values):
    return pyarrow.ListArray.from_arrays([0, len(values)], values)


SAID = '"He said \\"hi\\"."'
ROLES = pyarrow.array(["user", "tool"])
MAPS = pyarrow.array([[("n", SAID)], None], pyarrow.map_(pyarrow.string(), pyarrow.string()))


# Without Arrow's schema a file is as DuckDB and Spark write it.
@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            listed(
                pyarrow.StructArray.from_arrays([ROLES, as_json(SAID, '{"a":[1]}')], ["r", "c"])
            ),
            [{"r": "user", "c": 'He said "hi".'}, {"r": "tool", "c": {"a": [1]}}],
        ),
        (listed(as_json('{"r":"user"}', None)), [{"r": "user"}, None]),
        (as_json('[{"r":"user"}]'), [{"r": "user"}]),
        (
            listed(pyarrow.StructArray.from_arrays([ROLES, MAPS], ["r", "c"])),
            [{"r": "user", "c": {"n": SAID}}, {"r": "tool"}],
        ),
        (
            pyarrow.array([[{"a": {"city": "Oslo"}}, {"a": {"x": 1, "list": [None, {"y": 2}]}}]]),
            [{"a": {"city": "Oslo"}}, {"a": {"x": 1, "list": [None, {"y": 2}]}}],
        ),
        (
            pyarrow.MapArray.from_arrays([0, 2], pyarrow.array(["a", "b"]), as_json("1.5", "null")),
            {"a": 1.5, "b": None},
        ),
        (listed(ROLES), ["user", "tool"]),
    ],
    ids=["struct", "list", "column", "map", "structs", "map of values", "texts"],
)
def test_json_and_maps_in_conversations_are_decoded(path, messages, expected, store_schema):
    table = pyarrow.table({"messages": messages, "n": [1]})
    parquet.write_table(table, path, store_schema=store_schema)
    (text,) = read_rows(path, column=None)
    assert json.loads(text) == {"messages": expected}


def test_wrong_json_and_maps_are_refused_with_their_row(path):
    twice = pyarrow.array([[("a", 1), ("a", 2)]], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    for messages, told in (
        (as_json("{"), "a value of the type JSON is not JSON"),
        (as_json('{"a": 1, "a": 2}'), "has the same key twice"),
        (twice, "a map has the same key twice"),
    ):
        parquet.write_table(pyarrow.table({"messages": messages}), path)
        with pytest.raises(CorpusError, match=f"some.parquet', row 1 .from 1.: .*{told}"):
            read_rows(path, column=None)


def test_a_file_cut_anywhere_is_an_error(path):
    parquet.write_table(pyarrow.table({"text": DOCUMENTS}), path, compression="none")
    data = path.read_bytes()
    for size in [*range(0, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(CorpusError, match="is no Parquet file, or is damaged"):
            read_rows(path)


def test_fewer_rows_than_promised_are_an_error(path, monkeypatch):
    # pyarrow checks that itself; this is for a release that does not.
    parquet.write_table(pyarrow.table({"text": DOCUMENTS}), path)
    values = parquet_rows._values
    monkeypatch.setattr(parquet_rows, "_values", lambda *given: [*values(*given)][:-1])
    with pytest.raises(CorpusError, match=r"is damaged .'7 rows of 8'"):
        read_rows(path)


def test_a_changed_byte_of_a_page_with_a_checksum_is_an_error(path):
    text = "".join(random.Random(3).choices("abcdefgh", k=2_000))
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(pyarrow.table({"text": [text]}), path, write_page_checksum=True, **plain)
    data = path.read_bytes()
    start = data.index(text.encode())
    for place in range(start, start + 2_000, 191):
        path.write_bytes(data[:place] + b"z" + data[place + 1 :])
        with pytest.raises(CorpusError, match="is damaged"):
            read_rows(path)


@pytest.mark.row(26)
def test_a_bomb_is_refused_before_it_is_unpacked(path):
    table = pyarrow.table({"text": ["a" * (FREE_BYTES + 1)]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    with pytest.raises(CorpusError, match="more than 200 times as much text"):
        read_rows(path)
    assert [len(text) for text in read_rows(path, 1e9, 1 << 24)] == [FREE_BYTES + 1]


@pytest.mark.row(26)
def test_a_large_value_in_every_row_is_refused_in_little_memory(path):
    indices = pyarrow.array([0] * 1_000, pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(indices, ["a" * (8 << 20)])
    # Without Arrow's schema: with it, the reader would keep the dictionary.
    options = {"store_schema": False, "dictionary_pagesize_limit": 1 << 30}
    parquet.write_table(pyarrow.table({"text": column}), path, compression="zstd", **options)
    before = pyarrow.default_memory_pool().max_memory()
    with pytest.raises(CorpusError, match="more than 200 times as much text"):
        read_rows(path, max_piece_chars=1 << 20)
    assert pyarrow.default_memory_pool().max_memory() <= max(before, 4 * FREE_BYTES)


def test_without_its_library_the_error_names_the_extra(path, monkeypatch):
    parquet.write_table(pyarrow.table({"text": ["a"]}), path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match=r"pip install 'tokenizer-service\[parquet\]'"):
        read_rows(path)
    if sys.version_info < (3, 14):
        monkeypatch.setitem(sys.modules, "backports.zstd", None)
        monkeypatch.delattr(sys.modules["backports"], "zstd", raising=False)
        with pytest.raises(CorpusError, match=r"pip install 'tokenizer-service\[zstd\]'"):
            unpack(b"", "zst")


UNPACKERS = {"gz": unpack_gzip, "zst": unpack_zstd}
TEXT = "".join(random.Random(5).choices("abcde \n", k=3_000)).encode()


@pytest.fixture(params=["gz", "zst"])
def packed(request):
    return request.param


def unpack(data, packed, block_bytes=1 << 20, max_expansion=200):
    blocks = (data[start : start + block_bytes] for start in range(0, len(data), block_bytes))
    return b"".join(UNPACKERS[packed](blocks, "some." + packed, max_expansion))


@given(
    st.sampled_from(["gz", "zst"]),
    st.lists(st.binary(max_size=100) | st.integers(0, 70_000).map(lambda n: b"ab" * n), min_size=1),
    st.integers(1, 50),
)
@examples(1 / 2)
def test_members_follow_each_other(packed, parts, block_bytes):
    data = b"".join(map(PACKERS[packed], parts))
    assert unpack(data, packed, block_bytes) == b"".join(parts)


def test_output_is_bounded_by_the_step_and_not_by_the_file(packed, monkeypatch):
    data = PACKERS[packed](bytes(5_000_000))
    steps = list(UNPACKERS[packed](iter([data]), "some", 1))  # small output may expand at will
    assert max(map(len, steps)) <= 1 << 18
    assert sum(map(len, steps)) == 5_000_000
    # Every step that can cut the output, around the size of the output itself.
    data = PACKERS[packed](TEXT)
    for taken in [*range(1, 20), *range(len(TEXT) - 3, len(TEXT) + 3)]:
        monkeypatch.setattr(archives, "_TAKEN_BYTES", taken)
        assert unpack(data, packed) == TEXT


def test_an_archive_cut_anywhere_is_an_error(packed):
    data = PACKERS[packed](TEXT[:300]) + PACKERS[packed](TEXT[300:500])
    first = len(PACKERS[packed](TEXT[:300]))
    for size in range(len(data)):
        if size != first:
            with pytest.raises(CorpusError, match=r"'some\.\w+' ends inside its (gzip|zstd) data"):
                unpack(data[:size], packed)


def test_a_changed_bit_is_found(packed):
    # With a checksum: gzip always has one, zstd as its command writes it.
    options = {zstd.CompressionParameter.checksum_flag: 1}
    data = gzip.compress(TEXT) if packed == "gz" else zstd.compress(TEXT, options=options)
    bits = range(0, 8 * len(data), 101)
    n_found = 0
    for bit in bits:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            assert unpack(bytes(changed), packed) == TEXT  # for example the time in gzip's header
        except CorpusError:
            n_found += 1
    assert n_found > 0.95 * len(bits)


def test_other_data_before_or_after_is_an_error(packed):
    with pytest.raises(CorpusError, match="something else after its end"):
        unpack(PACKERS[packed](TEXT) + b"more", packed)
    with pytest.raises(CorpusError, match=r"is no (gzip|zstd) file"):
        unpack(TEXT, packed)


def test_zeros_may_pad_gzip_and_notes_stand_between_zstd_frames():
    data = gzip.compress(b"a") + bytes(700) + gzip.compress(b"b") + bytes(100_000)
    for block_bytes in (1, 512, 1 << 20):
        assert unpack(data, "gz", block_bytes) == b"ab"
    with pytest.raises(CorpusError):
        unpack(bytes(10) + gzip.compress(b"a"), "gz")
    note = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
    assert unpack(note + zstd.compress(b"a") + note + zstd.compress(b"b"), "zst", 3) == b"ab"
    with pytest.raises(CorpusError):
        unpack(zstd.compress(b"a") + bytes(10), "zst")


@pytest.mark.row(26)
def test_an_archive_bomb_is_refused_in_little_memory(packed):
    bomb = PACKERS[packed](bytes(FREE_BYTES))
    bomb += PACKERS[packed](bytes(1 << 20))
    sizes = []
    tracemalloc.start()
    try:
        with pytest.raises(CorpusError, match=r"more than 200 times as much text.*max_expansion"):
            sizes.extend(map(len, UNPACKERS[packed](iter([bomb]), "bomb", 200.0)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert FREE_BYTES - (1 << 18) <= sum(sizes) <= FREE_BYTES
    assert peak < 8 << 20
    assert len(unpack(bomb, packed, max_expansion=1e9)) == FREE_BYTES + (1 << 20)


@pytest.mark.row(26)
def test_a_large_zstd_window_is_refused():
    for log in (27, 28, 31):
        kind = zstd.CompressionParameter
        sizes = {kind.window_log: log, kind.hash_log: 10, kind.chain_log: 10, kind.strategy: 1}
        compressor = zstd.ZstdCompressor(options=sizes)
        # In several calls: from one call it would know the size, and make the window as small.
        data = compressor.compress(b"some text") + compressor.flush()
        if log == 27:
            assert unpack(data, "zst") == b"some text"
        else:
            with pytest.raises(CorpusError, match=r"window of more than 134217728 .*--long=27"):
                unpack(data, "zst")


def test_many_empty_members_are_read():
    empty = zlib.compressobj(wbits=31)
    data = (empty.compress(b"") + empty.flush()) * 20_000
    assert unpack(data, "gz") == b""
