"""After a power loss at any moment, each store holds its old state or its new one.

strace records what each scenario does; `file_system.py` says which trees a power loss can leave;
each such tree is written to the disk, opened and used again.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.integration.power_loss.file_system import History, Tree, crash_states, write_tree
from tests.integration.power_loss.recorder import has_strace, record
from tests.integration.power_loss.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.skipif(not has_strace(), reason="no strace that may trace here")


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, History]:
    """What each scenario did, recorded in one process."""
    folder = tmp_path_factory.mktemp("recorded").resolve()
    folders = [folder / name for name in SCENARIOS]
    for path, make in zip(folders, SCENARIOS.values(), strict=True):
        path.mkdir()
        make().prepare(path)
    command = [sys.executable, "-m", "tests.integration.power_loss.scenarios", str(folder)]
    recorded = record(command, folders, folder / "log")
    return dict(zip(SCENARIOS, recorded, strict=True))


def expected_states(scenario: Scenario, folder: Path) -> list[object]:
    """The states before and after its steps."""
    states: list[object] = []
    (folder / "expected").mkdir()
    scenario.prepare(folder / "expected")

    def observe() -> None:
        shutil.copytree(folder / "expected", folder / "copy")
        states.append(scenario.observe(folder / "copy"))
        shutil.rmtree(folder / "copy")

    observe()
    scenario.run(folder / "expected", observe)
    return states


def damages(
    scenario: Scenario, crashed: Iterable[tuple[int, int, Tree]], states: list[object], folder: Path
) -> Iterator[str]:
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


def first_damage(
    name: str, history: History, folder: Path, n_states: int | None = None
) -> str | None:
    """What is wrong after a power loss during a scenario: in all states, or in this many."""
    states = expected_states(SCENARIOS[name](), folder)
    scenario = SCENARIOS[name]()
    n_samples = 64 if n_states is None else 8
    crashed = list(crash_states(history, n_samples=n_samples, unseen=scenario.unseen))
    if n_states is not None:
        crashed = random.Random(0).sample(crashed, min(n_states, len(crashed)))
    return next(damages(scenario, crashed, states, folder), None)


@pytest.mark.promise(1, 17)
@pytest.mark.parametrize("name", SCENARIOS)
def test_some_states_after_a_power_loss_are_the_old_or_the_new(name, histories, tmp_path):
    assert first_damage(name, histories[name], tmp_path, n_states=30) is None


@pytest.mark.slow
@pytest.mark.promise(1, 17)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_state_after_a_power_loss_is_the_old_or_the_new(name, histories, tmp_path):
    assert first_damage(name, histories[name], tmp_path) is None
