"""The estimated size of token files; the routes test the rest of `inputs`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenizer_core import Tokenizer
from tokenizer_core.corpus import encode_corpus, plan_token_files
from tokenizer_service.jobs.errors import CorpusReplacedError
from tokenizer_service.jobs.input_files import InputFile, find_input_file
from tokenizer_service.jobs.inputs import estimate_bytes


def write(folder: Path, name: str, text: str) -> InputFile:
    (folder / name).write_text(text)
    return find_input_file([folder], name)


def test_the_estimate_is_within_a_tenth_of_the_size(
    tmp_path: Path, small_tokenizer: Tokenizer
) -> None:
    texts = ["the quick brown fox " * 5_000, "中文 café " * 4_000, "", *["low lower " * 500] * 5]
    files = [write(tmp_path, f"{n}.txt", text) for n, text in enumerate(texts)]
    paths = [tmp_path / file.path for file in files]
    for dtype in ("uint16", "uint32"):
        plan = plan_token_files(small_tokenizer, dtype=dtype)  # type: ignore[arg-type]
        estimate = estimate_bytes(files, small_tokenizer, plan)
        encode_corpus(small_tokenizer, paths, tmp_path / dtype, plan)
        written = (tmp_path / dtype / "train.bin").stat().st_size
        assert abs(estimate - written) < 0.1 * written


def test_a_sample_may_end_inside_a_character(tmp_path: Path, small_tokenizer: Tokenizer) -> None:
    file = write(tmp_path, "a.txt", "x" + "中" * 30_000)
    assert estimate_bytes([file], small_tokenizer, plan_token_files(small_tokenizer)) > 60_000


def test_a_corpus_that_was_replaced_is_refused(tmp_path: Path, small_tokenizer: Tokenizer) -> None:
    file = write(tmp_path, "a.txt", "one")
    write(tmp_path, "a.txt", "another")
    with pytest.raises(CorpusReplacedError):
        estimate_bytes([file], small_tokenizer, plan_token_files(small_tokenizer))
