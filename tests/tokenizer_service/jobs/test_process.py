"""How much memory the system gives to this process."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tokenizer_service.jobs import process
from tokenizer_service.jobs.process import available_memory_bytes

MACHINE = psutil.virtual_memory().total


def put(folder: Path, name: str, value: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"{value}\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(process, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(process, "_OWN_GROUPS", tmp_path / "own")
    return tmp_path / "cgroup"


def test_without_groups_the_memory_is_that_of_the_machine(groups: Path) -> None:
    assert available_memory_bytes() == MACHINE
    put(groups.parent, "own", "0::/")
    assert available_memory_bytes() == MACHINE


def test_a_limit_of_version_2_holds_for_all_groups_below(groups: Path) -> None:
    put(groups.parent, "own", "0::/a/b")
    for limited in ("", "a", "a/b"):
        for name in ("", "a", "a/b"):
            put(groups / name, "memory.max", "4096" if name == limited else "max")
        assert available_memory_bytes() == 4096


def test_a_container_sees_its_own_limit_at_the_root(groups: Path) -> None:
    put(groups.parent, "own", "0::/../outside")
    put(groups, "memory.max", "4096")
    assert available_memory_bytes() == 4096


def test_a_limit_of_version_1(groups: Path) -> None:
    put(groups.parent, "own", "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/")
    put(groups / "memory/a/b", "memory.limit_in_bytes", str((1 << 63) - 4096))
    assert available_memory_bytes() == MACHINE
    put(groups / "memory/a", "memory.limit_in_bytes", "4096")
    assert available_memory_bytes() == 4096


def test_a_limit_above_the_memory_of_the_machine_changes_nothing(groups: Path) -> None:
    put(groups.parent, "own", "0::/")
    put(groups, "memory.max", str(2 * MACHINE))
    assert available_memory_bytes() == MACHINE
