"""`tokenizer serve` refuses what would stop every serving process, before it starts any."""

import errno
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest
import uvicorn
from uvicorn.supervisors import Multiprocess

from app.commands.command_line import CommandError
from app.commands.serving import _check_settings
from app.settings import Settings
from tests.app.run_cli import Cli


def must_not_run(*arguments: object, **options: object) -> NoReturn:
    raise AssertionError("the server was started")


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"TOKENIZER_REQUIRE_ADMIN_KEY": "1"}, "TOKENIZER_ADMIN_KEYS is empty; set"),
        ({"TOKENIZER_HOST": "0.0.0.0", "TOKENIZER_ADMIN_KEYS": "secret"}, "fewer than 8 charac"),
        ({"TOKENIZER_ARTIFACTS_DIR": "/proc/none"}, "the artifacts folder /proc/none cannot be"),
        ({"TOKENIZER_ARTIFACTS_DIR": "corpus.txt"}, "check TOKENIZER_ARTIFACTS_DIR"),
        ({"TOKENIZER_STORE": "gopher://host/x"}, "a storage is a folder or s3://bucket/prefix"),
    ],
)
def test_settings_that_no_process_could_serve_with_are_one_line(
    trained: Cli,
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    environment: dict[str, str],
    reason: str,
) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", must_not_run)
    monkeypatch.setattr(Multiprocess, "run", must_not_run)
    monkeypatch.setenv("TOKENIZER_ADMIN_KEYS", "")  # restored at the end: serve sets it
    error = trained.fail("serve", "--port", "0", "--workers", workers, **environment)
    assert reason in error
    assert error.count("\n") == 1
    assert not Path("/proc/none").exists()


def test_a_folder_that_became_read_only_serves_on(
    trained: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    folder = trained.folder / "artifacts"
    with pytest.raises(CommandError, match="cannot be used"):
        _check_settings(Settings(artifacts_dir=folder))
    (folder / "jobs.sqlite3").touch()
    _check_settings(Settings(artifacts_dir=folder))
