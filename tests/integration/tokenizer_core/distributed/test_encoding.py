"""Distributed encoding by real worker processes, which are killed."""

import contextlib
import random
import threading

import psutil
import pytest

from tests.tokenizer_core.corpus.small_corpora import content
from tests.tokenizer_core.distributed import dying_work
from tests.tokenizer_core.distributed.test_encoding import corpus, distribute
from tokenizer_core import Tokenizer
from tokenizer_core.corpus import (
    CorpusFormat,
    encode_corpus,
    plan_token_files,
)
from tokenizer_core.distributed.encoding import encode_distributed
from tokenizer_core.errors import (
    ShardFailedError,
)
from tokenizer_core.parallel import LocalExecutor

__all__ = ["corpus"]


def test_killed_workers_change_no_byte(tmp_path, corpus):
    files, plan = corpus
    (tmp_path / "notes").mkdir()
    executor = dying_work.DyingExecutor(LocalExecutor(2), tmp_path / "notes")
    found = distribute(tmp_path, files, plan, executor=executor, validation_share=0.3)
    assert found == content(tmp_path / "expected")
    assert len(list((tmp_path / "notes").iterdir())) == 2


def _kill_workers(ended: threading.Event, killed: list[int], draws: random.Random) -> None:
    """At random moments, few enough that the run completes."""
    while not ended.wait(draws.uniform(0.3, 1.5)) and len(killed) < 8:
        with contextlib.suppress(psutil.Error):  # one has just ended
            workers = [
                process
                for process in psutil.Process().children()
                if "tokenizer_core.parallel.worker" in " ".join(process.cmdline())
            ]
            if workers:
                victim = draws.choice(workers)
                victim.kill()
                killed.append(victim.pid)


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("seed", range(3))
def test_workers_killed_at_random_moments_over_all_corpora(shared_data, tmp_path, seed):
    tokenizer = Tokenizer.from_tokenizer_json(shared_data / "vocab/gpt2.tokenizer.json")
    files = sorted((shared_data / "corpora").glob("*.txt"))
    plan = plan_token_files(tokenizer, end_of_document="<|endoftext|>", seed=seed)
    how = {"corpus_format": CorpusFormat(separator="\n"), "validation_share": 0.1}
    encode_corpus(tokenizer, files, tmp_path / "expected", plan, workers=2, **how)  # type: ignore[arg-type]
    options = {"storage": tmp_path / "run", "shard_bytes": 4 << 20, "resume": True, **how}
    ended, killed = threading.Event(), []
    killer = threading.Thread(target=_kill_workers, args=(ended, killed, random.Random(seed)))
    killer.start()
    try:
        while not (tmp_path / "tokens").exists():
            # A run ends correctly when one of its shards loses its worker three times.
            with contextlib.suppress(ShardFailedError):
                encode_distributed(
                    tokenizer,
                    files,
                    tmp_path / "tokens",
                    plan,
                    executor=LocalExecutor(2),
                    **options,  # type: ignore[arg-type]
                )
    finally:
        ended.set()
        killer.join()
    assert len(killed) >= 3
    assert content(tmp_path / "tokens") == content(tmp_path / "expected")
