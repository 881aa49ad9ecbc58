"""Runs on real worker processes, which are killed: the result is the same."""

import random
import threading

import psutil

from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_core.distributed import dying_work
from tests.tokenizer_core.distributed.test_counting import (
    _work_is_importable,
    corpus,
    distributed,
    local,
)
from tests.tokenizer_core.distributed.test_encoding import corpus as encoded_corpus
from tests.tokenizer_core.distributed.test_encoding import distribute
from tokenizer_core.parallel import LocalExecutor
from tokenizer_core.training import PretokenCounts

__all__ = ["_work_is_importable", "corpus", "encoded_corpus"]


def test_killed_workers_change_no_byte(tmp_path, encoded_corpus):
    files, plan = encoded_corpus
    (tmp_path / "notes").mkdir()
    executor = dying_work.DyingExecutor(LocalExecutor(2), tmp_path / "notes")
    found = distribute(tmp_path, files, plan, executor=executor, validation_share=0.3)
    assert found == content(tmp_path / "expected")
    assert len(list((tmp_path / "notes").iterdir())) == 2


def test_workers_are_killed_and_the_file_is_the_same(corpus, tmp_path):
    """Kills at random moments, fewer than the attempts of a shard."""
    rng, ended = random.Random(3), threading.Event()
    killed = []

    def kill() -> None:
        while not ended.wait(rng.uniform(0.05, 0.3)) and len(killed) < 2:
            workers = [p for p in psutil.Process().children() if "worker" in " ".join(p.cmdline())]
            if workers:
                victim = rng.choice(workers)
                victim.kill()
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = distributed(
            corpus * 4, ["<|e|>"], tmp_path, executor=LocalExecutor(2), shard_bytes=20_000
        )
    finally:
        ended.set()
        killer.join()
    assert killed
    assert found == local(corpus * 4, ["<|e|>"], tmp_path / "local")
    assert PretokenCounts.load(tmp_path / "out").n_pre_tokens > 0
