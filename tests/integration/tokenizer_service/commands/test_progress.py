"""Progress bars on a real terminal, in a real process."""

import os
import subprocess
import sys
import termios

from tests.tokenizer_service.run_cli import Cli


def run_on_a_terminal(cli: Cli, *words: str) -> tuple[bytes, bytes]:
    """Standard output, and the text on the terminal at standard error."""
    terminal, other_end = os.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenizer_service.cli", *words],
        stdout=subprocess.PIPE,
        stderr=other_end,
        cwd=cli.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(other_end)
    out, _ = process.communicate(timeout=60)
    shown = b""
    try:
        while block := os.read(terminal, 4096):
            shown += block
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    assert process.returncode == 0, shown
    return out, shown


def test_a_bar_on_a_terminal_and_none_where_it_is_not_wanted(cli: Cli) -> None:
    train = ("train", "corpus.txt", "--vocab-size=265", "--name=a")
    out, shown = run_on_a_terminal(cli, *train)
    assert b"published a@" in out
    assert b"counting pre-tokens" in shown
    assert b"learning merges" in shown
    out, shown = run_on_a_terminal(cli, *train, "--quiet")
    assert b"published a@" in out
    assert shown == b""
