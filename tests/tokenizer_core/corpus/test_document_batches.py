"""Batches contain all documents of all files, in order, from any position on."""

import gzip
import json
from pathlib import Path

import pytest

from tests.tokenizer_core.corpus.small_corpora import NARROW
from tokenizer_core.corpus import plan_token_files
from tokenizer_core.corpus.document_batches import (
    CorpusPosition,
    DocumentBatch,
    iterate_batches,
)
from tokenizer_core.corpus.document_cuts import DocumentCuts
from tokenizer_core.documents import CorpusFormat
from tokenizer_core.errors import TokenFilesPlanError

DOCUMENTS = ["one", "", "two wörds", "many wörds 中 " * 30, "x", "", "last ones é " * 20]
CUTS = DocumentCuts(plan_token_files(NARROW))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    plain, empty, packed = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.jsonl.gz"
    plain.write_text("|".join(DOCUMENTS[:5]))
    empty.write_text("")
    lines = [json.dumps({"text": text}) for text in DOCUMENTS[5:]]
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    return [str(plain), str(empty), str(packed)]


def read(
    files: list[str],
    batch_bytes: int,
    start: CorpusPosition = CorpusPosition(),  # noqa: B008
) -> list[DocumentBatch]:
    return list(iterate_batches(files, CorpusFormat(separator="|"), CUTS, start, batch_bytes))


def documents_of(batches: list[DocumentBatch]) -> list[str]:
    """The texts joined to documents; checks how consecutive batches connect."""
    found: list[str] = []
    is_open = batches[0].is_continued
    for batch in batches:
        assert batch.is_continued == is_open
        for number, text in enumerate(batch.texts):
            if number == 0 and is_open and found:
                found[-1] += text.decode()
            else:
                found.append(text.decode())
        is_open = batch.is_open if batch.texts else is_open
    assert not is_open
    return found


@pytest.mark.parametrize("batch_bytes", [1, 7, 50, 200, 10_000])
def test_all_documents_come_in_order(files: list[str], batch_bytes: int) -> None:
    batches = read(files, batch_bytes)
    assert documents_of(batches) == DOCUMENTS
    n_documents = 0
    for batch in batches:
        assert batch.first_document == n_documents
        n_documents += len(batch.texts) - batch.is_open
        assert batch.position.n_documents == n_documents
        size = sum(map(len, batch.texts))
        assert size <= max(2 * batch_bytes, max(map(len, batch.texts), default=0))
    end = batches[-1].position
    assert [source.path for source in end.sources] == ["a.txt", "b.txt", "c.jsonl.gz"]
    assert end.bytes_done == sum(Path(file).stat().st_size for file in files)
    assert (end.n_in_file, end.n_bytes) == (0, 0)


@pytest.mark.parametrize("batch_bytes", [1, 50])
def test_each_position_gives_the_rest(files: list[str], batch_bytes: int) -> None:
    batches = read(files, batch_bytes)
    for number, batch in enumerate(batches):
        place = CorpusPosition.from_fields(json.loads(json.dumps(batch.position.to_fields())))
        assert place == batch.position
        for other_chars in (batch_bytes, 23):
            rest = read(files, other_chars, place)
            assert rest[-1].position == batches[-1].position
            whole = [text for part in batches[: number + 1] for text in part.texts]
            after = [text for part in rest for text in part.texts]
            assert b"".join(whole + after).decode() == "".join(DOCUMENTS)
            assert rest[0].first_document == place.n_documents
            assert rest[0].is_continued == batch.is_open


def test_a_file_that_has_fewer_documents_now_is_refused(files: list[str]) -> None:
    place = CorpusPosition(n_documents=9, n_in_file=9)
    with pytest.raises(TokenFilesPlanError, match=r"'a.txt' has changed"):
        read(files, 50, place)
    with pytest.raises(TokenFilesPlanError, match=r"'a.txt' has changed"):
        read(files, 50, CorpusPosition(n_bytes=3))
    with pytest.raises(TokenFilesPlanError, match=r"'a.txt' has changed"):
        read(files, 50, CorpusPosition(identities=((1, 1),)))
