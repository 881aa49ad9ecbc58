"""Ctrl-C and closed pipes, in a real process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.tokenizer_service.run_cli import Cli


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _take_interrupts() -> None:
    """A run in the background (`pytest &`) ignores SIGINT, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_a_process_that_reads(trained: Cli) -> None:
    there = names_in(trained.folder)
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenizer_service.cli", "encode", "-o", "ids"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=trained.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=_take_interrupts,
    )
    deadline = time.monotonic() + 60
    while names_in(trained.folder) == there:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, b"tokenizer encode: interrupted\n")
    assert names_in(trained.folder) == there


def test_a_closed_standard_output_is_no_crash(trained: Cli) -> None:
    done = subprocess.run(
        f"{sys.executable} -m tokenizer_service.cli encode low >&- <&-",
        shell=True,
        capture_output=True,
        cwd=trained.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
