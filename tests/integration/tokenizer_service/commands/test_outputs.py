"""Closed pipes and progress bars, in a real process."""

import os
import subprocess
import sys
import termios

COMMAND = [sys.executable, "-m", "tokenizer_service.cli"]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_bar_on_a_terminal_and_none_where_it_is_not_wanted(cli):
    train = ("train", "corpus.txt", "--vocab-size=265", "--name=a")
    for options, bars in (((), [b"counting pre-tokens", b"learning merges"]), (("--quiet",), [])):
        terminal, other_end = os.openpty()
        termios.tcsetwinsize(terminal, (24, 80))
        done = subprocess.run(
            [*COMMAND, *train, *options],
            stdout=subprocess.PIPE,
            stderr=other_end,
            cwd=cli.folder,
            env=ENVIRONMENT,
            timeout=60,
        )
        os.write(other_end, b"end")
        os.close(other_end)
        shown = b""
        while not shown.endswith(b"end"):
            shown += os.read(terminal, 4096)
        os.close(terminal)
        assert done.returncode == 0, shown
        assert b" a@" in done.stdout  # published, or already there
        assert all(bar in shown for bar in bars)
        assert bars or shown == b"end"
