"""Counts and merges of real text in the native engine equal those of Python."""

import itertools

import pytest

from tests.tokenizer_core.engines.test_native_training import SPECIAL, compiled
from tokenizer_core.patterns import PATTERNS
from tokenizer_core.training import TrainingOptions, train

__all__ = ["compiled"]


TEXTS = ["zh_modern_bitext", "en_reuters_news", "edge_unicode", "code_c_linux"]


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("pattern", "corpus"), zip(sorted(PATTERNS), itertools.cycle(TEXTS), strict=False)
)
def test_counts_and_merges_of_real_text_are_those_of_python(pattern, corpus, shared_data, tmp_path):
    data = (shared_data / "corpora" / f"{corpus}.txt").read_bytes()[:400_000]
    real_text = tmp_path / "corpus.txt"
    real_text.write_text(data.decode("utf-8", "ignore"), encoding="utf-8", newline="")
    results = {}
    for engine in ("python", "native"):
        results[engine] = train(
            [real_text],
            TrainingOptions(
                vocab_size=900,
                special_tokens=[SPECIAL],
                pattern=pattern,
                num_workers=1 if engine == "python" else 3,
                chunk_bytes=None if engine == "python" else 20_000,
                engine=engine,
            ),
        )
    python, native = results["python"], results["native"]
    assert native.merges == python.merges
    assert native.vocab == python.vocab
    assert native.counts == python.counts
    figures = ("n_documents", "n_pre_tokens", "n_distinct_pre_tokens", "n_tokens")
    for figure in (*figures, "bytes_per_token", "n_bytes", "stopped_early"):
        assert getattr(native.report, figure) == getattr(python.report, figure)
