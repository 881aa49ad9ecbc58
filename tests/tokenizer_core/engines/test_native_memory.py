"""Without memory every call of the native engine raises MemoryError, and the process goes on.

    python -m tests.tokenizer_core.engines.test_native_memory CALL

Prints, for limits of address space up to what the call needs and one above that, `ok`,
`MemoryError`, or how else a forked process ended. The lowest limits are left out: with a few
kilobytes the C library ends a new thread.
"""

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.native_module import native_module
from tests.profiles import first_and_slow
from tests.tokenizer_core.engines.random_specs import spec_of
from tokenizer_core.engines import JSON, LISTS, create_engine, read_json_natively
from tokenizer_core.engines.native_training import NativeCounts

N_STEPS = 6
_rng = random.Random(1)
_words = ["".join(_rng.choices("abcdefghij", k=_rng.randrange(2, 12))) for _ in range(40_000)]
TEXT = " ".join(_words) * 4
CYRILLIC = TEXT.translate({ord("a") + i: 0x430 + i for i in range(10)})
LISTED = [*_words, *["".join(_rng.choices("qxzj", k=40_000))] * 4]
IDS = np.arange(3_000_000, dtype=np.uint32) % 259
PRE_TOKENS = {word + str(i): 1 + i % 7 for i, word in enumerate(_words)}
# Made of few parts: large ones, freed again, would leave memory to the calls.
BODY = b"".join([b"[", *[b'{"a":["b",0.5,[70000,80000]]},' * 50] * 2000, b"0]"])
CALLS = {
    "encode": lambda engine: engine.encode(CYRILLIC),
    "encode_batch, threads": lambda engine: engine.encode_batch(
        LISTED, None, LISTS._replace(num_threads=3)
    ),
    "decode": lambda engine: engine.decode(IDS),
    "read_json": lambda _: read_json_natively(BODY, most_values=1 << 20, most_containers=1 << 20),
    "learn": lambda _: NativeCounts.of(PRE_TOKENS).learn(300, "lexicographic", None),
}


def new_engine():
    return create_engine(spec_of([(b"a", b"b"), (b"c", b"d"), (b" ", b"ab")]), "native")


def _status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def _in_fork(call, n_bytes=None):
    """What the call did within so many bytes more; without a limit, the bytes that it needed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        before, ended = _status("VmSize"), "ok"
        try:
            if n_bytes is not None:
                resource.setrlimit(resource.RLIMIT_AS, (before + n_bytes, -1))
            call()
        except MemoryError:
            ended = "MemoryError"
        except BaseException as error:
            ended = f"{type(error).__name__}: {error}"[:300]
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        os.write(
            write, (ended if n_bytes is not None else str(_status("VmPeak") - before)).encode()
        )
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        ended = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ended if code == 0 else f"{ended} exit status {code}"


def main(name):
    engine = new_engine()  # making one may end the process where memory is missing
    needed = int(_in_fork(lambda: CALLS[name](engine)))
    for step in range(1, N_STEPS + 1):
        n_bytes = needed * step**2 // N_STEPS**2  # most of them low
        if step == N_STEPS:  # threads need more memory when one of them waits for the processor
            n_bytes = 2 * needed + (64 << 20)
        print(_in_fork(lambda: CALLS[name](engine), n_bytes), flush=True)


@pytest.mark.promise(19)
@pytest.mark.skipif(sys.platform != "linux", reason="limits address space, and asks /proc")
@pytest.mark.parametrize("call", first_and_slow(CALLS))
def test_under_any_limit_a_call_succeeds_or_raises_memory_error(call):
    native_module()
    command = [sys.executable, "-m", "tests.tokenizer_core.engines.test_native_memory", call]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ended = done.stdout.splitlines()
    assert set(ended) == {"ok", "MemoryError"}, (ended, done.stderr)
    assert (len(ended), ended[-1]) == (N_STEPS, "ok")


def test_kept_buffers_can_be_released():
    native = native_module()
    new_engine().encode(TEXT, None, JSON)
    assert 0 < native.release_buffers() <= 64 << 20
    assert native.release_buffers() == 0


if __name__ == "__main__":
    main(sys.argv[1])
