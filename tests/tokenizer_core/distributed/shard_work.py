"""Shard tasks, and workers that die; worker processes import these functions by name."""

import os
import signal
import time
from pathlib import Path

from tokenizer_core.errors import CorpusError


def double(state, payload, attempt):
    """Writes one file, and one figure."""
    attempt.put("doubled", str(payload * state).encode())
    return {"doubled": payload * state}


def double_noted(folder, payload, attempt):
    """The same, and writes a note at each run."""
    Path(folder, f"{payload}-{time.monotonic_ns()}").touch()
    return double(2, payload, attempt)


def failing_always(state, payload, attempt):
    """Shard 3 fails, each time."""
    figures = double(2, payload, attempt)
    if payload == 3:
        raise OSError(28, "No space left on device")
    return figures


def secretive(state, payload, attempt):
    """Fails with a text that must not appear anywhere."""
    raise RuntimeError("s3://me:password@host")


def bad_data(state, payload, attempt):
    """The input of shard 2 is invalid."""
    if payload == 2:
        raise CorpusError("the corpus file x is not UTF-8 at byte 7")
    return double(2, payload, attempt)


def slow(folder, payload, attempt):
    """Reports its start, and runs slowly."""
    Path(folder, f"began-{os.getpid()}").touch()
    time.sleep(60)
    return {}


class DyingExecutor:
    """An executor whose workers die once before the second task and once after the fifth; a note
    records each death."""

    def __init__(self, executor, notes):
        self.shown = executor.shown
        self._executor, self._notes = executor, notes

    def run(self, function, tasks, *, state, while_waiting=None):
        yield from self._executor.run(
            _die_once,
            list(enumerate(tasks)),
            state=(function, state, self._notes),
            while_waiting=while_waiting,
        )


def _die_once(state, numbered):
    function, inner, notes = state
    number, task = numbered
    if number == 2:
        _die_unless_noted(notes / "before")
    result = function(inner, task)
    if number == 5:
        _die_unless_noted(notes / "behind")
    return result


def _die_unless_noted(note):
    if not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
