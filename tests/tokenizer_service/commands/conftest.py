"""The command in a folder with a trained tokenizer, which is trained once."""

import shutil

import pytest

from tests.tokenizer_service import run_cli
from tests.tokenizer_service.run_cli import Cli


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory):
    """A folder where `worked` is trained and active; tests use copies of it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "corpus.txt").write_text(run_cli.CORPUS)
    with pytest.MonkeyPatch.context() as patch:
        train = ("train", "corpus.txt", "--vocab-size", "265", "--name", "worked", "--promote")
        Cli(folder, patch).run(*train)
    return folder


@pytest.fixture
def trained(trained_folder, tmp_path, monkeypatch):
    shutil.copytree(trained_folder, tmp_path, dirs_exist_ok=True)
    return Cli(tmp_path, monkeypatch)
