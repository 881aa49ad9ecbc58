"""The searches of `.ci` for a Python and a cargo: what they accept, skip, and advise to install."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

CARGO_FILE = REPOSITORY / "tokenizer_core" / "native" / "Cargo.toml"
NEEDED = re.search(r'^rust-version = "1\.(\d+)"$', CARGO_FILE.read_text("utf-8"), re.MULTILINE)

has_own_cargo = pytest.mark.skipif(
    Path("/usr/bin/cargo").exists(), reason="a cargo stands where the script's own tools do"
)


class Machine:
    """A home and a folder of programs that print what a test says."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.home = folder / "bin", folder / "home"
        self.bin.mkdir()
        self.home.mkdir()

    def put(self, name: str, says: str = "", *, exit_code: int = 0, folder: Path | None = None):
        program = (folder or self.bin) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n[ -z '{says}' ] || echo '{says}'\nexit {exit_code}\n")
        program.chmod(0o755)

    def put_cargo(self, minor: int, patch: str = "0", *, folder: Path | None = None) -> None:
        self.put("cargo", f"cargo 1.{minor}.{patch} (0123abcd 2026-01-01)", folder=folder)

    def find_python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("/bin/sh", ".ci/find-python", *arguments, path=str(self.bin))

    def find_cargo(self) -> subprocess.CompletedProcess[str]:
        return self._run(".ci/find-cargo", "--no-install", path=f"{self.bin}:/usr/bin:/bin")

    def _run(self, *command: str, path: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": path, "HOME": str(self.home), "LC_ALL": "C"}
        return subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        # what the machine calls python
        ({"python3": "3.12 yes /usr/bin/python3", "python3.11": "3.11 yes /b"}, "/usr/bin/python3"),
        # one that does not run, one that is too old
        ({"python3.13": "", "python3": "3.9 yes /a", "python3.11": "3.11 yes /b"}, "/b"),
        # a tested version before a newer one
        ({"python3": "3.15 yes /a", "python3.11": "3.11 yes /b"}, "/b"),
        # one with venv
        ({"python3": "3.11 no /a", "python3.12": "3.12 yes /b"}, "/b"),
    ],
)
def test_a_suitable_python_is_found(machine, programs, found):
    for name, says in programs.items():
        machine.put(name, says, exit_code=0 if says else 127)
    search = machine.find_python()
    assert (search.returncode, search.stdout) == (0, f"{found}\n")


def test_a_version_is_looked_for_under_pyenv(machine):
    machine.put("python3", "3.11 yes /usr/bin/python3")
    folder = machine.home / ".pyenv" / "versions" / "3.12.1" / "bin"
    machine.put("python", "3.12 yes /pyenv/3.12", folder=folder)
    assert machine.find_python("3.12").stdout == "/pyenv/3.12\n"


@pytest.mark.parametrize(
    ("says", "code", "advice"),
    [
        ("3.15 yes /a", 0, "newer than the tested versions"),
        ("3.11 no /a", 1, "apt-get install python3.11-venv"),
        ("3.9 yes /a", 1, "Found only: 3.9."),
    ],
)
def test_the_only_python_gets_advice(machine, says, code, advice):
    machine.put("python3", says)
    search = machine.find_python()
    assert (search.returncode, search.stdout) == (code, "" if code else "/a\n")
    assert advice in search.stderr


def test_a_real_python_can_make_an_environment(machine):
    (machine.bin / "python3").symlink_to(sys.executable)
    python = machine.find_python().stdout.strip()
    question = "import sys, venv, ensurepip; print(sys.version_info >= (3, 11))"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=True)
    assert answer.stdout == "True\n"


@has_own_cargo
def test_a_cargo_that_is_new_enough_is_found_on_the_path_or_at_home(machine):
    minor, at_home = int(NEEDED[1]), machine.home / ".cargo" / "bin"
    # As text it sorts before the one that is needed.
    machine.put_cargo(minor + 100, "0-nightly")
    assert machine.find_cargo().stdout == f"{machine.bin}\n"
    machine.put_cargo(minor - 1, "9")
    refused = machine.find_cargo()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"{machine.bin}/cargo is 1.{minor - 1}.9" in refused.stderr
    assert f"Rust 1.{minor} or newer" in refused.stderr
    machine.put_cargo(minor, folder=at_home)
    assert machine.find_cargo().stdout == f"{at_home}\n"


@has_own_cargo
def test_without_a_cargo_nothing_is_printed(machine):
    nothing = machine.find_cargo()
    assert (nothing.returncode, nothing.stdout) == (1, "")
