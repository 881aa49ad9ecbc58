"""`tokenizer promote` and `rollback`: which version is served, and how to go back."""

import json
from pathlib import Path

import pytest

from tests.app.run_cli import Cli
from tokenizer_core.registry import ArtifactStore


@pytest.fixture
def versions(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three versions of `news`, and `starter`; nothing promoted."""
    for size in (258, 259, 260):
        cli.run("train", "corpus.txt", f"--vocab-size={size}", "--name=news")
    cli.run("train", "corpus.txt", "--vocab-size=261", "--name=starter")
    return [str(ref) for ref in ArtifactStore(cli.folder / "artifacts").versions("news")]


def served(cli: Cli) -> str:
    rows = json.loads(cli.run("list", "--json")[0])
    (active,) = [f"{row['name']}@{row['version']}" for row in rows if row["active"]]
    return active


def test_back_to_what_answered_before(cli: Cli, versions: list[str]) -> None:
    assert served(cli).startswith("starter@")  # the default, shown before any promotion
    assert "nothing was promoted before" in cli.fail("rollback")
    cli.run("promote", versions[0])
    cli.run("rollback")
    assert served(cli).startswith("starter@")
    cli.run("promote", versions[2])
    out, _ = cli.run("promote", versions[1])
    assert out.decode().splitlines()[-1] == f"back again:  tokenizer promote {versions[2]}"
    for expected in (versions[2], versions[1]):  # a second rollback undoes the first
        cli.run("rollback")
        assert served(cli) == expected
    found = json.loads(cli.run("rollback", "--json")[0])
    assert found["active"]["version"] == versions[2].partition("@")[2]
    assert found["previous"]["version"] == versions[1].partition("@")[2]


def test_back_among_the_versions_of_a_name(cli: Cli, versions: list[str]) -> None:
    assert "promote news does it" in cli.fail("rollback", "news")
    cli.run("promote", "news")
    for expected in (versions[1], versions[0]):
        cli.run("rollback", "news")
        assert served(cli) == expected
    assert "the oldest version" in cli.fail("rollback", "news")
    assert "name alone" in cli.fail("rollback", versions[0], code=2)


def test_back_from_a_version_that_is_gone(cli: Cli, versions: list[str]) -> None:
    cli.run("promote", versions[0])
    cli.run("promote", versions[1])
    name, _, version = versions[1].partition("@")
    manifest = Path("artifacts") / "tokenizers" / name / version / "manifest.json"
    manifest.write_text("{}")
    assert "manifest" in cli.fail("list")
    cli.run("rollback")
    assert served(cli) == versions[0]


def test_with_one_tokenizer_there_is_no_way_back(cli: Cli) -> None:
    cli.run("train", "corpus.txt", "--vocab-size=258", "--name=starter", "--promote")
    assert "all that was ever served" in cli.fail("rollback")
    cli.run("train", "corpus.txt", "--vocab-size=259", "--name=other")
    assert "there is no tokenizer 'none'" in cli.fail("rollback", TOKENIZER_DEFAULT="none")
