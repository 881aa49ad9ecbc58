"""Run the commands and the Python examples of the documents, and compare what they print."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tokenizer_service.settings import render_page

PAGES = {
    name: (REPOSITORY / name).read_text(encoding="utf-8")
    for name in (
        "README.md",
        "docs/library.md",
        "docs/corpora.md",
        "docs/token-files.md",
        "docs/evaluation.md",
        "docs/training.md",
        "docs/engine.md",
        "docs/exactness.md",
        "docs/chat.md",
        "docs/vocabularies.md",
        "docs/command-line.md",
        "docs/scale.md",
    )
}
ADMIN_KEY = "key-of-the-readme"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands_and_outputs(page: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            pairs.append((command, output.strip()))
    return pairs


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def wait_until_it_answers(url: str) -> None:
    for _ in range(900):
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} never answered")


def environment_with_command(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who installed `tokenizer`."""
    command_file = tmp_path / "bin" / "tokenizer"
    command_file.parent.mkdir()
    command_file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tokenizer_service.cli "$@"\n')
    command_file.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")}
    environment["PATH"] = f"{command_file.parent}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = str(REPOSITORY)
    return environment


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A service as `make serve` starts it, in an empty folder with the starter tokenizer."""
    shutil.copytree(REPOSITORY / "artifacts" / "tokenizers", tmp_path / "artifacts" / "tokenizers")
    port = free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")}
    environment |= {"TOKENIZER_PORT": str(port), "TOKENIZER_ADMIN_KEYS": ADMIN_KEY}
    command = [sys.executable, "-m", "tokenizer_service.cli", "serve", "--exit-with-parent"]
    environment["PYTHONPATH"] = str(REPOSITORY)
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_it_answers(f"{address}/readyz")
        yield address, tmp_path
    finally:
        process.terminate()
        assert process.wait(30) in (0, -15)


@pytest.mark.timeout(1200)  # a page waits up to 300 s for each of its jobs
@pytest.mark.skipif(shutil.which("curl") is None, reason="the commands need curl")
@pytest.mark.parametrize(
    ("page", "n_commands"), [("README.md", 9), ("docs/tour.md", 30), ("docs/operate.md", 10)]
)
def test_the_commands_of_a_service_print_what_the_page_says(server, page, n_commands):
    address, folder = server
    pairs = commands_and_outputs((REPOSITORY / page).read_text(encoding="utf-8"))
    assert len(pairs) >= n_commands
    for command, expected in pairs:
        command = command.replace("http://127.0.0.1:8000", address)
        command = command.replace(".venv/bin/python", sys.executable)
        command = command.replace(
            ".venv/bin/tokenizer", f"{sys.executable} -m tokenizer_service.cli"
        )
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=folder,
            env=os.environ | {"ADMIN_KEY": ADMIN_KEY, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=400,  # some commands wait up to 300 s for a job
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        check_output(command, expected, done.stdout)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands need curl")
def test_two_replicas_do_what_the_page_says(tmp_path):
    """Run the services and the commands of "Try it" in docs/replicas.md."""
    page = (REPOSITORY / "docs/replicas.md").read_text(encoding="utf-8")
    page = page.partition("## Try it")[2].partition("## On several hosts")[0]
    for port in ("8001", "8002"):
        page = page.replace(port, str(free_port()))
    environment = environment_with_command(tmp_path)
    exports, serves = blocks(page, "sh")
    with contextlib.ExitStack() as running:
        for serve in serves.splitlines():
            script = f"{exports}\nexport {serve.replace(' ', ' && exec ', 1)} --exit-with-parent"
            process = running.enter_context(
                subprocess.Popen(["bash", "-euc", script], cwd=tmp_path, env=environment)
            )
            running.callback(process.terminate)
            port = serve.rpartition(" ")[2]
            wait_until_it_answers(f"http://127.0.0.1:{port}/livez")
        for command, expected in commands_and_outputs(page):
            done = subprocess.run(
                ["bash", "-euc", f"{exports}\n{command}"],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, ""), command
            check_output(command, expected, done.stdout)


def check_output(command: str, expected: str, printed: str) -> None:
    pattern = re.escape(expected).replace(r"\.\.\.", ".*?")
    assert re.fullmatch(pattern, printed.strip(), flags=re.DOTALL), (command, printed)


@pytest.mark.parametrize(
    "name",
    [
        "docs/chat.md",
        "docs/evaluation.md",
        "docs/training.md",
        "docs/vocabularies.md",
        "docs/command-line.md",
        "docs/scale.md",
    ],
)
def test_the_commands_of_a_page_print_what_it_says(name, tmp_path):
    shutil.copytree(REPOSITORY / "artifacts" / "tokenizers", tmp_path / "artifacts" / "tokenizers")
    environment = environment_with_command(tmp_path)
    pairs = commands_and_outputs(PAGES[name])
    assert len(pairs) >= 4
    for command, expected in pairs:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        check_output(command, expected, done.stdout)


@pytest.mark.parametrize("name", [name for name in PAGES if name != "docs/command-line.md"])
def test_the_python_examples_run(name, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    examples = blocks(PAGES[name], "python")
    assert examples
    for example in examples:
        exec(compile(example, "example", "exec"), {"__name__": "example"})


def test_the_page_of_settings_is_generated_from_them():
    page = (REPOSITORY / "docs/settings.md").read_text(encoding="utf-8")
    assert page == render_page(), "run `python -m tokenizer_service.settings > docs/settings.md`"
