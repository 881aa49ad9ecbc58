"""The command in a folder with a trained tokenizer, which is trained once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tokenizer_service import run_cli
from tests.tokenizer_service.run_cli import Cli


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where `worked` is trained and active; tests use copies of it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "corpus.txt").write_text(run_cli.CORPUS)
    with pytest.MonkeyPatch.context() as patch:
        train = ("train", "corpus.txt", "--vocab-size", "265", "--name", "worked", "--promote")
        Cli(folder, patch).run(*train)
    return folder


@pytest.fixture
def trained(trained_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    shutil.copytree(trained_folder, tmp_path, dirs_exist_ok=True)
    return Cli(tmp_path, monkeypatch)
