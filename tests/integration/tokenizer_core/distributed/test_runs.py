"""Runs on real worker processes: kills cost an attempt, and a failing shard is named."""

import pytest

from tests.tokenizer_core.distributed import shard_work
from tests.tokenizer_core.distributed.test_runs import (
    TWO,
    _work_is_importable,
    figures,
    notes,
    run,
    stage,
)
from tokenizer_core.distributed.runs import MAX_ATTEMPTS
from tokenizer_core.errors import ShardFailedError

__all__ = ["_work_is_importable", "notes", "run"]


def test_a_killed_worker_costs_a_try(run, notes):
    assert figures(run, shard_work.killed_once, TWO, str(notes)) == [0, 2, 4, 6, 8, 10]
    assert len(list(notes.iterdir())) == 3


@pytest.mark.parametrize("work", [shard_work.killed_always, shard_work.failing_always])
def test_a_shard_that_always_fails_is_named(run, work):
    with pytest.raises(ShardFailedError, match=r"shard 3 of the stage 'double' failed 3 times"):
        run.carry_out([stage(work)], TWO)
    assert MAX_ATTEMPTS == 3
    assert len(run.storage.names(f"{run.id}/double/")) == 5
