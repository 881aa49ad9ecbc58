"""Counting whole corpora: errors that name the position, files that change, workers, memory."""

import hashlib
from importlib import import_module
from pathlib import Path

import pytest

from tests.tokenizer_core.documents.file_changes import CHANGES
from tokenizer_core.errors import CorpusChangedError, CorpusError, InvalidSpecError
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import CorpusSource, count_pretokens

COUNTING = import_module("tokenizer_core.training.count_pretokens")
GPT2 = PATTERNS["gpt2"]


@pytest.fixture(autouse=True)
def use_engine(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Every test here runs on each engine, except those that name one."""
    monkeypatch.setenv("TOKENIZER_ENGINE", engine)


@pytest.fixture
def use_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a corpus of any size, however small."""
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tmp_path / "corpus.txt"


def test_several_files_are_counted_each_by_itself(tmp_path):
    (tmp_path / "one").write_text("one tw")
    (tmp_path / "two").write_text("o three<|e|>")
    (tmp_path / "none").write_text("")
    paths = [tmp_path / name for name in ("one", "none", "two")]
    counted = count_pretokens(paths, pattern=GPT2, special_tokens=["<|e|>"])
    assert counted.counts == {"one": 1, " tw": 1, "o": 1, " three": 1}
    assert counted.n_bytes == 18
    assert counted.n_documents == 2
    assert counted.sources == tuple(
        CorpusSource(str(path), path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in paths
    )


@pytest.mark.row(26)
@pytest.mark.parametrize(
    ("change", "chunk_bytes"),
    [*((change, 2_000) for change in CHANGES), (CHANGES[0], 1 << 20), (CHANGES[2], 1 << 20)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_corpus_that_changes_meanwhile_is_an_error(corpus, change, chunk_bytes):
    corpus.write_text("some words " * 1_000)
    changes = [change]

    def change_once(done: int, total: int) -> None:
        if changes:
            changes.pop()(corpus)

    with pytest.raises(CorpusChangedError, match="changed while it was read"):
        count_pretokens([corpus], pattern=GPT2, chunk_bytes=chunk_bytes, progress=change_once)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_while_waiting_ends_the_run(corpus, use_processes, num_workers):
    corpus.write_text("some words " * 1_000)

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        count_pretokens(
            [corpus], pattern=GPT2, chunk_bytes=99, num_workers=num_workers, while_waiting=stop
        )


def test_number_of_workers(monkeypatch):
    choose = COUNTING.choose_num_workers
    large = COUNTING.SMALL_CORPUS_BYTES + 1
    assert choose(large, 3) == 3
    assert choose(large - 1, 3) == 1
    monkeypatch.setattr(COUNTING, "count_processors", lambda: 5)
    assert choose(large, None) == 5
    with pytest.raises(ValueError, match="num_workers must be at least 1"):
        choose(large, 0)


def test_invalid_arguments_are_refused(corpus):
    corpus.write_text("a")
    with pytest.raises(ValueError, match="errors must be 'strict' or 'replace'"):
        count_pretokens([corpus], pattern=GPT2, errors="ignore")
    with pytest.raises(InvalidSpecError, match="must be a list of strings"):
        count_pretokens([corpus], pattern=GPT2, special_tokens="<|endoftext|>")
    with pytest.raises(CorpusError, match="no corpus file was given"):
        count_pretokens([], pattern=GPT2)
    corpus.write_text("")
    with pytest.raises(CorpusError, match="the corpus is empty"):
        count_pretokens([corpus, corpus], pattern=GPT2)
