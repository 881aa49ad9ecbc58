"""`tokenizer completion`: a real bash sources the script and calls its function."""

import shutil
import subprocess

import pytest

from tokenizer_service.cli import _COMMANDS

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_tokenizer
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to complete in")
def test_bash_completes_commands_options_names_and_files(trained):
    script = trained.folder / "completion"
    script.write_bytes(trained.run("completion", "bash")[0])
    (trained.folder / "artifacts" / "jobs" / "20261121T041500Z-0123456789ab").mkdir(parents=True)
    version = trained.run("inspect", "worked")[0].decode().split()[0]
    for words, expected in (
        ([""], set(_COMMANDS)),
        (["encode", "--format", ""], {"ids", "json", "pieces", "u16", "u32"}),
        (["encode", "--tokenizer", "w"], {"worked"}),
        (["promote", "w"], {"worked"}),
        (["promote", "worked@"], {version}),
        (["remove", "w"], {version}),
        (["inspect", "worked@2"], {version}),
        (["pull", "o200k_h"], {"o200k_harmony"}),
        (["import", "--preset", "o200k_h"], {"o200k_harmony"}),
        (["encode", "--tokenizer", "gp"], {"gpt2"}),
        (["encode", "--tokenizer", "st"], {"starter"}),
        (["encode", "--file", "corp"], {"corpus.txt"}),
        (["corpus", "verify", ""], {"artifacts"}),
        (["jobs", "show", "2026"], {"20261121T041500Z-0123456789ab"}),
    ):
        command = ["bash", "-c", ASK, "bash", str(script), "tokenizer", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=trained.folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert set(done.stdout.split()) == expected, words


def test_every_shell_has_a_script_with_every_command(cli):
    for shell in ("bash", "zsh", "fish"):
        script = cli.run("completion", shell)[0].decode()
        assert all(command in script for command in _COMMANDS)
