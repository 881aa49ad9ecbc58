"""The command `tokenizer` as a real process: encodings, closed pipes, imports."""

import os
import subprocess
import sys

import pytest

from tests.slow_packages import REGEX


def run_python(cli, *arguments, stdin=b"", **environment):
    """Python in the folder of the command, on the packages of this process."""
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        capture_output=True,
        cwd=cli.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        timeout=120,
    )


COMMAND = ("-m", "tokenizer_service.cli")


def test_a_terminal_of_another_encoding_shows_escapes(trained):
    (trained.folder / "é.txt").write_text("é" * 9, encoding="utf-8")
    trained.run("train", "é.txt", "--vocab-size=258", "--name=accents")
    done = run_python(trained, *COMMAND, "inspect", "accents", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xe9" in done.stdout


@pytest.mark.parametrize(
    ("shell", "n_bytes"),
    [("yes low | head -c 2000000 | {} | head -c 10", 10), ("{} low >&- <&-", 0)],
)
def test_a_reader_that_closes_the_pipe_and_a_closed_output_are_no_error(trained, shell, n_bytes):
    done = subprocess.run(
        shell.format(f"{sys.executable} -m tokenizer_service.cli encode"),
        shell=True,
        capture_output=True,
        cwd=trained.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
    )
    assert (done.returncode, len(done.stdout), done.stderr) == (0, n_bytes, b"")


SLOW = {
    *("asyncio", "fastapi", "jinja2", "numpy", "pydantic", "sqlite3", "tqdm", "uvicorn"),
    *("tokenizer_core.chat.loss_mask", "tokenizer_core.documents", "tokenizer_core.training"),
    *REGEX,
}
"""Packages that import slowly; in a pipe no command needs tqdm."""


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["completion", "bash", "--help"], set()),
        (["encode", "low"], set()),
        (
            ["train", "corpus.txt", "--vocab-size=260"],
            {"numpy", "tokenizer_core.documents", "tokenizer_core.training"},
        ),
        (
            ["corpus", "encode", "corpus.txt", "--output=tokens", "--end-of-document="],
            {"numpy", "tokenizer_core.documents"},
        ),
    ],
)
def test_a_command_imports_no_more_than_it_needs(trained, words, needed):
    code = (
        "import sys\n"
        "from tokenizer_service.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"print(*sorted({SLOW!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = run_python(trained, "-c", code, *words)
    assert done.returncode == 0, done.stderr
    assert set(done.stderr.decode().splitlines()[-1].split()) <= needed
