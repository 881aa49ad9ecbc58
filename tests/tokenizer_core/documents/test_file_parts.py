"""Parts of a file that are read independently have every document once, for any cuts."""

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tokenizer_core.documents.test_document_pieces import join
from tokenizer_core.documents import (
    can_be_entered,
    corpus_files,
    open_documents,
    open_utf8_documents,
    place_of_document,
)
from tokenizer_core.errors import CorpusError

SEPARATORS = ["|", "ab", "aa", "aba", "<|end|>", "\n", "é"]

limits = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path: str | Path, separator: str | None, within: tuple[int, int] | None) -> list[bytes]:
    with open_utf8_documents(path, separator=separator, max_piece_bytes=5, within=within) as reader:
        documents, parts = [], []
        for text, is_last in reader:
            parts.append(text)
            if is_last:
                documents.append(b"".join(parts))
                parts.clear()
    assert not parts
    return documents


@limits
@given(
    text=st.text(st.sampled_from("ab|é<>end\n🙂"), max_size=60),
    separator=st.sampled_from(SEPARATORS),
    part_bytes=st.integers(1, 30),
    block_bytes=st.integers(1, 9),
)
def test_parts_of_plain_text(tmp_path, monkeypatch, text, separator, part_bytes, block_bytes):
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "corpus.txt"
    path.write_bytes(data := text.encode())
    expected = read(path, separator, None)
    parts = [(start, start + part_bytes) for start in range(0, max(1, len(data)), part_bytes)]
    assert [one for part in parts for one in read(path, separator, part)] == expected
    as_text = partial(open_documents, path, separator=separator, max_piece_chars=5)
    found = [one for part in parts for one in join(list(as_text(within=part)))]
    assert found == join(list(as_text()))


@limits
@given(
    texts=st.lists(st.text(max_size=12), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    is_ended=st.booleans(),
    part_bytes=st.integers(1, 60),
)
def test_parts_of_json_lines(tmp_path, texts, end, is_ended, part_bytes):
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    path.write_bytes(data := (end.join(lines) + (end if is_ended and lines else "")).encode())
    parts = [(start, start + part_bytes) for start in range(0, max(1, len(data)), part_bytes)]
    found = [one.decode() for part in parts for one in read(path, None, part)]
    assert found == texts


def test_a_file_that_cannot_be_entered_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("one|two")
    assert can_be_entered("a.txt", separator="|")
    assert can_be_entered("a.bin", format="jsonl")
    for name in ("a.txt", "a.txt.gz", "a.jsonl.zst", "a.parquet"):
        assert not can_be_entered(name, separator=None)
    with pytest.raises(ValueError, match="format txt cannot be entered in its middle"):
        open_documents(tmp_path / "a.txt", within=(2, 3))
    assert can_be_entered("a.bin", separator="|")


def test_an_error_in_a_part_names_the_line_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_files, "BLOCK_BYTES", 7)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n' * 3 + b"[]\n")
    for start in (0, 1, 15, 16, 17, 31, 32, 47, 48):
        with (
            pytest.raises(CorpusError, match=r"a.jsonl', line 4: it holds no JSON object"),
            open_documents(path, within=(start, 90)) as reader,
        ):
            list(reader)
        n_before = (start + 15) // 16
        assert place_of_document(path, "jsonl", 3 - n_before, start=start) == "line 4"


def test_errors_name_the_byte_from_which_they_count(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"one|t\xffo|three")
    with (
        pytest.raises(CorpusError, match=r"b.txt from byte 4' is not UTF-8: .* wrong at byte 1;"),
        open_documents(tmp_path / "b.txt", separator="|", within=(2, 6)) as reader,
    ):
        list(reader)
