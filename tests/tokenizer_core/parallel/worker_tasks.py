"""Functions that the tests of `worker_processes` run in workers, which import them by name."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn


def multiply(state: int, task: int) -> int:
    return state * task


def process_id(state: None, task: object) -> int:
    return os.getpid()


def print_a_lot(state: None, task: int) -> int:
    print("not a frame" * 100)
    sys.stdout.write("no newline")
    os.write(1, b"\x00\x01 raw bytes")
    subprocess.run(["/bin/sh", "-c", "echo from a child; read line; exit 0"], check=True)
    return task


def die(state: int, task: int) -> NoReturn:
    os.kill(os.getpid(), state)
    time.sleep(60)
    raise AssertionError("the signal did not end this process")


def die_on_seven(state: None, task: int) -> int:
    if task == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def first_waits(state: Path, task: int) -> int:
    while task == 0 and not state.exists():
        time.sleep(0.01)
    return task


def leave(state: None, task: int) -> NoReturn:
    os._exit(3)


class OwnError(Exception):
    """Pickling succeeds, unpickling fails."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__("text")


def fail(state: type[Exception], task: int) -> NoReturn:
    raise state(f"task {task}")


def fail_strangely(state: None, task: int) -> NoReturn:
    raise OwnError(1, 2)


def give_what_cannot_be_pickled(state: None, task: int) -> object:
    return lambda: task


class RefusesToLoad:
    """State that can be pickled but not unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return int, ("not a number",)


def large(state: None, task: bytes) -> bytes:
    return task[::-1]


def note_and_sleep(state: str, task: int) -> int:
    Path(state, f"{os.getpid()}.{task}").touch()
    time.sleep(120)
    return task
