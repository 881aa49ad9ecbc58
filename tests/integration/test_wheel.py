"""The wheel, installed outside the checkout: the command runs with the starter tokenizer in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

REQUIRES = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))[
    "build-system"
]["requires"]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and nothing else; its dependencies are those of this Python."""
    work = tmp_path_factory.mktemp("wheel")
    tree, tools = work / "tree", work / "tools"
    got = subprocess.run(
        [*PIP, "install", "--target", tools, *REQUIRES], capture_output=True, text=True, check=False
    )
    if got.returncode != 0:
        pytest.skip(f"the requirements of the build cannot be installed: {got.stderr[-200:]}")
    # The build writes into its tree. Without cargo on PATH it leaves the engine out.
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.split("\0"):
        if name and not name.startswith(("tests/", "docs/")) and (REPOSITORY / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, tree / name)
    programs = os.pathsep.join(
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not (Path(folder) / "cargo").exists()
    )
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": str(tools)}
    environment.pop("TOKENIZER_REQUIRE_NATIVE", None)
    subprocess.run(
        [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", work / "dist", tree],
        env=environment, check=True, timeout=200,
    )  # fmt: skip
    (wheel,) = (work / "dist").glob("*.whl")
    subprocess.run(
        [*PIP, "install", "--no-deps", "--no-index", "--target", work / "site", wheel], check=True
    )
    return work / "site"


@pytest.fixture
def run(installed, tmp_path):
    """Run the installed command in an empty folder."""

    def run_command(*arguments: str, code: int = 0) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tokenizer_service.cli", *arguments],
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    return run_command


def test_the_wheel_encodes_outside_the_checkout(run, tmp_path):
    assert run("encode", "Hello, world!") == "16500 44 2067 33\n"
    assert run("encode", "--tokenizer", "gpt2", "Hello") == "15496\n"
    assert list(tmp_path.iterdir()) == []  # it wrote nothing


def test_the_wheel_has_the_files_of_artifacts_byte_for_byte(installed):
    def files(root: Path) -> dict[Path, bytes]:
        found = (path for path in root.rglob("*") if path.is_file())
        return {path.relative_to(root): path.read_bytes() for path in found}

    packaged = files(installed / "tokenizer_service" / "artifacts")
    starter = Path("tokenizers", "starter")
    committed = files(REPOSITORY / "artifacts" / starter)
    assert packaged == {starter / path: data for path, data in committed.items()}
    presets = files(installed / "tokenizer_core" / "preset_files")
    assert presets == files(REPOSITORY / "artifacts" / "presets")
