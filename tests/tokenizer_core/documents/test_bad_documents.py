"""Bad documents: found in every format, and never more than a share of them left out."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from tokenizer_core.documents import (
    BY_NAME,
    BadDocument,
    BadDocuments,
    CorpusFormat,
    open_utf8_documents,
)
from tokenizer_core.documents.bad_documents import NO_BAD_DOCUMENTS, check_running_share
from tokenizer_core.errors import TooManyBadDocumentsError

LINES = [
    (b'{"text": "good"}', None),
    (b'{"text": "\\ud800"}', "lone_surrogate"),
    (b"", None),
    (b'{"text": null}', "null"),
    (b'{"text": 1}', "no_string"),
    (b'{"story": "a"}', "no_field"),
    (b"[1]", "no_object"),
    (b'{"text": "a', "malformed_json"),
    (b'{"text": "\xff"}', "invalid_utf8"),
    (b'{"text": "a", "text": "b"}', "duplicate_key"),
    (b'{"text": "' + b"long" * (1 << 22) + b'"}', "line_too_long"),
    (b'{"text": ""}', None),
]


def read(path, how=BY_NAME, **options):
    documents, bad = [b""], list[BadDocument]()
    with open_utf8_documents(path, how, bad=bad, **options) as reader:
        for text, is_last in reader:
            documents[-1] += text
            documents += [b""] * is_last
    return documents[:-1], bad


@pytest.mark.row(46)
def test_a_bad_line_is_an_empty_document_with_its_reason(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(line for line, _ in LINES))
    expected = [
        BadDocument("a.jsonl", "line", number, reason)
        for number, (_, reason) in enumerate(LINES, 1)
        if reason
    ]
    assert read(path) == ([b"good"] + [b""] * 10, expected)


@pytest.mark.row(46)
def test_a_bad_row_is_an_empty_document_with_its_reason(tmp_path):
    path, broken = tmp_path / "a.parquet", pa.array([b"\xff", b"ok"]).cast(pa.string(), safe=False)
    texts = pa.chunked_array([pa.array(["a", None]), broken])
    parquet.write_table(pa.table({"text": texts}), path)
    expected = [
        BadDocument("a.parquet", "row", 2, "null"),
        BadDocument("a.parquet", "row", 3, "invalid_utf8"),
    ]
    assert read(path) == ([b"a", b"", b"", b"ok"], expected)


@pytest.mark.parametrize("held_bytes", [1, 1 << 24])
@pytest.mark.parametrize("piece_bytes", [3, 1000])
def test_a_text_that_is_not_utf8_is_left_out_whole(tmp_path, monkeypatch, held_bytes, piece_bytes):
    monkeypatch.setattr("tokenizer_core.documents.bad_documents._HELD_BYTES", held_bytes)
    texts = ["東京, long\n".encode(), b"\nlong, and wrong\xff at the end", b"cut \xe2\x82", b"a"]
    path = tmp_path / "a.txt"
    path.write_bytes(b"|\n".join([*texts, "ü".encode() * 9, b"\xff"]))
    how = CorpusFormat(separator="|\n")
    documents, bad = read(path, how, max_piece_bytes=piece_bytes)
    assert documents == [texts[0], b"", b"", b"a", "ü".encode() * 9, b""]
    assert [(one.number, one.reason) for one in bad] == [
        (4, "invalid_utf8"),
        (5, "invalid_utf8"),
        (8, "invalid_utf8"),
    ]
    path.write_bytes(b"no border \xff at all|")
    assert read(path) == ([b""], [BadDocument("a.txt", "line", 1, "invalid_utf8")])


@pytest.mark.parametrize("size", [1, 4, 100])
def test_the_share_counts_a_thousand_documents_however_they_come(size):
    numbers = [*range(10), 1099, 1100]

    def check(max_bad):
        found = NO_BAD_DOCUMENTS
        for first in range(0, len(numbers), size):
            given = numbers[first : first + size]
            bad = BadDocuments.of(BadDocument("a.jsonl", "line", n + 1, "null") for n in given)
            found = check_running_share(found, bad, given, max_bad)
        return found

    # The eleventh is the 1,100th document, the twelfth the 1,101st.
    with pytest.raises(TooManyBadDocumentsError, match=r"12 bad \(null 12: a.jsonl line 1, .* and"):
        check(0.01)
    found = check(0.011)
    assert (found.count, len(found.first)) == (12, 10)
    assert BadDocuments.from_fields(found.to_fields()) == found
    found.check_share(1101, 0.011)
    with pytest.raises(TooManyBadDocumentsError, match=r"of 1,000 documents, more than 1.100%"):
        found.check_share(1000, 0.011)
