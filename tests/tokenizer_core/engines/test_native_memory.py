"""Without memory every call of the native engine raises MemoryError, and the process lives."""

import subprocess
import sys

import pytest

from tests.native_module import native_module
from tests.profiles import first_and_thorough
from tests.tokenizer_core.engines.memory_limits import CALLS, TEXT, engine


@pytest.mark.promise(19)
@pytest.mark.skipif(sys.platform != "linux", reason="limits address space, and asks /proc")
@pytest.mark.parametrize("call", first_and_thorough(CALLS))
def test_under_any_limit_a_call_succeeds_or_raises_memory_error(call):
    native_module()
    done = subprocess.run(
        [sys.executable, "-m", "tests.tokenizer_core.engines.memory_limits", call, "16"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    ended = done.stdout.splitlines()
    assert set(ended) == {"ok", "MemoryError"}, (ended, done.stderr)
    assert (len(ended), ended[-1]) == (16, "ok")


LEARN_ONE_LINE = """
import sys
from pathlib import Path
from tokenizer_core.engines.native import NativeCounts

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

n_bytes = 40 << 20
counts = NativeCounts.of({"a" * n_bytes: 1})
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = status("VmRSS")
counts.learn(int(sys.argv[1]), "lexicographic", None)
print((status("VmHWM") - before) / n_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the peak")
@pytest.mark.parametrize(("n_merges", "most"), [(0, 3), (1, 11)])
def test_learning_from_one_line_copies_it_once(n_merges, most):
    """Two bytes for each symbol; then the list of positions, four, and what a merge notes, four."""
    native_module()
    done = subprocess.run(
        [sys.executable, "-c", LEARN_ONE_LINE, str(n_merges)],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert float(done.stdout) < most


def test_the_buffers_that_are_kept_can_be_released():
    native = native_module()
    engine().encode_to_json(TEXT)
    assert 0 < native.release_buffers() <= 64 << 20
    assert native.release_buffers() == 0
