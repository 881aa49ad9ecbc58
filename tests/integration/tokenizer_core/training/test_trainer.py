"""Training with real worker processes: progress, cancelling, any number of workers."""

import time

import pytest

from tests.tokenizer_core.training.test_trainer import COUNTING, EXAMPLE, use_engine
from tokenizer_core.errors import (
    TrainingCancelledError,
)
from tokenizer_core.training import TrainingOptions, train

__all__ = ["use_engine"]


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
def test_cancelled_while_counting(tmp_path, monkeypatch, num_workers):
    monkeypatch.setattr(COUNTING, "SMALL_CORPUS_BYTES", 0)
    path = tmp_path / "corpus.txt"
    path.write_text(f"{EXAMPLE} " * 200_000)
    done: list[int] = []
    started = time.monotonic()
    with pytest.raises(TrainingCancelledError):
        train(
            [path],
            TrainingOptions(vocab_size=300, num_workers=num_workers, chunk_bytes=200),
            progress=lambda event: done.append(event.done),
            should_cancel=lambda: bool(done),
        )
    assert time.monotonic() - started < 30
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
