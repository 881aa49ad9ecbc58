"""Counting and training with real worker processes."""

import pytest

from tests.tokenizer_core.training.test_trainer import (
    COUNTING,
    EXAMPLE,
    GPT2,
    corpus,
    use_engine,
    use_processes,
)
from tokenizer_core.errors import CorpusError, TrainingCancelledError
from tokenizer_core.training import TrainingOptions, count_pretokens, train

__all__ = ["corpus", "use_engine", "use_processes"]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_progress_reaches_the_end_of_both_phases(tmp_path, monkeypatch, num_workers):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    path = tmp_path / "corpus.txt"
    path.write_text(f"{EXAMPLE} " * 200)
    events = []
    train(
        [path],
        TrainingOptions(vocab_size=262, num_workers=num_workers, chunk_bytes=2_000),
        progress=events.append,
    )
    size = path.stat().st_size
    counting = [event for event in events if event.phase == "count"]
    learning = [event for event in events if event.phase == "learn"]
    assert events == counting + learning
    assert (counting[-1].done, counting[-1].total) == (size, size)
    assert (learning[-1].done, learning[-1].total) == (6, 6)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_counting_is_cancelled(tmp_path, monkeypatch, num_workers):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    path = tmp_path / "corpus.txt"
    path.write_text(f"{EXAMPLE} " * 20_000)
    done: list[int] = []
    with pytest.raises(TrainingCancelledError):
        train(
            [path],
            TrainingOptions(vocab_size=300, num_workers=num_workers, chunk_bytes=200),
            progress=lambda event: done.append(event.done),
            should_cancel=lambda: bool(done),
        )
    assert done[-1] < path.stat().st_size


@pytest.mark.promise(18)
def test_the_result_is_the_same_for_any_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    path = tmp_path / "corpus.txt"
    path.write_text(f"{EXAMPLE} 漢字<|e|> " * 300)
    fingerprints = {
        train(
            [path],
            TrainingOptions(
                vocab_size=280, special_tokens=["<|e|>"], num_workers=n, chunk_bytes=900
            ),
        ).spec.fingerprint
        for n in (1, 2, 4)
    }
    assert len(fingerprints) == 1


@pytest.mark.parametrize(
    ("num_workers", "bad"),
    [(1, b"\xed\xa0\x80"), (1, b"\xc0\xaf"), (3, b"\xff")],
)
def test_an_invalid_byte_is_named_by_file_and_offset(corpus, use_processes, num_workers, bad):
    lead = "漢字 and words ".encode() * 40
    corpus.write_bytes(lead + bad + b" more words" * 40)
    with pytest.raises(CorpusError, match=rf"corpus\.txt is not UTF-8 at byte {len(lead)} "):
        count_pretokens([corpus], pattern=GPT2, chunk_bytes=64, num_workers=num_workers)


def test_workers_are_replaced_and_nothing_is_lost(corpus, use_processes, monkeypatch):
    monkeypatch.setattr(COUNTING, "_CHUNKS_BEFORE_REPLACEMENT", 2)
    corpus.write_text("some words " * 1_000)
    counted = count_pretokens(
        [corpus], pattern=GPT2, chunk_bytes=1_000, num_workers=2, engine="python"
    )
    assert counted.counts == {"some": 1, " words": 1_000, " some": 999, " ": 1}
