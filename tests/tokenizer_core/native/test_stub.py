"""The stub describes the compiled module as it is."""

import subprocess
import sys


def test_the_stub_is_that_of_the_module(native):
    command = [sys.executable, "-m", "mypy.stubtest", native.__name__]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
