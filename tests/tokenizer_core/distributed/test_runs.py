"""Runs: every shard done once, resumable, with workers that die, resume late or finish second."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.tokenizer_core.distributed import shard_work
from tokenizer_core.distributed import Attempt, Run, Stage, runs
from tokenizer_core.distributed.committed_shards import scratch_folder
from tokenizer_core.distributed.runs import _attempt, _Task, _Work
from tokenizer_core.errors import CorpusError, RunConflictError, RunError, ShardFailedError
from tokenizer_core.parallel import LocalExecutor

HERE, TWO = LocalExecutor(1), LocalExecutor(2)
SETTINGS = {"inputs": ["a", "b"], "pattern": "gpt2"}


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run", SETTINGS)


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def stage(work, n_shards=6, state=None):
    return Stage("double", work, range(n_shards), state)


def figures(run, work, executor, state=None):
    done = run.carry_out([stage(work, state=state)], executor)["double"]
    for manifest in done:
        assert manifest.figures["doubled"] == int(
            run.storage.read(manifest.files["doubled"].name, max_bytes=9)
        )
    return [manifest.figures["doubled"] for manifest in done]


def attempts(run):
    return run.storage.names(f"{run.id}/attempts/")


def test_every_shard_is_done_and_committed(run):
    assert json.loads(run.storage.read("run.json", max_bytes=999)) == SETTINGS
    run.storage.put(f"{run.id}/double/notes", b"x")  # no manifest
    seen = []
    other = Stage("other", shard_work.double, [7], 3)
    done = run.carry_out([stage(shard_work.double, state=2), other], TWO, on_commit=seen.append)
    assert [m.figures["doubled"] for m in done["double"]] == [0, 2, 4, 6, 8, 10]
    assert [m.figures["doubled"] for m in done["other"]] == [21]
    assert sorted(m.shard for m in seen) == [0, 0, 1, 2, 3, 4, 5]
    assert len(attempts(run)) == 7


def test_a_committed_shard_is_not_done_again(run, notes):
    with pytest.raises(ShardFailedError):
        run.carry_out([stage(shard_work.failing_always)], HERE)
    assert len(attempts(run)) == 5, "the failed attempt leaves no file"
    seen = []
    again = stage(shard_work.double_noted, state=str(notes))
    run.carry_out([again], HERE, on_commit=seen.append)
    assert [note.name.partition("-")[0] for note in notes.iterdir()] == ["3"]
    assert len(seen) == 6


def test_a_run_that_cannot_succeed_tries_few_shards(run, monkeypatch):
    monkeypatch.setattr(runs, "MANY_FAILURES", 4)
    tried = []
    monkeypatch.setattr(runs.Attempt, "discard", lambda attempt: tried.append(attempt))
    with pytest.raises(ShardFailedError, match="shard 0 of the stage 'double' failed 3 times"):
        run.carry_out([stage(shard_work.secretive, 1000)], HERE)
    assert len(tried) == 4 + 4 + 1


def test_the_error_has_the_last_reason_and_no_secret(run):
    with pytest.raises(ShardFailedError, match=r"OSError: No space left on device"):
        run.carry_out([stage(shard_work.failing_always)], HERE)
    with pytest.raises(ShardFailedError, match=r"RuntimeError") as caught:
        run.carry_out([Stage("other", shard_work.secretive, [0])], HERE)
    assert "password" not in str(caught.value)


def test_invalid_data_stops_the_run_at_once(run):
    with pytest.raises(CorpusError, match="byte 7"):
        run.carry_out([stage(shard_work.bad_data)], HERE)
    assert len(run.storage.names(f"{run.id}/double/")) == 2


def test_cancelling_ends_the_workers(run, notes):
    class CancelledError(Exception):
        pass

    def cancel():
        if any(notes.iterdir()):
            raise CancelledError

    with pytest.raises(CancelledError):
        run.carry_out([stage(shard_work.slow, state=str(notes))], TWO, while_waiting=cancel)
    assert not any(Path("/proc", note.name.partition("-")[2]).exists() for note in notes.iterdir())


def test_a_late_worker_changes_nothing(run, tmp_path):
    """Stopped between its file and its manifest; another attempt did the shard meanwhile."""
    late = Attempt(run.storage, run.id, "double", 0, tmp_path)
    late.put("doubled", b"late")
    first = Attempt(run.storage, run.id, "double", 0, tmp_path)
    first.put("doubled", b"0")
    done = first.commit({"doubled": 0})
    # As if the storage had created the manifest, and its response had been lost.
    assert first.commit({"doubled": 0}) == late.commit({"doubled": "late"}) == done
    assert figures(run, shard_work.double, HERE, 2)[0] == 0
    assert b"late" not in [run.storage.read(name, max_bytes=9999) for name in attempts(run)]
    assert len(attempts(run)) == 6


def test_a_late_attempt_reads_the_committed_shard(run, notes, tmp_path):
    work = _Work(
        str(tmp_path / "run"), run.id, None, {"double": (shard_work.double_noted, str(notes))}
    )
    assert _attempt(work, _Task("double", 1, 1)) == _attempt(work, _Task("double", 1, 1))
    assert len(list(notes.iterdir())) == 1


def test_a_run_with_other_settings_is_refused(run, tmp_path):
    Run(tmp_path / "run", dict(reversed(SETTINGS.items())))
    with pytest.raises(RunConflictError, match=r"\(inputs, seed differ\)"):
        Run(tmp_path / "run", {"pattern": "gpt2", "inputs": ["a"], "seed": 1})
    shutil.rmtree(tmp_path / "run")
    Run(tmp_path / "run", {"pattern": "gpt2", "inputs": ["a"]})


def test_a_damaged_manifest_is_named(run):
    figures(run, shard_work.double, HERE, 2)
    name = f"{run.id}/double/000003.json"
    data = run.storage.read(name, max_bytes=1 << 16)
    changed = data.replace(b'"doubled": 6', b'"doubled": 7')
    assert changed != data
    for damaged in (b"", b"[]", b'{"stage": 1}', b"\xff", changed):
        run.storage.put(name, damaged)
        with pytest.raises(RunError, match=r"double/000003\.json .* is damaged"):
            figures(run, shard_work.double, HERE, 2)


def test_a_changed_file_of_a_shard_is_named(run, tmp_path):
    file = run.carry_out([stage(shard_work.double, state=2)], HERE)["double"][4].files["doubled"]
    file.fetch(run.storage, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"8"
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_bytes)
        file.fetch(run.storage, tmp_path / "pipe")
        assert read.result(timeout=60) == b"8"
    run.storage.put(file.name, b"9")
    with pytest.raises(RunError, match="is not what was written"):
        file.fetch(run.storage, tmp_path / "fetched")
    run.storage.remove(file.name)
    with pytest.raises(RunError, match="is gone"):
        file.fetch(run.storage, tmp_path / "fetched")


@pytest.mark.parametrize("n_removed", [0, 3, 9])
def test_an_interrupted_removal_loses_no_file(run, monkeypatch, n_removed):
    figures(run, shard_work.double, HERE, 2)
    remove, left = run.storage.remove, [1] * n_removed
    monkeypatch.setattr(run.storage, "remove", lambda name: (left.pop(), remove(name)))
    with pytest.raises(IndexError):
        run.remove()
    monkeypatch.undo()
    assert figures(run, shard_work.double, HERE, 2) == [0, 2, 4, 6, 8, 10]
    run.remove()
    assert run.storage.names() == []


def test_scratch_folders_of_dead_processes_are_removed(tmp_path):
    (tmp_path / "tokenizer-run-dead").mkdir()
    (tmp_path / "tokenizer-run-dead" / "file").touch()
    with scratch_folder(tmp_path) as one, scratch_folder(tmp_path) as two:
        assert sorted(tmp_path.iterdir()) == sorted([one, two])
    assert list(tmp_path.iterdir()) == []
