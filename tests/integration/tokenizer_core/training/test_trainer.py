"""Counting and training with real worker processes."""

import pytest

from tests.tokenizer_core.training.test_trainer import (
    COUNTING,
    EXAMPLE,
    GPT2,
    corpus,
    use_engine,
)
from tokenizer_core.errors import CorpusError
from tokenizer_core.training import TrainingOptions, count_pretokens, train

__all__ = ["corpus", "use_engine"]


@pytest.fixture(autouse=True)
def use_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a corpus of any size, however small."""
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)


@pytest.mark.promise(18)
def test_the_result_and_the_end_of_progress_are_the_same_for_any_number_of_workers(corpus):
    corpus.write_text(f"{EXAMPLE} 漢字<|e|> " * 300)
    size = corpus.stat().st_size
    fingerprints = set()
    for n_workers in (1, 2, 4):
        events = []
        options = TrainingOptions(263, ["<|e|>"], num_workers=n_workers, chunk_bytes=900)
        fingerprints.add(train([corpus], options, progress=events.append).spec.fingerprint)
        counting = [event for event in events if event.phase == "count"]
        learning = [event for event in events if event.phase == "learn"]
        assert events == counting + learning
        assert (counting[-1].done, counting[-1].total) == (size, size)
        assert (learning[-1].done, learning[-1].total) == (6, 6)
    assert len(fingerprints) == 1


@pytest.mark.parametrize(
    ("num_workers", "bad"),
    [(1, b"\xed\xa0\x80"), (1, b"\xc0\xaf"), (3, b"\xff")],
)
def test_an_invalid_byte_is_named_by_file_and_offset(corpus, num_workers, bad):
    lead = "漢字 and words ".encode() * 40
    corpus.write_bytes(lead + bad + b" more words" * 40)
    with pytest.raises(CorpusError, match=rf"corpus\.txt is not UTF-8 at byte {len(lead)} "):
        count_pretokens([corpus], pattern=GPT2, chunk_bytes=64, num_workers=num_workers)


def test_workers_are_replaced_and_nothing_is_lost(corpus, monkeypatch):
    monkeypatch.setattr(COUNTING, "_CHUNKS_BEFORE_REPLACEMENT", 2)
    corpus.write_text("some words " * 1_000)
    counted = count_pretokens(
        [corpus], pattern=GPT2, chunk_bytes=1_000, num_workers=2, engine="python"
    )
    assert counted.counts == {"some": 1, " words": 1_000, " some": 999, " ": 1}
