"""A store holds its old state or its new one, wherever its process dies.

`tests/integration/power_loss` has the scenarios, and checks what a disk loses with its power.
"""

import itertools
import mmap
import os
import shutil
import subprocess
import sys
from functools import partial

import pytest

from tests.conftest import REPOSITORY
from tests.dying_calls import DEAD, die_at
from tests.integration.power_loss.scenarios import SCENARIOS
from tests.integration.power_loss.test_power_loss import expected_states


def die_at_calls(name, base):
    """Forks once for every third operation k, which is another one in each of the repeated steps:
    the child does the steps and dies at its k-th call, the parent looks at what is left and goes
    on. pytest's process may have threads, so it is not this one. The process alone dies, so
    nothing needs to be synced."""
    os.fsync = lambda descriptor: None
    states = expected_states(SCENARIOS[name](), base)
    n_ended = mmap.mmap(-1, 1)  # shared with the child

    def note():
        n_ended[0] += 1

    for k in itertools.count(1, 3):
        root = base / str(k)
        root.mkdir()
        n_ended[0] = 0
        code = die_at(k, "torn", partial(SCENARIOS[name]().run, root, note))
        assert code in (0, DEAD)
        scenario = SCENARIOS[name]()
        assert scenario.observe(root) in states[n_ended[0] : n_ended[0] + 2], f"at call {k}"
        scenario.go_on(root)
        shutil.rmtree(root)
        if code == 0:
            break
    assert k > 100


@pytest.mark.promise(1, 4)
@pytest.mark.parametrize("name", ["registry", "token files with checkpoints"])
def test_a_process_that_dies_leaves_the_old_state_or_the_new(name, tmp_path):
    program = f"import sys, pathlib; from {__name__} import die_at_calls;"
    program += "die_at_calls(sys.argv[1], pathlib.Path(sys.argv[2]))"
    command = [sys.executable, "-c", program, name, str(tmp_path)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
