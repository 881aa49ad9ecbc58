"""The search for a Python: what it accepts, skips, and advises to install."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / ".ci" / "find-python"


class Machine:
    """A PATH with only the Pythons that a test adds."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.bin.mkdir()
        self.home.mkdir()

    def put(self, name: str, says: str = "", *, exit_code: int = 0, folder: Path | None = None):
        """A program that prints `says` for the script's question."""
        program = (folder or self.bin) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n[ -z '{says}' ] || echo '{says}'\nexit {exit_code}\n")
        program.chmod(0o755)

    def search(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self.bin), "HOME": str(self.home)}
        return subprocess.run(
            ["/bin/sh", SCRIPT, *arguments], env=environment, capture_output=True, text=True
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_takes_what_the_machine_calls_python(machine):
    machine.put("python3", "3.12 yes /usr/bin/python3")
    machine.put("python3.11", "3.11 yes /usr/bin/python3.11")
    found = machine.search()
    assert (found.returncode, found.stdout) == (0, "/usr/bin/python3\n")


def test_passes_over_names_that_do_not_run_and_versions_too_old(machine):
    machine.put("python3.13", exit_code=127)
    machine.put("python3", "3.9 yes /usr/bin/python3")
    machine.put("python3.11", "3.11 yes /opt/python3.11")
    assert machine.search().stdout == "/opt/python3.11\n"


def test_prefers_a_tested_version_to_a_newer_one_and_says_when_it_cannot(machine):
    machine.put("python3", "3.15 yes /usr/bin/python3")
    alone = machine.search()
    assert alone.stdout == "/usr/bin/python3\n"
    assert "newer than the tested versions" in alone.stderr
    machine.put("python3.11", "3.11 yes /opt/python3.11")
    assert machine.search().stdout == "/opt/python3.11\n"


def test_looks_under_pyenv_for_one_version(machine):
    machine.put("python3", "3.11 yes /usr/bin/python3")
    folder = machine.home / ".pyenv" / "versions" / "3.12.1" / "bin"
    machine.put("python", "3.12 yes /pyenv/3.12", folder=folder)
    assert machine.search("3.12").stdout == "/pyenv/3.12\n"


def test_without_venv_names_the_package(machine):
    machine.put("python3", "3.11 no /usr/bin/python3")
    found = machine.search()
    assert (found.returncode, found.stdout) == (1, "")
    assert "apt-get install python3.11-venv" in found.stderr


def test_with_venv_in_another_python_takes_that(machine):
    machine.put("python3", "3.11 no /usr/bin/python3")
    machine.put("python3.12", "3.12 yes /opt/python3.12")
    assert machine.search().stdout == "/opt/python3.12\n"


def test_without_python_says_what_to_install_and_what_it_found(machine):
    machine.put("python3", "3.9 yes /usr/bin/python3")
    found = machine.search()
    assert (found.returncode, found.stdout) == (1, "")
    assert "No Python 3.11 or newer" in found.stderr
    assert "Found only: 3.9." in found.stderr
    assert "apt-get install python3 python3-venv" in found.stderr


def test_finds_a_real_one_that_can_make_an_environment():
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    found = subprocess.run(
        ["/bin/sh", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    question = "import sys, venv, ensurepip; print(sys.version_info >= (3, 11))"
    answer = subprocess.run(
        [found.stdout.strip(), "-c", question], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "True\n"
