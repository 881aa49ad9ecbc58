"""`tokenizer serve` whose serving processes account for their memory when they get SIGUSR2.

    SOAK_ACCOUNTS=folder python -m tests.integration.reliability.soaked_service serve

Each process writes `folder/PID.json`. multiprocessing imports the main module again in each serving
process, so every one of them has the handler.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tokenizer_service.cli import main

ACCOUNTS: Final = "SOAK_ACCOUNTS"
_N_TYPES: Final = 400


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def account() -> dict[str, dict[str, int]]:
    """Release what the engine keeps, and count what the process holds then.

    `figures`: blocks and objects of Python, bytes that malloc gave out in its heap and as mappings,
    bytes that the engine had kept. `types`: the number of objects of the most frequent types.
    """
    figures = {"engine buffers": _release_buffers()}
    gc.collect()
    objects = gc.get_objects()
    figures |= {"Python blocks": sys.getallocatedblocks(), "Python objects": len(objects)}
    library = ctypes.CDLL(None)
    if hasattr(library, "mallinfo2"):
        library.mallinfo2.restype = _MallocInfo
        info = library.mallinfo2()
        figures |= {"malloc, heap": info.uordblks, "malloc, mappings": info.hblkhd}
    types = Counter(str(type(thing)) for thing in objects)
    return {"figures": figures, "types": dict(types.most_common(_N_TYPES))}


def _release_buffers() -> int:
    try:
        from tokenizer_core import _native
    except ImportError:
        return 0
    return _native.release_buffers()


def _write_account(*_: object) -> None:
    path = Path(os.environ[ACCOUNTS], f"{os.getpid()}.json")
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(account()))
    unfinished.replace(path)


if ACCOUNTS in os.environ:
    signal.signal(signal.SIGUSR2, _write_account)

if __name__ == "__main__":
    sys.exit(main())
