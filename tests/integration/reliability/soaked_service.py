"""`tokenizer serve` whose serving processes account for their memory when they get SIGUSR2.

    SOAK_ACCOUNTS=folder python -m tests.integration.reliability.soaked_service serve

Each process writes `folder/PID.json`: the blocks of Python's allocator, and the bytes that the
engine kept for later results, which it releases. multiprocessing imports the main module again in
each serving process, so every one of them has the handler.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

from tokenizer_service.cli import main

ACCOUNTS: Final = "SOAK_ACCOUNTS"


def _write_account(*_: object) -> None:
    try:
        from tokenizer_core import _native
    except ImportError:
        buffers = 0
    else:
        buffers = _native.release_buffers()
    gc.collect()
    path = Path(os.environ[ACCOUNTS], f"{os.getpid()}.json")
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(
        json.dumps({"engine_buffers": buffers, "blocks": sys.getallocatedblocks()})
    )
    unfinished.replace(path)


if ACCOUNTS in os.environ:
    signal.signal(signal.SIGUSR2, _write_account)

if __name__ == "__main__":
    sys.exit(main())
