"""Runs on real worker processes, which are killed: the result is the same."""

from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_core.distributed.conftest import _work_is_importable
from tests.tokenizer_core.distributed.shard_work import DyingExecutor
from tests.tokenizer_core.distributed.test_counting import corpus, distributed, local
from tests.tokenizer_core.distributed.test_encoding import corpus as encoded_corpus
from tests.tokenizer_core.distributed.test_encoding import distribute
from tokenizer_core.parallel import LocalExecutor

__all__ = ["_work_is_importable", "corpus", "encoded_corpus"]


def test_killed_workers_change_no_byte(tmp_path, corpus, encoded_corpus):
    files, plan = encoded_corpus
    for name in ("encoding", "counting"):
        (tmp_path / name).mkdir()
    executor = DyingExecutor(LocalExecutor(2), tmp_path / "encoding")
    found = distribute(tmp_path, files, plan, executor=executor, validation_share=0.3)
    assert found == content(tmp_path / "expected")
    how = {"executor": DyingExecutor(LocalExecutor(2), tmp_path / "counting"), "shard_bytes": 9_000}
    found = distributed(corpus, ["<|e|>"], tmp_path, **how)
    assert found == local(corpus, ["<|e|>"], tmp_path / "local")
    for name in ("encoding", "counting"):
        assert len(list((tmp_path / name).glob("be*"))) == 2, "no worker died"
