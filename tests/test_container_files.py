"""The container's files: the entry point works, and the files they name exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tokenizer_service.settings import describe, unknown_variables

ENTRYPOINT = (REPOSITORY / "deploy" / "entrypoint.sh").read_text(encoding="utf-8")
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (REPOSITORY / "deploy" / "compose.yaml").read_text(encoding="utf-8")
SEED = "/usr/local/share/tokenizer/tokenizers"


@pytest.fixture
def enter(tmp_path: Path):
    """Run the entry point with a seed and the test's own artifacts folder."""
    seed = tmp_path / "seed"
    (seed / "starter" / "1").mkdir(parents=True)
    (seed / "starter" / "1" / "vocab.pkl").write_bytes(b"seed")
    assert f"seed={SEED}\n" in ENTRYPOINT
    script = tmp_path / "entrypoint.sh"
    script.write_text(ENTRYPOINT.replace(SEED, str(seed)))

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", script, "echo", "started", "it"],
            env={"PATH": "/usr/bin:/bin", "TOKENIZER_ARTIFACTS_DIR": str(folder)},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("inside", [[], ["tokenizers"], [".seeding/half"], ["lost+found"]])
def test_an_empty_folder_gets_the_starter(enter, tmp_path, inside):
    folder = tmp_path / "artifacts"
    for name in ["", *inside]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    ended = enter(folder)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "started it\n", "")
    assert (folder / "tokenizers" / "starter" / "1" / "vocab.pkl").read_bytes() == b"seed"
    assert not (folder / ".seeding").exists()
    assert not (folder / "tokenizers" / "half").exists()


def test_a_folder_with_tokenizers_is_left_as_it_is(enter, tmp_path):
    folder = tmp_path / "artifacts"
    (folder / "tokenizers" / "mine").mkdir(parents=True)
    assert enter(folder).stdout == "started it\n"
    assert [path.name for path in (folder / "tokenizers").iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_written_is_said_with_the_remedy(enter, tmp_path):
    (tmp_path / "a file").write_text("")
    ended = enter(tmp_path / "a file" / "artifacts")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "chown" in ended.stderr


def test_the_variables_are_settings():
    named = set(re.findall(r"\bTOKENIZER_[A-Z_]+", DOCKERFILE + COMPOSE + ENTRYPOINT))
    only_compose = {"TOKENIZER_PUBLISHED_PORT"}
    assert unknown_variables(dict.fromkeys(named - only_compose, "")) == []
    assert {"TOKENIZER_REQUIRE_ADMIN_KEY", "TOKENIZER_ARTIFACTS_DIR"} <= named
    assert named <= {row[0] for row in describe()} | only_compose | {"TOKENIZER_REQUIRE_NATIVE"}


def test_what_the_image_copies_reaches_the_builder_and_exists():
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, flags=re.MULTILINE)
        for name in line.split()[:-1]
    }
    assert "deploy/entrypoint.sh" in copied
    sent = re.findall(r"^!(.+)$", (REPOSITORY / ".dockerignore").read_text(), flags=re.MULTILINE)
    assert copied - set(sent) == set()
    assert [name for name in sorted(copied) if not (REPOSITORY / name).exists()] == []
    assert f" {SEED}/starter\n" in DOCKERFILE


@pytest.mark.parametrize("extras", ["", "s3 postgres"])
def test_the_image_has_the_extras_it_is_built_with(extras):
    script = re.search(r"python -c '(import os, tomllib.*?)' > requirements.txt", DOCKERFILE)
    assert script
    done = subprocess.run(
        [sys.executable, "-c", script[1]],
        cwd=REPOSITORY,
        env={"EXTRAS": extras},
        capture_output=True,
        text=True,
        check=True,
    )
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for name in extras.split():
        wanted += project["optional-dependencies"][name]
    assert done.stdout.splitlines() == wanted


def test_the_image_is_not_built_without_the_native_engine():
    assert re.search(r"^RUN TOKENIZER_REQUIRE_NATIVE=1 .* pip wheel", DOCKERFILE, re.MULTILINE)
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    # The last pattern that matches decides: these follow the one that includes the package.
    for left_out in ("**/_native*.so", "tokenizer_core/native/target"):
        assert ignored.index(left_out) > ignored.index("!tokenizer_core")


def test_the_container_runs_as_a_number_that_is_not_root():
    user = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, flags=re.MULTILINE)
    assert user == [("10001", "10001")]
    assert "read_only: true" in COMPOSE
    assert "cap_drop: [ALL]" in COMPOSE
