"""`.ci/find-cargo` prints a folder only if its cargo can build the engine."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(
    Path("/usr/bin/cargo").exists(), reason="a cargo stands where the script's own tools do"
)
NEEDED = re.search(
    r'^rust-version = "(\d+)\.(\d+)"$',
    (REPOSITORY / "tokenizer_core" / "native" / "Cargo.toml").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def find(path: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [".ci/find-cargo", "--no-install"],
        cwd=REPOSITORY,
        env={"PATH": f"{path}:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C"},
        capture_output=True,
        text=True,
    )


def put_cargo(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    cargo = folder / "cargo"
    cargo.write_text(f"#!/bin/sh\necho 'cargo {version} (0123abcd 2026-01-01)'\n")
    cargo.chmod(0o755)
    return folder


@pytest.fixture
def versions() -> dict[str, str]:
    assert NEEDED is not None
    major, minor = int(NEEDED[1]), int(NEEDED[2])
    return {
        "older": f"{major}.{minor - 1}.9",
        "needed": f"{major}.{minor}.0",
        # As text it sorts before the others.
        "newer": f"{major}.{minor + 100}.0-nightly",
    }


@pytest.mark.parametrize("version", ["needed", "newer"])
def test_one_that_is_new_enough_is_found(tmp_path, versions, version):
    on_path = put_cargo(tmp_path / "bin", versions[version])
    assert find(on_path, tmp_path).stdout == f"{on_path}\n"
    at_home = put_cargo(tmp_path / ".cargo" / "bin", versions[version])
    assert find(tmp_path, tmp_path).stdout == f"{at_home}\n"


def test_one_that_is_too_old_is_named_with_what_is_needed(tmp_path, versions):
    on_path = put_cargo(tmp_path / "bin", versions["older"])
    found = find(on_path, tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert f"{on_path}/cargo is {versions['older']}" in found.stderr
    assert NEEDED is not None
    assert f"Rust {NEEDED[1]}.{NEEDED[2]} or newer" in found.stderr
    nothing = find(tmp_path / "none", tmp_path / "none")
    assert (nothing.returncode, nothing.stdout) == (1, "")


def test_an_old_one_on_the_path_does_not_hide_a_new_one_at_home(tmp_path, versions):
    on_path = put_cargo(tmp_path / "bin", versions["older"])
    at_home = put_cargo(tmp_path / ".cargo" / "bin", versions["needed"])
    assert find(on_path, tmp_path).stdout == f"{at_home}\n"
