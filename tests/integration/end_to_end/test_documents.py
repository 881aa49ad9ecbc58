"""Run the commands and the Python examples of the documents, and compare what they print."""

import contextlib
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import ADMIN_KEY, free_port, publish_bytes, serve
from tests.profiles import first_and_slow
from tests.tokenizer_service.chats import with_templates
from tokenizer_core.registry import ArtifactStore

NAMES = ("chat", "evaluation", "training", "vocabularies", "scale")
"""Pages with commands and Python; others have one of them."""
CLI = f"{sys.executable} -m tokenizer_service.cli"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the commands need curl")


def read(name):
    return (REPOSITORY / name).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def environment_with_command(folder):
    """The environment of a user who installed `tokenizer`."""
    command = folder / "bin" / "tokenizer"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec {CLI} "$@"\n')
    command.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENIZER_")}
    path = f"{command.parent}{os.pathsep}{environment['PATH']}"
    return environment | {"PATH": path, "PYTHONPATH": str(REPOSITORY), "ADMIN_KEY": ADMIN_KEY}


def run_commands(page, folder, n_commands, *, changes=None, exports=""):
    """Run every command of a page in `folder`, with changes to the commands."""
    environment = environment_with_command(folder)
    pairs = [
        part.partition("\n")[::2]
        for block in blocks(page, "console")
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    assert len(pairs) >= n_commands
    for command, expected in pairs:
        for old, new in (changes or {}).items():
            command = command.replace(old, new)
        done = subprocess.run(
            ["bash", "-euc", f"{exports}\n{command}"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,  # some commands wait up to 300 s for a job
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*?")
        found = done.stdout.strip()
        assert re.fullmatch(pattern, found, flags=re.DOTALL), (command, found)


@pytest.fixture
def folder(tmp_path):
    """A folder with the artifacts of a checkout."""
    shutil.copytree(REPOSITORY / "artifacts" / "tokenizers", tmp_path / "artifacts" / "tokenizers")
    return tmp_path


@pytest.mark.timeout(1200)  # a page waits up to 300 s for each of its jobs
@pytest.mark.parametrize("page", first_and_slow(["README.md", "docs/tour.md", "docs/operate.md"]))
def test_the_commands_of_a_service_print_what_the_page_says(folder, page):
    n_commands = {"docs/tour.md": 25}.get(page, 9)
    with serve(folder / "artifacts", corpus_roots=str(folder / "corpora")) as server:
        changes = {
            "http://127.0.0.1:8000": server.url,
            ".venv/bin/python": sys.executable,
            ".venv/bin/tokenizer": CLI,
        }
        run_commands(read(page), folder, n_commands, changes=changes)


@pytest.mark.parametrize("name", first_and_slow(["command-line", *NAMES]))
def test_the_commands_of_a_page_print_what_it_says(name, folder):
    run_commands(read(f"docs/{name}.md"), folder, 4)


@pytest.mark.slow
def test_two_replicas_do_what_the_page_says(tmp_path):
    """Run the services and the commands of "Try it" in docs/replicas.md."""
    page = read("docs/replicas.md").partition("## Try it")[2].partition("## On several hosts")[0]
    page = page.replace("8001", str(free_port())).replace("8002", str(free_port()))
    exports, serves = blocks(page, "sh")
    environment = environment_with_command(tmp_path / "services")
    with contextlib.ExitStack() as running:
        for line in serves.splitlines():
            script = f"{exports}\nexport {line.replace(' ', ' && exec ', 1)} --exit-with-parent"
            process = running.enter_context(
                subprocess.Popen(["bash", "-euc", script], cwd=tmp_path, env=environment)
            )
            running.callback(process.terminate)
            url = f"http://127.0.0.1:{line.rpartition(' ')[2]}/livez"
            wait = ["curl", "-sf", "--retry", "60", "--retry-connrefused", "--retry-delay", "1"]
            subprocess.run([*wait, url], check=True)
        run_commands(page, tmp_path, 4, exports=exports)


PYTHON_NAMES = (*NAMES, "library", "corpora", "token-files", "engine", "exactness")


@pytest.mark.parametrize("name", ["README.md", *(f"docs/{name}.md" for name in PYTHON_NAMES)])
def test_the_python_examples_run(name, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    examples = blocks(read(name), "python")
    assert examples
    for example in examples:
        exec(compile(example, name, "exec"), {"__name__": "example"})


def test_the_python_examples_of_the_client_run(tmp_path, monkeypatch, capsys):
    artifacts = tmp_path / "artifacts"
    store, ref = ArtifactStore(artifacts), publish_bytes(artifacts, "starter")
    store.publish(with_templates(store.open(ref)), name="starter")
    with serve(artifacts) as server:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("TOKENIZER_URL", server.url)
        monkeypatch.setenv("TOKENIZER_API_KEY", ADMIN_KEY)
        names = {"__name__": "client_page"}
        found = blocks(read("docs/client.md"), "python")
        assert len(found) >= 8
        for block in found:
            exec(compile(block, "docs/client.md", "exec"), names)
    assert "too_many_tokens" in capsys.readouterr().out
