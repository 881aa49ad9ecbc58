"""Counting in shards by real worker processes, which are killed at random."""

import random
import threading

import psutil
import pytest

from tests.tokenizer_core.distributed.test_counting import (
    _work_is_importable,
    committed,
    corpus,
    distributed,
    local,
)
from tokenizer_core.parallel import LocalExecutor
from tokenizer_core.training import PretokenCounts

__all__ = ["_work_is_importable", "corpus"]


@pytest.mark.parametrize(("num_workers", "engine_name"), [(1, "python"), (2, "auto")])
def test_whoever_counts(corpus, tmp_path, num_workers, engine_name):
    seen = []
    found = distributed(
        corpus,
        ["<|e|>"],
        tmp_path,
        executor=LocalExecutor(num_workers),
        shard_bytes=9_000,
        n_partitions=3,
        engine=engine_name,
        progress=lambda *step: seen.append(step),
    )
    assert found == local(corpus, ["<|e|>"], tmp_path / "local")
    n_bytes = sum(file.stat().st_size for file in corpus)
    counted = [step for step in seen if step[0] == "count"]
    assert len(counted) > 9
    assert counted[-1] == ("count", n_bytes, n_bytes)
    assert seen[-1] == ("merge", 4, 4)


def test_it_goes_on_where_it_was(corpus, tmp_path):
    class EnoughError(Exception):
        pass

    def stop_at(part: float) -> object:
        def look(phase: str, done: int, total: int) -> None:
            if phase == "count" and done > part * total:
                raise EnoughError

        return look

    options = {"shard_bytes": 9_000, "n_partitions": 3}
    with pytest.raises(EnoughError):
        distributed(corpus, ["<|e|>"], tmp_path, progress=stop_at(0.5), **options)
    assert not (tmp_path / "out").exists()
    before = committed(tmp_path)
    assert 0 < len(before) < 12
    found = distributed(corpus, ["<|e|>"], tmp_path, executor=LocalExecutor(2), **options)
    assert found == local(corpus, ["<|e|>"], tmp_path / "local")
    assert before.items() <= committed(tmp_path).items()


def test_workers_are_killed_and_the_file_is_the_same(corpus, tmp_path):
    """A few kills at random moments: fewer than a shard may have."""
    rng, ended = random.Random(3), threading.Event()
    killed = []

    def kill() -> None:
        while not ended.wait(rng.uniform(0.05, 0.3)) and len(killed) < 3:
            workers = [p for p in psutil.Process().children() if "worker" in " ".join(p.cmdline())]
            if workers:
                victim = rng.choice(workers)
                victim.kill()
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = distributed(
            corpus * 6, ["<|e|>"], tmp_path, executor=LocalExecutor(2), shard_bytes=20_000
        )
    finally:
        ended.set()
        killer.join()
    assert killed
    assert found == local(corpus * 6, ["<|e|>"], tmp_path / "local")
    assert PretokenCounts.load(tmp_path / "out").n_pre_tokens > 0
