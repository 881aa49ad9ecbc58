"""After a power loss at any moment, each store holds its old state or its new one.

strace records what each scenario does; `file_system.py` says which trees a power loss can leave;
each such tree is written to the disk, opened and used again.
"""

import os
import random
import shutil
import sys

import pytest

from tests.integration.power_loss.file_system import (
    ROOT,
    FileSystem,
    History,
    Link,
    Mark,
    Rename,
    Sync,
    Truncate,
    Unlink,
    Write,
    crash_states,
    write_tree,
)
from tests.integration.power_loss.recorder import has_strace, record
from tests.integration.power_loss.scenarios import SCENARIOS

pytestmark = pytest.mark.skipif(not has_strace(), reason="no strace that may trace here")


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    """What each scenario did, recorded in one process."""
    folder = tmp_path_factory.mktemp("recorded").resolve()
    folders = [folder / name for name in SCENARIOS]
    for path in folders:
        path.mkdir()
    command = [sys.executable, "-m", "tests.integration.power_loss.scenarios", str(folder)]
    recorded = record(command, folders, folder / "log")
    return dict(zip(SCENARIOS, recorded, strict=True))


def expected_states(scenario, folder):
    """The states before and after its steps."""
    states = []
    (folder / "expected").mkdir()

    def observe():
        shutil.copytree(folder / "expected", folder / "copy")
        states.append(scenario.observe(folder / "copy"))
        shutil.rmtree(folder / "copy")

    observe()
    scenario.run(folder / "expected", observe)
    return states


def damages(scenario, crashed, states, folder):
    """What is wrong with the trees that a power loss left after some steps."""
    for n_ended, n_begun, tree in crashed:
        write_tree(folder / "crashed", tree)
        possible = states[n_ended : n_begun + 1]
        try:
            state = scenario.observe(folder / "crashed")
            found = "" if state in possible else f"neither old nor new: {state!r:.500}"
            scenario.go_on(folder / "crashed")
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        shutil.rmtree(folder / "crashed")
        if found:
            yield f"after {n_ended} steps: {found}\n{sorted(tree)}"


@pytest.fixture(autouse=True)
def does_not_sync(monkeypatch):
    """This process need not sync, which would only take time; the recorded one does."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.promise(1, 17)
@pytest.mark.parametrize("n_states", [30, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_states_after_a_power_loss_are_the_old_or_the_new(name, n_states, histories, tmp_path):
    """In this many states, or in all."""
    states = expected_states(SCENARIOS[name](), tmp_path)
    scenario = SCENARIOS[name]()
    n_samples = 64 if n_states is None else 8
    crashed = list(crash_states(histories[name], n_samples=n_samples, unseen=scenario.unseen))
    if n_states is not None:
        crashed = random.Random(0).sample(crashed, min(n_states, len(crashed)))
    assert next(damages(scenario, crashed, states, tmp_path), None) is None


OLD, NEW, FOLDER = 1, 2, 3


def states(*operations):
    """What a power loss leaves of operations on a folder that holds the file `x`."""
    before = FileSystem({ROOT: {"x": OLD}}, {OLD: b"old"})
    history = History(before, operations, frozenset({FOLDER}))
    return [tree for _, n_begun, tree in crash_states(history) if n_begun]


def test_what_no_sync_covers_may_be_lost_in_any_order():
    write = [Link(ROOT, "new", NEW), Write(NEW, 0, b"new")]
    rename = Rename(ROOT, "new", ROOT, "x", NEW)
    assert {"x": b""} in states(*write, rename)
    assert {"x": b"\0\0\0"} in states(*write, rename)
    assert {tree["x"] for tree in states(*write, Sync(NEW), rename)} == {b"old", b"new"}
    assert {"x": b"old", "b": b""} in states(Link(ROOT, "a", NEW), Link(ROOT, "b", FOLDER + 1))
    assert {} in states(Link(ROOT, "a", NEW), Unlink(ROOT, "x"))
    assert {"x": b"\0\0\0\0\0end"} in states(Truncate(OLD, 0), Write(OLD, 5, b"end"))
    for synced, expected in (([], [{}, {"new": b"new"}]), ([Sync(ROOT)], [{"new": b"new"}])):
        history = History(FileSystem(), [*write, Sync(NEW), *synced, Mark()])
        assert [tree for n_ended, _, tree in crash_states(history) if n_ended] == expected


def test_a_write_is_torn_at_blocks_only():
    data = b"1" * 512 + b"2" * 512
    found = {tree["x"] for tree in states(Truncate(OLD, 0), Sync(OLD), Write(OLD, 0, data))}
    assert found == {b"old", b"", bytes(1024), data[:512], bytes(512) + data[512:], data}
