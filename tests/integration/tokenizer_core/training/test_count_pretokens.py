"""Counting with real worker processes: errors, progress, replaced workers."""

import pytest

from tests.tokenizer_core.training.test_count_pretokens import (
    COUNTING,
    GPT2,
    corpus,
    use_engine,
    use_processes,
)
from tokenizer_core.errors import CorpusError
from tokenizer_core.training import count_pretokens

__all__ = ["corpus", "use_engine", "use_processes"]


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
