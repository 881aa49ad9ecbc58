"""The command `tokenizer` as a real process: encodings, closed pipes, imports."""

import os
import subprocess
import sys

import pytest

from tests.tokenizer_service.run_cli import Cli


def test_a_terminal_of_another_encoding_shows_escapes(trained: Cli) -> None:
    (trained.folder / "é.txt").write_text("é" * 9, encoding="utf-8")
    trained.run("train", "é.txt", "--vocab-size=258", "--name=accents")
    done = subprocess.run(
        [sys.executable, "-m", "tokenizer_service.cli", "inspect", "accents"],
        capture_output=True,
        cwd=trained.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "ascii"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xe9" in done.stdout


def test_a_reader_that_has_enough_is_no_error(trained: Cli) -> None:
    encode = f"{sys.executable} -m tokenizer_service.cli encode"
    done = subprocess.run(
        f"yes low | head -c 2000000 | {encode} | head -c 10",
        shell=True,
        capture_output=True,
        cwd=trained.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert len(done.stdout) == 10
    assert done.stderr == b""


def test_as_a_process_of_its_own(trained: Cli) -> None:
    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "tokenizer_service.cli", *arguments]
        return subprocess.run(
            command, input=stdin, capture_output=True, cwd=trained.folder, timeout=60
        )

    text = "low 世界\n".encode() * 1000
    encoded = run("encode", stdin=text)
    assert (encoded.returncode, encoded.stderr) == (0, b"")
    assert run("decode", stdin=encoded.stdout).stdout == text
    wrong = run("encode", "--tokenizer", "none", "x")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count(b"\n")) == (1, b"", 1)


# Packages that import slowly, and which of them a command may load. None in a pipe needs tqdm.
SLOW = {"fastapi", "uvicorn", "pydantic", "sqlite3", "tqdm", "numpy", "tokenizer_core.training"}


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["--help"], set()),
        (["frobnicate"], set()),
        (["completion", "bash", "--help"], set()),
        (["encode", "low"], {"numpy"}),
        (["list"], {"numpy"}),
        (["train", "corpus.txt", "--vocab-size=260"], {"numpy", "tokenizer_core.training"}),
    ],
)
def test_a_command_imports_no_more_than_it_needs(
    trained: Cli, words: list[str], needed: set[str]
) -> None:
    code = (
        "import sys\n"
        "from tokenizer_service.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"print(*sorted({SLOW!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=trained.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert set(done.stderr.splitlines()[-1].split()) <= needed
