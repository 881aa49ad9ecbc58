"""JSONL: each line is a document, or an error that names the line and the remedy."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core.documents.json_lines import read_json_lines
from tokenizer_core.errors import CorpusError


def read(
    data: bytes, block_bytes: int = 1 << 20, field: str = "text", limit: int = 1 << 20
) -> list:
    blocks = (data[start : start + block_bytes] for start in range(0, len(data), block_bytes))
    return join(list(read_json_lines(blocks, "some.jsonl", field, limit, 7)))


@given(
    st.lists(st.text(max_size=30)),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(1, 60),
)
def test_any_documents_are_read_back(documents, ascii_only, line_end, is_ended, block_bytes):
    lines = [json.dumps({"n": 1, "text": text}, ensure_ascii=ascii_only) for text in documents]
    data = line_end.join(lines) + (line_end if is_ended and lines else "")
    assert read(data.encode(), block_bytes) == documents


def test_line_ends_of_other_kinds_are_text():
    text = "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert read(json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "strict")) == [text]
    assert read(b'{"text": 1, "story": "a", "meta": {"text": []}}', field="story") == ["a"]


WRONG_LINES = [
    (b"", "it is empty; "),
    (b" \r", "it is empty"),
    (b"[1]", "it holds no JSON object"),
    (b"null", "it holds no JSON object"),
    (b"{", "it is not JSON: .* at character 1;"),
    (b'{"text": "a"} {"text": "b"}', "it is not JSON: Extra data"),
    (b'{"text": "a\tb"}', "it is not JSON: Invalid control character"),
    (b'{"texts": "a"}', r"no field 'text'; .* \(`field`, "),
    (b'{"text": null}', "its field 'text' is no string"),
    (b'{"text": ["a"]}', "its field 'text' is no string"),
    (b'{"text": "a", "text": "b"}', "the same key twice"),
    (b'{"text": "a", "score": NaN}', "it holds NaN"),
    (b'{"text": "a", "score": -Infinity}', "it holds -Infinity"),
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


def test_deep_and_surrogate_pairs_are_read_until_too_deep():
    deep = b'{"text": "a", "deep": ' + b"[" * 400 + b"1" + b"]" * 400 + b"}"
    assert read(deep + b'\n{"text": "\\ud83d\\ude00"}') == ["a", "😀"]
    with pytest.raises(CorpusError, match="line 1: it is nested too deep"):
        read(b'{"text": "a", "deep": ' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def test_a_byte_order_mark_is_refused_only_in_front():
    with pytest.raises(CorpusError, match="line 1: it begins with a byte order mark"):
        read(b'\xef\xbb\xbf{"text": "a"}')
    assert read(b'{"text": "\xef\xbb\xbfa"}') == ["\ufeffa"]


def test_a_line_of_the_longest_length_is_read():
    line = b'{"text": "abcdefg"}'
    assert read(line + b"\n" + line, limit=len(line)) == ["abcdefg", "abcdefg"]
    with pytest.raises(CorpusError, match="line 2: it is longer"):
        read(line + b"\n" + line + b" ", limit=len(line))
