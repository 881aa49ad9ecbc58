"""The ids of an unfinished document are read back as written, and leave no file."""

from pathlib import Path

import numpy as np
import pytest

from tokenizer_core.corpus import split_writer
from tokenizer_core.corpus.split_writer import UnfinishedDocument


def test_ids_come_back_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_writer, "_PIECE_BYTES", 12)
    document = UnfinishedDocument(tmp_path)
    parts = [np.array([1, 70_000], np.uint32), np.arange(7)]
    for part in parts:
        document.append(part)
    assert document.n_tokens == 9
    pieces = list(document.pieces())
    assert [len(piece) for piece in pieces] == [3, 3, 3]
    assert np.concatenate(pieces).tolist() == [1, 70_000, *range(7)]
    assert list(tmp_path.iterdir()) == []
    document.close()
    document.close()
