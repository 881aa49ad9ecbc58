"""Shard tasks for tests; worker processes import these functions by name."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from tokenizer_core.distributed import Attempt
from tokenizer_core.errors import CorpusError


def double(state: int, payload: int, attempt: Attempt) -> dict[str, Any]:
    """Writes one file, and one figure."""
    attempt.put("doubled", str(payload * state).encode())
    return {"doubled": payload * state}


def double_noted(folder: str, payload: int, attempt: Attempt) -> dict[str, Any]:
    """The same, and writes a note at each run."""
    Path(folder, f"{payload}-{time.monotonic_ns()}").touch()
    return double(2, payload, attempt)


def killed_always(state: None, payload: int, attempt: Attempt) -> dict[str, Any]:
    """The worker dies at shard 3, each time."""
    if payload == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return double(2, payload, attempt)


def failing_always(state: None, payload: int, attempt: Attempt) -> dict[str, Any]:
    """Shard 3 fails, each time."""
    figures = double(2, payload, attempt)
    if payload == 3:
        raise OSError(28, "No space left on device")
    return figures


def secretive(state: None, payload: int, attempt: Attempt) -> dict[str, Any]:
    """Fails with a text that must not appear anywhere."""
    raise RuntimeError("s3://me:password@host")


def bad_data(state: None, payload: int, attempt: Attempt) -> dict[str, Any]:
    """The input of shard 2 is invalid."""
    if payload == 2:
        raise CorpusError("the corpus file x is not UTF-8 at byte 7")
    return double(2, payload, attempt)


def slow(folder: str, payload: int, attempt: Attempt) -> dict[str, Any]:
    """Reports its start, and runs slowly."""
    Path(folder, f"began-{os.getpid()}").touch()
    time.sleep(60)
    return {}
