"""`tokenizer completion`: a real bash sources the script and calls its function."""

import shutil
import subprocess

import pytest

from tests.tokenizer_service.run_cli import Cli
from tokenizer_service.cli import _COMMANDS

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_tokenizer
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to complete in")
def test_bash_completes_commands_options_names_and_files(trained: Cli) -> None:
    script = trained.folder / "completion"
    script.write_bytes(trained.run("completion", "bash")[0])
    (trained.folder / "artifacts" / "jobs" / "20261121T041500Z-0123456789ab").mkdir(parents=True)

    def complete(*words: str) -> set[str]:
        done = subprocess.run(
            ["bash", "-c", ASK, "bash", str(script), "tokenizer", *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=trained.folder,
            timeout=60,
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    assert complete("") == set(_COMMANDS)
    assert complete("encode", "--format", "") == {"ids", "json", "pieces", "u16", "u32"}
    assert complete("encode", "--tokenizer", "") >= {"worked", "corpus.txt"}
    assert complete("promote", "w") == {"worked"}
    assert complete("encode", "--file", "corp") == {"corpus.txt"}
    assert complete("corpus", "verify", "") == {"artifacts"}
    assert complete("jobs", "show", "2026") == {"20261121T041500Z-0123456789ab"}


def test_every_shell_has_a_script_with_every_command(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = cli.run("completion", shell)[0].decode()
        assert all(command in script for command in _COMMANDS)
