"""Parallel files: the same lines of each."""

import pytest

from tokenizer_core.errors import CorpusError
from tokenizer_core.evaluation import parallel_files


def write(path, lines, end="\n"):
    path.write_bytes(end.join(lines).encode())
    return path


def texts(file):
    return [text for piece in file.pieces() for text in piece.texts]


def test_the_same_lines_of_each(tmp_path):
    one = write(tmp_path / "a", [f"line {i}" for i in range(100)])
    other = write(tmp_path / "b", [f"строка {i}" for i in range(100)], end="\r\n")
    sampled = parallel_files([one, other], sample_bytes=other.stat().st_size // 4)
    numbers = [[int(text.split()[1]) for text in texts(file)] for file in sampled]
    assert numbers[0] == numbers[1]
    assert not any("\r" in text for text in texts(sampled[1]))
    assert len(numbers[0]) in (20, 25)
    assert len({b - a for a, b in zip(numbers[0], numbers[0][1:], strict=False)}) == 1
    assert texts(parallel_files([one])[0]) == [f"line {i}" for i in range(100)]
    seeds = {tuple(texts(parallel_files([one], 200, seed)[0])) for seed in range(8)}
    assert len(seeds) > 1


def test_at_least_one_line_of_a_short_file(tmp_path):
    assert texts(parallel_files([write(tmp_path / "a", ["a long line"])], 1)[0]) == ["a long line"]


def test_files_that_are_not_parallel_are_refused(tmp_path):
    one, other = write(tmp_path / "a", ["1", "2"]), write(tmp_path / "b", ["1", "2", "3"])
    with pytest.raises(CorpusError, match="number of lines"):
        parallel_files([one, other])
    wrong = tmp_path / "c"
    wrong.write_bytes(b"ok\nno\xff\n")
    with pytest.raises(CorpusError, match="byte 5"):
        texts(parallel_files([wrong])[0])
