"""Training reads the documents of a corpus in any format, as `open_documents` does."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tokenizer_core.documents import FORMATS, CorpusFormat, make_separator
from tokenizer_core.errors import CorpusError
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.pretokenize import split
from tokenizer_core.training import TrainingOptions, count_pretokens, train, train_from_iterator

DOCUMENTS = ['the "lower" lowest', "", " newer<|a|>newest\n", "{braces} é 中\r\n", "low"] * 3
GPT2 = PATTERNS["gpt2"]


def counts_of(documents: list[str], special_tokens: list[str] = ["<|a|>"]) -> Counter[str]:  # noqa: B006
    """What counting is to give, from each document by itself."""
    counted: Counter[str] = Counter()
    for document in documents:
        for text in document.split(special_tokens[0]) if special_tokens else [document]:
            counted.update(split(text, GPT2))
    return counted


def count(file: Path, engine: str, **options: Any) -> Any:
    options = {"special_tokens": ["<|a|>"], "pattern": GPT2, **options}
    return count_pretokens([file], engine=engine, **options)


@pytest.mark.parametrize("format_name", FORMATS)
def test_each_format_gives_the_counts_of_its_documents(
    tmp_path: Path, engine: str, format_name: str
) -> None:
    file = write_corpus(tmp_path / f"corpus.{format_name}", DOCUMENTS, format_name)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    how = CorpusFormat(separator=SEPARATOR if format_name.startswith("txt") else None)
    seen: list[tuple[int, int]] = []
    found = count(
        file,
        engine,
        corpus_format=how,
        scratch_folder=scratch,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert found.counts == counts_of(DOCUMENTS)
    assert found.special_tokens == ("<|a|>",)
    assert found.n_bytes == len("".join(DOCUMENTS).encode())
    (source,) = found.sources
    assert (source.path, source.size_bytes) == (str(file), file.stat().st_size)
    assert source.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert list(scratch.iterdir()) == []
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == 2 * file.stat().st_size
    if format_name == "jsonl.gz":
        options = TrainingOptions(270, ["<|a|>"], corpus_format=how, engine=engine)
        merges = train([file], options).merges
        assert merges == train_from_iterator(DOCUMENTS, TrainingOptions(270, ["<|a|>"])).merges


def test_the_field_and_the_format_are_chosen(tmp_path: Path, engine: str) -> None:
    stories = tmp_path / "stories"
    stories.write_text("".join(json.dumps({"story": text}) + "\n" for text in DOCUMENTS))
    as_lines = CorpusFormat("jsonl", "story")
    assert count(stories, engine, corpus_format=as_lines).counts == counts_of(DOCUMENTS)
    as_text = count(stories, engine, corpus_format=CorpusFormat("txt")).counts
    assert as_text == counts_of([stories.read_text()])
    with pytest.raises(CorpusError, match=r"line 1.*'text'"):
        count(stories, engine, corpus_format=CorpusFormat("jsonl"))
    with pytest.raises(CorpusError, match="does not exist"):
        count(tmp_path / "missing.jsonl", engine)
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"text": ""}\n')
    with pytest.raises(CorpusError, match="the corpus is empty"):
        count(empty, engine)


def test_no_special_token_reaches_over_the_end_of_a_document(tmp_path: Path, engine: str) -> None:
    file = tmp_path / "corpus.jsonl"
    documents = ["a<|", "|>b", "\0c", "<||>"]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    counted = count(file, engine, special_tokens=["<||>", "\0\1"]).counts
    assert counted == counts_of(documents, ["<||>"])
    for special_tokens in ([], ["\0\1", "ab"], [chr(code) * 2 for code in range(40)]):
        separator = make_separator(special_tokens)
        assert not any(separator[0] in token for token in special_tokens)
