"""Training reads the documents of a corpus in any format, as `open_documents` does."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.tokenizer_core.documents.corpus_writer import SEPARATOR, write_corpus
from tokenizer_core.documents import FORMATS, CorpusFormat, make_separator
from tokenizer_core.errors import CorpusError, TrainingCancelledError
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
        file, engine, corpus_format=how, scratch_folder=scratch,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert found.counts == counts_of(DOCUMENTS)
    assert found.special_tokens == ("<|a|>",)
    assert found.n_bytes == len("".join(DOCUMENTS).encode())
    (source,) = found.sources
    assert (source.path, source.size_bytes) == (str(file), file.stat().st_size)
    assert source.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert list(scratch.iterdir()) == []
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == 2 * file.stat().st_size
    merges = train([file], TrainingOptions(270, ["<|a|>"], corpus_format=how, engine=engine)).merges
    assert merges == train_from_iterator(DOCUMENTS, TrainingOptions(270, ["<|a|>"])).merges


def test_fields_formats_and_files_that_are_not_what_they_seem(tmp_path: Path, engine: str) -> None:
    lines = "".join(json.dumps({"story": text}) + "\n" for text in DOCUMENTS)
    stories = tmp_path / "stories.jsonl"
    stories.write_text(lines)
    assert count(stories, engine, corpus_format=CorpusFormat(field="story")).counts == counts_of(
        DOCUMENTS
    )
    with pytest.raises(CorpusError, match=r"line 1.*'text'"):
        count(stories, engine)
    hidden = stories.rename(tmp_path / "stories.txt")
    with pytest.raises(CorpusError, match=r"is JSON lines, and its name .* \(--format"):
        count(hidden, engine)
    as_lines = CorpusFormat("jsonl", "story")
    assert count(hidden, engine, corpus_format=as_lines).counts == counts_of(DOCUMENTS)
    as_text = count(hidden, engine, corpus_format=CorpusFormat("txt")).counts
    assert as_text == counts_of([hidden.read_text()])
    with pytest.raises(CorpusError, match="does not exist; check the path"):
        count(tmp_path / "missing.jsonl", engine)
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"text": ""}\n')
    with pytest.raises(CorpusError, match="the corpus is empty"):
        count(empty, engine)


def test_a_run_can_be_cancelled_while_documents_are_unpacked(tmp_path: Path) -> None:
    file = write_corpus(tmp_path / "corpus.jsonl", DOCUMENTS, "jsonl")
    asked: list[int] = []

    def cancel() -> bool:
        asked.append(1)
        return True

    with pytest.raises(TrainingCancelledError):
        train([file], TrainingOptions(270), should_cancel=cancel)
    assert asked


@given(
    documents=st.lists(st.text(st.sampled_from("ab <|>\0\1"), max_size=12), min_size=1, max_size=6),
    special_tokens=st.lists(
        st.text(st.sampled_from("ab<|>\0\1"), min_size=2, max_size=4), max_size=3, unique=True
    ),
)
@examples(5)
def test_no_special_token_reaches_over_the_end_of_a_document(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], special_tokens: list[str]
) -> None:
    separator = make_separator(special_tokens)
    assert not any(separator[0] in token for token in special_tokens)
    file = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    if not any(documents):
        return
    apart: Counter[str] = Counter()
    for number, text in enumerate(filter(None, documents)):
        alone = file.with_name(f"{number}.txt")
        alone.write_text(text)
        as_text = CorpusFormat("txt")
        counted = count_pretokens(
            [alone], pattern=GPT2, special_tokens=special_tokens, corpus_format=as_text
        )
        apart.update(counted.counts)
    assert count_pretokens([file], pattern=GPT2, special_tokens=special_tokens).counts == apart
