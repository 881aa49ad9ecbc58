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
    command = [
        sys.executable,
        "-m",
        "tests.integration.power_loss.scenarios",
        name,
        str(folder / "recorded"),
    ]
    history = record(command, folder / "recorded", folder / "log")
    return history, states


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


def first_damage(name: str, folder: Path, n_states: int | None = None) -> str | None:
    """What is wrong after a power loss during a scenario: in all states, or in this many."""
    history, states = recorded(name, folder)
    scenario = SCENARIOS[name]()
    n_samples = 64 if n_states is None else 8
    crashed = list(crash_states(history, n_samples=n_samples, unseen=scenario.unseen))
    if n_states is not None:
        crashed = random.Random(0).sample(crashed, min(n_states, len(crashed)))
    return next(damages(scenario, crashed, states, folder), None)


@pytest.mark.promise(1, 17)
@pytest.mark.parametrize("name", SCENARIOS)
def test_some_states_after_a_power_loss_are_the_old_or_the_new(name, tmp_path):
    assert first_damage(name, tmp_path, n_states=40) is None


@pytest.mark.slow
@pytest.mark.promise(1, 17)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_state_after_a_power_loss_is_the_old_or_the_new(name, tmp_path):
    assert first_damage(name, tmp_path) is None
