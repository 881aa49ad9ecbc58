"""Calls of the native engine under a limit of address space, each in a forked process.

    python -m tests.tokenizer_core.engines.memory_limits CALL STEPS

Prints, for each limit up to what the call needs and one above that, `ok`, `MemoryError`, or how
else the process ended. The lowest limits are left out: with a few kilobytes the C library ends a
new thread.
"""

import functools
import os
import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.tokenizer_core.engines.random_specs import spec_of
from tokenizer_core.engines import Engine, create_engine, read_json_natively
from tokenizer_core.engines.native import NativeCounts

_rng = random.Random(1)
_words = ["".join(_rng.choices("abcdefghij", k=_rng.randrange(2, 12))) for _ in range(40_000)]
TEXT = " ".join(_words) * 4
CYRILLIC = TEXT.translate({ord("a") + i: 0x430 + i for i in range(10)})
LETTERS = "".join(_rng.choices("qxzj", k=1 << 21))
LISTED = [*_words, *([LETTERS[:40_000]] * 4)]
IDS = np.arange(3_000_000, dtype=np.uint32) % 259
# Made of few parts: large ones, freed again, would leave memory to the calls.
JSON_OF_ALL = b"".join([b"[", *[b'{"a":["b",0.5,[70000,80000]]},' * 50] * 2000, b"0]"])
PRE_TOKENS = {word + str(i): 1 + i % 7 for i, word in enumerate(_words)}


@functools.cache
def engine() -> Engine:
    """The engine; not at import, for installations without it."""
    return create_engine(spec_of([(b"a", b"b"), (b"c", b"d"), (b" ", b"ab")]), "native")


CALLS: dict[str, Callable[[], object]] = {
    "encode": lambda: engine().encode(TEXT),
    "encode_to_numpy": lambda: engine().encode_to_numpy(CYRILLIC),
    "encode_batch, threads": lambda: engine().encode_batch(LISTED, 3),
    "decode": lambda: engine().decode(IDS),
    "read_json": lambda: read_json_natively(
        JSON_OF_ALL, most_values=1 << 20, most_containers=1 << 20
    ),
    "learn": lambda: NativeCounts.of(PRE_TOKENS).learn(300, "lexicographic", None),
}


def _status(key: str) -> int:
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024


def _in_fork(work: Callable[[], object]) -> str:
    """What `work` returns, or how it ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, str(work()).encode())
        except MemoryError:
            os.write(write, b"MemoryError")
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode()[:300])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        ended = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ended if code == 0 else f"{ended} exit status {code}"


def _needed(call: Callable[[], object]) -> int:
    before = _status("VmSize")
    call()
    return _status("VmPeak") - before


def _limited(call: Callable[[], object], n_bytes: int) -> str:
    limit = _status("VmSize") + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, -1))
    call()
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    return "ok"


def main(name: str, n_steps: int) -> None:
    call = CALLS[name]
    engine()  # making one may end the process where memory is missing
    needed = int(_in_fork(lambda: _needed(call)))
    for step in range(1, n_steps + 1):
        n_bytes = needed * step**2 // n_steps**2  # most of them low
        if step == n_steps:  # threads need more memory when one of them waits for the processor
            n_bytes = 2 * needed + (64 << 20)
        print(_in_fork(lambda n_bytes=n_bytes: _limited(call, n_bytes)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
