"""Pieces of documents, and parts of files: the same documents for any cuts of the text."""

import json
from functools import partial

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tokenizer_core.documents import (
    CorpusFormat,
    corpus_files,
    open_documents,
    open_utf8_documents,
)
from tokenizer_core.documents.document_pieces import cut_document, decode_blocks, split_plain_text
from tokenizer_core.errors import CorpusError


def split_by_definition(text, separator):
    documents = text.split(separator)
    return documents if documents[-1] else documents[:-1]


def join(pieces):
    """The documents; each piece must be whole characters, and the last piece must end one."""
    documents, parts = [], []
    for text, is_last in pieces:
        parts.append(text.decode() if isinstance(text, bytes) else text)
        if is_last:
            documents.append("".join(parts))
            parts.clear()
    assert parts == []
    return documents


@given(st.text(max_size=40), st.integers(1, 12))
def test_all_pieces_but_the_last_are_full(text, max_chars):
    pieces = list(cut_document(text, max_chars))
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {len(piece.text) for piece in pieces[:-1]} <= {max_chars}
    assert 0 < len(pieces[-1].text) <= max_chars or not text
    assert pieces == list(split_plain_text(text, None, max_chars))


def test_invalid_utf8_is_named_by_its_offset_and_line():
    for data, offset, line in (
        (b"\xff", 0, 1),
        (b"\n\nf\xc3", 3, 3),
        (b"c\nf\xc3\xa9\x80\n", 5, 2),
        (b"ab\xed\xa0\x80", 2, 1),
        ("a€".encode()[:-1], 1, 1),
    ):
        for size in range(1, len(data) + 1):
            blocks = [data[start : start + size] for start in range(0, len(data), size)]
            with pytest.raises(
                CorpusError, match=rf"'some\.txt' is not UTF-8.* byte {offset}, line {line};"
            ):
                list(decode_blocks(blocks, "some.txt"))


SEPARATORS = ["|", "||", "<<|", "中|中", "a", "ab", "aa", "aba", "abaab", "<|end|>", "\n", "é"]

limits = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path, how, within):
    with open_utf8_documents(path, how, max_piece_bytes=5, within=within) as reader:
        pieces = list(reader)
    if path.suffix == ".txt":
        assert all(len(piece) <= 5 + max(4, len(how.separator.encode())) for piece, _ in pieces)
    return join(pieces)


@limits
@example(text="a||||b", separator="||", part_bytes=9, block_bytes=3)
@example(text="中|中|中", separator="中|中", part_bytes=9, block_bytes=2)
@given(
    text=st.text(st.sampled_from("aab|é<>end\n中🙂"), max_size=60),
    separator=st.sampled_from(SEPARATORS),
    part_bytes=st.integers(1, 30),
    block_bytes=st.integers(1, 9),
)
def test_parts_of_plain_text_have_each_document_once(
    tmp_path, monkeypatch, text, separator, part_bytes, block_bytes
):
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "corpus.txt"
    path.write_bytes(data := text.encode())
    expected = split_by_definition(text, separator)
    how = CorpusFormat(separator=separator)
    assert read(path, how, None) == expected
    parts = [(start, start + part_bytes) for start in range(0, max(1, len(data)), part_bytes)]
    assert [one for part in parts for one in read(path, how, part)] == expected
    as_text = partial(open_documents, path, how, max_piece_chars=5)
    found = [one for part in parts for one in join(list(as_text(within=part)))]
    assert found == expected
    # The pieces do not show where blocks were cut.
    assert list(as_text()) == list(split_plain_text([text], separator, 5))


@limits
@given(
    texts=st.lists(st.text(max_size=12), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    is_ended=st.booleans(),
    part_bytes=st.integers(1, 60),
)
def test_parts_of_json_lines_have_each_document_once(tmp_path, texts, end, is_ended, part_bytes):
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    path.write_bytes(data := (end.join(lines) + (end if is_ended and lines else "")).encode())
    parts = [(start, start + part_bytes) for start in range(0, max(1, len(data)), part_bytes)]
    assert [one for part in parts for one in read(path, CorpusFormat(), part)] == texts


def test_a_file_that_cannot_be_entered_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one|two")
    assert CorpusFormat(separator="|").can_be_entered("a.txt")
    assert CorpusFormat("jsonl").can_be_entered("a.bin")
    for name in ("a.txt", "a.txt.gz", "a.jsonl.zst", "a.parquet"):
        assert not CorpusFormat().can_be_entered(name)
    with pytest.raises(ValueError, match="format txt cannot be entered in its middle"):
        open_documents(tmp_path / "a.txt", within=(2, 3))
    assert CorpusFormat(separator="|").can_be_entered("a.bin")


def test_an_error_in_a_part_names_the_line_or_the_first_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", 7)
    path = tmp_path / "a.jsonl"
    lines = b'{"text": "one"}\n' * 3 + b"\n"  # a blank line counts, and is no document
    for start in (0, 1, 15, 16, 17, 31, 32, 47, 48):
        path.write_bytes(lines + b"[]\n")
        with (
            pytest.raises(CorpusError, match=r"a.jsonl', line 5: it holds no JSON object"),
            open_documents(path, within=(start, 90)) as reader,
        ):
            list(reader)
        path.write_bytes(lines * 2)
        n_before = (start + 15) // 16
        with open_documents(path, within=(start, 98)) as reader:
            assert reader.find_place(3 - n_before) == ("line 5", 3 - n_before)
    (tmp_path / "b.txt").write_bytes(b"one|t\xffo|three")
    with (
        pytest.raises(CorpusError, match=r"b.txt from byte 4' is not UTF-8: .* byte 1, line 1;"),
        open_documents(tmp_path / "b.txt", CorpusFormat(separator="|"), within=(2, 6)) as reader,
    ):
        list(reader)
