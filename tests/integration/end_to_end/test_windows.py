"""The library, the client and the command line in a process that looks like one on Windows.

There is no Windows here: `windows_machine.py` says what is simulated.
"""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.skipif(sys.platform != "linux", reason="the simulation reads Linux's /proc")
def test_the_journey_on_windows(server, tmp_path):
    command = [sys.executable, "-X", "warn_default_encoding", "-m"]
    command += ["tests.integration.end_to_end.windows_journey", server.url, tmp_path]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ, capture_output=True, text=True, check=False,
        timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr
