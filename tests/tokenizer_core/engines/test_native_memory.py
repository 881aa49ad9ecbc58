"""Without memory every call of the native engine raises MemoryError, and the process goes on."""

import subprocess
import sys

import pytest

from tests.native_module import native_module
from tests.profiles import first_and_slow
from tests.tokenizer_core.engines.memory_limits import CALLS, TEXT, engine


@pytest.mark.promise(19)
@pytest.mark.skipif(sys.platform != "linux", reason="limits address space, and asks /proc")
@pytest.mark.parametrize("call", first_and_slow(CALLS))
def test_under_any_limit_a_call_succeeds_or_raises_memory_error(call):
    native_module()
    done = subprocess.run(
        [sys.executable, "-m", "tests.tokenizer_core.engines.memory_limits", call, "6"],
        capture_output=True,
        text=True,
        check=True,
    )
    ended = done.stdout.splitlines()
    assert set(ended) == {"ok", "MemoryError"}, (ended, done.stderr)
    assert (len(ended), ended[-1]) == (6, "ok")


def test_kept_buffers_can_be_released():
    native = native_module()
    engine().encode_to_json(TEXT)
    assert 0 < native.release_buffers() <= 64 << 20
    assert native.release_buffers() == 0
