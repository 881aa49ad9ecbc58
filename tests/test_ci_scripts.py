"""The searches of `.ci` for a Python and a cargo: what they accept, skip, and advise to install."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.test_house import PROJECT

CARGO_FILE = REPOSITORY / "tokenizer_core" / "native" / "Cargo.toml"


class Machine:
    """A home and a folder of programs that print what a test says."""

    def __init__(self, folder):
        self.bin, self.home = folder / "bin", folder / "home"
        self.bin.mkdir()
        self.home.mkdir()

    def put(self, name, says="", *, exit_code=0, folder=None):
        program = (folder or self.bin) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n[ -z '{says}' ] || echo '{says}'\nexit {exit_code}\n")
        program.chmod(0o755)

    def run(self, *command, path=""):
        environment = {"PATH": f"{self.bin}{path}", "HOME": str(self.home), "LC_ALL": "C"}
        return subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True
        )

    def find_python(self, *arguments):
        return self.run("/bin/sh", ".ci/find-python", *arguments)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("programs", "found", "advice"),
    [
        # what the machine calls python
        ({"python3": "3.12 yes /python3", "python3.11": "3.11 yes /b"}, "/python3", ""),
        # one that does not run, one that is too old
        ({"python3.13": "", "python3": "3.9 yes /a", "python3.11": "3.11 yes /b"}, "/b", ""),
        # a tested version before a newer one
        ({"python3": "3.15 yes /a", "python3.11": "3.11 yes /b"}, "/b", ""),
        # one with venv
        ({"python3": "3.11 no /a", "python3.12": "3.12 yes /b"}, "/b", ""),
        ({"python3": "3.15 yes /a"}, "/a", "newer than the tested versions"),
        ({"python3": "3.11 no /a"}, "", "apt-get install python3.11-venv"),
        ({"python3": "3.9 yes /a"}, "", "Found only: 3.9."),
    ],
)
def test_a_suitable_python_is_found_or_advised(machine, programs, found, advice):
    for name, says in programs.items():
        machine.put(name, says, exit_code=0 if says else 127)
    search = machine.find_python()
    assert search.stdout == (f"{found}\n" if found else "")
    assert search.returncode == (0 if found else 1)
    assert advice in search.stderr


def test_a_version_is_looked_for_under_pyenv(machine):
    machine.put("python3", "3.11 yes /usr/bin/python3")
    folder = machine.home / ".pyenv" / "versions" / "3.12.1" / "bin"
    machine.put("python", "3.12 yes /pyenv/3.12", folder=folder)
    assert machine.find_python("3.12").stdout == "/pyenv/3.12\n"


def test_a_real_python_can_make_an_environment(machine):
    (machine.bin / "python3").symlink_to(sys.executable)
    python = machine.find_python().stdout.strip()
    question = "import sys, venv, ensurepip; print(sys.version_info >= (3, 11))"
    assert subprocess.check_output([python, "-c", question], text=True) == "True\n"


@pytest.mark.skipif(
    Path("/usr/bin/cargo").exists(), reason="a cargo stands where the script's own tools do"
)
def test_a_cargo_that_is_new_enough_is_found_on_the_path_or_at_home(machine):
    needed = re.search(r'^rust-version = "1\.(\d+)"$', CARGO_FILE.read_text("utf-8"), re.MULTILINE)
    minor, at_home = int(needed[1]), machine.home / ".cargo" / "bin"

    def find_cargo():
        return machine.run(".ci/find-cargo", "--no-install", path=":/usr/bin:/bin")

    nothing = find_cargo()
    assert (nothing.returncode, nothing.stdout) == (1, "")
    # As text it sorts before the one that is needed.
    machine.put("cargo", f"cargo 1.{minor + 100}.0-nightly (0123abcd 2026-01-01)")
    assert find_cargo().stdout == f"{machine.bin}\n"
    machine.put("cargo", f"cargo 1.{minor - 1}.9 (0123abcd 2026-01-01)")
    refused = find_cargo()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"{machine.bin}/cargo is 1.{minor - 1}.9" in refused.stderr
    assert f"Rust 1.{minor} or newer" in refused.stderr
    machine.put("cargo", f"cargo 1.{minor}.0 (0123abcd 2026-01-01)", folder=at_home)
    assert find_cargo().stdout == f"{at_home}\n"


def test_the_parts_of_a_release_are_its_packages_and_crates(tmp_path):
    lock = tmp_path / "pylock.toml"
    lock.write_text('[[packages]]\nname = "numpy"\nversion = "2.4.6"\n')
    command = [sys.executable, ".ci/sbom", lock, CARGO_FILE.with_name("Cargo.lock")]
    table = json.loads(subprocess.check_output(command, cwd=REPOSITORY))
    assert (table["bomFormat"], table["specVersion"]) == ("CycloneDX", "1.6")
    product = table["metadata"]["component"]
    assert (product["name"], product["version"]) == (PROJECT["name"], PROJECT["version"])
    package, *crates = table["components"]
    assert package["purl"] == "pkg:pypi/numpy@2.4.6"
    assert "pyo3" in {crate["name"] for crate in crates}
    assert {len(crate["hashes"][0]["content"]) for crate in crates} == {64}
    purls = [part["purl"] for part in table["components"]]
    assert len(set(purls)) == len(purls)
    assert table["dependencies"][0]["dependsOn"] == purls
