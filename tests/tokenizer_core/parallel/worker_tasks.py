"""Functions that the tests of `worker_processes` run in workers, which import them by name."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def multiply(state, task):
    return state * task


def process_id(state, task):
    return os.getpid()


def print_a_lot(state, task):
    print("not a frame" * 100)
    sys.stdout.write("no newline")
    os.write(1, b"\x00\x01 raw bytes")
    subprocess.run(["/bin/sh", "-c", "echo from a child; read line; exit 0"], check=True)
    return task


def die(state, task):
    os.kill(os.getpid(), state)
    time.sleep(60)
    raise AssertionError("the signal did not end this process")


def die_on_seven(state, task):
    if task == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def first_waits(state, task):
    while task == 0 and not state.exists():
        time.sleep(0.01)
    return task


def leave(state, task):
    os._exit(3)


class OwnError(Exception):
    """Pickling succeeds, unpickling fails."""

    def __init__(self, first, second):
        super().__init__("text")


def fail(state, task):
    raise state(f"task {task}")


def fail_strangely(state, task):
    raise OwnError(1, 2)


def give_what_cannot_be_pickled(state, task):
    return lambda: task


class RefusesToLoad:
    """State that can be pickled but not unpickled."""

    def __reduce__(self):
        return int, ("not a number",)


def large(state, task):
    return task[::-1]


def note_and_sleep(state, task):
    Path(state, f"{os.getpid()}.{task}").touch()
    time.sleep(120)
    return task
