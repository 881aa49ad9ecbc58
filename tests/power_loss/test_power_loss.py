"""After a power loss at any moment, each store holds its old state or its new one.

strace records what each scenario does; `file_system.py` says which trees a power loss can leave;
each such tree is written to the disk, opened and used again.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.power_loss.file_system import (
    ROOT,
    History,
    Link,
    Rename,
    Sync,
    Tree,
    Unlink,
    crash_states,
    is_idle,
    write_tree,
)
from tests.power_loss.recorder import has_strace, record
from tests.power_loss.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.skipif(not has_strace(), reason="no strace that may trace here")

QUICK = ["registry", "corpora", "checkpoints, raw", "token files of a job"]

HARMLESS: dict[str, set[str]] = {
    "registry": {"tokenizers after .staging"},  # the next writer makes it again
    # As above; and the file of a `create` that found the name taken.
    "storage": {"storage after .staging", "32 hex digits"},
    "corpora": set(),
    "checkpoints, raw": set(),
    "id of a folder": set(),
}
"""The syncs of a scenario that may be missing, as `_show` shows them. SQLite's are its own."""


def recorded(name: str, folder: Path) -> tuple[History, list[object]]:
    """What a scenario did, and the states before and after its steps."""
    scenario, states = SCENARIOS[name](), []
    for part in ("expected", "recorded"):
        (folder / part).mkdir()
        scenario.prepare(folder / part)

    def observe() -> None:
        shutil.copytree(folder / "expected", folder / "copy")
        states.append(scenario.observe(folder / "copy"))
        shutil.rmtree(folder / "copy")

    observe()
    scenario.run(folder / "expected", observe)
    command = [sys.executable, "-m", "tests.power_loss.scenarios", name, str(folder / "recorded")]
    history = record(command, folder / "recorded", folder / "log")
    return history, states


def damages(
    scenario: Scenario, crashed: Iterable[tuple[int, int, Tree]], states: list[object], folder: Path
) -> Iterator[str]:
    """What is wrong with the trees that a power loss left after some steps."""
    for n_ended, n_begun, tree in crashed:
        write_tree(folder / "crashed", tree)
        possible = states[n_ended if scenario.is_durable else 0 : n_begun + 1]
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
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.thorough) for n in SCENARIOS])
def test_a_power_loss_leaves_the_old_state_or_the_new(name, tmp_path):
    history, states = recorded(name, tmp_path)
    scenario = SCENARIOS[name]()
    crashed = crash_states(history, unseen=scenario.unseen)
    found = next(damages(scenario, crashed, states, tmp_path), None)
    assert found is None, found


@pytest.mark.parametrize("name", QUICK)
def test_some_of_the_states_that_a_power_loss_leaves(name, tmp_path):
    history, states = recorded(name, tmp_path)
    crashed = list(crash_states(history, n_samples=8))
    some = random.Random(0).sample(crashed, 30)
    found = next(damages(SCENARIOS[name](), some, states, tmp_path), None)
    assert found is None, found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", HARMLESS)
def test_without_any_one_of_the_syncs_something_is_lost(name, tmp_path):
    history, states = recorded(name, tmp_path)
    scenario, missed = SCENARIOS[name](), []
    for index, operation in enumerate(history.operations):
        if isinstance(operation, Sync) and not is_idle(history, index):
            without = history.without(index)
            crashed = crash_states(without, first=index, unseen=scenario.unseen)
            if next(damages(scenario, crashed, states, tmp_path), None) is None:
                missed.append(_show(history, index))
    assert set(missed) == HARMLESS[name]


def _show(history: History, index: int) -> str:
    """The file or folder that an operation syncs, and the last change of a name before it."""
    synced = history.operations[index]
    assert isinstance(synced, Sync)
    names, last = {ROOT: "root"}, ""
    for operation in history.operations[:index]:
        match operation:
            case Link(folder, name, node) | Rename(_, _, folder, name, node):
                names[node] = name
                last = f" after {name}" if folder == synced.node else last
            case Unlink(folder, name) if folder == synced.node:
                last = " after a removal"
    return re.sub(r"\b[0-9a-f]{32}\b", "32 hex digits", names.get(synced.node, "a file") + last)
